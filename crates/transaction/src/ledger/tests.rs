use super::*;
use crate::id::Age;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Numbers;

impl Data for Numbers {
    type Partition = u8;
    type Key = u64;
    type Operation = u64;
    type Writes = u64;
    type Reply = u64;
    type Stamp = u64;
}

const MANY: u64 = 1_000;

fn id(generation: u64, sequence: u64) -> TransactionId {
    TransactionId { node: NodeId(1), generation, sequence }
}

/// A part that locks a key of its own.
fn prepare(id: TransactionId, settled: u64) -> Entry<Numbers> {
    let age = Age { began_millis: id.sequence, first: id };
    let intent = Intent { anchor: 1, age, locks: vec![(id.sequence, Access::Exclusive)], writes: 0, reply: 0 };
    Entry::Prepare { id, settled, intent }
}

fn commit(id: TransactionId) -> Entry<Numbers> {
    Entry::Commit { id, settled: 0, participants: vec![2], writes: 0, reply: 0 }
}

/// Applies an entry. Returns how many records are others now, or gone.
fn apply(ledger: &mut Ledger<Numbers>, entry: &Entry<Numbers>) -> usize {
    let mut changed = Vec::new();
    ledger.apply(entry, &mut changed);
    changed.len()
}

/// All of them once went with one log entry, and every entry looked at all of them.
#[test]
fn what_is_over_goes_with_several_entries() {
    let mut ledger = Ledger::default();
    for sequence in 0..MANY {
        apply(&mut ledger, &prepare(id(1, sequence), 0));
        apply(&mut ledger, &Entry::Resolve(id(1, sequence), Outcome::Committed));
        apply(&mut ledger, &commit(id(1, MANY + sequence)));
        apply(&mut ledger, &Entry::Abort(id(1, 2 * MANY + sequence)));
    }
    let records = |ledger: &Ledger<Numbers>| ledger.keys().count();
    assert_eq!(records(&ledger), 3 * 1_000 + 1);
    let first = id(1, 3 * MANY);
    // The intent and the mark are new.
    assert_eq!(apply(&mut ledger, &prepare(first, first.sequence)), FORGOTTEN_AT_ONCE + 2);
    let mut entries = 1;
    while records(&ledger) > entries + 1 {
        let next = id(1, first.sequence + entries as u64);
        assert!(apply(&mut ledger, &prepare(next, first.sequence)) <= FORGOTTEN_AT_ONCE + 1);
        entries += 1;
        assert!(entries < 100, "they go");
    }
    // Whatever comes late is refused nevertheless.
    assert_eq!(ledger.recover(id(1, 0)), Step::Answer(Answer::Aborted));
}

#[test]
fn commits_of_earlier_starts_stay_until_they_are_resolved() {
    let mut ledger = Ledger::default();
    apply(&mut ledger, &commit(id(1, 0)));
    apply(&mut ledger, &Entry::Abort(id(1, 1)));
    apply(&mut ledger, &commit(id(2, 0)));
    apply(&mut ledger, &prepare(id(2, 2), 1));
    let unfinished: Vec<_> = ledger.unfinished().map(|(id, _)| id).collect();
    assert_eq!(unfinished, [id(1, 0)]);
    assert_eq!(ledger.keys().filter(|key| matches!(key, LedgerKey::Decision(_))).count(), 1);
    apply(&mut ledger, &Entry::Forget(id(1, 0)));
    assert_eq!(ledger.unfinished().count(), 0);
    assert!(!ledger.keys().any(|key| matches!(key, LedgerKey::Decision(_))));
}
