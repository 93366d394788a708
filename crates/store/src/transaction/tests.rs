use super::{Times, Transaction};
use crate::Table;
use crate::overlay::Overlay;
use crate::test_table::TestTable;
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use tessera_engine::{Applied, ENGINES, Order};
use tessera_types::{EngineKind, Expiry, UnixMillis, ValueKind};

const HASH_KEYS: [&[u8]; 3] = [b"a", b"aa", b"b"];
type Records = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(usize, Vec<u8>, Vec<u8>),
    /// A record that is dead from the start.
    PutExpired(usize, Vec<u8>),
    Delete(usize, Vec<u8>),
    DeleteHashKey(usize),
    Clear,
    /// The transaction ends, and the next one begins.
    End,
    /// The transactions that ended go to the log together.
    Propose,
    /// The oldest of what went to the log reaches the engine.
    Apply,
}

#[derive(Clone, Debug)]
struct Scan {
    hash_key: usize,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    order: Order,
    limit: usize,
}

fn sort_key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255)], 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    let hash_key = 0..HASH_KEYS.len();
    prop_oneof![
        12 => (hash_key.clone(), sort_key(), prop::collection::vec(any::<u8>(), 0..3)).prop_map(|(h, s, v)| Step::Put(h, s, v)),
        2 => (hash_key.clone(), sort_key()).prop_map(|(h, s)| Step::PutExpired(h, s)),
        4 => (hash_key.clone(), sort_key()).prop_map(|(h, s)| Step::Delete(h, s)),
        2 => hash_key.prop_map(Step::DeleteHashKey),
        1 => Just(Step::Clear),
        6 => Just(Step::End),
        3 => Just(Step::Propose),
        3 => Just(Step::Apply),
    ]
}

fn scan() -> impl Strategy<Value = Scan> {
    let bound = || {
        prop_oneof![Just(Bound::Unbounded), sort_key().prop_map(Bound::Included), sort_key().prop_map(Bound::Excluded)]
    };
    let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending)];
    (0..HASH_KEYS.len(), bound(), bound(), order, prop_oneof![1..4usize, Just(usize::MAX)])
        .prop_map(|(hash_key, from, to, order, limit)| Scan { hash_key, from, to, order, limit })
}

fn check(transaction: &Transaction<'_>, records: &Records, scans: &[Scan]) {
    for scan in scans {
        let range = (scan.from.as_ref().map(|key| &key[..]), scan.to.as_ref().map(|key| &key[..]));
        let is_asked_for = |(hash_key, sort_key): &(usize, Vec<u8>)| {
            *hash_key == scan.hash_key && std::ops::RangeBounds::<[u8]>::contains(&range, &sort_key[..])
        };
        let mut expected: Vec<_> = records
            .iter()
            .filter(|(key, _)| is_asked_for(key))
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        if scan.order == Order::Descending {
            expected.reverse();
        }
        expected.truncate(scan.limit);
        let found = transaction.scan(HASH_KEYS[scan.hash_key], range, scan.order, scan.limit).unwrap();
        let found: Vec<_> = found.into_iter().map(|(key, record)| (key.to_vec(), record.value.to_vec())).collect();
        assert_eq!(found, expected, "{scan:?}");
    }
    for (number, hash_key) in HASH_KEYS.into_iter().enumerate() {
        for sort_key in [&b""[..], b"\x01", b"\xff"] {
            let found = transaction.get(hash_key, sort_key).unwrap().map(|record| record.value.to_vec());
            assert_eq!(found.as_ref(), records.get(&(number, sort_key.to_vec())));
        }
    }
}

pub(super) fn times() -> Times {
    Times::of_leader(UnixMillis::new(1_000), UnixMillis::new(0), true)
}

pub(super) fn apply(table: &Table, overlay: &mut Overlay, payload: Bytes) {
    let index = table.engine.applied_index(0) + 1;
    table.engine.write(&[Applied { partition: 0, index, term: 1, payloads: &[payload] }]).unwrap();
    overlay.applied(index);
}

fn run(table: &Table, steps: Vec<Step>, scans: &[Scan]) {
    let mut overlay = Overlay::default();
    let mut building = BytesMut::new();
    let mut proposed = std::collections::VecDeque::new();
    let mut records = Records::new();
    let mut next = table.engine.applied_index(0) + 1;
    let mut steps = std::iter::once(Step::Clear).chain(steps).peekable();
    while steps.peek().is_some() {
        let mut transaction = Transaction::new(table, 0, times(), &overlay, &mut building);
        let mut end = None;
        for step in steps.by_ref() {
            match step {
                Step::Put(hash_key, sort_key, value) => {
                    transaction.put(HASH_KEYS[hash_key], &sort_key, &value, Expiry::NEVER, ValueKind::Plain).unwrap();
                    records.insert((hash_key, sort_key), value);
                }
                Step::PutExpired(hash_key, sort_key) => {
                    transaction
                        .put(
                            HASH_KEYS[hash_key],
                            &sort_key,
                            b"dead",
                            Expiry::at_key(Some(UnixMillis::new(1))),
                            ValueKind::Plain,
                        )
                        .unwrap();
                    records.remove(&(hash_key, sort_key));
                }
                Step::Delete(hash_key, sort_key) => {
                    transaction.delete(HASH_KEYS[hash_key], &sort_key).unwrap();
                    records.remove(&(hash_key, sort_key));
                }
                Step::DeleteHashKey(hash_key) => {
                    transaction.delete_hash_key(HASH_KEYS[hash_key]);
                    records.retain(|(other, _), _| *other != hash_key);
                }
                Step::Clear => {
                    transaction.clear();
                    records.clear();
                }
                Step::End | Step::Propose | Step::Apply => {
                    end = Some(step);
                    break;
                }
            }
        }
        check(&transaction, &records, scans);
        transaction.into_changes().enter(&mut overlay, &building);
        match end {
            Some(Step::Propose) => {
                let payload = building.split().freeze();
                overlay.proposed(next, payload.clone());
                proposed.push_back(payload);
                next += 1;
            }
            Some(Step::Apply) => {
                proposed.pop_front().into_iter().for_each(|payload| apply(table, &mut overlay, payload))
            }
            _ => {}
        }
    }
    check(&Transaction::new(table, 0, times(), &overlay, &mut building), &records, scans);
}

/// Whatever part of the writes is in the engine, on its way there, or the transaction's own.
#[test]
fn a_transaction_sees_every_write_before_it() {
    for engine in ENGINES.iter().copied() {
        let cases = if engine == EngineKind::Memory { 300 } else { 100 };
        let table = TestTable::open(engine);
        let steps = (prop::collection::vec(step(), 1..80), prop::collection::vec(scan(), 10));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
        runner
            .run(&steps, |(steps, scans)| {
                run(&table, steps, &scans);
                Ok(())
            })
            .unwrap();
    }
}
