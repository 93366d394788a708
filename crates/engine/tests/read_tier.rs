//! Reads of RocksDB tables from the caches: what the caches have is found, and what only the disk has is not waited for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use bytes::BytesMut;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tessera_engine::mutation::{encode_put, encode_put_in};
use tessera_engine::{
    Applied, Engine, EngineError, MemoryBudget, MemoryConfig, MemoryEngine, Order, PageLimit, Position, RocksConfig,
    RocksStore, SortKeyRange, Visit, from_caches,
};
use tessera_types::{Expiry, RecordKey, Space, StoredValue, ValueKind};

const KEYS: u32 = 2_000;
const ALL: SortKeyRange<'static> = (Bound::Unbounded, Bound::Unbounded);

fn hash_key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    number.to_string().repeat(200).into_bytes()
}

fn write(engine: &dyn Engine, encode: impl FnOnce(&mut BytesMut)) {
    let mut payload = BytesMut::new();
    encode(&mut payload);
    let index = engine.applied_index(0) + 1;
    engine.write(&[Applied { partition: 0, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
}

fn put(payload: &mut BytesMut, number: u32, sort_key: &[u8]) {
    let (hash_key, value) = (hash_key(number), value(number));
    let stored = StoredValue {
        expiry: Expiry::NEVER,
        kind: if sort_key.is_empty() { ValueKind::Plain } else { ValueKind::UnnamedField },
        payload: &value,
    };
    encode_put(payload, &RecordKey::new(&hash_key, sort_key), &stored);
}

/// Records in files, and nothing of them in any cache. Every tenth key has three fields instead of a string.
fn open_cold(directory: &Path, record_cache_bytes: usize) -> Box<dyn Engine> {
    let open = || {
        let config = RocksConfig { block_cache_bytes: 8 << 20, record_cache_bytes, ..RocksConfig::default() };
        RocksStore::open(directory, config).unwrap().open_table("table", 1).unwrap()
    };
    let engine = open();
    write(&*engine, |payload| {
        for number in 0..KEYS {
            match number % 10 {
                0 => [b"a", b"b", b"c"].iter().for_each(|field| put(payload, number, &field[..])),
                _ => put(payload, number, b""),
            }
            encode_put_in(payload, Space::DOCUMENTS, &hash_key(number), &value(number));
        }
    });
    engine.make_durable(0, &|| Ok(())).unwrap();
    drop(engine);
    open()
}

fn get(engine: &dyn Engine, number: u32) -> Result<Option<Vec<u8>>, EngineError> {
    let (key, mut found) = (hash_key(number), None);
    let visit = &mut |stored: &[u8]| found = Some(StoredValue::decode(stored).unwrap().payload.to_vec());
    engine.get(0, &RecordKey::new(&key, b""), visit)?;
    Ok(found)
}

fn fields(engine: &dyn Engine, number: u32, order: Order) -> Result<Vec<Vec<u8>>, EngineError> {
    let (key, mut found) = (hash_key(number), Vec::new());
    engine.scan_hash_key(0, &RecordKey::new(&key, b""), ALL, order, &mut |field, _| {
        found.push(field.to_vec());
        Visit::NextRecord
    })?;
    Ok(found)
}

fn would_wait<T: std::fmt::Debug>(read: Result<T, EngineError>) -> bool {
    match read {
        Err(EngineError::WouldWait) => true,
        Err(error) => panic!("{error}"),
        Ok(_) => false,
    }
}

#[test]
fn a_record_is_found_in_the_caches_once_it_was_read() {
    let directory = TempDir::new().unwrap();
    for record_cache_bytes in [0, 1 << 20] {
        let engine = open_cold(&directory.path().join(record_cache_bytes.to_string()), record_cache_bytes);
        assert!(would_wait(from_caches(|| get(&*engine, 7))));
        assert_eq!(get(&*engine, 7).unwrap(), Some(value(7)), "who may wait finds it");
        assert_eq!(from_caches(|| get(&*engine, 7)).unwrap(), Some(value(7)));
        assert_eq!(from_caches(|| get(&*engine, KEYS + 7)).unwrap(), None, "the filters know that there is none");

        assert!(would_wait(from_caches(|| fields(&*engine, 10, Order::Ascending))));
        let all = [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
        assert_eq!(fields(&*engine, 10, Order::Ascending).unwrap(), all);
        assert_eq!(from_caches(|| fields(&*engine, 10, Order::Ascending)).unwrap(), all);
        assert!(would_wait(from_caches(|| fields(&*engine, 20, Order::Descending))));
    }
}

#[test]
fn what_was_just_written_is_found_although_there_are_files() {
    let directory = TempDir::new().unwrap();
    let engine = open_cold(directory.path(), 0);
    write(&*engine, |payload| put(payload, KEYS, b""));
    assert_eq!(from_caches(|| get(&*engine, KEYS)).unwrap(), Some(value(KEYS)));
}

#[test]
fn pages_and_spaces_do_not_wait_either() {
    let directory = TempDir::new().unwrap();
    let engine = open_cold(directory.path(), 0);
    let page = || engine.read_page(0, &Position::START, PageLimit::of_records(100));
    assert!(would_wait(from_caches(page)));
    let warm = page().unwrap();
    assert_eq!(from_caches(page).unwrap().records().count(), warm.records().count());

    let key = hash_key(5);
    let in_space = || {
        let mut found = None;
        engine.get_in(0, Space::DOCUMENTS, &key, &mut |value| found = Some(value.to_vec())).map(|_| found)
    };
    assert!(would_wait(from_caches(in_space)));
    assert_eq!(in_space().unwrap(), Some(value(5)));
    assert_eq!(from_caches(in_space).unwrap(), Some(value(5)));
    let keys = [hash_key(5), hash_key(KEYS / 2), hash_key(5)];
    let several = || {
        let (mut found, keys): (Vec<_>, Vec<&[u8]>) = (Vec::new(), keys.iter().map(|key| &key[..]).collect());
        let visit = &mut |_, value: Option<&[u8]>| found.push(value.map(<[u8]>::to_vec));
        let outcome = engine.multi_get_in(0, Space::DOCUMENTS, &keys, visit);
        (would_wait(outcome), found)
    };
    assert_eq!(from_caches(several), (true, vec![Some(value(5))]), "up to the one that would wait");
    let all = vec![Some(value(5)), Some(value(KEYS / 2)), Some(value(5))];
    assert_eq!([several(), from_caches(several)], [(false, all.clone()), (false, all)]);
    let range = (Bound::Included(&b"key 9"[..]), Bound::Unbounded);
    let of_space = |order| engine.read_space(0, Space::DOCUMENTS, range, order, PageLimit::of_records(usize::MAX));
    for order in [Order::Ascending, Order::Descending] {
        assert!(would_wait(from_caches(|| of_space(order))));
    }
    let warm = of_space(Order::Ascending).unwrap();
    assert!(warm.records().count() > 100);
    for order in [Order::Ascending, Order::Descending] {
        assert_eq!(from_caches(|| of_space(order)).unwrap().records().count(), warm.records().count());
    }
}

/// Those that wait for the disk are left out, and are all that is left out.
#[test]
fn of_many_records_those_in_the_caches_are_found() {
    let directory = TempDir::new().unwrap();
    for record_cache_bytes in [0, 1 << 20] {
        let engine = open_cold(&directory.path().join(record_cache_bytes.to_string()), record_cache_bytes);
        // Far from each other in the order of hashes, mostly: a block has four records.
        let warm: Vec<u32> = (0..200).map(|number| number * 10 + 1).collect();
        for number in &warm {
            get(&*engine, *number).unwrap();
        }
        let keys: Vec<_> = (0..400).map(|number| hash_key(number * 5 + 1)).collect();
        let reads: Vec<_> = keys.iter().map(|key| (0, RecordKey::new(key, b""))).collect();
        let read = |reads: &[(u32, RecordKey<'_>)]| {
            let mut found = BTreeMap::new();
            let outcome = engine.multi_get(reads, &mut |at, stored| {
                let value = stored.map(|stored| StoredValue::decode(stored).unwrap().payload.to_vec());
                assert_eq!(found.insert(at, value), None, "visited once");
            });
            (would_wait(outcome), found)
        };
        let (did_wait, found) = from_caches(|| read(&reads));
        assert!(did_wait && found.len() < keys.len(), "{}", found.len());
        for number in &warm {
            let at = keys.iter().position(|key| *key == hash_key(*number)).unwrap();
            assert_eq!(found.get(&at), Some(&Some(value(*number))), "key {number}");
        }
        assert!(found.iter().all(|(at, found)| *found == Some(value(*at as u32 * 5 + 1))));
        let (did_wait, all) = read(&reads);
        assert!(!did_wait && all.len() == keys.len());
        let (did_wait, again) = from_caches(|| read(&reads));
        assert_eq!((did_wait, again), (false, all));
    }
}

#[test]
fn a_memory_table_never_waits() {
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }));
    let engine = MemoryEngine::open(1, budget, None).unwrap();
    write(&engine, |payload| put(payload, 1, b""));
    assert_eq!(from_caches(|| get(&engine, 1)).unwrap(), Some(value(1)));
}
