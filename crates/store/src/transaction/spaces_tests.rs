use super::tests::{apply, times};
use super::{SpaceScan, Transaction};
use crate::Table;
use crate::overlay::Overlay;
use crate::test_table::TestTable;
use bytes::BytesMut;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeBounds};
use tessera_engine::{ENGINES, Order, PageLimit};
use tessera_types::{EngineKind, Space};

type Records = BTreeMap<(Space, Vec<u8>), Vec<u8>>;

const SPACES: [Space; 3] = [Space::DOCUMENTS, Space(16), Space(17)];

#[derive(Clone, Debug)]
enum Step {
    Put(Space, Vec<u8>, Vec<u8>),
    Delete(Space, Vec<u8>),
    Drop(Space),
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
    space: Space,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    order: Order,
    limit: usize,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255)], 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    let space = prop::sample::select(SPACES.to_vec());
    prop_oneof![
        14 => (space.clone(), key(), prop::collection::vec(any::<u8>(), 0..3)).prop_map(|(s, k, v)| Step::Put(s, k, v)),
        4 => (space.clone(), key()).prop_map(|(s, k)| Step::Delete(s, k)),
        2 => space.prop_map(Step::Drop),
        1 => Just(Step::Clear),
        6 => Just(Step::End),
        3 => Just(Step::Propose),
        3 => Just(Step::Apply),
    ]
}

fn scan() -> impl Strategy<Value = Scan> {
    let bound =
        || prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)];
    let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending)];
    (prop::sample::select(SPACES.to_vec()), bound(), bound(), order, 1usize..5)
        .prop_map(|(space, from, to, order, limit)| Scan { space, from, to, order, limit })
}

fn check(transaction: &Transaction<'_>, records: &Records, scans: &[Scan]) {
    for Scan { space, from, to, order, limit } in scans {
        let range = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
        let SpaceScan { records: found, is_cut } =
            transaction.scan_in(*space, range, *order, PageLimit::of_records(*limit)).unwrap();
        let is_in = |key: &[u8]| RangeBounds::<[u8]>::contains(&range, key);
        let in_space = records.iter().filter(|((s, key), _)| s == space && is_in(key));
        let mut expected: Vec<_> = in_space.map(|((_, key), value)| (key.clone(), value.clone())).collect();
        if *order == Order::Descending {
            expected.reverse();
        }
        assert_eq!(is_cut, expected.len() > *limit);
        expected.truncate(*limit);
        let found: Vec<_> = found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        assert_eq!(found, expected);
    }
    for space in SPACES {
        let keys = [&b""[..], b"\x01", b"\xff\0"];
        let together = transaction.multi_get_in(space, &keys).unwrap();
        for (key, of_many) in keys.into_iter().zip(together) {
            let found = transaction.get_in(space, key).unwrap().map(|value| value.to_vec());
            assert_eq!(found.as_ref(), records.get(&(space, key.to_vec())));
            assert_eq!(of_many.map(|value| value.to_vec()), found);
        }
    }
}

fn run(table: &Table, steps: Vec<Step>, scans: &[Scan]) {
    let mut overlay = Overlay::default();
    let mut building = BytesMut::new();
    let mut proposed = VecDeque::new();
    let mut records = Records::new();
    let mut next = table.engine.applied_index(0) + 1;
    let mut steps = std::iter::once(Step::Clear).chain(steps).peekable();
    while steps.peek().is_some() {
        let mut transaction = Transaction::new(table, 0, times(), &overlay, &mut building);
        let mut end = None;
        for step in steps.by_ref() {
            match step {
                Step::Put(space, key, value) => {
                    transaction.put_in(space, &key, &value).unwrap();
                    records.insert((space, key), value);
                }
                Step::Delete(space, key) => {
                    transaction.delete_in(space, &key);
                    records.remove(&(space, key));
                }
                Step::Drop(space) => {
                    transaction.drop_space(space);
                    records.retain(|(s, _), _| *s != space);
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
                proposed.pop_front().into_iter().for_each(|payload| apply(table, &mut overlay, payload));
            }
            _ => {}
        }
    }
    check(&Transaction::new(table, 0, times(), &overlay, &mut building), &records, scans);
}

/// Whatever part of the writes is in the engine, on its way there, or the transaction's own.
#[test]
fn a_transaction_sees_every_write_to_a_space_before_it() {
    for engine in ENGINES.iter().copied() {
        let count = if engine == EngineKind::Memory { 300 } else { 60 };
        let table = TestTable::open(engine);
        let cases = (prop::collection::vec(step(), 1..80), prop::collection::vec(scan(), 10));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(count));
        runner
            .run(&cases, |(steps, scans)| {
                run(&table, steps, &scans);
                Ok(())
            })
            .unwrap();
    }
}
