//! The ordered spaces of both engines, checked against a model that is a `BTreeMap`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tessera_engine::mutation::{SEAL, encode_clear, encode_delete_in, encode_drop_space, encode_put, encode_put_in};
use tessera_engine::{
    Applied, Engine, KeyRange, MemoryBudget, MemoryConfig, MemoryEngine, Order, PageLimit, Position, RocksConfig,
    RocksStore, Slice,
};
use tessera_types::{Expiry, RecordKey, Space, StoredValue, ValueKind};

const PARTITIONS: u32 = 2;
const ALL: KeyRange<'static> = (Bound::Unbounded, Bound::Unbounded);

/// Space and key of a record, and its value, by partition.
type Model = BTreeMap<(u32, Space, Vec<u8>), Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(u32, Space, Vec<u8>, Vec<u8>),
    Delete(u32, Space, Vec<u8>),
    Drop(u32, Space),
    /// A record that is ordered by hash.
    Record(u32, Vec<u8>),
    Clear(u32),
    /// Writes a checkpoint, then something else, and puts the checkpoint back.
    Restore(u32),
    Reopen,
}

fn budget() -> Arc<MemoryBudget> {
    Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }))
}

fn open(directory: &Path, budget: &Arc<MemoryBudget>) -> [Box<dyn Engine>; 2] {
    let config = RocksConfig { block_cache_bytes: 8 << 20, write_buffer_bytes: 1 << 20, ..Default::default() };
    let store = RocksStore::open(&directory.join("rocks"), config).unwrap();
    let memory = MemoryEngine::open(PARTITIONS, budget.clone(), Some(directory.join("memory"))).unwrap();
    [Box::new(memory), store.open_table("table", PARTITIONS).unwrap()]
}

fn write(engine: &dyn Engine, partition: u32, encode: impl FnOnce(&mut BytesMut)) {
    let mut payload = BytesMut::new();
    encode(&mut payload);
    let index = engine.applied_index(partition) + 1;
    engine.write(&[Applied { partition, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few distinct keys, so that steps meet; 0x00 and 0xff are where encodings go wrong.
    prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..PARTITIONS;
    let space = prop::sample::select(vec![Space::SYSTEM, Space::DOCUMENTS, Space(16), Space(255), Space(u32::MAX)]);
    let value = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        24 => (partition.clone(), space.clone(), key(), value).prop_map(|(p, s, k, v)| Step::Put(p, s, k, v)),
        8 => (partition.clone(), space.clone(), key()).prop_map(|(p, s, k)| Step::Delete(p, s, k)),
        2 => (partition.clone(), space).prop_map(|(p, s)| Step::Drop(p, s)),
        4 => (partition.clone(), key()).prop_map(|(p, k)| Step::Record(p, k)),
        1 => partition.clone().prop_map(Step::Clear),
        1 => partition.prop_map(Step::Restore),
        1 => Just(Step::Reopen),
    ]
}

/// A range of a space, page by page.
fn pages(engine: &dyn Engine, partition: u32, space: Space, range: KeyRange<'_>, order: Order) -> Vec<[Vec<u8>; 2]> {
    let mut seen: Vec<[Vec<u8>; 2]> = Vec::new();
    loop {
        let last = seen.last().map(|[key, _]| key.clone());
        let rest = match (&last, order) {
            (None, _) => range,
            (Some(last), Order::Ascending) => (Bound::Excluded(&last[..]), range.1),
            (Some(last), Order::Descending) => (range.0, Bound::Excluded(&last[..])),
        };
        let page = engine.read_space(partition, space, rest, order, PageLimit::of_records(3)).unwrap();
        assert!(page.records().len() <= 3);
        seen.extend(page.records().map(|(key, value)| [key.to_vec(), value.to_vec()]));
        assert_eq!(page.last_key(), page.records().last().map(|(key, _)| key));
        if !page.is_cut {
            return seen;
        }
    }
}

fn digest(engine: &dyn Engine, partition: u32, slice_records: u64) -> Vec<u128> {
    let (mut from, mut hashes) = (Some(Bytes::new()), Vec::new());
    while let Some(position) = from {
        let slice = Slice { from: position, to: None, records: slice_records, bytes: 1 << 20, scanned: 1 << 20 };
        let digest = engine.digest(partition, &slice).finish().unwrap();
        hashes.push(digest.hash);
        from = digest.next;
    }
    hashes
}

fn check(engine: &dyn Engine, model: &Model, records: &BTreeSet<(u32, Vec<u8>)>) {
    for partition in 0..PARTITIONS {
        let spaces: BTreeSet<Space> = model.keys().filter(|(p, ..)| *p == partition).map(|(_, s, _)| *s).collect();
        let mut next = engine.next_space(partition, Space(0)).unwrap();
        for space in &spaces {
            assert_eq!(next, Some(*space));
            next = space.0.checked_add(1).and_then(|next| engine.next_space(partition, Space(next)).unwrap());
            let of_space = model
                .range((partition, *space, Vec::new())..)
                .take_while(|((p, s, _), _)| (*p, *s) == (partition, *space));
            let mut expected: Vec<_> = of_space.map(|((_, _, key), value)| [key.clone(), value.clone()]).collect();
            for [key, value] in &expected {
                let mut found = None;
                assert!(engine.get_in(partition, *space, key, &mut |value| found = Some(value.to_vec())).unwrap());
                assert_eq!(found.as_ref(), Some(value));
            }
            // Some that are there and some that are not, in no order.
            let absent = b"a longer key than any other".to_vec();
            let keys: Vec<&[u8]> = expected.iter().rev().flat_map(|[key, _]| [&key[..], &absent]).collect();
            let values = expected.iter().rev().flat_map(|[_, value]| [Some(value.clone()), None]);
            let mut together = Vec::new();
            let visit = &mut |at, value: Option<&[u8]>| together.push((at, value.map(<[u8]>::to_vec)));
            engine.multi_get_in(partition, *space, &keys, visit).unwrap();
            assert_eq!(together, values.enumerate().collect::<Vec<_>>());
            let middle = expected[expected.len() / 2][0].clone();
            let share = (expected.len() / 2 + 1) as f64 / expected.len() as f64;
            assert_eq!(engine.share_up_to(partition, *space, &middle).unwrap(), share);
            for range in [
                ALL,
                (Bound::Included(&middle[..]), Bound::Unbounded),
                (Bound::Excluded(&middle), Bound::Unbounded),
                (Bound::Unbounded, Bound::Included(&middle)),
                (Bound::Unbounded, Bound::Excluded(&middle)),
                (Bound::Excluded(&middle), Bound::Excluded(&middle)),
            ] {
                let is_in = |[key, _]: &&[Vec<u8>; 2]| std::ops::RangeBounds::<[u8]>::contains(&range, &key[..]);
                let in_range: Vec<_> = expected.iter().filter(is_in).cloned().collect();
                assert_eq!(pages(engine, partition, *space, range, Order::Ascending), in_range);
            }
            check_ranges(engine, partition, *space, &expected);
            expected.reverse();
            assert_eq!(pages(engine, partition, *space, ALL, Order::Descending), expected);
        }
        assert_eq!(next, None);
        let page = engine.read_page(partition, &Position::START, PageLimit::of_records(10_000)).unwrap();
        let seen: BTreeSet<_> = page.records().map(|(key, _)| (partition, key.hash_key.to_vec())).collect();
        assert_eq!(seen, records.iter().filter(|(p, _)| *p == partition).cloned().collect());
    }
}

/// Ranges between records and between places where there are none, and how far they are visited.
fn check_ranges(engine: &dyn Engine, partition: u32, space: Space, expected: &[[Vec<u8>; 2]]) {
    let ends: BTreeSet<Vec<u8>> =
        expected.iter().flat_map(|[key, _]| [key.clone(), [&key[..], b"b"].concat()]).collect();
    let ends: Vec<_> = ends.into_iter().collect();
    for skipped in 0..3 {
        let pairs = ends.get(skipped..).unwrap_or_default().chunks_exact(2);
        let ranges: Vec<KeyRange<'_>> = pairs
            .enumerate()
            .map(|(at, pair)| match at % 2 {
                0 => (Bound::Included(&pair[0][..]), Bound::Excluded(&pair[1][..])),
                _ => (Bound::Excluded(&pair[0][..]), Bound::Included(&pair[1][..])),
            })
            .collect();
        let is_in = |[key, _]: &&[Vec<u8>; 2]| {
            ranges.iter().any(|range| std::ops::RangeBounds::<[u8]>::contains(range, &key[..]))
        };
        let in_ranges: Vec<_> = expected.iter().filter(is_in).cloned().collect();
        for most in [usize::MAX, in_ranges.len() / 2 + 1] {
            let mut seen = Vec::new();
            let visit = &mut |key: &[u8], value: &[u8]| {
                seen.push([key.to_vec(), value.to_vec()]);
                seen.len() < most
            };
            engine.scan_ranges(partition, space, &ranges, visit).unwrap();
            assert_eq!(seen, in_ranges[..in_ranges.len().min(most)]);
        }
    }
}

fn put_record(engine: &dyn Engine, partition: u32, hash_key: &[u8]) {
    let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"record" };
    write(engine, partition, |out| _ = encode_put(out, &RecordKey::new(hash_key, b""), &value));
}

fn run(steps: &[Step]) {
    let directory = TempDir::new().unwrap();
    let budget = budget();
    let mut engines = open(directory.path(), &budget);
    let (mut model, mut records) = (Model::new(), BTreeSet::new());
    for step in steps {
        if let Step::Reopen = step {
            for (engine, partition) in engines.iter().flat_map(|engine| (0..PARTITIONS).map(move |at| (engine, at))) {
                engine.make_durable(partition, &|| Ok(())).unwrap();
            }
            drop(engines);
            engines = open(directory.path(), &budget);
            continue;
        }
        for engine in &engines {
            let engine = &**engine;
            match step {
                Step::Put(partition, space, key, value) => {
                    write(engine, *partition, |out| _ = encode_put_in(out, *space, key, value));
                }
                Step::Delete(partition, space, key) => {
                    write(engine, *partition, |out| _ = encode_delete_in(out, *space, key));
                }
                Step::Drop(partition, space) => write(engine, *partition, |out| encode_drop_space(out, *space)),
                Step::Record(partition, key) => put_record(engine, *partition, &[&key[..], b"k"].concat()),
                Step::Clear(partition) => write(engine, *partition, encode_clear),
                Step::Restore(partition) => {
                    let path = directory.path().join("checkpoint");
                    let index = engine.checkpoint(*partition, &path).unwrap();
                    write(engine, *partition, |out| {
                        encode_drop_space(out, Space::DOCUMENTS);
                        encode_put_in(out, Space::DOCUMENTS, b"later", b"value");
                        encode_put_in(out, Space(77), b"later", b"value");
                    });
                    engine.restore(*partition, &path, index).unwrap();
                    std::fs::remove_file(&path).unwrap();
                }
                Step::Reopen => {}
            }
        }
        match step.clone() {
            Step::Put(partition, space, key, value) => _ = model.insert((partition, space, key), value),
            Step::Delete(partition, space, key) => _ = model.remove(&(partition, space, key)),
            Step::Drop(partition, space) => model.retain(|(p, s, _), _| (*p, *s) != (partition, space)),
            Step::Record(partition, key) => _ = records.insert((partition, [&key[..], b"k"].concat())),
            Step::Clear(partition) => {
                model.retain(|(p, ..), _| *p != partition);
                records.retain(|(p, _)| *p != partition);
            }
            Step::Restore(_) | Step::Reopen => {}
        }
    }
    engines.iter().for_each(|engine| check(&**engine, &model, &records));
    let [memory, rocks] = &engines;
    for partition in 0..PARTITIONS {
        assert_eq!(digest(&**memory, partition, 3), digest(&**rocks, partition, 3));
    }
    if let Some((partition, space, key)) = model.keys().next() {
        let before = digest(&**rocks, *partition, 3);
        write(&**rocks, *partition, |out| _ = encode_delete_in(out, *space, key));
        assert_ne!(digest(&**rocks, *partition, 3), before, "what is missing in a space shows");
    }
    drop(engines);
    assert_eq!(budget.used_bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spaces_follow_the_model(steps in prop::collection::vec(step(), 0..100)) {
        run(&steps);
    }
}

/// Bytes that no compression makes fewer.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let words =
        (0_u32..).flat_map(|at| RecordKey::new(&[seed, at].map(u32::to_le_bytes).concat(), b"").hash().to_le_bytes());
    words.take(length).collect()
}

#[test]
fn the_share_of_a_large_space_up_to_a_key_is_told_about_right() {
    const RECORDS: u32 = 25_000;
    let directory = TempDir::new().unwrap();
    let [memory, rocks] = open(directory.path(), &budget());
    for engine in [&memory, &rocks] {
        for first in (0..RECORDS).step_by(500) {
            write(&**engine, 0, |payload| {
                // In no order: what is not flushed yet is from everywhere.
                for number in (first..first + 500).map(|number| number * 7_919 % RECORDS) {
                    encode_put_in(payload, Space::DOCUMENTS, &number.to_be_bytes(), &noise(number, 400));
                    encode_put_in(payload, Space(16), &noise(number, 8), b"");
                }
            });
        }
        let share = |number: u32| engine.share_up_to(0, Space::DOCUMENTS, &number.to_be_bytes()).unwrap();
        for quarter in 0..=4 {
            let wanted = f64::from(quarter) / 4.0;
            let share = share((RECORDS / 4 * quarter).saturating_sub(1));
            assert!((share - wanted).abs() < 0.15, "{share} for {wanted}");
        }
        assert_eq!(engine.share_up_to(1, Space::DOCUMENTS, b"").unwrap(), 1.0, "there is nothing");
    }
    let share = memory.share_up_to(0, Space::DOCUMENTS, &12_499_u32.to_be_bytes()).unwrap();
    assert_eq!(share, 0.5, "it counts");
}

#[test]
fn an_entry_changes_records_and_spaces_in_the_order_of_its_mutations() {
    let directory = TempDir::new().unwrap();
    for engine in open(directory.path(), &budget()) {
        write(&*engine, 0, |out| {
            encode_put_in(out, Space(16), b"before", b"1");
            encode_drop_space(out, Space(16));
            encode_put_in(out, Space(16), b"after", b"2");
            encode_delete_in(out, Space::DOCUMENTS, b"not there");
            encode_put_in(out, Space::SYSTEM, SEAL, b"");
        });
        let keys: Vec<_> =
            pages(&*engine, 0, Space(16), ALL, Order::Ascending).into_iter().map(|[key, _]| key).collect();
        assert_eq!(keys, [b"after"]);
        assert!(engine.get_in(0, Space::SYSTEM, SEAL, &mut |value| assert!(value.is_empty())).unwrap());
        assert_eq!(engine.next_space(1, Space(0)).unwrap(), None, "another partition has none of it");
    }
}

#[test]
fn what_a_dropped_space_took_in_memory_is_freed_bit_by_bit() {
    let budget = budget();
    let engine = MemoryEngine::open(1, budget.clone(), None).unwrap();
    let empty = budget.used_bytes();
    for number in 0..10_000u32 {
        write(&engine, 0, |out| _ = encode_put_in(out, Space(16), &number.to_be_bytes(), &[7; 100]));
    }
    let full = budget.used_bytes() - empty;
    assert!((1_300_000..1_800_000).contains(&full), "{full} bytes for 10,000 records of 104 bytes");
    assert_eq!(engine.statistics().records, 0, "only documents are records of the table");
    write(&engine, 0, |out| encode_drop_space(out, Space(16)));
    assert_eq!(engine.next_space(0, Space(0)).unwrap(), None);
    assert!(budget.used_bytes() > empty + full / 2, "nobody waits until all is freed");
    for _ in 0..20 {
        write(&engine, 0, |_| ());
    }
    assert_eq!(budget.used_bytes(), empty);
}
