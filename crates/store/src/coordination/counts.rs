//! How transactions over partitions went.

use super::transact::Transacted;
use std::sync::atomic::{AtomicU64, Ordering};

/// What this node has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// Transactions that have taken effect, of those that clients asked this node for.
    pub committed: u64,
    /// Those that a partition has refused, such as for a watched key that was changed.
    pub refused: u64,
    /// Those that were given up, without any effect.
    pub not_done: u64,
    /// Those of which it is not known what became of them.
    pub unknown: u64,
    /// Attempts that gave way to other transactions, lost a leader or lost their table to a split, and were made again.
    pub tried_again: u64,
    /// Intents and commits that their coordinators had left behind, and leaders here brought to an end.
    pub recovered: u64,
    /// Intents and commits that stand in partitions led here.
    pub open: u64,
}

/// The same, as it is counted.
#[derive(Default)]
pub(super) struct Counters {
    committed: AtomicU64,
    refused: AtomicU64,
    not_done: AtomicU64,
    unknown: AtomicU64,
    tried_again: AtomicU64,
    recovered: AtomicU64,
}

impl Counters {
    pub(super) fn ended(&self, transacted: &Transacted) {
        let counter = match transacted {
            Transacted::Committed(_) => &self.committed,
            Transacted::Refused(_) => &self.refused,
            Transacted::NotDone(_) => &self.not_done,
            Transacted::Unknown => &self.unknown,
            Transacted::Split => &self.tried_again,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tried_again(&self) {
        self.tried_again.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn recovered(&self) {
        self.recovered.fetch_add(1, Ordering::Relaxed);
    }

    /// With `open` intents and commits.
    pub(super) fn counts(&self, open: u64) -> TransactionCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TransactionCounts {
            committed: count(&self.committed),
            refused: count(&self.refused),
            not_done: count(&self.not_done),
            unknown: count(&self.unknown),
            tried_again: count(&self.tried_again),
            recovered: count(&self.recovered),
            open,
        }
    }
}
