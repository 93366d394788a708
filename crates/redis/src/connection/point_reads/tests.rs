//! Reads that come from the disk, beside those that do not.

use crate::connection::tests::connection;
use crate::test_cluster::{TestNode, config};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tessera_types::EngineKind;

const STRESS: Duration = Duration::from_secs(3);
const KEYS: usize = 2_000;

/// A node whose caches hold next to nothing.
fn node() -> TestNode {
    TestNode::start_with(None, config(), |config| {
        config.rocksdb.block_cache_bytes = 64 << 10;
        config.rocksdb.block_cache_shard_bits = 0;
        config.rocksdb.record_cache_bytes = 64 << 10;
        config.rocksdb.read_threads = 4;
    })
}

fn value(random: &mut StdRng) -> String {
    let length = if random.random_ratio(1, 50) { 20_000 } else { random.random_range(1..2_000) };
    let letter = char::from(random.random_range(b'a'..=b'z'));
    letter.to_string().repeat(length)
}

/// A command on some keys. Half of the time these are among a few, which the caches have.
fn command(random: &mut StdRng) -> String {
    let key = |random: &mut StdRng| {
        let most = if random.random() { KEYS } else { 8 };
        let number = random.random_range(0..most);
        // Strings, numbers and hashes, and what is each now and then.
        format!("{}{number}", ["s", "s", "s", "n", "h"][number % 5])
    };
    let keys = |random: &mut StdRng| {
        let count = random.random_range(1..40);
        (0..count).map(|_| key(random)).collect::<Vec<_>>().join(" ")
    };
    match random.random_range(0..40) {
        0..20 => format!("GET {}", key(random)),
        20 => format!("MGET {}", keys(random)),
        21 => format!("EXISTS {}", keys(random)),
        22 => format!("STRLEN {}", key(random)),
        23 => format!("HGET {} f", key(random)),
        24 => format!("HGETALL {}", key(random)),
        25 => format!("TYPE {}", key(random)),
        26 => format!("HMGET {} f g x", key(random)),
        27 => format!("SET {} {}", key(random), value(random)),
        28 => format!("DEL {}", key(random)),
        29 => format!("INCR n{}", random.random_range(0..KEYS)),
        30 => format!("HSET {} f {} g 1", key(random), value(random)),
        31 => format!("HDEL {} f", key(random)),
        32 => format!("APPEND {} x", key(random)),
        33 => format!("GETSET s{} 5", random.random_range(0..KEYS)),
        34 => format!("WATCH {}", key(random)),
        35 => format!("OBJECT ENCODING {}", key(random)),
        36 => format!("HKEYS {}", key(random)),
        37 => format!("TTL {}", key(random)),
        38 => format!("GETRANGE {} 3 5", key(random)),
        _ => "PING".into(),
    }
}

/// One table has everything in memory, and the other one most of it on the disk.
#[tokio::test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
async fn replies_are_those_of_a_memory_table_in_the_same_order() {
    let node = node();
    let memory = node.create_table("memory", EngineKind::Memory, 4).await;
    let rocks = node.create_table("rocks", EngineKind::Rocksdb, 4).await;
    let mut connections = [connection(&node, &memory), connection(&node, &rocks)];
    let mut random = StdRng::seed_from_u64(seed());
    let (began, mut rounds) = (Instant::now(), 0);
    while began.elapsed() < STRESS || rounds < 20 {
        let lines: Vec<String> = match rounds {
            0 => (0..KEYS).map(|number| format!("SET s{number} {}", value(&mut random))).collect(),
            _ => (0..random.random_range(1..100)).map(|_| command(&mut random)).collect(),
        };
        let [expected, found] = &mut connections;
        let (expected, found) = (expected.given(&lines.join("\n")).await, found.given(&lines.join("\n")).await);
        if expected != found {
            let at = expected.bytes().zip(found.bytes()).take_while(|(one, other)| one == other).count();
            let around = |text: &str| text.chars().skip(at.saturating_sub(80)).take(160).collect::<String>();
            panic!("round {rounds}: expected {:?}, found {:?}", around(&expected), around(&found));
        }
        if rounds % 40 == 0 {
            node.node.compact(&rocks).await.unwrap();
        }
        rounds += 1;
    }
    let from_disk = node.store.statistics().disk_reads;
    assert!(from_disk > 100, "{from_disk} reads came from the disk in {rounds} rounds");
}

fn seed() -> u64 {
    let seed = std::env::var("TESSERA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("TESSERA_SEED={seed}");
    seed
}

/// Numbers that only grow: whoever reads one finds none below what was acknowledged before, or read before by anybody.
#[tokio::test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
async fn nobody_finds_what_is_older_than_what_was_acknowledged_or_found() {
    const NUMBERS: usize = 200;
    let node = node();
    let table = node.create_table("rocks", EngineKind::Rocksdb, 4).await;
    let known: Arc<Vec<AtomicU64>> = Arc::new((0..NUMBERS).map(|_| AtomicU64::new(0)).collect());
    let line = |number: usize, value: u64| {
        // One in five is too long for writes to keep it in the record cache.
        let rest = if number.is_multiple_of(5) { 17_000 } else { 700 };
        format!("SET k{number} {value:09}{}", "x".repeat(rest))
    };
    let mut first = connection(&node, &table);
    let all: Vec<String> = (0..NUMBERS).map(|number| line(number, 0)).collect();
    first.given(&all.join("\n")).await;
    node.node.compact(&table).await.unwrap();
    let end = Instant::now() + STRESS;
    let mut tasks = Vec::new();
    for task in 0..6 {
        let (mut connection, known) = (connection(&node, &table), known.clone());
        tasks.push(tokio::spawn(async move {
            let mut random = StdRng::seed_from_u64(task);
            let mut written = 0;
            while Instant::now() < end {
                let numbers: Vec<usize> =
                    (0..random.random_range(1..30)).map(|_| random.random_range(0..NUMBERS)).collect();
                // Each number has one writer.
                if task < 2 {
                    written += 1;
                    let numbers: Vec<_> = numbers.iter().filter(|number| **number % 2 == task as usize).collect();
                    let lines: Vec<String> = numbers.iter().map(|number| line(**number, written)).collect();
                    if !lines.is_empty() {
                        connection.given(&lines.join("\n")).await;
                    }
                    numbers.iter().for_each(|number| _ = known[**number].fetch_max(written, Ordering::SeqCst));
                } else {
                    let before: Vec<u64> = numbers.iter().map(|number| known[*number].load(Ordering::SeqCst)).collect();
                    let names: Vec<String> = numbers.iter().map(|number| format!("k{number}")).collect();
                    let lines = match task {
                        2..5 => names.iter().map(|name| format!("GET {name}")).collect::<Vec<_>>().join("\n"),
                        _ => format!("MGET {}", names.join(" ")),
                    };
                    let replies = connection.given(&lines).await;
                    let found: Vec<u64> = replies
                        .split("\r\n")
                        .filter(|line| line.len() > 500)
                        .map(|line| line[..9].parse().unwrap())
                        .collect();
                    assert_eq!(found.len(), numbers.len(), "{lines}");
                    for (number, (before, found)) in numbers.iter().zip(before.iter().zip(&found)) {
                        assert!(found >= before, "k{number} was {before}, and then {found}");
                        known[*number].fetch_max(*found, Ordering::SeqCst);
                    }
                }
                tokio::task::yield_now().await;
            }
        }));
    }
    while Instant::now() < end {
        node.node.compact(&table).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let from_disk = node.store.statistics().disk_reads;
    assert!(from_disk > 100, "{from_disk} reads came from the disk");
}

/// Whoever writes the numbers one after the other, the last one first, makes none of them ever less than the one before it.
#[tokio::test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
async fn gets_of_a_pipeline_take_effect_in_order_in_their_partition() {
    const NUMBERS: usize = 12;
    let node = node();
    let table = node.create_table("rocks", EngineKind::Rocksdb, 1).await;
    // Among others that push them out of the caches. Every third one is too long for the record cache.
    let line = |number: usize, round: u64| {
        let rest = if number.is_multiple_of(3) { 17_000 } else { 700 };
        format!("SET k{number} {round:09}{}", "x".repeat(rest))
    };
    let mut writer = connection(&node, &table);
    writer
        .given(&(0..KEYS).map(|number| format!("SET other{number} {}", "x".repeat(500))).collect::<Vec<_>>().join("\n"))
        .await;
    writer.given(&(0..NUMBERS).map(|number| line(number, 0)).collect::<Vec<_>>().join("\n")).await;
    let end = Instant::now() + STRESS;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mut connection = connection(&node, &table);
        tasks.push(tokio::spawn(async move {
            let gets = (0..NUMBERS).map(|number| format!("GET k{number}")).collect::<Vec<_>>().join("\n");
            while Instant::now() < end {
                let replies = connection.given(&gets).await;
                let found: Vec<u64> = replies
                    .split("\r\n")
                    .filter(|line| line.len() > 500)
                    .map(|line| line[..9].parse().unwrap())
                    .collect();
                assert_eq!(found.len(), NUMBERS);
                assert!(found.is_sorted(), "{found:?}");
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        for number in (0..NUMBERS).rev() {
            writer.given(&line(number, round)).await;
        }
        if round.is_multiple_of(20) {
            node.node.compact(&table).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let from_disk = node.store.statistics().disk_reads;
    assert!(from_disk > 100 && round > 20, "{from_disk} reads came from the disk in {round} rounds");
}
