//! Scans go by pages, also inside of a hash key that has a million records, and none looks at more than it may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use bytes::BytesMut;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tessera_engine::mutation::{encode_delete, encode_delete_hash_key, encode_put, encode_time};
use tessera_engine::{
    Applied, Engine, MemoryBudget, MemoryConfig, MemoryEngine, PageLimit, Position, RocksConfig, RocksStore, Visit,
};
use tessera_types::{Expiry, RecordKey, StoredValue, TableSettings, UnixMillis, ValueKind, WhenFull};

fn open_memory(directory: &Path) -> Box<dyn Engine> {
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 4 << 30 }));
    Box::new(MemoryEngine::open(2, budget, Some(directory.join("memory"))).unwrap())
}

fn open_rocks(directory: &Path) -> Box<dyn Engine> {
    let config = RocksConfig { block_cache_bytes: 8 << 20, ..Default::default() };
    RocksStore::open(&directory.join("rocks"), config).unwrap().open_table("table", 2).unwrap()
}

fn write(engine: &dyn Engine, partition: u32, payload: &mut BytesMut) {
    let index = engine.applied_index(partition) + 1;
    engine.write(&[Applied { partition, index, term: 1, payloads: &[payload.split().freeze()] }]).unwrap();
}

fn encode(payload: &mut BytesMut, hash_key: &[u8], sort_key: &[u8], expiry: Expiry) {
    let stored = StoredValue { expiry, kind: ValueKind::Plain, payload: b"value" };
    encode_put(payload, &RecordKey::new(hash_key, sort_key), &stored);
}

/// A hash key with many records, among others with one each.
fn with_large_hash_key(engine: &dyn Engine, records: u32, expiry: Expiry) {
    let mut payload = BytesMut::new();
    for number in 0..records {
        encode(&mut payload, b"large", &number.to_be_bytes(), expiry);
        if number % 1_000 == 0 {
            encode(&mut payload, &number.to_be_bytes(), b"", Expiry::NEVER);
            write(engine, 0, &mut payload);
        }
    }
    write(engine, 0, &mut payload);
}

/// What pages looked at, one after the other, with as many as each.
fn pages(engine: &dyn Engine, partition: u32, limit: PageLimit, answer: Visit) -> (Vec<Vec<u8>>, Vec<usize>) {
    let (mut seen, mut pages, mut from) = (Vec::new(), Vec::new(), Some(Position::START));
    while let Some(position) = from {
        let before = seen.len();
        from = engine
            .scan(partition, &position, limit, &mut |key, _| {
                seen.push(key.to_ordered_bytes().to_vec());
                answer
            })
            .unwrap();
        pages.push(seen.len() - before);
    }
    (seen, pages)
}

/// It was once visited as a whole, under one hold of the partition's lock.
#[test]
fn a_large_hash_key_is_gone_through_by_bounded_pages() {
    let directory = TempDir::new().unwrap();
    for (open, records) in [(open_memory as fn(&Path) -> Box<dyn Engine>, 1_000_000), (open_rocks, 100_000)] {
        let engine = open(directory.path());
        with_large_hash_key(&*engine, records, Expiry::NEVER);
        let all = records as usize + (records / 1_000) as usize;
        let limit = PageLimit::of_records(1_000);
        let (all_seen, each) = pages(&*engine, 0, limit, Visit::NextRecord);
        assert!(all_seen.is_sorted() && all_seen.windows(2).all(|two| two[0] != two[1]));
        assert_eq!((all_seen.len(), each.iter().max()), (all, Some(&1_000)));

        // Whoever wants one record of each hash key does not go through the others.
        let (seen, each) = pages(&*engine, 0, limit, Visit::NextHashKey);
        assert_eq!((seen.len(), each.len()), ((records / 1_000) as usize + 1, each.len().min(3)));

        // A few bytes more than a record has hold two, and a page holds one at least.
        for (bytes, most) in [(15, 2), (1, 1)] {
            let page = engine.read_page(0, &Position::START, PageLimit { records: 1_000, bytes }).unwrap();
            assert_eq!(page.records().count(), most);
        }

        let path = directory.path().join("checkpoint");
        let index = engine.checkpoint(0, &path).unwrap();
        let elsewhere = TempDir::new().unwrap();
        let copy = open(elsewhere.path());
        copy.restore(0, &path, index).unwrap();
        assert_eq!(pages(&*copy, 0, limit, Visit::NextRecord).0, all_seen);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_records_of_a_page_are_those_that_a_visitor_sees() {
    let directory = TempDir::new().unwrap();
    for engine in [open_memory(directory.path()), open_rocks(directory.path())] {
        let mut payload = BytesMut::new();
        for (hash_key, sort_key) in [(&b"a"[..], &b""[..]), (b"a", b"x"), (b"b", b"y"), (b"", b"z"), (b"", b"")] {
            encode(&mut payload, hash_key, sort_key, Expiry::NEVER);
        }
        write(&*engine, 0, &mut payload);
        let mut visited = Vec::new();
        let limit = PageLimit::of_records(10);
        let visit = &mut |key: RecordKey<'_>, value: &[u8]| {
            visited.push((key.to_ordered_bytes(), value.to_vec()));
            Visit::NextRecord
        };
        assert_eq!(engine.scan(0, &Position::START, limit, visit).unwrap(), None);
        let page = engine.read_page(0, &Position::START, limit).unwrap();
        let owned: Vec<_> = page.records().map(|(key, value)| (key.to_ordered_bytes(), value.to_vec())).collect();
        assert_eq!((owned.len(), &owned, page.next), (5, &visited, None));
    }
}

/// Some records stay, others come and go between any two pages: hash keys get their second record and lose it again.
#[test]
fn what_is_there_throughout_is_seen_whatever_is_written_between_pages() {
    const HASH_KEYS: u32 = 200;
    let directory = TempDir::new().unwrap();
    for engine in [open_memory(directory.path()), open_rocks(directory.path())] {
        let mut stays = BTreeSet::new();
        let mut payload = BytesMut::new();
        for number in 0..HASH_KEYS {
            let hash_key = number.to_be_bytes();
            for sort_key in [&b"f"[..], b"m", b"t"].into_iter().take(number as usize % 4) {
                encode(&mut payload, &hash_key, sort_key, Expiry::NEVER);
                stays.insert(RecordKey::new(&hash_key, sort_key).to_ordered_bytes());
            }
        }
        write(&*engine, 0, &mut payload);
        let mut dice = 1u64;
        for records in [1, 2, 3, 7, 50] {
            let (mut seen, mut from) = (BTreeMap::new(), Some(Position::START));
            while let Some(position) = from {
                let limit = PageLimit::of_records(records);
                let page = engine.read_page(0, &position, limit).unwrap();
                for (key, _) in page.records() {
                    *seen.entry(key.to_ordered_bytes()).or_insert(0) += 1;
                }
                from = page.next;
                for _ in 0..20 {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let hash_key = ((dice >> 40) as u32 % HASH_KEYS).to_be_bytes();
                    let sort_key = [b"a", b"h", b"p", b"z"][(dice >> 34) as usize % 4];
                    match dice >> 33 & 1 {
                        0 => encode(&mut payload, &hash_key, sort_key, Expiry::NEVER),
                        _ => _ = encode_delete(&mut payload, &RecordKey::new(&hash_key, sort_key)),
                    }
                }
                encode_delete_hash_key(&mut payload, &RecordKey::new(b"other", b""));
                write(&*engine, 0, &mut payload);
            }
            assert!(stays.iter().all(|key| seen.contains_key(key)), "pages of {records}");
            assert!(seen.values().all(|times| *times == 1), "nothing is seen twice");
        }
    }
}

/// Only the memory engine sweeps.
#[test]
fn a_sweep_of_a_large_hash_key_takes_many_bounded_steps() {
    const RECORDS: u32 = 100_000;
    let directory = TempDir::new().unwrap();
    let engine = open_memory(directory.path());
    with_large_hash_key(&*engine, RECORDS, Expiry::at_key(Some(UnixMillis::new(1_000))));
    let mut payload = BytesMut::new();
    encode_time(&mut payload, UnixMillis::new(2_000));
    write(&*engine, 0, &mut payload);
    let removed: Vec<usize> = (0..100).map(|_| engine.remove_expired(0)).collect();
    assert_eq!(removed.iter().sum::<usize>(), RECORDS as usize);
    assert!(removed.iter().all(|removed| *removed <= 20_000), "{removed:?}");
    assert_eq!(pages(&*engine, 0, PageLimit::of_records(1_000), Visit::NextRecord).0.len(), RECORDS as usize / 1_000);
}

fn delete_large(engine: &dyn Engine) {
    let mut payload = BytesMut::new();
    encode_delete_hash_key(&mut payload, &RecordKey::new(b"large", b""));
    write(engine, 0, &mut payload);
}

/// All of it was once freed under one hold of the lock, by the worker that applied the deletion.
#[test]
fn a_large_hash_key_is_deleted_at_once_and_freed_bit_by_bit() {
    const RECORDS: u32 = 50_000;
    let directory = TempDir::new().unwrap();
    let engine = open_memory(directory.path());
    let bytes = || engine.statistics().memory_bytes;
    with_large_hash_key(&*engine, 10, Expiry::NEVER);
    delete_large(&*engine);
    let mut payload = BytesMut::new();
    for number in (0..RECORDS).step_by(1_000) {
        encode(&mut payload, &number.to_be_bytes(), b"", Expiry::NEVER);
    }
    write(&*engine, 0, &mut payload);
    let without = bytes();
    with_large_hash_key(&*engine, RECORDS, Expiry::NEVER);
    let with = bytes();
    assert!(with > without + u64::from(RECORDS) * 50);
    delete_large(&*engine);
    assert_eq!(engine.statistics().records, u64::from(RECORDS) / 1_000, "nobody finds any of them");
    assert!(bytes() > without + (with - without) / 2, "they take memory until they are freed");
    // Writes free some, and sweeps the rest.
    let after_one = bytes();
    encode(&mut payload, &0u32.to_be_bytes(), b"", Expiry::NEVER);
    write(&*engine, 0, &mut payload);
    assert!(bytes() < after_one && bytes() > without);
    engine.remove_expired(0);
    assert_eq!(bytes(), without);
}

/// It once went as a whole, and readers waited for as long as that took.
#[test]
fn a_large_hash_key_is_evicted_at_once_and_freed_bit_by_bit() {
    const LIMIT: u64 = 8 << 20;
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: LIMIT }));
    let engine = MemoryEngine::open(1, budget, None).unwrap();
    engine.apply_settings(&TableSettings { when_full: WhenFull::Evict, ..TableSettings::default() }).unwrap();
    with_large_hash_key(&engine, 100_000, Expiry::NEVER);
    let mut payload = BytesMut::new();
    let mut before = 0;
    for number in 0..100_000u32 {
        encode(
            &mut payload,
            &[b"n", &(number / 20_000).to_be_bytes()[..]].concat(),
            &number.to_be_bytes(),
            Expiry::NEVER,
        );
        if number % 10 != 0 {
            continue;
        }
        write(&engine, 0, &mut payload);
        let bytes = engine.statistics().memory_bytes;
        assert!(bytes <= LIMIT + 100_000, "{bytes}");
        assert!(bytes + (256 << 10) >= before, "{bytes} after {before}: a write freed too much");
        before = bytes;
    }
    assert!(engine.statistics().evicted >= 100_000);
}

/// What hash keys take is counted as their records come and go.
#[test]
fn memory_is_counted_as_if_it_were_counted_anew() {
    let open = || {
        let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }));
        MemoryEngine::open(1, budget, None).unwrap()
    };
    let (engine, mut payload, mut dice) = (open(), BytesMut::new(), 7u64);
    let mut model = BTreeMap::new();
    for _ in 0..50_000 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (hash_key, sort_key) = ([b'h', (dice >> 40) as u8 % 20], [(dice >> 33) as u8 % 40; 3]);
        let value = vec![0; (dice >> 50) as usize % 60];
        let key = RecordKey::new(&hash_key, &sort_key);
        match dice >> 60 {
            0 => {
                encode_delete_hash_key(&mut payload, &RecordKey::new(&hash_key, b""));
                model.retain(|(known, _), _| *known != hash_key);
            }
            1..7 => {
                let _ = encode_delete(&mut payload, &key);
                model.remove(&(hash_key, sort_key));
            }
            _ => {
                encode_put(
                    &mut payload,
                    &key,
                    &StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &value },
                );
                model.insert((hash_key, sort_key), value);
            }
        }
        write(&engine, 0, &mut payload);
    }
    let anew = open();
    for ((hash_key, sort_key), value) in &model {
        let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: value };
        encode_put(&mut payload, &RecordKey::new(hash_key, sort_key), &stored);
    }
    write(&anew, 0, &mut payload);
    let counted = |engine: &MemoryEngine| (engine.statistics().records, engine.statistics().hash_keys);
    assert_eq!(counted(&engine), counted(&anew));
    // The index itself may have grown for hash keys that have gone.
    let (bytes, expected) = (engine.statistics().memory_bytes, anew.statistics().memory_bytes);
    assert!(bytes.abs_diff(expected) <= 4_096, "{bytes} and {expected}");
}
