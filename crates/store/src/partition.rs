//! A partition of a table on this node: what its loop says about it, and what readers and writers look at.

use crate::change_capture::ChangeCapture;
use crate::hot_keys::HotKeys;
use crate::known_leader::KnownLeader;
use crate::lease::Lease;
use crate::ledger::PartitionLedger;
use crate::meter::Meter;
use crate::watch::WatchList;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tessera_consensus::{GroupId, Inbox, Moment};

/// What can be told that somebody wants to read from a group, which may rest.
pub trait WakesGroups: Send + Sync {
    /// Has the group get a lease, if the replica here leads.
    fn wake(&self, group: GroupId);
}

impl<C: Send> WakesGroups for Inbox<C> {
    fn wake(&self, group: GroupId) {
        self.wake(group);
    }
}

/// A partition of a table on this node.
pub struct Partition {
    pub(crate) waker: Arc<dyn WakesGroups>,
    pub(crate) watched: Arc<WatchList>,
    /// Whether the replica here leads.
    is_leading: AtomicBool,
    /// Whether it also takes requests.
    is_serving: AtomicBool,
    /// What leaves when the table is split.
    pub(crate) change_capture: ChangeCapture,
    /// The attempt that copies another table's records to this partition, as far as its leader knows; zero is none.
    copied_by: AtomicU64,
    /// How often the replica here has stopped answering reads.
    interruptions: AtomicU64,
    /// Until when this node may answer reads.
    pub(crate) lease: Lease,
    /// Whether the replica here, if there is one, has records that may be read although it does not lead, once it has applied
    /// what it had [before](Self::readable_from).
    is_readable: AtomicBool,
    /// The log index up to which the replica here knew entries to be committed when it was started: what a process before this
    /// one has shown is there again from this index on.
    readable_from: AtomicU64,
    /// As of when it has all records.
    pub(crate) as_of: Lease,
    /// The log index up to which writes were acknowledged, if that was before they were applied. Zero is none.
    leader_acked: AtomicU64,
    /// Who compares the replicas, as far as the one here was told: a number of the comparison; zero is nobody.
    compared_by: AtomicU64,
    /// Whether the group was told that somebody wants to read, and has no lease.
    is_waking: AtomicBool,
    pub(crate) leader: KnownLeader,
    pub(crate) meter: Meter,
    pub(crate) hot_keys: HotKeys,
    pub(crate) ledger: PartitionLedger,
    /// Counts up before and after each change of the partition's records.
    version: AtomicU64,
}

impl Partition {
    /// A partition whose group is woken by `waker`, with no leader known yet.
    pub fn new(waker: Arc<dyn WakesGroups>) -> Self {
        Self {
            waker,
            watched: Arc::default(),
            is_leading: AtomicBool::new(false),
            is_serving: AtomicBool::new(false),
            change_capture: ChangeCapture::default(),
            copied_by: AtomicU64::new(0),
            interruptions: AtomicU64::new(0),
            lease: Lease::default(),
            is_readable: AtomicBool::new(false),
            readable_from: AtomicU64::new(0),
            as_of: Lease::default(),
            leader_acked: AtomicU64::new(0),
            compared_by: AtomicU64::new(0),
            is_waking: AtomicBool::new(false),
            leader: KnownLeader::default(),
            meter: Meter::default(),
            hot_keys: HotKeys::default(),
            ledger: PartitionLedger::default(),
            version: AtomicU64::new(0),
        }
    }

    /// The hash keys that connections watch.
    pub fn watched(&self) -> &Arc<WatchList> {
        &self.watched
    }

    /// The capture of applied writes while the table is split.
    pub fn change_capture(&self) -> &ChangeCapture {
        &self.change_capture
    }

    /// The leader, as far as this node knows.
    pub fn leader(&self) -> &KnownLeader {
        &self.leader
    }

    /// The counts of reads and writes.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// What the leader knows of transactions over partitions.
    pub fn ledger(&self) -> &PartitionLedger {
        &self.ledger
    }

    /// The search for hot keys, if one runs.
    pub fn hot_keys(&self) -> &HotKeys {
        &self.hot_keys
    }

    /// Whether the replica here leads.
    #[inline]
    pub fn is_leading(&self) -> bool {
        self.is_leading.load(Ordering::Acquire)
    }

    /// Whether the replica here leads and takes requests.
    #[inline]
    pub fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Acquire)
    }

    /// The replica here was elected. It does not take requests before [`Self::serve`].
    pub fn lead(&self) {
        self.is_leading.store(true, Ordering::Release);
    }

    /// The replica here, which leads, takes requests from now on.
    pub fn serve(&self) {
        self.is_serving.store(true, Ordering::Release);
    }

    /// The replica here does not lead, or not any more. For the partition's loop, which takes no command for it from then on:
    /// a seal that goes before would let some in.
    pub fn stop_leading(&self) {
        self.is_leading.store(false, Ordering::Release);
        self.stop_serving();
        self.change_capture.end();
        self.ledger.reset();
        self.copied_by.store(0, Ordering::Release);
    }

    /// The replica here, which may go on to lead, takes no requests any more.
    pub fn stop_serving(&self) {
        self.is_serving.store(false, Ordering::Release);
        self.interruptions.fetch_add(1, Ordering::AcqRel);
    }

    /// The replica here is to go: it takes no requests any more and its records are not read, although it may still lead.
    pub fn withdraw(&self) {
        self.stop_serving();
        self.set_readable(false);
    }

    /// Whether the replica here has records that may be read although it does not lead, once it has applied what it had when it
    /// was [started](Self::start_replica).
    pub fn set_readable(&self, is_readable: bool) {
        self.is_readable.store(is_readable, Ordering::Release);
        if !is_readable {
            self.interruptions.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How often the replica here has stopped answering reads. What was read while this number changed does not count: another
    /// replica may have led, or the records may have been replaced, although this one answers again by now. A read that waits for
    /// the disk takes long enough for that.
    #[inline]
    pub(crate) fn interruptions(&self) -> u64 {
        self.interruptions.load(Ordering::Acquire)
    }

    /// A replica is about to start here that knows entries up to this log index to be committed. Outdated reads wait until these
    /// are applied: a process before this one may have shown them.
    pub fn start_replica(&self, committed: u64, is_readable: bool) {
        self.readable_from.store(committed, Ordering::Release);
        self.set_readable(is_readable);
    }

    /// Whether the replica here may be read although it does not lead, when it has applied the log up to this index.
    pub(crate) fn is_readable_at(&self, applied: u64, settled: impl Fn() -> u64) -> bool {
        let needed = || settled().max(self.readable_from.load(Ordering::Acquire));
        self.is_readable.load(Ordering::Acquire) && applied >= needed()
    }

    /// Sets until when this node may answer reads; `None` is for ever.
    pub fn set_lease(&self, until: Option<Moment>) {
        self.lease.set(until);
        self.is_waking.store(false, Ordering::Release);
    }

    /// Sets as of when the replica here has all records; `None` is now and for ever.
    pub fn set_as_of(&self, as_of: Option<Moment>) {
        self.as_of.set(as_of);
    }

    /// Whether the caller is the first reader to notice that a serving partition has no lease.
    pub(crate) fn begins_to_wake(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed) && !self.is_waking.swap(true, Ordering::AcqRel)
    }

    /// Writes up to this log index are acknowledged, and may not be applied yet: readers wait until they are.
    pub fn note_leader_acked(&self, index: u64) {
        self.leader_acked.fetch_max(index, Ordering::AcqRel);
    }

    /// Writes that only the leader had acknowledged may be lost, so nobody must wait for them any more.
    pub fn forget_leader_acked(&self) {
        self.leader_acked.store(0, Ordering::Release);
    }

    pub(crate) fn leader_acked(&self) -> u64 {
        self.leader_acked.load(Ordering::Acquire)
    }

    /// The attempt that copies another table's records to this partition, as far as its leader knows; zero is none.
    pub fn copied_by(&self) -> u64 {
        self.copied_by.load(Ordering::Acquire)
    }

    /// Notes which attempt copies another table's records to this partition; zero is none.
    pub fn set_copied_by(&self, attempt: u64) {
        self.copied_by.store(attempt, Ordering::Release);
    }

    /// The number of the comparison that the replica here takes part in; zero is none.
    pub fn compared_by(&self) -> u64 {
        self.compared_by.load(Ordering::Relaxed)
    }

    /// Notes the comparison that the replica here takes part in; zero is none.
    pub fn set_compared_by(&self, comparison: u64) {
        self.compared_by.store(comparison, Ordering::Relaxed);
    }

    /// Records are about to change. [`Self::end_change`] must follow.
    pub fn begin_change(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Records have changed, or were not changed after all.
    pub fn end_change(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Odd while records change.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}
