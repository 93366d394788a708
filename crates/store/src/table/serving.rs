//! Whether a partition may be read here, and what a reader sees of it.

use super::Table;
use crate::partition::Partition;
use std::sync::atomic::Ordering;
use tessera_types::{Expiry, ReadMode, RecordKey, RequestError, StoredValue, UnixMillis};

/// A partition that may be read, until it is [interrupted](Partition::interruptions).
#[derive(Clone, Copy)]
pub(crate) struct Readable<'a> {
    pub(crate) state: &'a Partition,
    interruptions: u64,
    /// The [version](Partition::version) of the partition when that was found.
    version: u64,
}

impl Readable<'_> {
    fn is_interrupted(&self) -> bool {
        self.state.interruptions() != self.interruptions
    }
}

impl Table {
    /// Refuses a read that could miss what it must not miss. To be called before the read, as [`Self::check_lease`] after it.
    #[inline]
    pub(crate) fn check_serving(&self, partition: u32, reads: ReadMode) -> Result<Readable<'_>, RequestError> {
        let state = &self.partitions[partition as usize];
        let (interruptions, version) = (state.interruptions(), state.version());
        let may_serve = match reads {
            ReadMode::Outdated => self.is_readable(partition),
            _ => state.is_serving(),
        };
        if !may_serve || self.is_dropped.load(Ordering::Relaxed) {
            return Err(self.not_serving());
        }
        // What was acknowledged before the read must be there when it begins: it may be applied right after the record was read.
        let leader_acked = state.leader_acked();
        if leader_acked > 0 && reads != ReadMode::Outdated && leader_acked > self.engine.applied_index(partition) {
            return Err(RequestError::NotReady);
        }
        Ok(Readable { state, interruptions, version })
    }

    /// Refuses to read a key of which a transaction over partitions may have written another value already. To be called before
    /// the read.
    #[inline]
    pub(super) fn check_readable(
        &self,
        readable: Readable<'_>,
        key: &RecordKey<'_>,
        reads: ReadMode,
    ) -> Result<(), RequestError> {
        let is_unreadable = reads != ReadMode::Outdated && readable.state.ledger.is_unreadable(key.hash_key);
        if is_unreadable { Err(RequestError::NotReady) } else { Ok(()) }
    }

    /// Refuses what was read if another node may have led meanwhile, or records were replaced. To be called after the read, with
    /// what [`Self::check_serving`] has returned before it: what was found was so while the replica led without interruption, and
    /// its lease still holds.
    #[inline]
    pub(crate) fn check_lease(
        &self,
        partition: u32,
        reads: ReadMode,
        readable: Readable<'_>,
    ) -> Result<(), RequestError> {
        if readable.is_interrupted() {
            return Err(self.not_serving());
        }
        if reads == ReadMode::Outdated {
            return self.check_serving(partition, reads).map(|_| ());
        }
        if readable.state.reads.has_lease() {
            return Ok(());
        }
        self.wake(partition);
        Err(RequestError::NotReady)
    }

    /// The time at which a reader sees a partition's records: what had expired by then is hidden. The replica that leads goes
    /// by the clock as well as by the log, others by the log only, which they have from the leader.
    pub fn seen_at(&self, partition: u32, reads: ReadMode, now: UnixMillis) -> UnixMillis {
        let told = self.engine.time(partition);
        let leads = || self.partitions[partition as usize].is_serving();
        let goes_by_clock = self.clock.is_certain() && (reads != ReadMode::Outdated || leads());
        if goes_by_clock { told.max(now) } else { told }
    }

    /// Whether a reader sees a record, which it has read since the partition was found to be readable.
    ///
    /// # Errors
    /// [`RequestError::NotReady`] if the record has expired, and a write that is on its way, or was applied meanwhile, may have found it
    /// alive; see [`ExpiryFence`](crate::expiry_fence::ExpiryFence).
    #[inline]
    pub(super) fn sees(
        &self,
        readable: Readable<'_>,
        (partition, reads, now): (u32, ReadMode, UnixMillis),
        (key, stored): (&RecordKey<'_>, &StoredValue<'_>),
    ) -> Result<bool, RequestError> {
        if stored.expiry == Expiry::NEVER {
            return Ok(true);
        }
        let seen_at = self.seen_at(partition, reads, now);
        if stored.is_live(seen_at) {
            return Ok(true);
        }
        // Nobody is promised that an outdated read sees what others have seen.
        let is_settled = || {
            let settled = readable.state.expiry_fence.begin_read(seen_at);
            let Readable { state, version, .. } = readable;
            let is_unchanged = || version.is_multiple_of(2) && state.version() == version;
            // A transaction over partitions that holds the key since has found what it found, and changes no record before it commits. Its lock
            // comes before the version: one that holds nothing any more has changed that before.
            !stored.is_live(settled) && !state.ledger.is_unreadable(key.hash_key) && is_unchanged()
        };
        if reads == ReadMode::Outdated || is_settled() { Ok(false) } else { Err(RequestError::NotReady) }
    }
}
