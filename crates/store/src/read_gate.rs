//! Whether the records of a partition may be read on this node, and whether what was read still counts.

use crate::lease::Lease;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tessera_consensus::Moment;

/// What the loop and the node say about reads, and readers look at.
#[derive(Default)]
pub(crate) struct ReadGate {
    /// Until when this node may answer reads.
    lease: Lease,
    /// Whether the group was told that somebody wants to read, and has no lease.
    is_waking: AtomicBool,
    /// How often the replica here has stopped answering reads.
    interruptions: AtomicU64,
    /// The log index up to which writes were acknowledged, if that was before they were applied. Zero is none.
    leader_acked: AtomicU64,
    /// Counts up before and after each change of the partition's records.
    version: AtomicU64,
    outdated: OutdatedReads,
}

/// What concerns reads of a replica that does not lead.
#[derive(Default)]
struct OutdatedReads {
    /// Whether the replica here, if there is one, has records that may be read, once it has applied the log up to
    /// [`from`](Self::from).
    are_allowed: AtomicBool,
    /// The log index up to which the replica here knew entries to be committed when it was started: what a process before this
    /// one has shown is there again from this index on.
    from: AtomicU64,
    /// As of when the replica has all records.
    as_of: Lease,
}

impl ReadGate {
    pub(crate) fn set_lease(&self, until: Option<Moment>) {
        self.lease.set(until);
        self.is_waking.store(false, Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_lease(&self) -> bool {
        self.lease.holds()
    }

    /// Whether the caller is the first one who wakes the group since it had a lease.
    pub(crate) fn begins_to_wake(&self) -> bool {
        !self.is_waking.swap(true, Ordering::AcqRel)
    }

    /// The replica here stops to answer reads.
    pub(crate) fn interrupt(&self) {
        self.interruptions.fetch_add(1, Ordering::AcqRel);
    }

    #[inline]
    pub(crate) fn interruptions(&self) -> u64 {
        self.interruptions.load(Ordering::Acquire)
    }

    pub(crate) fn note_leader_acked(&self, index: u64) {
        self.leader_acked.fetch_max(index, Ordering::AcqRel);
    }

    pub(crate) fn forget_leader_acked(&self) {
        self.leader_acked.store(0, Ordering::Release);
    }

    pub(crate) fn leader_acked(&self) -> u64 {
        self.leader_acked.load(Ordering::Acquire)
    }

    /// A change of records begins or ends.
    pub(crate) fn count_change(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Odd while records change.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn allow_outdated(&self, are_allowed: bool) {
        self.outdated.are_allowed.store(are_allowed, Ordering::Release);
        if !are_allowed {
            self.interrupt();
        }
    }

    pub(crate) fn allow_outdated_from(&self, index: u64, are_allowed: bool) {
        self.outdated.from.store(index, Ordering::Release);
        self.allow_outdated(are_allowed);
    }

    pub(crate) fn allows_outdated_at(&self, applied: u64, settled: impl Fn() -> u64) -> bool {
        let needed = || settled().max(self.outdated.from.load(Ordering::Acquire));
        self.outdated.are_allowed.load(Ordering::Acquire) && applied >= needed()
    }

    pub(crate) fn as_of(&self) -> &Lease {
        &self.outdated.as_of
    }
}
