//! kill -9 under load, then an oracle of what was acknowledged.
//!
//! Writers set keys of their own to growing numbers and note, per key, the last acknowledged and the last sent one.
//! After a restart a key of a hard table must hold a number between the two: less is a lost write, more was never sent.
//! Keys of soft tables may have lost their last numbers, which is counted, but not with a hole: if a write is there, so is
//! every write that was acknowledged before it was sent. Of tables without durability only invented values are looked
//! for.
//!
//! `TESSERA_KILLS` sets the number of kills; `make crash` runs 200.

use crate::resp_client::{Client, Value, words};
use crate::server::{Node, free_port};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const TABLES: &[(&str, &str)] = &[
    ("rocks_hard", "--engine rocksdb --durability hard"),
    ("rocks_soft", "--engine rocksdb --durability soft"),
    ("memory_hard", "--engine memory --durability hard"),
    ("memory_soft", "--engine memory --durability soft"),
    ("memory_none", "--engine memory --durability none"),
];
const WRITERS: usize = 4;
const KEYS: u64 = 40;

#[derive(Default)]
struct Known {
    acknowledged: u64,
    sent: u64,
    /// Writes since the last check.
    recent: Vec<Sent>,
}

struct Sent {
    number: u64,
    /// Counts up; what is acknowledged in one burst was acknowledged before the next was sent.
    burst: u64,
    is_acknowledged: bool,
}

/// By table and key.
type Oracle = HashMap<(usize, String), Known>;

/// A number and padding, so that log segments and memtables fill up.
fn value(number: u64) -> Vec<u8> {
    format!("{number}:{}", "x".repeat((number % 700) as usize)).into_bytes()
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::Bulk(bytes) => {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let (number, padding) = text.split_once(':').unwrap();
            let number = number.parse().unwrap();
            assert_eq!(padding.len() as u64, number % 700, "the value of another write");
            number
        }
        other => panic!("{other}"),
    }
}

/// Writes until the node is gone.
fn write(port: u16, writer: usize, seed: u64, oracle: &Mutex<Oracle>, stop: &AtomicBool) {
    let mut random = StdRng::seed_from_u64(seed);
    let Ok(mut client) = Client::connect(port) else { return };
    for burst_number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let table = random.random_range(0..TABLES.len());
        if client.call(&words(&format!("TABLE {}", TABLES[table].0))).is_err() {
            return;
        }
        let burst = random.random_range(1..20);
        let mut commands = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..burst {
            let key = format!("w{writer}k{}", random.random_range(0..KEYS));
            let mut oracle = oracle.lock().unwrap();
            let known = oracle.entry((table, key.clone())).or_default();
            known.sent += 1;
            known.recent.push(Sent { number: known.sent, burst: burst_number, is_acknowledged: false });
            let set: Vec<Vec<u8>> = if random.random_bool(0.7) {
                vec![b"SET".to_vec(), key.clone().into(), value(known.sent)]
            } else {
                vec![b"HSET".to_vec(), format!("h{key}").into(), b"f".to_vec(), value(known.sent)]
            };
            sent.push((key, known.sent));
            commands.push(set);
        }
        // Strings and hashes count on the same number; each is checked by the larger one found.
        let bytes: Vec<u8> = commands.iter().flat_map(|command| crate::resp_client::encode(command)).collect();
        if client.send(&bytes).is_err() {
            return;
        }
        for (key, number) in sent {
            match client.read() {
                Ok(Value::Simple(_) | Value::Integer(_)) => {
                    let mut oracle = oracle.lock().unwrap();
                    let known = oracle.get_mut(&(table, key)).unwrap();
                    known.acknowledged = known.acknowledged.max(number);
                    let sent = known.recent.iter_mut().find(|sent| sent.number == number).unwrap();
                    sent.is_acknowledged = true;
                }
                // Shutting down or interrupted: not acknowledged.
                Ok(Value::Error(_)) => {}
                Ok(other) => panic!("{other}"),
                Err(_) => return,
            }
        }
    }
}

struct Counts {
    lost_hard: u64,
    lost_soft: u64,
    checked: u64,
}

fn check(node: &Node, oracle: &mut Oracle, counts: &mut Counts) {
    let mut client = node.client();
    for (table, (name, _)) in TABLES.iter().enumerate() {
        client.run(&format!("TABLE {name}"));
        let mut survivors = Vec::new();
        for ((_, key), known) in oracle.iter_mut().filter(|((of, _), _)| *of == table) {
            let string = number(&client.run(&format!("GET {key}")));
            let hash = number(&client.run(&format!("HGET h{key} f")));
            let found = string.max(hash);
            assert!(found <= known.sent, "{name} {key}: {found} was never sent, only {}", known.sent);
            counts.checked += 1;
            let lost = known.acknowledged.saturating_sub(found);
            match *name {
                "rocks_hard" | "memory_hard" => {
                    assert_eq!(lost, 0, "{name} {key}: {} was acknowledged, {found} is there", known.acknowledged);
                    counts.lost_hard += lost;
                }
                // A killed process leaves what it handed to the kernel; only what was still queued is gone.
                "rocks_soft" | "memory_soft" => counts.lost_soft += u64::from(lost > 0),
                _ => {}
            }
            survivors.push((key.clone(), found, std::mem::take(&mut known.recent)));
            // What the next round may rely on: later numbers go on from the last one sent.
            known.acknowledged = if name.ends_with("hard") { known.acknowledged.max(found) } else { found };
        }
        if name.ends_with("soft") {
            (0..WRITERS).for_each(|writer| check_for_holes(name, &format!("w{writer}k"), &survivors));
        }
    }
}

/// Of one writer's keys in one table, each with the last number found and what was written since the last check.
fn check_for_holes(table: &str, writer: &str, survivors: &[(String, u64, Vec<Sent>)]) {
    let own = || survivors.iter().filter(|(key, ..)| key.starts_with(writer));
    let survived = own().flat_map(|(_, found, recent)| recent.iter().filter(|sent| sent.number == *found));
    let Some(last_burst) = survived.map(|sent| sent.burst).max() else { return };
    for (key, found, recent) in own() {
        let hole = recent.iter().find(|sent| sent.is_acknowledged && sent.burst < last_burst && sent.number > *found);
        if let Some(Sent { number, burst, .. }) = hole {
            panic!("{table} {key}: {number} of burst {burst} is lost, yet a write of burst {last_burst} is there");
        }
    }
}

#[test]
fn nothing_acknowledged_as_hard_is_lost_by_kills() {
    let kills: u64 = std::env::var("TESSERA_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(15);
    let seed: u64 = std::env::var("TESSERA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    let data = TempDir::new().unwrap();
    let (redis_port, admin_port) = (free_port(), free_port());
    // Small, so that flushes, checkpoints and the deletion of segments happen between kills.
    let settings = &[
        "log.segment_bytes=1048576",
        "log.limit_bytes=4194304",
        "tables.flush_age_seconds=1",
        "rocksdb.write_buffer_bytes=262144",
        "log.soft_sync_interval_ms=20",
    ];
    let mut node = Node::start_on(data.path(), redis_port, admin_port, settings);
    for (name, options) in TABLES {
        node.cli(&format!("table create {name} {options} --partitions 4"));
    }
    let oracle = Arc::new(Mutex::new(Oracle::new()));
    let mut counts = Counts { lost_hard: 0, lost_soft: 0, checked: 0 };
    for kill in 0..kills {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (oracle, stop, seed) = (oracle.clone(), stop.clone(), random.random());
                std::thread::spawn(move || write(redis_port, writer, seed, &oracle, &stop))
            })
            .collect();
        // The load is what passes the time: kills come after a random number of acknowledged writes.
        let until = random.random_range(1..3_000);
        let sent = || oracle.lock().unwrap().values().map(|known| known.sent).sum::<u64>();
        let before = sent();
        crate::server::wait_for("writes go on", Duration::from_secs(60), || (sent() > before + until).then_some(()));
        node.process.kill();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        node = Node::start_on(data.path(), redis_port, admin_port, settings);
        check(&node, &mut oracle.lock().unwrap(), &mut counts);
        if (kill + 1) % 50 == 0 {
            eprintln!("{} kills, {} writes sent, {} keys checked", kill + 1, sent(), counts.checked);
        }
    }
    let sent: u64 = oracle.lock().unwrap().values().map(|known| known.sent).sum();
    eprintln!(
        "kills {kills} seed {seed}: {sent} writes sent, {} keys checked, lost hard {}, keys with lost soft writes {}",
        counts.checked, counts.lost_hard, counts.lost_soft
    );
}
