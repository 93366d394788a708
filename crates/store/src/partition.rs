//! A partition of a table on this node: what its loop says about it, and what readers and writers look at.

use crate::change_capture::ChangeCapture;
use crate::expiry_fence::ExpiryFence;
use crate::hot_keys::HotKeys;
use crate::known_leader::KnownLeader;
use crate::ledger::PartitionLedger;
use crate::meter::Meter;
use crate::read_gate::ReadGate;
use crate::role::Role;
use crate::watch::WatchList;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    role: Role,
    pub(crate) reads: ReadGate,
    /// What leaves when the table is split.
    pub(crate) change_capture: ChangeCapture,
    /// The attempt that copies another table's records to this partition, as far as its leader knows; zero is none.
    copied_by: AtomicU64,
    /// Who compares the replicas, as far as the one here was told: a number of the comparison; zero is nobody.
    compared_by: AtomicU64,
    pub(crate) leader: KnownLeader,
    pub(crate) meter: Meter,
    pub(crate) hot_keys: HotKeys,
    pub(crate) ledger: PartitionLedger,
    pub(crate) expiry_fence: ExpiryFence,
}

impl Partition {
    /// A partition whose group is woken by `waker`, with no leader known yet.
    pub fn new(waker: Arc<dyn WakesGroups>) -> Self {
        Self {
            waker,
            watched: Arc::default(),
            role: Role::default(),
            reads: ReadGate::default(),
            change_capture: ChangeCapture::default(),
            copied_by: AtomicU64::new(0),
            compared_by: AtomicU64::new(0),
            leader: KnownLeader::default(),
            meter: Meter::default(),
            hot_keys: HotKeys::default(),
            ledger: PartitionLedger::default(),
            expiry_fence: ExpiryFence::default(),
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

    /// By which times readers and writers have judged what has expired.
    pub fn expiry_fence(&self) -> &ExpiryFence {
        &self.expiry_fence
    }

    /// The search for hot keys, if one runs.
    pub fn hot_keys(&self) -> &HotKeys {
        &self.hot_keys
    }

    /// Whether the replica here leads.
    #[inline]
    pub fn is_leading(&self) -> bool {
        self.role.leads()
    }

    /// Whether the replica here leads and takes requests.
    #[inline]
    pub fn is_serving(&self) -> bool {
        self.role.serves()
    }

    /// The replica here was elected. It does not take requests before [`Self::serve`].
    pub fn lead(&self) {
        self.role.lead();
    }

    /// The replica here, which leads, takes requests from now on.
    pub fn serve(&self) {
        self.role.serve();
    }

    /// The replica here does not lead, or not any more. For the partition's loop, which takes no command for it from then on:
    /// a seal that goes before would let some in.
    pub fn stop_leading(&self) {
        self.role.follow();
        self.reads.interrupt();
        self.change_capture.end();
        self.ledger.reset();
        self.expiry_fence.set_in_flight(None);
        self.copied_by.store(0, Ordering::Release);
    }

    /// The replica here, which may go on to lead, takes no requests any more.
    pub fn stop_serving(&self) {
        self.role.stop_serving();
        self.reads.interrupt();
    }

    /// The replica here is to go: it takes no requests any more and its records are not read, although it may still lead.
    pub fn withdraw(&self) {
        self.stop_serving();
        self.set_readable(false);
    }

    /// Whether the replica here has records that may be read although it does not lead, once it has applied what it had when it
    /// was [started](Self::start_replica).
    pub fn set_readable(&self, is_readable: bool) {
        self.reads.allow_outdated(is_readable);
    }

    /// How often the replica here has stopped answering reads. What was read while this number changed does not count: another
    /// replica may have led, or the records may have been replaced, although this one answers again by now. A read that waits for
    /// the disk takes long enough for that.
    #[inline]
    pub(crate) fn interruptions(&self) -> u64 {
        self.reads.interruptions()
    }

    /// A replica is about to start here that knows entries up to this log index to be committed. Outdated reads wait until these
    /// are applied: a process before this one may have shown them.
    pub fn start_replica(&self, committed: u64, is_readable: bool) {
        self.reads.allow_outdated_from(committed, is_readable);
    }

    /// Whether the replica here may be read although it does not lead, when it has applied the log up to this index.
    pub(crate) fn is_readable_at(&self, applied: u64, settled: impl Fn() -> u64) -> bool {
        self.reads.allows_outdated_at(applied, settled)
    }

    /// Sets until when this node may answer reads; `None` is for ever.
    pub fn set_lease(&self, until: Option<Moment>) {
        self.reads.set_lease(until);
    }

    /// Sets as of when the replica here has all records; `None` is now and for ever.
    pub fn set_as_of(&self, as_of: Option<Moment>) {
        self.reads.as_of().set(as_of);
    }

    /// Whether the caller is the first reader to notice that a serving partition has no lease.
    pub(crate) fn begins_to_wake(&self) -> bool {
        self.role.serves() && self.reads.begins_to_wake()
    }

    /// Writes up to this log index are acknowledged, and may not be applied yet: readers wait until they are.
    pub fn note_leader_acked(&self, index: u64) {
        self.reads.note_leader_acked(index);
    }

    /// Writes that only the leader had acknowledged may be lost, so nobody must wait for them any more.
    pub fn forget_leader_acked(&self) {
        self.reads.forget_leader_acked();
    }

    pub(crate) fn leader_acked(&self) -> u64 {
        self.reads.leader_acked()
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
        self.reads.count_change();
    }

    /// Records have changed, or were not changed after all.
    pub fn end_change(&self) {
        self.reads.count_change();
    }

    /// Odd while records change.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.reads.version()
    }
}
