//! What readers find of records that the RocksDB engine keeps in its record cache while they are written: never an older
//! value than one that a read which had ended before has found.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use bytes::BytesMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tessera_engine::mutation::encode_put;
use tessera_engine::{Applied, Engine, PageLimit, Position, RocksConfig, RocksStore, Visit};
use tessera_types::{Expiry, RecordKey, StoredValue, ValueKind};

/// How long each is tried.
const TRIED: Duration = Duration::from_secs(2);

/// One record for each of some keys; all are written anew in each round, with the round's number as the start of their value.
struct Registers {
    engine: Arc<dyn Engine>,
    keys: u64,
    value_bytes: usize,
    store: Arc<RocksStore>,
    is_over: AtomicBool,
    gone_back: AtomicU64,
    _directory: TempDir,
}

fn round_of(stored: &[u8]) -> u64 {
    let payload = StoredValue::decode(stored).unwrap().payload;
    u64::from_be_bytes(payload[..8].try_into().unwrap())
}

impl Registers {
    fn new(keys: u64, value_bytes: usize) -> Self {
        let directory = TempDir::new().unwrap();
        let config = RocksConfig { block_cache_bytes: 64 << 20, record_cache_bytes: 64 << 20, ..Default::default() };
        let store = RocksStore::open(directory.path(), config).unwrap();
        let engine = store.open_table("table", 1).unwrap().into();
        let (is_over, gone_back) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { engine, keys, value_bytes, store, is_over, gone_back, _directory: directory }
    }

    fn write(&self, round: u64) {
        let mut payload = BytesMut::new();
        let mut value = vec![0; self.value_bytes];
        value[..8].copy_from_slice(&round.to_be_bytes());
        for key in 0..self.keys {
            let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &value };
            encode_put(&mut payload, &RecordKey::new(&key.to_be_bytes(), b""), &stored);
        }
        self.engine.write(&[Applied { partition: 0, index: round, term: 1, payloads: &[payload.freeze()] }]).unwrap();
    }

    /// The round that a read through the cache finds.
    fn get(&self, key: u64) -> u64 {
        let mut found = 0;
        let key = key.to_be_bytes();
        assert!(self.engine.get(0, &RecordKey::new(&key, b""), &mut |stored| found = round_of(stored)).unwrap());
        found
    }

    /// The round that a scan finds, which reads RocksDB itself.
    fn scan(&self, key: u64) -> u64 {
        let key = key.to_be_bytes();
        let key = RecordKey::new(&key, b"");
        let mut found = 0;
        let mut visit = |record: RecordKey<'_>, stored: &[u8]| {
            if record == key {
                found = round_of(stored);
            }
            Visit::NextRecord
        };
        self.engine.scan(0, &Position::of_hash(key.hash()), PageLimit::of_records(1), &mut visit).unwrap();
        assert!(found > 0);
        found
    }

    /// Writes for a while beside readers that each read one key after the other: `read` returns a round that was found, and
    /// one that was found by a read that began later.
    fn run(&self, readers: u64, read: impl Fn(u64) -> (u64, u64) + Sync) {
        self.write(1);
        (0..self.keys).for_each(|key| _ = self.get(key));
        std::thread::scope(|scope| {
            for reader in 0..readers {
                let read = &read;
                scope.spawn(move || {
                    let mut key = reader * 7;
                    while !self.is_over.load(Ordering::Relaxed) {
                        key = (key + 1) % self.keys;
                        let (before, found) = read(key);
                        self.gone_back.fetch_add(u64::from(found < before), Ordering::Relaxed);
                    }
                });
            }
            let began = Instant::now();
            let mut round = 2;
            while began.elapsed() < TRIED {
                self.write(round);
                round += 1;
                std::thread::sleep(Duration::from_micros(300)); // so that readers fill the cache again
            }
            self.is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(self.gone_back.load(Ordering::Relaxed), 0, "reads found an older value than one before them");
        assert!(self.store.statistics().record_cache_hits > 0, "the cache was in use");
    }
}

/// Values that writes bring up to date in the cache.
#[test]
fn a_read_after_a_scan_finds_nothing_older() {
    let registers = Registers::new(2_000, 8);
    registers.run(2, |key| (registers.scan(key), registers.get(key)));
}

/// Values so large that writes take them out of the cache, and readers fill it again.
#[test]
fn a_read_after_another_readers_finds_nothing_older() {
    let registers = Registers::new(40, 17_000);
    let seen: Vec<AtomicU64> = (0..registers.keys).map(|_| AtomicU64::new(0)).collect();
    registers.run(6, |key| {
        let before = seen[key as usize].load(Ordering::SeqCst);
        let found = registers.get(key);
        seen[key as usize].fetch_max(found, Ordering::SeqCst);
        (before, found)
    });
}
