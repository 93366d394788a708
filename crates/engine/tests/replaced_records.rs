//! What is on disk of a memory table's partition while, and after, its records are replaced by a snapshot's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use bytes::BytesMut;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use tessera_engine::mutation::{encode_clear, encode_put};
use tessera_engine::{
    Applied, Engine, EngineError, MemoryBudget, MemoryConfig, MemoryEngine, PageLimit, Position, Visit,
};
use tessera_types::{Expiry, RecordKey, StoredValue, ValueKind};

const OLD: u32 = 50_000;
const NEW: u32 = 200_000;
const CHECKPOINT: &str = "partition-00000.checkpoint";

fn open(directory: &Path) -> MemoryEngine {
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 4 << 30 }));
    MemoryEngine::open(1, budget, Some(directory.to_path_buf())).unwrap()
}

fn write(engine: &MemoryEngine, index: u64, payload: BytesMut) {
    engine.write(&[Applied { partition: 0, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
}

fn fill(engine: &MemoryEngine, records: u32, index: u64) {
    let mut payload = BytesMut::new();
    for number in 0..records {
        let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &[b'x'; 50] };
        encode_put(&mut payload, &RecordKey::new(&number.to_be_bytes(), b""), &value);
    }
    write(engine, index, payload);
}

/// Writes one record whose value is the log index.
fn put(engine: &MemoryEngine, number: u32, index: u64) {
    let mut payload = BytesMut::new();
    let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &index.to_le_bytes() };
    encode_put(&mut payload, &RecordKey::new(&number.to_be_bytes(), b""), &value);
    write(engine, index, payload);
}

fn records(engine: &MemoryEngine) -> u64 {
    engine.hash_keys(0).unwrap()
}

/// What a process finds that opens the table now, as after a crash: the log index and the number of records.
fn after_a_crash(directory: &Path) -> (u64, u64) {
    let copy = TempDir::new().unwrap();
    std::fs::copy(directory.join(CHECKPOINT), copy.path().join(CHECKPOINT)).unwrap();
    let engine = open(copy.path());
    (engine.applied_index(0), records(&engine))
}

/// A snapshot of [`NEW`] records as of log index 500, in a file.
fn snapshot(directory: &Path) -> std::path::PathBuf {
    let leader = open(&directory.join("leader"));
    fill(&leader, NEW, 500);
    let path = directory.join("snapshot");
    assert_eq!(leader.checkpoint(0, &path).unwrap(), 500);
    path
}

/// A partition of [`OLD`] records that is durable as of log index 90, and has applied up to 100.
fn replica(directory: &Path) -> MemoryEngine {
    let engine = open(directory);
    fill(&engine, OLD, 90);
    engine.make_durable(0, &|| Ok(())).unwrap();
    fill(&engine, 10, 100);
    engine
}

#[test]
fn a_checkpoint_made_beside_a_restore_is_whole() {
    let directory = TempDir::new().unwrap();
    let snapshot = snapshot(directory.path());
    let data = directory.path().join("replica");
    let engine = Arc::new(replica(&data));
    let restoring = engine.clone();
    let restore = std::thread::spawn(move || restoring.restore(0, &snapshot, 500));
    // The old records are gone, and some of the new ones are there.
    while !restore.is_finished() && (records(&engine) == 0 || records(&engine) == u64::from(OLD)) {
        std::thread::yield_now();
    }
    let other_file = directory.path().join("for another replica");
    assert_eq!(engine.checkpoint(0, &other_file).unwrap(), 500, "a snapshot for another replica is whole, too");
    engine.make_durable(0, &|| Ok(())).unwrap();
    assert_eq!(after_a_crash(&data), (500, u64::from(NEW)));
    restore.join().unwrap().unwrap();
}

#[test]
fn while_records_are_replaced_nothing_asks_for_a_checkpoint_and_a_crash_finds_the_old_one() {
    let directory = TempDir::new().unwrap();
    let snapshot = snapshot(directory.path());
    let data = directory.path().join("replica");
    let engine = Arc::new(replica(&data));
    let restoring = engine.clone();
    let restore = std::thread::spawn(move || restoring.restore(0, &snapshot, 500));
    while !restore.is_finished() && records(&engine) == u64::from(OLD) {
        std::thread::yield_now();
    }
    if !restore.is_finished() {
        assert!(engine.applied_index(0) == 0 || engine.applied_index(0) == 500, "not what was there before");
    }
    assert_eq!(after_a_crash(&data), (90, u64::from(OLD)));
    restore.join().unwrap().unwrap();
}

#[test]
fn what_a_failed_restore_left_is_not_written() {
    let directory = TempDir::new().unwrap();
    let snapshot = snapshot(directory.path());
    let data = directory.path().join("replica");
    let engine = replica(&data);
    let torn = directory.path().join("torn");
    let bytes = std::fs::read(&snapshot).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() - 1]).unwrap();
    assert!(engine.restore(0, &torn, 500).is_err());
    assert!(matches!(engine.make_durable(0, &|| Ok(())), Err(EngineError::PartialRecords)));
    assert!(matches!(engine.checkpoint(0, &directory.path().join("other")), Err(EngineError::PartialRecords)));
    assert_eq!(after_a_crash(&data), (90, u64::from(OLD)));

    // Another try, which ends at the index that is durable already.
    engine.restore(0, &snapshot, 90).unwrap();
    engine.make_durable(0, &|| Ok(())).unwrap();
    assert_eq!(after_a_crash(&data).1, u64::from(NEW), "the checkpoint is that of the records");

    // A partition that is made blank is whole whatever it held.
    assert!(engine.restore(0, &torn, 500).is_err());
    let mut clear = BytesMut::new();
    encode_clear(&mut clear);
    write(&engine, 0, clear);
    engine.make_durable(0, &|| Ok(())).unwrap();
    assert_eq!(after_a_crash(&data).1, 0);
}

#[test]
fn a_checkpoint_written_beside_the_writer_says_up_to_where_it_may_hold_later_entries() {
    let directory = TempDir::new().unwrap();
    let leader = open(&directory.path().join("leader"));
    fill(&leader, NEW, 500);
    let path = directory.path().join("snapshot");
    let is_over = AtomicBool::new(false);
    let index = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut index = 500;
            while !is_over.load(Ordering::Relaxed) {
                index += 1;
                put(&leader, u32::try_from(index).unwrap() % NEW, index);
            }
        });
        let index = loop {
            let index = leader.checkpoint(0, &path).unwrap();
            if leader.applied_index(0) > index {
                break index;
            }
        };
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        index
    });
    let replica = open(&directory.path().join("replica"));
    assert_eq!(replica.settled_from(0), 0);
    replica.restore(0, &path, index).unwrap();
    let (mut latest, mut from) = (0, Some(Position::START));
    while let Some(position) = from {
        let visit = &mut |_: RecordKey<'_>, stored: &[u8]| {
            let payload = StoredValue::decode(stored).unwrap().payload;
            latest = latest.max(payload.try_into().map_or(0, u64::from_le_bytes));
            Visit::NextRecord
        };
        from = replica.scan(0, &position, PageLimit::of_records(1_000), visit).unwrap();
    }
    let settled = replica.settled_from(0);
    assert!(settled >= latest && settled >= index, "settled from {settled}, with records of {latest}, as of {index}");

    replica.make_durable(0, &|| Ok(())).unwrap();
    drop(replica);
    let again = open(&directory.path().join("replica"));
    assert_eq!(again.applied_index(0), index);
    assert_eq!(again.settled_from(0), settled);
}
