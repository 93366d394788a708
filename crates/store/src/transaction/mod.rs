//! One atomic step in one partition.

mod copies;
#[cfg(test)]
mod expiry_tests;
mod locks;
mod missing;
mod replay;
mod scan;
mod spaces;
#[cfg(test)]
mod spaces_tests;
#[cfg(test)]
mod tests;

use crate::change_set::ChangeSet;
use crate::deleted_hash_keys::DeletedHashKeys;
use crate::errors::damaged;
use crate::meter::Meter;
use crate::overlay::{Lookup, Overlay};
use crate::partition::Partition;
use crate::space_writes::SpaceWrites;
use crate::table::{Readable, Table};
use bytes::{Bytes, BytesMut};
pub use copies::Copies;
pub use missing::Missing;
pub use spaces::SpaceScan;
use std::cell::{Cell, RefCell};
use tessera_engine::mutation::{self, Location, SpaceLocation};
use tessera_transaction::{Access, TransactionId};
use tessera_types::{
    EngineKind, Expiry, ReadMode, RecordKey, RequestError, Space, StoredValue, UnixMillis, ValueKind, WhenFull,
};

/// A record as a transaction sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When the record expires.
    pub expiry: Expiry,
    /// What the value is.
    pub kind: ValueKind,
    /// The value, without the expiry.
    pub value: Bytes,
}

impl Record {
    fn of(stored: &StoredValue<'_>) -> Self {
        Self { expiry: stored.expiry, kind: stored.kind, value: Bytes::copy_from_slice(stored.payload) }
    }
}

/// Reads and writes of one partition that take effect together or not at all.
///
/// Reads see the applied state, the writes that are on their way, and the transaction's own. Writes are gathered, and
/// reach the log when the whole operation has succeeded. All of it happens at one instant, [`now`](Self::now).
///
/// **What has expired** by then is not seen. Other replicas keep it, since their clocks may say something else, until the log
/// tells a time by which it had expired. So a transaction that writes, and did not see a record for that reason, tells the
/// log its time: no later leader sees again what the transaction has taken for gone. The time is told now and then besides,
/// so that what has expired can be removed.
pub struct Transaction<'a> {
    table: &'a Table,
    partition: u32,
    times: Times,
    reads: ReadMode,
    /// What was checked before it read anything, if it only reads.
    readable: Option<Readable<'a>>,
    /// `None` for a transaction that only reads.
    writer: Option<Writer<'a>>,
    changes: ChangeSet,
    /// Hash keys that were deleted as a whole, before the changes.
    deleted: DeletedHashKeys,
    /// What was written to ordered spaces.
    spaces: SpaceWrites<SpaceLocation>,
    cleared: bool,
    /// Whether it works on [copies](Copies), of whatever partitions, and on nothing else.
    is_on_copies: bool,
    is_marked: bool,
    wrote_sort_key: bool,
    written_bytes: usize,
    written_records: usize,
    /// Whether keys may be locked by transactions over partitions.
    has_locks: bool,
    found: Found<'a>,
}

/// How much later than what the log has told a time must be to be told without need.
const TELLING_PAUSE_MILLIS: u64 = 1_000;

/// The times that a transaction goes by.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Now.
    pub(crate) now: UnixMillis,
    /// What had expired by then is not seen.
    pub(crate) seen_at: UnixMillis,
    /// The partition's time once all that is on its way is applied.
    pub(crate) told: UnixMillis,
    /// What is not seen must have expired by then, or it is not known whether it has.
    pub(crate) settled: UnixMillis,
}

impl Times {
    /// Those of a partition's leader, if its clock shows `now`.
    pub fn of_leader(now: UnixMillis, told: UnixMillis, is_certain: bool) -> Self {
        let now = now.max(told);
        Self { now, seen_at: if is_certain { now } else { told }, told, settled: UnixMillis::new(u64::MAX) }
    }
}

/// Counts what a transaction reads, if that is all it does.
#[derive(Default)]
struct Found<'a> {
    bytes: Cell<usize>,
    /// What it would have had to wait for: it is made again, and counted then.
    missing: RefCell<Option<Missing>>,
    /// The transaction over partitions for which it would have to wait: then it is made again, too.
    held_by: Cell<Option<TransactionId>>,
    /// Whether it has not read something for that reason, if it only reads.
    is_held: Cell<bool>,
    /// Whether a record was not seen of which it is not known whether it has expired.
    is_unsettled: Cell<bool>,
    /// When the first of the records ends that it has read.
    first_expiry: Cell<Option<UnixMillis>>,
    meter: Option<&'a Meter>,
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        if let Some(meter) = self.meter.filter(|_| self.missing.get_mut().is_none() && self.held_by.get().is_none()) {
            meter.begin_read();
            meter.end_read(self.bytes.get());
        }
    }
}

/// What a transaction writes to, and what it must see of the writes before it.
struct Writer<'a> {
    overlay: &'a Overlay,
    /// The log entry being put together.
    payload: &'a mut BytesMut,
    /// Where this transaction's part of it begins.
    began: usize,
    /// Whether something was not seen that the log does not say has expired.
    rests_on_time: Cell<bool>,
    /// Whether something was written that expires.
    writes_expiry: bool,
    /// A time that another partition's log has told.
    time: Option<UnixMillis>,
}

impl<'a> Transaction<'a> {
    /// A transaction that only reads what is applied. Its reads are at one instant only if [`Table::version`] says so.
    ///
    /// # Errors
    /// [`RequestError::NotReady`] while the partition starts.
    pub fn read_only(table: &'a Table, partition: u32, reads: ReadMode, now: UnixMillis) -> Result<Self, RequestError> {
        let readable = table.check_serving(partition, reads)?;
        let meter = &readable.state.meter;
        let mut found = Found::default();
        found.meter = Some(meter);
        let told = table.engine.time(partition);
        let seen_at = table.seen_at(partition, reads, now);
        let settled = match reads {
            ReadMode::Outdated => UnixMillis::new(u64::MAX),
            _ => readable.state.expiry_fence.begin_read(seen_at),
        };
        let times = Times { now: now.max(told), seen_at, told, settled };
        // Nobody is promised that an outdated read sees what others have seen.
        let has_locks = reads != ReadMode::Outdated && readable.state.ledger.has_locks();
        Ok(Self { reads, readable: Some(readable), has_locks, found, ..Self::on(table, partition, times) })
    }

    fn on(table: &'a Table, partition: u32, times: Times) -> Self {
        Self {
            table,
            partition,
            times,
            reads: ReadMode::Single,
            readable: None,
            writer: None,
            changes: ChangeSet::default(),
            deleted: DeletedHashKeys::default(),
            spaces: SpaceWrites::default(),
            cleared: false,
            is_on_copies: false,
            is_marked: false,
            wrote_sort_key: false,
            written_bytes: 0,
            written_records: 0,
            has_locks: false,
            found: Found::default(),
        }
    }

    /// A transaction that may read and write one partition.
    pub fn new(
        table: &'a Table,
        partition: u32,
        times: Times,
        overlay: &'a Overlay,
        payload: &'a mut BytesMut,
    ) -> Self {
        let began = payload.len();
        let writer =
            Writer { overlay, payload, began, rests_on_time: Cell::new(false), writes_expiry: false, time: None };
        let has_locks = table.partitions[partition as usize].ledger.has_locks();
        Self { writer: Some(writer), has_locks, ..Self::on(table, partition, times) }
    }

    /// Refuses what was read so far if another node may have led the partition meanwhile, or if it is
    /// [not settled](crate::hosting::ExpiryFence) whether something has expired.
    ///
    /// # Errors
    /// [`RequestError::NotReady`].
    pub fn check_lease(&self) -> Result<(), RequestError> {
        if self.is_unsettled() {
            return Err(RequestError::NotReady);
        }
        match self.readable {
            Some(readable) => self.table.check_lease(self.partition, self.reads, readable),
            // What the partition's loop evaluates counts as soon as its entry is committed.
            None => Ok(()),
        }
    }

    /// Whether something was not seen of which it is [not settled](crate::hosting::ExpiryFence) whether it has expired. What was read does not
    /// count then; the partition's loop, which knows what is on its way, can read it.
    pub fn is_unsettled(&self) -> bool {
        self.found.is_unsettled.get()
    }

    /// The time by which the transaction judges what has expired.
    pub fn now(&self) -> UnixMillis {
        self.times.now
    }

    /// What has expired by this time is not seen. It is not after [`now`](Self::now).
    pub fn seen_at(&self) -> UnixMillis {
        self.times.seen_at
    }

    /// The table of the partition.
    pub fn table(&self) -> &Table {
        self.table
    }

    /// The number of the partition.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// What this node knows of the partition.
    pub fn partition_state(&self) -> &'a Partition {
        &self.table.partitions[self.partition as usize]
    }

    /// Whether it may write.
    pub fn may_write(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether there are writes that are not applied yet.
    pub fn is_behind(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| !writer.overlay.is_empty())
    }

    /// Whether a hash key is in this transaction's partition, or it works on copies.
    pub fn covers(&self, hash_key: &[u8]) -> bool {
        self.is_on_copies || self.table.partition_of(&RecordKey::new(hash_key, b"")) == self.partition
    }

    /// The live record under a key.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn get(&self, hash_key: &[u8], sort_key: &[u8]) -> Result<Option<Record>, RequestError> {
        self.note_read(hash_key);
        self.check_lock(hash_key, Access::Shared)?;
        let key = RecordKey::new(hash_key, sort_key);
        let ahead = match &self.writer {
            None => Lookup::Engine,
            Some(writer) => match self.changes.get(&key, writer.payload) {
                Some(change) => change.value(writer.payload).map_or(Lookup::Absent, Lookup::Stored),
                None if self.hides_overlay(hash_key) => Lookup::Absent,
                None => writer.overlay.get(&key, writer.payload),
            },
        };
        let record = |stored: &[u8]| Ok(self.live(&key, stored)?.as_ref().map(Record::of));
        match ahead {
            Lookup::Stored(stored) => record(stored),
            Lookup::Absent => Ok(None),
            Lookup::Engine => {
                let mut found = Ok(None);
                let visit = &mut |stored: &[u8]| found = record(stored);
                self.table
                    .engine
                    .get(self.partition, &key, visit)
                    .map_err(|error| self.failed(error, || Missing::record(hash_key, sort_key)))?;
                found
            }
        }
    }

    fn note_read(&self, hash_key: &[u8]) {
        if self.writer.is_none() {
            self.partition_state().hot_keys.read(hash_key);
        }
    }

    fn live<'s>(&self, key: &RecordKey<'_>, bytes: &'s [u8]) -> Result<Option<StoredValue<'s>>, RequestError> {
        let stored = StoredValue::decode(bytes).ok_or_else(|| damaged(key))?;
        self.found.bytes.update(|found| found + bytes.len());
        if stored.expiry == Expiry::NEVER {
            return Ok(Some(stored));
        }
        if stored.is_live(self.times.seen_at) {
            let ends = stored.expiry.earliest();
            self.found.first_expiry.update(|first| first.into_iter().chain(ends).min());
            return Ok(Some(stored));
        }
        self.note_expired(|time| stored.is_live(time));
        Ok(None)
    }

    /// A record is not seen, since it has expired.
    pub(super) fn note_expired(&self, is_live: impl Fn(UnixMillis) -> bool) {
        if is_live(self.times.settled) {
            self.found.is_unsettled.set(true);
        }
        if let Some(writer) = self.writer.as_ref().filter(|_| is_live(self.times.told)) {
            writer.rests_on_time.set(true);
        }
    }

    /// Whether a hash key may have records besides the one under the empty sort key; false is certain.
    pub fn may_hold_sort_keys(&self) -> bool {
        self.table.engine.may_hold_sort_keys(self.partition)
            || self.writer.as_ref().is_some_and(|writer| writer.overlay.may_hold_sort_keys())
            || self.wrote_sort_key
    }

    /// The expiry of a new key for which none was asked: the table's default time to live from now.
    pub fn default_expiry(&self) -> Expiry {
        let seconds = self.table.settings.load().default_ttl_seconds;
        Expiry::at_key(if seconds > 0 {
            self.times.now.checked_add_millis(seconds.saturating_mul(1_000))
        } else {
            None
        })
    }

    /// Puts a record.
    ///
    /// # Errors
    /// A limit that would be exceeded, or a full memory table. The transaction is then to be given up.
    pub fn put(
        &mut self,
        hash_key: &[u8],
        sort_key: &[u8],
        value: &[u8],
        expiry: Expiry,
        kind: ValueKind,
    ) -> Result<(), RequestError> {
        self.check_lock(hash_key, Access::Exclusive)?;
        let limits = &*self.table.limits;
        check_size("hash key", "hash_key_bytes", hash_key.len(), limits.hash_key_bytes)?;
        check_size("sort key", "sort_key_bytes", sort_key.len(), limits.sort_key_bytes)?;
        check_size("value", "value_bytes", value.len(), limits.value_bytes)?;
        self.written_bytes += hash_key.len() + sort_key.len() + value.len();
        check_size("write", "write_bytes", self.written_bytes, limits.write_bytes)?;
        self.count_record()?;
        self.check_spare(self.written_bytes)?;
        self.put_unchecked(&self.own_key(hash_key, sort_key), &StoredValue { expiry, kind, payload: value });
        Ok(())
    }

    /// Whether a memory table can take this many bytes more.
    pub fn check_spare(&self, needed: usize) -> Result<(), RequestError> {
        match self.table.engine.spare_bytes() {
            Some(spare) if spare < needed as u64 => Err(RequestError::MemoryFull { needed: needed as u64, spare }),
            _ => Ok(()),
        }
    }

    /// Puts a record that need not keep to the limits.
    pub fn put_unchecked(&mut self, key: &RecordKey<'_>, stored: &StoredValue<'_>) {
        if let Some(writer) = &mut self.writer {
            writer.writes_expiry |= stored.expiry != Expiry::NEVER;
        }
        self.change(key, |payload, key| mutation::encode_put(payload, key, stored));
    }

    /// Deletes a record, whether it exists or not.
    ///
    /// # Errors
    /// The limit on the number of records that one request may write. The transaction is then to be given up.
    pub fn delete(&mut self, hash_key: &[u8], sort_key: &[u8]) -> Result<(), RequestError> {
        self.check_lock(hash_key, Access::Exclusive)?;
        self.count_record()?;
        self.delete_unchecked(hash_key, sort_key);
        Ok(())
    }

    /// Deletes a record whatever the limits say.
    pub fn delete_unchecked(&mut self, hash_key: &[u8], sort_key: &[u8]) {
        self.written_bytes += hash_key.len() + sort_key.len();
        self.change(&self.own_key(hash_key, sort_key), mutation::encode_delete);
    }

    /// A partition evaluates and applies a request in one go, while its leader does nothing else.
    fn count_record(&mut self) -> Result<(), RequestError> {
        self.written_records += 1;
        self.check_records(self.written_records)
    }

    /// Whether one request may write this many records.
    ///
    /// # Errors
    /// [`RequestError::TooManyRecords`].
    pub fn check_records(&self, records: usize) -> Result<(), RequestError> {
        let allowed = self.table.limits.write_records;
        if records > allowed { Err(RequestError::TooManyRecords { allowed }) } else { Ok(()) }
    }

    /// Whether replicas of the table drop records each on its own. Then others may have what is not seen here, and what is to
    /// be gone must be deleted whether it is seen or not.
    pub fn evicts(&self) -> bool {
        self.table.schema.engine == EngineKind::Memory && self.table.settings.load().when_full == WhenFull::Evict
    }

    /// On a table that evicts, deletes what only other replicas still have under a hash key. To be called before something
    /// new is put there that must not stand beside that.
    pub fn delete_unseen(&mut self, hash_key: &[u8]) {
        if !hash_key.is_empty() && self.evicts() {
            self.delete_hash_key(hash_key);
        }
    }

    /// Deletes every record under a hash key, also those that only other replicas still have. It costs the same however many
    /// there are.
    pub fn delete_hash_key(&mut self, hash_key: &[u8]) {
        // If it is locked, that is noted, and what is done here will be taken back.
        let _ = self.check_lock(hash_key, Access::Exclusive);
        self.delete_hash_key_unchecked(hash_key);
    }

    fn delete_hash_key_unchecked(&mut self, hash_key: &[u8]) {
        let key = self.own_key(hash_key, b"");
        let writer = self.writer.as_mut().expect("a read-only transaction does not write");
        self.changes.forget_hash_key(&key, writer.payload);
        mutation::encode_delete_hash_key(writer.payload, &key);
        self.deleted.insert(hash_key, 0);
    }

    fn own_key<'k>(&self, hash_key: &'k [u8], sort_key: &'k [u8]) -> RecordKey<'k> {
        let key = RecordKey::new(hash_key, sort_key);
        debug_assert!(self.covers(hash_key), "a transaction writes its own partition only");
        key
    }

    fn change(&mut self, key: &RecordKey<'_>, encode: impl FnOnce(&mut BytesMut, &RecordKey<'_>) -> Location) {
        let writer = self.writer.as_mut().expect("a read-only transaction does not write");
        self.wrote_sort_key |= !key.sort_key.is_empty();
        let location = encode(writer.payload, key);
        self.changes.insert(location, writer.payload);
    }

    /// Deletes every record of the partition, but what it knows of transactions over partitions.
    pub fn clear(&mut self) {
        let ledger = &self.partition_state().ledger;
        if let Some(holder) = self.has_locks.then(|| ledger.any_holder()).flatten() {
            // It waits for all that is there: what comes meanwhile would keep it waiting.
            ledger.close();
            self.wait_for(holder);
        }
        let writer = self.writer.as_mut().expect("a read-only transaction does not write");
        writer.payload.truncate(writer.began);
        mutation::encode_clear(writer.payload);
        self.changes.clear();
        self.deleted.clear();
        self.spaces.clear();
        self.cleared = true;
        for (key, record) in ledger.stored() {
            self.put_in_unchecked(Space::SYSTEM, &key, &record);
        }
    }

    /// Tells the log the time, if something may have expired since it was last told.
    pub fn tell_time(&self) {
        if let Some(writer) = &self.writer {
            let may_have_expired =
                self.table.engine.next_expiry(self.partition).is_some_and(|next| next <= self.times.now);
            writer.rests_on_time.set(may_have_expired);
        }
    }

    /// Tells the log a time that another partition's log has told.
    pub fn take_time(&mut self, time: UnixMillis) {
        if let Some(writer) = &mut self.writer {
            writer.time = writer.time.max(Some(time));
        }
    }

    /// The time to tell the log, if one is.
    fn time_to_tell(&self) -> Option<UnixMillis> {
        let (writer, Times { seen_at, told, .. }) = (self.writer.as_ref()?, self.times);
        let is_due = || {
            let changes = self.cleared || !self.changes.is_empty() || !self.deleted.is_empty();
            let has_expiries = || writer.writes_expiry || self.table.engine.next_expiry(self.partition).is_some();
            changes && seen_at.saturating_millis_since(told) >= TELLING_PAUSE_MILLIS && has_expiries()
        };
        let own = (writer.rests_on_time.get() || is_due()).then_some(seen_at);
        own.max(writer.time).filter(|time| *time > told)
    }

    /// Begins the log entry with a mark. Returns false if something else is in the entry already.
    pub fn mark(&mut self, content: &[u8]) -> bool {
        let writer = self.writer.as_mut().expect("a read-only transaction does not write");
        self.is_marked = writer.payload.is_empty();
        if self.is_marked {
            mutation::encode_mark(writer.payload, content);
        }
        self.is_marked
    }

    /// Takes back what was written.
    pub fn abandon(self) {
        if let Some(writer) = self.writer {
            writer.payload.truncate(writer.began);
        }
    }

    /// What was written, to be entered into the overlay.
    pub fn into_changes(self) -> Changes {
        let (time, judged_at) = (self.time_to_tell(), self.times.seen_at);
        if let (Some(time), Some(writer)) = (time, self.writer) {
            mutation::encode_time(writer.payload, time);
        }
        let Self { cleared, is_marked, changes, deleted, spaces, .. } = self;
        Changes { cleared, is_marked, changes, deleted, spaces, time, judged_at }
    }
}

/// What a transaction wrote, by its place in the payload.
pub struct Changes {
    cleared: bool,
    is_marked: bool,
    changes: ChangeSet,
    deleted: DeletedHashKeys,
    spaces: SpaceWrites<SpaceLocation>,
    time: Option<UnixMillis>,
    /// What had expired by then was not seen.
    judged_at: UnixMillis,
}

impl Changes {
    /// Whether nothing has to be logged.
    pub fn is_empty(&self) -> bool {
        let has_writes = !self.changes.is_empty() || !self.spaces.is_empty() || !self.deleted.is_empty();
        !self.cleared && !self.is_marked && !has_writes && self.time.is_none()
    }

    /// The time that it tells the log.
    pub fn time(&self) -> Option<UnixMillis> {
        self.time
    }

    /// The hash keys that were changed, as they stand in `payload`.
    pub fn hash_keys<'a>(&'a self, payload: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.deleted.iter().chain(self.changes.iter().map(|location| location.key(payload).hash_key))
    }

    /// Whether all records of the partition are deleted before the other changes.
    pub fn clears(&self) -> bool {
        self.cleared
    }

    /// Notes the changes as being on their way.
    pub fn enter(&self, overlay: &mut Overlay, payload: &[u8]) {
        overlay.judged(self.judged_at);
        if self.cleared {
            overlay.clear();
        }
        self.deleted.iter().for_each(|hash_key| overlay.delete_hash_key(hash_key, payload));
        self.changes.iter().for_each(|location| overlay.write(*location, payload));
        if !self.spaces.is_empty() {
            let (dropped, writes) = self.spaces.iter();
            dropped.for_each(|space| overlay.drop_space(space));
            writes.for_each(|(space, key, location)| overlay.write_in(space, key, *location));
        }
    }
}

fn check_size(what: &'static str, limit: &'static str, actual: usize, allowed: usize) -> Result<(), RequestError> {
    if actual <= allowed {
        return Ok(());
    }
    Err(RequestError::TooLarge { what: what.into(), limit: limit.into(), actual, allowed })
}
