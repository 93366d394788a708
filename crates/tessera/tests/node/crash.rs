//! kill -9 and power cuts under load, then an oracle of what was acknowledged.
//!
//! Writers set keys of their own to growing numbers and note, per key, the last acknowledged and the last sent one. After a
//! restart a key must hold a number between the two: less is a lost write, more was never sent. Kills may lose nothing of hard and
//! soft tables, power cuts nothing of hard ones; of others only invented values are looked for. A node has a staging file
//! now and then.
//!
//! `TESSERA_KILLS` sets the number of either; `make crash` runs 200.

use crate::disk::DiskWithPower;
use crate::resp_client::{Client, Value, words};
use crate::server::{Node, free_port, wait_for};
use crate::skipped::skip;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::path::Path;
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
    while !stop.load(Ordering::Relaxed) {
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
                }
                // Shutting down or interrupted: not acknowledged.
                Ok(Value::Error(_)) => {}
                Ok(other) => panic!("{other}"),
                Err(_) => return,
            }
        }
    }
}

/// Looks whether tables with one of the durabilities `kept` have lost something. Returns how many keys were looked at.
fn check(node: &Node, oracle: &mut Oracle, kept: &[&str]) -> usize {
    let mut client = node.client();
    for (table, (name, options)) in TABLES.iter().enumerate() {
        client.run(&format!("TABLE {name}"));
        for ((_, key), known) in oracle.iter_mut().filter(|((of, _), _)| *of == table) {
            let string = number(&client.run(&format!("GET {key}")));
            let hash = number(&client.run(&format!("HGET h{key} f")));
            let found = string.max(hash);
            assert!(found <= known.sent, "{name} {key}: {found} was never sent, only {}", known.sent);
            if kept.iter().any(|durability| options.ends_with(durability)) {
                let acknowledged = known.acknowledged;
                assert!(found >= acknowledged, "{name} {key}: {acknowledged} was acknowledged, {found} is there");
            }
        }
    }
    oracle.len()
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let data = TempDir::new().unwrap();
    hunt("kills", 15, data.path(), &[], &["hard", "soft"], |mut node| node.process.kill());
}

#[test]
fn nothing_acknowledged_as_hard_is_lost_by_power_cuts() {
    let (directory, memory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(disk) = DiskWithPower::mount(directory.path(), 1 << 30) else {
        return skip("mounting a file system needs root and loop devices");
    };
    let staging = format!("log.staging_directory={}", memory.path().display());
    hunt("power cuts", 20, &disk.path().join("data"), &[&staging], &["hard"], |mut node| {
        disk.cut_power();
        node.process.kill();
        let staged = std::fs::read_dir(memory.path()).unwrap();
        staged.for_each(|file| std::fs::remove_file(file.unwrap().path()).unwrap());
        disk.power_up();
    });
}

/// Ends a node again and again while clients write, and looks each time for what was acknowledged.
fn hunt(what: &str, times: u64, data: &Path, settings: &[&str], kept: &[&str], mut end: impl FnMut(Node)) {
    let times = std::env::var("TESSERA_KILLS").ok().and_then(|times| times.parse().ok()).unwrap_or(times);
    let seed: u64 = std::env::var("TESSERA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    let (redis_port, admin_port) = (free_port(), free_port());
    // Small, so that flushes, checkpoints and the deletion of segments happen between kills.
    let small = [
        "log.segment_bytes=1048576",
        "log.limit_bytes=4194304",
        "tables.flush_age_seconds=1",
        "rocksdb.write_buffer_bytes=262144",
        "log.soft_sync_interval_ms=20",
    ];
    let staged = [&small[..], settings].concat();
    let unstaged = [&small[..], &["log.staging_directory="]].concat();
    let mut node = Node::start_on(data, redis_port, admin_port, &staged);
    for (name, options) in TABLES {
        node.cli(&format!("table create {name} {options} --partitions 4"));
    }
    let oracle = Arc::new(Mutex::new(Oracle::new()));
    let mut checked = 0;
    for time in 1..=times {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (oracle, stop, seed) = (oracle.clone(), stop.clone(), random.random());
                std::thread::spawn(move || write(redis_port, writer, seed, &oracle, &stop))
            })
            .collect();
        // The load is what passes the time: the end comes after a random number of writes.
        let until = random.random_range(1..3_000);
        let sent = || oracle.lock().unwrap().values().map(|known| known.sent).sum::<u64>();
        let before = sent();
        wait_for("writes go on", Duration::from_secs(60), || (sent() > before + until).then_some(()));
        end(node);
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let settings = if random.random_bool(0.3) { &unstaged } else { &staged };
        node = Node::start_on(data, redis_port, admin_port, settings);
        checked += check(&node, &mut oracle.lock().unwrap(), kept);
        if time.is_multiple_of(50) {
            eprintln!("{time} {what}, {} writes sent, {checked} keys checked", sent());
        }
    }
    let sent: u64 = oracle.lock().unwrap().values().map(|known| known.sent).sum();
    eprintln!("{times} {what}, seed {seed}: {sent} writes sent, {checked} keys checked");
}
