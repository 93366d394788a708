//! Is there an order of the operations on a register that explains what everybody saw?
//!
//! Every write has a value of its own, so that a read tells which write it saw. Then there is such an order exactly if no
//! read ends before its write begins, no two forward zones overlap, and no backward zone lies within a forward one
//! (Gibbons and Korach, Testing Shared Memories, SIAM Journal on Computing 26(4), 1997, theorem 4.5).

use std::collections::BTreeMap;

/// Times are of one clock.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// `true` for a write of the value, `false` for a read of it. Zero is what is there before any write.
    pub is_write: bool,
    pub value: u64,
    pub began: u64,
    /// `u64::MAX` for a write of which it is not known whether, or when, it took effect.
    pub ended: u64,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    /// Named in messages.
    #[expect(dead_code)]
    value: u64,
    /// The earliest end, and the latest beginning, of the operations with the value.
    first_end: u64,
    last_begin: u64,
}

impl Zone {
    fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }
}

/// # Errors
/// Which operations contradict each other.
pub fn check(operations: &[Operation]) -> Result<(), String> {
    let mut writes: BTreeMap<u64, Operation> = BTreeMap::new();
    writes.insert(0, Operation { is_write: true, value: 0, began: 0, ended: 0 });
    for write in operations.iter().filter(|operation| operation.is_write) {
        assert!(writes.insert(write.value, *write).is_none(), "{} was written twice", write.value);
    }
    let mut zones: BTreeMap<u64, Zone> = BTreeMap::new();
    let mut enter = |operation: &Operation| {
        let Operation { value, began, ended, .. } = *operation;
        let zone = zones.entry(value).or_insert(Zone { value, first_end: ended, last_begin: began });
        zone.first_end = zone.first_end.min(ended);
        zone.last_begin = zone.last_begin.max(began);
    };
    for read in operations.iter().filter(|operation| !operation.is_write) {
        let write = writes.get(&read.value).ok_or(format!("{read:?} saw what was never written"))?;
        if read.ended < write.began {
            return Err(format!("{read:?} saw {write:?} before it began"));
        }
        enter(read);
    }
    // Of a write that nobody knows to have happened, and nobody saw, nothing follows.
    let seen: Vec<u64> = operations.iter().filter(|operation| !operation.is_write).map(|read| read.value).collect();
    writes.values().filter(|write| write.ended != u64::MAX || seen.contains(&write.value)).for_each(enter);

    let (mut forward, backward): (Vec<Zone>, Vec<Zone>) = zones.into_values().partition(Zone::is_forward);
    forward.sort_by_key(|zone| zone.first_end);
    for pair in forward.windows(2) {
        if pair[1].first_end < pair[0].last_begin {
            return Err(format!("{:?} and {:?}: each was seen after the other", pair[0], pair[1]));
        }
    }
    for inner in backward {
        // The last forward zone that begins before it.
        let at = forward.partition_point(|zone| zone.first_end < inner.last_begin);
        if let Some(outer) = at.checked_sub(1).map(|at| forward[at])
            && inner.first_end < outer.last_begin
        {
            return Err(format!("{inner:?} took effect while {outer:?} was there before and after"));
        }
    }
    Ok(())
}

fn history(operations: &[(char, u64, u64, u64)]) -> Vec<Operation> {
    let operation = |&(kind, value, began, ended)| Operation { is_write: kind == 'w', value, began, ended };
    operations.iter().map(operation).collect()
}

#[test]
fn histories_with_an_order_and_without_are_told_apart() {
    const NEVER: u64 = u64::MAX;
    let good: &[&[(char, u64, u64, u64)]] = &[
        &[],
        &[('r', 0, 1, 2)],
        &[('w', 1, 1, 10), ('r', 0, 2, 3), ('r', 1, 4, 5), ('r', 1, 11, 12)],
        &[('w', 1, 1, 10), ('w', 2, 1, 10), ('r', 1, 11, 12), ('r', 1, 13, 14)],
        // An unknown write may take effect late, or never.
        &[('w', 1, 1, 2), ('w', 2, 3, NEVER), ('r', 1, 10, 11), ('r', 2, 12, 13)],
        &[('w', 1, 1, 2), ('w', 2, 3, NEVER), ('r', 1, 10, 11)],
    ];
    for operations in good {
        check(&history(operations)).unwrap();
    }
    let bad: &[&[(char, u64, u64, u64)]] = &[
        // A lost write; a stale read; a read from the future; one that goes back; one of what was never written.
        &[('w', 1, 1, 2), ('r', 0, 3, 4)],
        &[('w', 1, 1, 2), ('w', 2, 3, 4), ('r', 1, 5, 6)],
        &[('r', 1, 1, 2), ('w', 1, 3, 4)],
        &[('w', 1, 1, 2), ('w', 2, 3, NEVER), ('r', 2, 10, 11), ('r', 1, 12, 13)],
        &[('r', 7, 1, 2)],
        &[('w', 1, 1, 10), ('w', 2, 1, 10), ('r', 1, 11, 12), ('r', 2, 13, 14)],
    ];
    for operations in bad {
        check(&history(operations)).unwrap_err();
    }
}
