//! What every engine must do, checked against a model that is a `BTreeMap`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use bytes::BytesMut;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tessera_engine::mutation::{encode_clear, encode_delete, encode_delete_hash_key, encode_put, encode_time};
use tessera_engine::{
    Applied, ENGINES, Engine, MemoryBudget, MemoryConfig, MemoryEngine, Order, PageLimit, Position, RocksConfig,
    RocksStore, Visit,
};
use tessera_types::{EngineKind, Expiry, RecordKey, StoredValue, TableSettings, UnixMillis, ValueKind, WhenFull};

const PARTITIONS: u32 = 3;

/// Opens the same table again on each call with the same directory.
type Open = fn(&Path) -> Box<dyn Engine>;

fn open_memory(directory: &Path) -> Box<dyn Engine> {
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }));
    Box::new(MemoryEngine::open(PARTITIONS, budget, Some(directory.join("memory"))).unwrap())
}

fn open_rocks(directory: &Path) -> Box<dyn Engine> {
    let config = RocksConfig { block_cache_bytes: 8 << 20, write_buffer_bytes: 1 << 20, ..Default::default() };
    let store = RocksStore::open(&directory.join("rocks"), config).unwrap();
    store.open_table("table", PARTITIONS).unwrap()
}

/// The engines that this build has.
fn engines() -> impl Iterator<Item = (&'static str, Open)> {
    ENGINES.iter().map(|engine| match engine {
        EngineKind::Memory => (engine.as_str(), open_memory as Open),
        EngineKind::Rocksdb => (engine.as_str(), open_rocks as Open),
    })
}

type Model = BTreeMap<(u32, Vec<u8>, Vec<u8>), Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(u32, Vec<u8>, Vec<u8>, Vec<u8>),
    Delete(u32, Vec<u8>, Vec<u8>),
    Clear(u32),
    Reopen,
}

fn key_bytes() -> impl Strategy<Value = Vec<u8>> {
    // Few distinct keys, so that steps meet; 0x00 and 0xff are where encodings go wrong.
    prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..PARTITIONS;
    let value = prop::collection::vec(any::<u8>(), 0..40);
    let hash_key = || {
        key_bytes().prop_map(|mut key| {
            key.push(b'k');
            key
        })
    };
    prop_oneof![
        20 => (partition.clone(), hash_key(), key_bytes(), value).prop_map(|(p, h, s, v)| Step::Put(p, h, s, v)),
        8 => (partition.clone(), hash_key(), key_bytes()).prop_map(|(p, h, s)| Step::Delete(p, h, s)),
        1 => partition.prop_map(Step::Clear),
        1 => Just(Step::Reopen),
    ]
}

fn stored(payload: &[u8], expiry: Expiry) -> Vec<u8> {
    let mut bytes = Vec::new();
    StoredValue { expiry, kind: ValueKind::Plain, payload }.encode(&mut bytes);
    bytes
}

fn write(engine: &dyn Engine, partition: u32, payload: BytesMut) {
    let index = engine.applied_index(partition) + 1;
    engine.write(&[Applied { partition, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
    assert_eq!(engine.applied_index(partition), index);
}

fn put(engine: &dyn Engine, partition: u32, key: &RecordKey<'_>, payload: &[u8], expiry: Expiry) {
    let mut entry = BytesMut::new();
    encode_put(&mut entry, key, &StoredValue { expiry, kind: ValueKind::Plain, payload });
    write(engine, partition, entry);
}

fn read(engine: &dyn Engine, partition: u32, key: &RecordKey<'_>) -> Option<Vec<u8>> {
    let mut value = None;
    let found = engine.get(partition, key, &mut |bytes| value = Some(bytes.to_vec())).unwrap();
    assert_eq!(found, value.is_some());
    value
}

/// Every record of a partition, by pages of `page` records.
fn scan_all(engine: &dyn Engine, partition: u32, page: usize) -> Model {
    let mut records = Model::new();
    let (mut from, mut last) = (Some(Position::START), Vec::new());
    while let Some(position) = from {
        from = engine
            .scan(partition, &position, PageLimit::of_records(page), &mut |key, value| {
                assert!(key.to_ordered_bytes() >= position.key().to_ordered_bytes());
                let place = key.to_ordered_bytes().to_vec();
                assert!(last < place, "{place:?} after {last:?}");
                last = place;
                let address = (partition, key.hash_key.to_vec(), key.sort_key.to_vec());
                assert!(records.insert(address, value.to_vec()).is_none(), "visited twice");
                Visit::NextRecord
            })
            .unwrap();
        assert!(from.as_ref().is_none_or(|next| next.key().to_ordered_bytes() > position.key().to_ordered_bytes()));
    }
    records
}

fn check_equal(engine: &dyn Engine, model: &Model) {
    let mut all = Model::new();
    for partition in 0..PARTITIONS {
        all.append(&mut scan_all(engine, partition, 2));
    }
    assert_eq!(&all, model);
    let addresses: Vec<_> = model.keys().cloned().collect();
    let reads: Vec<_> = addresses.iter().map(|(p, h, s)| (*p, RecordKey::new(h, s))).collect();
    let mut values = Vec::new();
    engine.multi_get(&reads, &mut |at, value| values.push((at, value.map(<[u8]>::to_vec)))).unwrap();
    for (at, address) in addresses.iter().enumerate() {
        assert_eq!(values[at], (at, Some(model[address].clone())));
        assert_eq!(read(engine, address.0, &reads[at].1), Some(model[address].clone()));
    }
    if model.keys().any(|(_, _, sort_key)| !sort_key.is_empty()) {
        assert!((0..PARTITIONS).any(|partition| engine.may_hold_sort_keys(partition)));
    }
}

/// All that is read of one hash key, in every way: what was kept of earlier reads must not be older than the last write.
fn check_hash_key(engine: &dyn Engine, model: &Model, partition: u32, hash_key: &[u8], sort_key: &[u8]) {
    let expected: Vec<_> = model.iter().filter(|((p, h, _), _)| *p == partition && h == hash_key).collect();
    let key = RecordKey::new(hash_key, sort_key);
    let address = (partition, hash_key.to_vec(), sort_key.to_vec());
    assert_eq!(read(engine, partition, &key), model.get(&address).cloned());
    let reads = [(partition, key), (partition, RecordKey::new(hash_key, b""))];
    let mut values = Vec::new();
    engine.multi_get(&reads, &mut |_, value| values.push(value.map(<[u8]>::to_vec))).unwrap();
    let plain = model.get(&(partition, hash_key.to_vec(), Vec::new())).cloned();
    assert_eq!(values, [model.get(&address).cloned(), plain.clone()]);
    let from = (Bound::Included(sort_key), Bound::Unbounded);
    for (range, order) in [
        ((Bound::Unbounded, Bound::Unbounded), Order::Ascending),
        ((Bound::Unbounded, Bound::Unbounded), Order::Descending),
        (from, Order::Ascending),
    ] {
        let mut seen = Vec::new();
        let visit = &mut |sort_key: &[u8], value: &[u8]| {
            seen.push((sort_key.to_vec(), value.to_vec()));
            Visit::NextRecord
        };
        engine.scan_hash_key(partition, &RecordKey::new(hash_key, b""), range, order, visit).unwrap();
        let is_in = |sort_key: &[u8]| range == from && sort_key < address.2.as_slice();
        let all = expected.iter().map(|((_, _, sort_key), value)| (sort_key.clone(), (*value).clone()));
        let mut all: Vec<_> = all.filter(|(sort_key, _)| !is_in(sort_key)).collect();
        if order == Order::Descending {
            all.reverse();
        }
        assert_eq!(seen, all);
    }
    assert_eq!(read(engine, partition, &RecordKey::new(hash_key, b"")), plain);
}

fn run(open: Open, steps: &[Step]) {
    let directory = TempDir::new().unwrap();
    let mut engine = open(directory.path());
    let mut model = Model::new();
    for step in steps {
        if let Step::Put(partition, hash_key, sort_key, _) | Step::Delete(partition, hash_key, sort_key) = step {
            check_hash_key(&*engine, &model, *partition, hash_key, sort_key);
        }
        match step {
            Step::Put(partition, hash_key, sort_key, value) => {
                put(&*engine, *partition, &RecordKey::new(hash_key, sort_key), value, Expiry::NEVER);
                model.insert((*partition, hash_key.clone(), sort_key.clone()), stored(value, Expiry::NEVER));
            }
            Step::Delete(partition, hash_key, sort_key) => {
                let mut entry = BytesMut::new();
                encode_delete(&mut entry, &RecordKey::new(hash_key, sort_key));
                write(&*engine, *partition, entry);
                model.remove(&(*partition, hash_key.clone(), sort_key.clone()));
            }
            Step::Clear(partition) => {
                let mut entry = BytesMut::new();
                encode_clear(&mut entry);
                write(&*engine, *partition, entry);
                model.retain(|(p, _, _), _| p != partition);
            }
            Step::Reopen => {
                let applied: Vec<_> = (0..PARTITIONS).map(|partition| engine.applied_index(partition)).collect();
                for partition in 0..PARTITIONS {
                    engine.make_durable(partition, &|| Ok(())).unwrap();
                }
                drop(engine);
                engine = open(directory.path());
                for partition in 0..PARTITIONS {
                    assert_eq!(engine.applied_index(partition), applied[partition as usize]);
                    assert_eq!(engine.durable_index(partition).unwrap(), applied[partition as usize]);
                }
            }
        }
        if let Step::Put(partition, hash_key, sort_key, _) | Step::Delete(partition, hash_key, sort_key) = step {
            check_hash_key(&*engine, &model, *partition, hash_key, sort_key);
        }
    }
    check_equal(&*engine, &model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_follows_the_model(steps in prop::collection::vec(step(), 0..120)) {
        run(open_memory, &steps);
    }

    #[test]
    #[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
    fn rocksdb_follows_the_model(steps in prop::collection::vec(step(), 0..60)) {
        run(open_rocks, &steps);
    }
}

fn for_each_engine(test: impl Fn(&str, &dyn Engine, &Path)) {
    for (name, open) in engines() {
        let directory = TempDir::new().unwrap();
        let engine = open(directory.path());
        test(name, &*engine, directory.path());
    }
}

#[test]
fn sort_keys_of_a_hash_key_come_in_order_and_by_range() {
    for_each_engine(|name, engine, _| {
        for sort_key in ["", "a", "b", "ba", "c"] {
            put(engine, 1, &RecordKey::new(b"user", sort_key.as_bytes()), sort_key.as_bytes(), Expiry::NEVER);
        }
        put(engine, 1, &RecordKey::new(b"user2", b"x"), b"", Expiry::NEVER);
        let scan = |from: Bound<&str>, to: Bound<&str>, order| {
            let mut seen = Vec::new();
            let range = (from.map(str::as_bytes), to.map(str::as_bytes));
            engine
                .scan_hash_key(1, &RecordKey::new(b"user", b""), range, order, &mut |sort_key, _| {
                    seen.push(String::from_utf8(sort_key.to_vec()).unwrap());
                    Visit::NextRecord
                })
                .unwrap();
            seen
        };
        use Bound::{Excluded, Included, Unbounded};
        use Order::{Ascending, Descending};
        assert_eq!(scan(Unbounded, Unbounded, Ascending), ["", "a", "b", "ba", "c"], "{name}");
        assert_eq!(scan(Unbounded, Unbounded, Descending), ["c", "ba", "b", "a", ""], "{name}");
        assert_eq!(scan(Excluded("a"), Excluded("c"), Ascending), ["b", "ba"], "{name}");
        assert_eq!(scan(Included("a"), Included("b"), Descending), ["b", "a"], "{name}");
        assert_eq!(scan(Included("c"), Excluded("a"), Ascending), [""; 0], "{name}");
        assert_eq!(scan(Excluded("b"), Excluded("b"), Descending), [""; 0], "{name}");
    });
}

#[test]
fn a_visitor_stops_at_a_hash_key_and_a_scan_goes_on_at_the_next() {
    for_each_engine(|name, engine, _| {
        for hash_key in 0..50u8 {
            for sort_key in 0..20u8 {
                put(engine, 0, &RecordKey::new(&[b'k', hash_key], &[sort_key]), b"v", Expiry::NEVER);
            }
        }
        let mut visits = 0;
        let next = engine.scan(0, &Position::START, PageLimit::of_records(usize::MAX), &mut |_, _| {
            visits += 1;
            Visit::NextHashKey
        });
        assert_eq!((visits, next.unwrap()), (50, None), "{name}");
    });
}

/// Readers beside the writer: nobody sees less than what was written when he began, and all fields of a hash key are of one
/// entry.
#[test]
fn nobody_reads_what_was_there_before_a_write() {
    const HASH_KEYS: usize = 4;
    const FIELDS: u8 = 5;
    const ROUNDS: u64 = 20_000;
    const ENOUGH_READS: u64 = 1_000;
    const PATIENCE: Duration = Duration::from_secs(60);
    for_each_engine(|name, engine, _| {
        let written: [AtomicU64; HASH_KEYS] = Default::default();
        let is_done = AtomicBool::new(false);
        let reads = AtomicU64::new(0);
        let hash_key = |at: usize| [b'k', at as u8];
        let number = |value: &[u8]| {
            let stored = StoredValue::decode(value).unwrap();
            u64::from_le_bytes(stored.payload.try_into().unwrap())
        };
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (written, is_done, reads) = (&written, &is_done, &reads);
                scope.spawn(move || {
                    while !is_done.load(Ordering::Acquire) {
                        let at = reads.fetch_add(1, Ordering::Relaxed) as usize % HASH_KEYS;
                        let least = written[at].load(Ordering::Acquire);
                        let mut seen = Vec::new();
                        if reader == 0 {
                            let range = (Bound::Unbounded, Bound::Unbounded);
                            let key = hash_key(at);
                            let visit = &mut |_: &[u8], value: &[u8]| {
                                seen.push(number(value));
                                Visit::NextRecord
                            };
                            engine
                                .scan_hash_key(0, &RecordKey::new(&key, b""), range, Order::Ascending, visit)
                                .unwrap();
                            assert!(least == 0 || seen.len() == usize::from(FIELDS), "{name}: {seen:?}");
                        } else {
                            let visit = &mut |value: &[u8]| seen.push(number(value));
                            engine.get(0, &RecordKey::new(&hash_key(at), b""), visit).unwrap();
                            assert!(least == 0 || !seen.is_empty(), "{name}");
                        }
                        assert!(seen.iter().all(|number| *number >= least), "{name}: {seen:?} after {least}");
                        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {seen:?}");
                    }
                });
            }
            // On a busy machine the readers may hardly have begun by then.
            let began = Instant::now();
            let is_read = || reads.load(Ordering::Relaxed) > ENOUGH_READS || began.elapsed() > PATIENCE;
            for round in (1..).take_while(|round| *round <= ROUNDS || !is_read()) {
                let mut entry = BytesMut::new();
                let mut changed = vec![round as usize % HASH_KEYS];
                if round % 500 == 0 {
                    encode_clear(&mut entry);
                    changed = (0..HASH_KEYS).collect();
                }
                for (at, field) in changed.iter().flat_map(|at| (0..FIELDS).map(move |field| (*at, field))) {
                    let (hash_key, sort_key) = (hash_key(at), [field]);
                    let key = RecordKey::new(&hash_key, if field == 0 { b"" } else { &sort_key });
                    let payload = &round.to_le_bytes();
                    encode_put(
                        &mut entry,
                        &key,
                        &StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload },
                    );
                }
                write(engine, 0, entry);
                changed.into_iter().for_each(|at| written[at].store(round, Ordering::Release));
            }
            is_done.store(true, Ordering::Release);
        });
        assert!(reads.load(Ordering::Relaxed) > ENOUGH_READS, "{name}: {reads:?}");
    });
}

#[test]
fn a_checkpoint_restores_one_partition_and_leaves_the_others() {
    for_each_engine(|name, engine, directory| {
        for number in 0..500u32 {
            put(engine, number % 2, &RecordKey::new(&number.to_be_bytes(), b"s"), b"before", Expiry::NEVER);
        }
        let path = directory.join("checkpoint");
        let index = engine.checkpoint(0, &path).unwrap();
        assert_eq!(index, engine.applied_index(0), "{name}");
        let expected = scan_all(engine, 0, 100);
        let other = scan_all(engine, 1, 100);
        let [old, later] = [0u32, 1_000].map(u32::to_be_bytes);
        let [old, later] =
            [(&old, b"s"), (&later, b"t")].map(|(hash_key, sort_key)| RecordKey::new(hash_key, sort_key));
        for key in [&old, &later] {
            put(engine, 0, key, b"after", Expiry::NEVER);
            assert!(read(engine, 0, key).is_some());
        }
        engine.restore(0, &path, 77).unwrap();
        assert_eq!((read(engine, 0, &old), read(engine, 0, &later)), (Some(stored(b"before", Expiry::NEVER)), None));
        assert_eq!(scan_all(engine, 0, 100), expected, "{name}");
        assert_eq!(scan_all(engine, 1, 100), other, "{name}");
        assert_eq!(engine.applied_index(0), 77, "{name}");
    });
}

fn tell_time(engine: &dyn Engine, partition: u32, time: UnixMillis) {
    let mut entry = BytesMut::new();
    encode_time(&mut entry, time);
    write(engine, partition, entry);
}

/// Gives the engine every occasion to remove what has expired.
fn sweep(engine: &dyn Engine) -> usize {
    engine.compact(&|_| {}).unwrap();
    (0..PARTITIONS).map(|partition| (0..200).map(|_| engine.remove_expired(partition)).sum::<usize>()).sum()
}

#[test]
fn records_are_removed_once_they_had_expired_by_the_time_in_the_log_whatever_the_clock_says() {
    let [early, late] = [1_000, 2_000].map(|time| Expiry::at_key(Some(UnixMillis::new(time))));
    for_each_engine(|name, engine, _| {
        for number in 0..2_000u32 {
            let expiry = [early, late, Expiry::NEVER, early][number as usize % 4];
            for partition in 0..2 {
                put(engine, partition, &RecordKey::new(&number.to_be_bytes(), b""), b"v", expiry);
            }
        }
        // By the clock of this machine all of them have expired long ago.
        assert_eq!(sweep(engine), 0, "{name}");
        assert_eq!((engine.time(0).get(), engine.next_expiry(0)), (1, Some(UnixMillis::new(1_000))), "{name}");
        tell_time(engine, 0, UnixMillis::new(999));
        assert_eq!(sweep(engine), 0, "{name}");
        assert_eq!(scan_all(engine, 0, 1_000).len(), 2_000, "{name}");
        tell_time(engine, 0, UnixMillis::new(1_500));
        tell_time(engine, 0, UnixMillis::new(1_400));
        assert_eq!(engine.time(0).get(), 1_500, "{name}: time only grows");
        sweep(engine);
        let left = [0, 1].map(|partition| scan_all(engine, partition, 1_000).len());
        assert_eq!(left, [1_000, 2_000], "{name}: each partition has its own time");
        assert_eq!(engine.next_expiry(2), None, "{name}: a partition without expiries has no use for time");
    });
}

#[test]
fn time_is_as_durable_as_records_and_travels_with_them() {
    for (name, open) in engines() {
        let directory = TempDir::new().unwrap();
        let engine = open(directory.path());
        let (time, end) = (UnixMillis::new(1_500), UnixMillis::new(9_000_000));
        let expired = Expiry::at_key(Some(UnixMillis::new(1_000)));
        put(&*engine, 0, &RecordKey::new(b"a", b""), b"v", Expiry::at_key(Some(end)));
        tell_time(&*engine, 0, time);
        let path = directory.path().join("checkpoint");
        engine.checkpoint(0, &path).unwrap();
        for partition in 0..PARTITIONS {
            engine.make_durable(partition, &|| Ok(())).unwrap();
        }
        drop(engine);
        let engine = open(directory.path());
        assert_eq!((engine.time(0), engine.time(1).get()), (time, 1), "{name}");
        assert!(engine.next_expiry(0).is_some_and(|next| next <= end), "{name}: {:?}", engine.next_expiry(0));
        // What a replica is given replaces what it knew of time, too.
        let mut blank = BytesMut::new();
        encode_clear(&mut blank);
        write(&*engine, 0, blank);
        assert_eq!((engine.time(0).get(), engine.next_expiry(0)), (1, None), "{name}");
        put(&*engine, 0, &RecordKey::new(b"b", b""), b"v", expired);
        engine.restore(0, &path, 5).unwrap();
        assert_eq!((engine.time(0), engine.applied_index(0)), (time, 5), "{name}");
        put(&*engine, 0, &RecordKey::new(b"c", b""), b"v", expired);
        sweep(&*engine);
        assert_eq!(scan_all(&*engine, 0, 10).len(), 1, "{name}");
    }
}

#[test]
fn a_whole_hash_key_is_deleted_and_no_other() {
    for_each_engine(|name, engine, _| {
        for hash_key in [&b"a"[..], b"ab", b"b"] {
            for sort_key in [&b""[..], b"1", b"\xff\xff"] {
                put(engine, 0, &RecordKey::new(hash_key, sort_key), b"v", Expiry::NEVER);
            }
        }
        let whole = RecordKey::new(b"a", b"");
        let found = |hash_key: &[u8]| {
            let mut found = 0;
            let all = (Bound::Unbounded, Bound::Unbounded);
            let count = &mut |_: &[u8], _: &[u8]| {
                found += 1;
                Visit::NextRecord
            };
            engine.scan_hash_key(0, &RecordKey::new(hash_key, b""), all, Order::Ascending, count).unwrap();
            found
        };
        assert_eq!(found(b"a"), 3, "{name}");
        let mut entry = BytesMut::new();
        encode_delete_hash_key(&mut entry, &whole);
        encode_delete_hash_key(&mut entry, &RecordKey::new(b"not there", b""));
        let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"new" };
        encode_put(&mut entry, &RecordKey::new(b"a", b"2"), &value);
        write(engine, 0, entry);
        assert_eq!([b"a".as_slice(), b"ab", b"b"].map(found), [1, 3, 3], "{name}");
        assert_eq!(scan_all(engine, 0, 10).len(), 7, "{name}");
        assert_eq!(read(engine, 0, &RecordKey::new(b"a", b"1")), None, "{name}");
    });
}

#[test]
fn memory_is_accounted_evicted_and_given_back() {
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 256 << 10 }));
    let engine = MemoryEngine::open(PARTITIONS, budget.clone(), None).unwrap();
    let value = vec![7; 1_000];
    let mut number = 0u32;
    while engine.spare_bytes().unwrap() > 0 {
        put(&engine, number % PARTITIONS, &RecordKey::new(&number.to_be_bytes(), b""), &value, Expiry::NEVER);
        number += 1;
    }
    assert!((200..=260).contains(&number), "{number} records of 1,000 bytes fit in 256 KiB");

    engine.apply_settings(&TableSettings { when_full: WhenFull::Evict, ..Default::default() }).unwrap();
    assert_eq!(engine.spare_bytes(), None);
    let hot = RecordKey::new(b"hot", b"");
    let fields =
        [b"hot hash".as_slice(), b"idle hash"].map(|hash| [b"1", b"2"].map(|field| RecordKey::new(hash, field)));
    let [hot_fields, idle_fields] = &fields;
    for key in fields.iter().flatten().chain([&hot]) {
        put(&engine, 0, key, &value, Expiry::NEVER);
    }
    for next in number..number + 2_000 {
        put(&engine, next % PARTITIONS, &RecordKey::new(&next.to_be_bytes(), b""), &value, Expiry::NEVER);
        assert!(read(&engine, 0, &hot).is_some(), "a record that is read all the time stays");
        assert!(read(&engine, 0, &hot_fields[0]).is_some(), "so does a hash with all of its fields");
    }
    assert!(read(&engine, 0, &hot_fields[1]).is_some());
    assert!(idle_fields.iter().all(|key| read(&engine, 0, key).is_none()), "a hash that nobody reads goes");
    let statistics = engine.statistics();
    assert!(statistics.evicted > 1_500, "{statistics:?}");
    assert!(budget.used_bytes() < (256 << 10) + 4_000);

    for partition in 0..PARTITIONS {
        let mut clear = BytesMut::new();
        encode_clear(&mut clear);
        write(&engine, partition, clear);
    }
    drop(engine);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn overhead_of_a_small_record_stays_below_40_bytes() {
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }));
    let engine = MemoryEngine::open(1, budget.clone(), None).unwrap();
    let records = 200_000u32;
    for number in 0..records {
        put(&engine, 0, &RecordKey::new(format!("user{number:012}").as_bytes(), b""), &[b'x'; 100], Expiry::NEVER);
    }
    let overhead = budget.used_bytes() as f64 / f64::from(records) - 116.0;
    assert!((10.0..40.0).contains(&overhead), "{overhead} bytes over a key of 16 and a value of 100");
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let directory = TempDir::new().unwrap();
    let engine = open_memory(directory.path());
    put(&*engine, 0, &RecordKey::new(b"k", b""), b"value", Expiry::NEVER);
    let path = directory.path().join("checkpoint");
    engine.checkpoint(0, &path).unwrap();
    let sound = std::fs::read(&path).unwrap();
    for at in 0..sound.len() {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        assert!(engine.restore(0, &path, 1).is_err(), "byte {at}");
        std::fs::write(&path, &sound[..at]).unwrap();
        assert!(engine.restore(0, &path, 1).is_err(), "cut at {at}");
    }
}

/// A write that RocksDB would make wait leaves nothing, and what it was to say of the partition is said by the next try.
#[test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
fn a_write_that_would_wait_is_not_done() {
    let directory = TempDir::new().unwrap();
    let open = |rate_limit_bytes_per_second| {
        let config = RocksConfig {
            write_buffer_bytes: 1 << 16,
            max_write_buffers: 2,
            rate_limit_bytes_per_second,
            ..Default::default()
        };
        let store = RocksStore::open(&directory.path().join("rocks"), config).unwrap();
        store.open_table("table", PARTITIONS).unwrap()
    };
    let engine = open(1 << 16);
    // What compresses well would not have to wait.
    let noise = std::iter::successors(Some(1u64), |number| Some(number.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1));
    let payload: Vec<u8> = noise.take(10_000).map(|number| (number >> 56) as u8).collect();
    let entry = |key: &RecordKey<'_>| {
        let mut entry = BytesMut::new();
        encode_put(&mut entry, key, &StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &payload });
        [entry.freeze()]
    };
    let mut written = 0;
    loop {
        let payloads = entry(&RecordKey::new(format!("k{written}").as_bytes(), b""));
        if !engine.try_write(&[Applied { partition: 0, index: written + 1, term: 1, payloads: &payloads }]).unwrap() {
            break;
        }
        written += 1;
        assert!(written < 10_000, "nothing ever waits");
    }
    assert_eq!(engine.applied_index(0), written);
    let field = RecordKey::new(b"k", b"sort key");
    let payloads = entry(&field);
    let applied = [Applied { partition: 1, index: 1, term: 1, payloads: &payloads }];
    assert!(!engine.try_write(&applied).unwrap());
    assert_eq!((engine.applied_index(1), engine.may_hold_sort_keys(1)), (0, false));
    engine.write(&applied).unwrap();
    engine.make_durable(1, &|| Ok(())).unwrap();
    drop(engine);
    let engine = open(0);
    assert_eq!((engine.applied_index(0), engine.applied_index(1)), (written, 1));
    assert!(engine.may_hold_sort_keys(1) && read(&*engine, 1, &field).is_some());
}
