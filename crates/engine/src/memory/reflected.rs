//! Which entries of its log a partition's records reflect.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is known of the log entries that the records reflect. Beside the partition's lock, so that nobody takes it only to ask.
#[derive(Default)]
pub(super) struct Reflected {
    applied: AtomicU64,
    settled_from: AtomicU64,
    are_partial: AtomicBool,
}

impl Reflected {
    /// The index of the last entry that was applied.
    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub(super) fn set_applied(&self, index: u64) {
        self.applied.store(index, Ordering::Release);
    }

    /// See [`crate::Engine::settled_from`].
    pub(super) fn settled_from(&self) -> u64 {
        self.settled_from.load(Ordering::Acquire)
    }

    /// Records were loaded that may reflect entries up to this index.
    pub(super) fn set_settled_from(&self, index: u64) {
        self.settled_from.store(index, Ordering::Release);
    }

    /// Whether the records are being replaced, or replacing them has failed half-way: they belong to no log index.
    pub(super) fn are_partial(&self) -> bool {
        self.are_partial.load(Ordering::Acquire)
    }

    pub(super) fn set_partial(&self, are_partial: bool) {
        self.are_partial.store(are_partial, Ordering::Release);
    }

    /// The partition has no records, so they are whole again.
    pub(super) fn cleared(&self) {
        self.set_settled_from(0);
        self.set_partial(false);
    }
}
