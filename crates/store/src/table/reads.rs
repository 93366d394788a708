//! Reading the records of a table.

use super::Table;
use super::serving::Readable;
use crate::errors::{damaged, request_error};
use crate::partition::Partition;
use smallvec::SmallVec;
use tessera_engine::{PageLimit, Position, Visit};
use tessera_types::{ReadMode, RecordKey, RequestError, StoredValue, UnixMillis};

/// Which of the keys that are read together must be read at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstantScope {
    /// Those of one partition.
    Partition,
    /// All.
    Table,
}

/// Most keys of [`Table::read_at_one_instant`].
pub const KEYS_AT_ONCE: usize = 32;

impl Table {
    /// Reads one record that is live at `now`, the time of [the store](crate::Store::now). `visit` gets it in place and must be quick. Returns whether there is one.
    ///
    /// # Errors
    /// [`RequestError::NotReady`] while this node does not serve the partition, also if that turns out after the visit; or
    /// what the engine reports; [`RequestError::WouldWait`] only of a read [from the caches](tessera_engine::from_caches).
    #[inline]
    pub fn read(
        &self,
        key: &RecordKey<'_>,
        reads: ReadMode,
        now: UnixMillis,
        visit: &mut dyn FnMut(StoredValue<'_>),
    ) -> Result<bool, RequestError> {
        let partition = self.partition_of(key);
        let readable = self.check_serving(partition, reads)?;
        self.check_readable(readable, key, reads)?;
        let Partition { meter, hot_keys, .. } = readable.state;
        let mut outcome = Ok(false);
        let read = self.engine.get(partition, key, &mut |bytes| match StoredValue::decode(bytes) {
            Some(stored) => {
                outcome = self.sees(readable, (partition, reads, now), (key, &stored));
                if outcome == Ok(true) {
                    meter.end_read(bytes.len());
                    visit(stored);
                }
            }
            None => outcome = Err(damaged(key)),
        });
        read.map_err(request_error)?;
        // Not before: a read that would have to wait is made, and counted, again.
        meter.begin_read();
        hot_keys.read(key.hash_key);
        self.check_lease(partition, reads, readable)?;
        outcome
    }

    /// Reads many records, each live at `now`; faster than one by one. They are not read at one instant.
    ///
    /// # Errors
    /// As [`Self::read`]; what was visited does not count then. It does with [`RequestError::WouldWait`]: then those that were not
    /// visited would have to wait for the disk.
    pub fn read_many(
        &self,
        keys: &[RecordKey<'_>],
        mode: ReadMode,
        now: UnixMillis,
        visit: &mut dyn FnMut(usize, Option<StoredValue<'_>>),
    ) -> Result<(), RequestError> {
        self.visit_many(keys, mode, InstantScope::Partition, now, &mut [], visit).map(|_| ())
    }

    /// As [`Self::read_many`], of no more than [`KEYS_AT_ONCE`] keys. Returns whether they were read at one instant, each partition's
    /// or all.
    ///
    /// # Errors
    /// As [`Self::read`]; what was visited does not count then.
    pub fn read_at_one_instant(
        &self,
        keys: &[RecordKey<'_>],
        mode: ReadMode,
        scope: InstantScope,
        now: UnixMillis,
        visit: &mut dyn FnMut(usize, Option<StoredValue<'_>>),
    ) -> Result<bool, RequestError> {
        let mut versions = [0; KEYS_AT_ONCE];
        self.visit_many(keys, mode, scope, now, &mut versions[..keys.len()], visit)
    }

    /// Returns whether nothing changed meanwhile that matters, if `versions` has a place for each key.
    fn visit_many(
        &self,
        keys: &[RecordKey<'_>],
        mode: ReadMode,
        scope: InstantScope,
        now: UnixMillis,
        versions: &mut [u64],
        visit: &mut dyn FnMut(usize, Option<StoredValue<'_>>),
    ) -> Result<bool, RequestError> {
        let mut reads: SmallVec<[_; KEYS_AT_ONCE]> = SmallVec::with_capacity(keys.len());
        let mut readable = SmallVec::<[_; KEYS_AT_ONCE]>::new();
        for (at, key) in keys.iter().enumerate() {
            let partition = self.partition_of(key);
            let checked = self.check_serving(partition, mode)?;
            self.check_readable(checked, key, mode)?;
            if let Some(noted) = versions.get_mut(at) {
                *noted = checked.state.version();
            }
            readable.push(checked);
            reads.push((partition, *key));
        }
        let mut outcome = Ok(());
        let read = self.engine.multi_get(&reads, &mut |at, bytes| {
            let (partition, key) = reads[at];
            let Partition { meter, hot_keys, .. } = readable[at].state;
            meter.begin_read();
            hot_keys.read(key.hash_key);
            match bytes.map(StoredValue::decode) {
                None => visit(at, None),
                Some(Some(stored)) => {
                    meter.end_read(stored.payload.len());
                    match self.sees(readable[at], (partition, mode, now), (&key, &stored)) {
                        Ok(is_seen) => visit(at, Some(stored).filter(|_| is_seen)),
                        Err(error) => outcome = Err(error),
                    }
                }
                Some(None) => outcome = Err(damaged(&key)),
            }
        });
        let would_wait = match read.map_err(request_error) {
            Err(RequestError::WouldWait) => true,
            read => read.map(|()| false)?,
        };
        let mut checked = reads.iter().zip(&readable);
        checked.try_for_each(|((partition, _), readable)| self.check_lease(*partition, mode, *readable))?;
        outcome?;
        if would_wait {
            return Err(RequestError::WouldWait);
        }
        // A transaction that holds one of the keys by now may have shown its effect under another one. The versions come later: one
        // that holds nothing any more has changed them before.
        let is_held =
            |(key, readable): (&RecordKey<'_>, &Readable<'_>)| readable.state.ledger.is_unreadable(key.hash_key);
        if scope == InstantScope::Table && mode != ReadMode::Outdated && keys.iter().zip(&readable).any(is_held) {
            return Ok(false);
        }
        // Bits that differ say that records have changed, and an odd number that they were just changing.
        let changed = |noted: u64, (partition, _): &(u32, _)| {
            (noted ^ self.partitions[*partition as usize].version()) | (noted & 1)
        };
        let changes = versions.iter().zip(&reads).fold(0, |changes, (noted, read)| changes | changed(*noted, read));
        if changes == 0 || scope == InstantScope::Table {
            return Ok(changes == 0);
        }
        // One key alone was read at one instant whatever came between.
        let is_shared = |partition| reads.iter().filter(|(other, _)| *other == partition).count() > 1;
        Ok(!versions.iter().zip(&reads).any(|(noted, read)| changed(*noted, read) != 0 && is_shared(read.0)))
    }

    /// Whether transactions over partitions hold keys of a partition that this node leads.
    pub fn has_locks(&self, partition: u32) -> bool {
        self.partitions[partition as usize].ledger.has_locks()
    }

    /// A number that stays the same as long as no record of the partition changes; `None` while one does. Two equal ones
    /// around several reads say that these were made at one instant.
    pub fn version(&self, partition: u32) -> Option<u64> {
        let version = self.partitions[partition as usize].version();
        version.is_multiple_of(2).then_some(version)
    }

    /// Visits the live records of a page of a partition; see [`tessera_engine::Engine::scan`]. Others count towards the limit too.
    /// Returns where the next page begins.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn scan(
        &self,
        partition: u32,
        from: &Position,
        limit: PageLimit,
        now: UnixMillis,
        visit: &mut dyn FnMut(RecordKey<'_>, StoredValue<'_>) -> Visit,
    ) -> Result<Option<Position>, RequestError> {
        let readable = self.check_serving(partition, ReadMode::Single)?;
        let seen_at = self.seen_at(partition, ReadMode::Single, now);
        let settled = readable.state.expiry_fence.begin_read(seen_at);
        let mut outcome = Ok(());
        let next = self
            .engine
            .scan(partition, from, limit, &mut |key, bytes| match StoredValue::decode(bytes) {
                Some(stored) if stored.is_live(seen_at) => visit(key, stored),
                Some(stored) if stored.is_live(settled) => {
                    outcome = Err(RequestError::NotReady);
                    Visit::NextHashKey
                }
                Some(_) => Visit::NextRecord,
                None => {
                    outcome = Err(damaged(&key));
                    Visit::NextHashKey
                }
            })
            .map_err(request_error)?;
        self.check_lease(partition, ReadMode::Single, readable)?;
        outcome.map(|()| next)
    }
}
