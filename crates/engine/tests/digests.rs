//! Digests of slices, on both engines.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;
use tessera_engine::mutation::{encode_delete, encode_mark, encode_put, encode_time};
use tessera_engine::{
    Applied, Engine, MemoryBudget, MemoryConfig, MemoryEngine, RocksConfig, RocksStore, Slice, SliceDigest,
};
use tessera_types::{Expiry, RecordKey, StoredValue, UnixMillis, ValueKind};

/// The partition's time.
const NOW: u64 = 1_000;

fn open(directory: &TempDir) -> [Box<dyn Engine>; 2] {
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }));
    let config = RocksConfig { block_cache_bytes: 8 << 20, write_buffer_bytes: 1 << 20, ..Default::default() };
    let store = RocksStore::open(&directory.path().join("rocks"), config).unwrap();
    let engines: [Box<dyn Engine>; 2] =
        [Box::new(MemoryEngine::open(2, budget, None).unwrap()), store.open_table("table", 2).unwrap()];
    for engine in &engines {
        let mut payload = BytesMut::new();
        encode_time(&mut payload, UnixMillis::new(NOW));
        write(&**engine, payload);
    }
    engines
}

fn write(engine: &dyn Engine, payload: BytesMut) {
    let index = engine.applied_index(1) + 1;
    engine.write(&[Applied { partition: 1, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
}

fn put(engine: &dyn Engine, (hash_key, sort_key): &(Vec<u8>, Vec<u8>), value: &[u8], ends: u64) {
    let mut payload = BytesMut::new();
    encode_mark(&mut payload, b"which changes nothing");
    let expiry = Expiry::at_key((ends > 0).then(|| UnixMillis::new(ends)));
    let stored = StoredValue { expiry, kind: ValueKind::Plain, payload: value };
    encode_put(&mut payload, &RecordKey::new(hash_key, sort_key), &stored);
    write(engine, payload);
}

fn slice(from: Bytes, records: u64, scanned: u64) -> Slice {
    Slice { from, to: None, records, bytes: 300, scanned }
}

/// All of a partition, slice by slice.
fn digests(engine: &dyn Engine, records: u64) -> Vec<SliceDigest> {
    let mut digests = Vec::new();
    let mut from = Some(Bytes::new());
    while let Some(position) = from {
        let digest = engine.digest(1, &slice(position, records, 1_000_000)).finish().unwrap();
        assert!(digest.records <= records && !digest.is_cut);
        from = digest.next.clone();
        digests.push(digest);
    }
    digests
}

fn part() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..3)
}

type Records = BTreeMap<(Vec<u8>, Vec<u8>), (Vec<u8>, u64)>;

fn records() -> impl Strategy<Value = Records> {
    // An empty hash key and an empty sort key are no record.
    let hash_key = part().prop_map(|mut key| {
        key.push(b'k');
        key
    });
    let ends = prop::sample::select(vec![0, 0, NOW - 1, NOW + 1]);
    prop::collection::btree_map((hash_key, part()), (prop::collection::vec(any::<u8>(), 0..60), ends), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_same_records_have_the_same_digests_and_others_have_not(
        records in records(), limit in 1u64..40, at in any::<prop::sample::Index>(),
    ) {
        let directory = TempDir::new().unwrap();
        let engines = open(&directory);
        for engine in &engines {
            records.iter().for_each(|(key, (value, ends))| put(&**engine, key, value, *ends));
        }
        let [memory, rocks] = &engines;
        let whole = digests(&**memory, limit);
        prop_assert_eq!(&whole, &digests(&**rocks, limit));
        let is_live = |ends: u64| ends == 0 || ends > NOW;
        let live = records.values().filter(|(_, ends)| is_live(*ends)).count() as u64;
        prop_assert_eq!(whole.iter().map(|digest| digest.records).sum::<u64>(), live);

        // What has ended may be gone on one of them. Whether something else is gone, or is another, shows.
        let (key, (value, ends)) = at.get(&records.iter().collect::<Vec<_>>()).to_owned();
        let mut payload = BytesMut::new();
        encode_delete(&mut payload, &RecordKey::new(&key.0, &key.1));
        write(&**rocks, payload);
        prop_assert_eq!(whole == digests(&**rocks, limit), !is_live(*ends));
        put(&**rocks, key, &[&value[..], b"!"].concat(), *ends);
        prop_assert_eq!(whole == digests(&**rocks, limit), !is_live(*ends));
        put(&**rocks, key, value, *ends);
        prop_assert_eq!(whole, digests(&**rocks, limit));
    }
}

#[test]
fn a_slice_of_what_has_ended_is_cut_and_can_be_ended_elsewhere() {
    let directory = TempDir::new().unwrap();
    let engines = open(&directory);
    let keys: Vec<_> = (0..100u32).map(|number| (number.to_be_bytes().to_vec(), Vec::new())).collect();
    let [memory, rocks] = &engines;
    for (number, key) in keys.iter().enumerate() {
        // The other one has removed what has ended already.
        put(&**memory, key, b"v", if number % 4 == 0 { 0 } else { NOW });
        if number % 4 == 0 {
            put(&**rocks, key, b"v", 0);
        }
    }
    let cut = memory.digest(1, &slice(Bytes::new(), 8, 10)).finish().unwrap();
    assert!(cut.is_cut && cut.records < 8);
    let ended = Slice { to: cut.next.clone(), ..slice(Bytes::new(), 8, 1_000) };
    let [one, other] = [memory, rocks].map(|engine| engine.digest(1, &ended).finish().unwrap());
    assert_eq!(one, other);
    assert_eq!((one.records, one.next), (cut.records, cut.next));
}

#[test]
fn a_slice_ends_among_the_fields_of_a_hash_key() {
    let directory = TempDir::new().unwrap();
    let engines = open(&directory);
    for engine in &engines {
        for number in 0..50u8 {
            put(&**engine, &(b"hash".to_vec(), vec![b'f', number]), &[number], 0);
        }
        let digests = digests(&**engine, 7);
        assert_eq!(digests.len(), 8);
        assert_eq!(digests[7].records, 1);
    }
}

#[test]
fn what_is_written_later_is_not_in_a_digest_that_is_finished_later() {
    let directory = TempDir::new().unwrap();
    for engine in &open(&directory) {
        let key = (b"k".to_vec(), Vec::new());
        put(&**engine, &key, b"before", 0);
        let before = digests(&**engine, 9);
        let later = engine.digest(1, &slice(Bytes::new(), 9, 100));
        put(&**engine, &key, b"after", 0);
        assert_eq!(later.finish().unwrap(), before[0]);
        assert_ne!(digests(&**engine, 9), before);
    }
}
