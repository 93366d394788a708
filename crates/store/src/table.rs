//! A table on this node, as readers and writers see it. What a node does with the tables that it hosts is in [`hosting`].

mod hosting;

use crate::admission::{Admissions, Gate, LeadsAShare};
use crate::clock::ClusterClock;
use crate::compaction_state::CompactionState;
use crate::meter::Counts;
use crate::partition::Partition;
use crate::request_times::TableTimes;
use crate::watch::Watch;
use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tessera_cluster::Indexes;
use tessera_consensus::GroupId;
use tessera_engine::{Engine, EngineError, EngineStatistics, Order, PageLimit, Position, Visit};
use tessera_types::{
    Durability, Expiry, Limits, Model, NodeId, ReadMode, RecordKey, RequestError, Space, StoredValue, TableId,
    TableNumber, TableSchema, TableSettings, UnixMillis,
};

/// So many records of a partition at most are counted where somebody asks how many there are.
const COUNTED: PageLimit = PageLimit { records: 10_000, bytes: 16 << 20 };
/// So many of a whole table are looked at, about, to find out that it has many more, and how many.
const SAMPLED: usize = 64_000;

/// A table with its partitions. Handles stay valid when the table is renamed or altered; after it is dropped, requests
/// through them are refused.
pub struct Table {
    pub(crate) id: TableId,
    number: AtomicU32,
    /// Whether it came about by a split.
    was_split: bool,
    /// How often an empty table has taken its place; see [`TableEntry::truncations`](tessera_cluster::TableEntry::truncations).
    truncations: AtomicU32,
    pub(crate) schema: TableSchema,
    pub(crate) limits: Arc<Limits>,
    pub(crate) name: ArcSwap<String>,
    pub(crate) settings: ArcSwap<TableSettings>,
    pub(crate) indexes: ArcSwap<Indexes>,
    pub(crate) gate: Gate,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) is_dropped: AtomicBool,
    /// Whether it is being split or truncated, or was.
    pub(crate) is_splitting: AtomicBool,
    /// The table that took this one's place last; if this one is not dropped, it was recalled since.
    successor: ArcSwapOption<Table>,
    pub(crate) compaction: Mutex<CompactionState>,
    pub(crate) clock: Arc<ClusterClock>,
    /// This node.
    pub(crate) node: NodeId,
    /// How long what clients asked of it took.
    pub(crate) times: TableTimes,
}

/// Where requests for a partition go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This node leads the partition.
    Here,
    /// This other node leads it.
    Node(NodeId),
    /// No leader is known.
    Unknown,
}

impl LeadsAShare for Table {
    fn led_share(&self) -> f64 {
        let led = (0..self.schema.partitions).filter(|partition| self.leader_of(*partition) == Leader::Here).count();
        led as f64 / f64::from(self.schema.partitions)
    }
}

/// The group of a table's partition: the table's number plus one (zero is the catalog's) above 32 bits of partition.
pub fn group_of(table: TableId, partition: u32) -> GroupId {
    GroupId((u64::from(table.0) + 1) << 32 | u64::from(partition))
}

/// The inverse of [`group_of`].
pub fn partition_of_group(group: GroupId) -> Option<(TableId, u32)> {
    let table = u32::try_from(group.0 >> 32).ok()?.checked_sub(1)?;
    // The low half is the partition by construction.
    Some((TableId(table), group.0 as u32))
}

/// A partition that may be read, until it is [interrupted](Partition::interruptions).
#[derive(Clone, Copy)]
pub(crate) struct Readable<'a> {
    pub(crate) state: &'a Partition,
    interruptions: u64,
}

impl Readable<'_> {
    fn is_interrupted(&self) -> bool {
        self.state.interruptions() != self.interruptions
    }
}

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
    /// The identifier, which no other table ever has.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The number by which clients name the table. It changes only when the table is truncated: another one has it then.
    pub fn number(&self) -> TableNumber {
        TableNumber(self.number.load(Ordering::Acquire))
    }

    /// Whether it came about by a split.
    pub fn was_split(&self) -> bool {
        self.was_split
    }

    /// Whether it is being split or truncated, or was: its requests may have to go to the table that takes its place.
    pub fn is_splitting(&self) -> bool {
        self.is_splitting.load(Ordering::Acquire)
    }

    /// The table that took the place of this one when it was split or truncated, if one has.
    pub fn successor(&self) -> Option<Arc<Self>> {
        let mut latest = self.next()?;
        while let Some(next) = latest.next() {
            latest = next;
        }
        Some(latest)
    }

    fn next(&self) -> Option<Arc<Self>> {
        if self.is_dropped.load(Ordering::Acquire) { self.successor.load_full() } else { None }
    }

    /// Whether an empty table took the place of this one, which kept its records and changes for itself.
    pub fn was_emptied(&self) -> bool {
        // After a split both have the same number.
        self.next().is_some_and(|next| next.number() != self.number())
    }

    /// The name, which may change while the table is open.
    pub fn name(&self) -> Arc<String> {
        self.name.load_full()
    }

    /// What was fixed when the table was created.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// The settings that are in force now.
    pub fn settings(&self) -> Arc<TableSettings> {
        self.settings.load_full()
    }

    /// The indexes that the table is to have, as far as this node knows.
    pub fn indexes(&self) -> Arc<Indexes> {
        self.indexes.load_full()
    }

    /// What decides about requests; `None` if all are admitted.
    #[inline]
    pub fn admissions(&self) -> Option<Arc<Admissions>> {
        self.gate.get()
    }

    /// The limits of keys, values and requests.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The partition of a hash key.
    pub fn partition_of(&self, key: &RecordKey<'_>) -> u32 {
        self.schema.partitioner.partition_of(key, self.schema.partitions)
    }

    /// Refuses a read that could miss what it must not miss. To be called before the read, as [`Self::check_lease`] after it.
    #[inline]
    pub(crate) fn check_serving(&self, partition: u32, reads: ReadMode) -> Result<Readable<'_>, RequestError> {
        let state = &self.partitions[partition as usize];
        let interruptions = state.interruptions();
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
        Ok(Readable { state, interruptions })
    }

    /// Refuses to read a key of which a transaction over partitions may have written another value already. To be called before
    /// the read.
    #[inline]
    fn check_readable(&self, readable: Readable<'_>, key: &RecordKey<'_>, reads: ReadMode) -> Result<(), RequestError> {
        let is_unreadable = reads != ReadMode::Outdated && readable.state.ledger.is_unreadable(key.hash_key);
        if is_unreadable { Err(RequestError::NotReady) } else { Ok(()) }
    }

    /// Whether the replica here, if there is one, may be read although it does not lead: what it shows is never older than what it
    /// has shown before.
    fn is_readable(&self, partition: u32) -> bool {
        let state = &self.partitions[partition as usize];
        state.is_readable_at(self.engine.applied_index(partition), || self.engine.settled_from(partition))
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

    /// The group may rest; then it has no lease.
    fn wake(&self, partition: u32) {
        let state = &self.partitions[partition as usize];
        if state.begins_to_wake() {
            state.waker.wake(group_of(self.id, partition));
        }
    }

    /// The node that leads a partition, as far as this one knows. It may rest.
    pub fn known_leader(&self, partition: u32) -> Option<NodeId> {
        let state = &self.partitions[partition as usize];
        if state.is_serving() {
            return Some(self.node);
        }
        // This node was elected and does not serve yet, or no longer.
        Some(state.leader.get().1).filter(|node| node.0 != 0 && *node != self.node)
    }

    /// How far the replica here may be behind what was acknowledged; `None` if there is none that may be read, or it has not
    /// heard of a leader yet.
    pub fn lag(&self, partition: u32) -> Option<Duration> {
        let state = &self.partitions[partition as usize];
        let as_of = state.reads.as_of();
        let is_known = self.is_readable(partition) && !as_of.is_unset();
        is_known.then(|| as_of.ago())
    }

    /// What the replica of a partition here was asked since it was opened.
    pub fn counts(&self, partition: u32) -> Counts {
        self.partitions[partition as usize].meter().counts()
    }

    /// The log index that the partition's records on this node reflect.
    pub fn applied_index(&self, partition: u32) -> u64 {
        self.engine.applied_index(partition)
    }

    /// The term of the latest leader of a partition that is known here; zero if none is.
    pub fn term(&self, partition: u32) -> u64 {
        self.partitions[partition as usize].leader.get().0
    }

    /// Where a read of a partition goes now.
    pub fn reader_of(&self, partition: u32, reads: ReadMode) -> Leader {
        if reads == ReadMode::Outdated && self.is_readable(partition) {
            return Leader::Here;
        }
        self.leader_of(partition)
    }

    /// Where a request for a partition goes now. Wakes a group that rests here.
    pub fn leader_of(&self, partition: u32) -> Leader {
        let state = &self.partitions[partition as usize];
        if state.is_serving() {
            // Without a lease it may have been overtaken.
            if state.reads.has_lease() {
                return Leader::Here;
            }
            self.wake(partition);
            return Leader::Unknown;
        }
        self.known_leader(partition).map_or(Leader::Unknown, Leader::Node)
    }

    /// Whether the partition's loop here takes requests, with a lease or without. A read that it makes waits until it is certain that
    /// nobody else leads.
    pub fn serves(&self, partition: u32) -> bool {
        self.partitions[partition as usize].is_serving()
    }

    /// Whether this node may answer reads of a partition that it leads at once. A group that hibernates has no lease, and is not woken.
    pub fn has_lease(&self, partition: u32) -> bool {
        let state = &self.partitions[partition as usize];
        state.is_serving() && state.reads.has_lease()
    }

    /// Why a request for a partition is not carried out here: [`RequestError::NoSuchTable`] once the table is dropped, else
    /// [`RequestError::NotReady`].
    pub fn not_serving(&self) -> RequestError {
        if self.is_dropped.load(Ordering::Acquire) && self.successor.load().is_none() {
            RequestError::NoSuchTable(self.name.load().to_string())
        } else {
            RequestError::NotReady
        }
    }

    /// The time at which a reader sees a partition's records: what had expired by then is hidden. The replica that leads goes
    /// by the clock as well as by the log, others by the log only, which they have from the leader.
    pub fn seen_at(&self, partition: u32, reads: ReadMode, now: UnixMillis) -> UnixMillis {
        let told = self.engine.time(partition);
        let leads = || self.partitions[partition as usize].is_serving();
        let goes_by_clock = self.clock.is_certain() && (reads != ReadMode::Outdated || leads());
        if goes_by_clock { told.max(now) } else { told }
    }

    #[inline]
    fn is_seen(&self, partition: u32, reads: ReadMode, now: UnixMillis, stored: &StoredValue<'_>) -> bool {
        stored.expiry == Expiry::NEVER || stored.is_live(self.seen_at(partition, reads, now))
    }

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
            Some(stored) if self.is_seen(partition, reads, now, &stored) => {
                meter.end_read(bytes.len());
                visit(stored);
                outcome = Ok(true);
            }
            Some(_) => {}
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
                    visit(at, Some(stored).filter(|stored| self.is_seen(partition, mode, now, stored)));
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

    /// How many hash keys a partition has. Where the engine does not count them, [a few](COUNTED) are counted now, which may wait
    /// for the disk; how many more there are is estimated by how far in the order of hashes these go.
    ///
    /// # Errors
    /// [`RequestError::NotReady`] if this node does not serve the partition; what the engine reports.
    pub fn hash_keys(&self, partition: u32) -> Result<u64, RequestError> {
        let readable = self.check_serving(partition, ReadMode::Single)?;
        let keys = match self.engine.hash_keys(partition) {
            Some(keys) => keys,
            None => self.count_few(partition)?,
        };
        self.check_lease(partition, ReadMode::Single, readable)?;
        Ok(keys)
    }

    /// How many records, or documents, the replicas on this node have, expired ones included, if each partition has only [a few](COUNTED).
    /// It may wait for the disk.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn count_few_here(&self) -> Result<Option<u64>, RequestError> {
        let mut counted = 0;
        for partition in 0..self.schema.partitions {
            let is_cut = match self.schema.model {
                Model::Kv => {
                    let visit = &mut |_: RecordKey<'_>, _: &[u8]| {
                        counted += 1;
                        Visit::NextRecord
                    };
                    self.engine.scan(partition, &Position::START, COUNTED, visit).map_err(request_error)?.is_some()
                }
                Model::Document => {
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    let found = self.engine.read_space(partition, Space::DOCUMENTS, all, Order::Ascending, COUNTED);
                    let page = found.map_err(request_error)?;
                    counted += page.records().len() as u64;
                    page.is_cut
                }
            };
            if is_cut {
                return Ok(None);
            }
        }
        Ok(Some(counted))
    }

    fn count_few(&self, partition: u32) -> Result<u64, RequestError> {
        let sampled = (SAMPLED / self.schema.partitions as usize).clamp(250, COUNTED.records);
        let keys = self.count_some(partition, PageLimit { records: sampled, ..COUNTED })?;
        // Those that are not many more are worth a closer look.
        let is_large = sampled == COUNTED.records || keys > 2 * COUNTED.records as u64;
        if keys <= sampled as u64 || is_large { Ok(keys) } else { self.count_some(partition, COUNTED) }
    }

    /// The hash keys of a partition, counted from its beginning; of those beyond the limit it is known only that hashes are spread evenly.
    fn count_some(&self, partition: u32, limit: PageLimit) -> Result<u64, RequestError> {
        let mut keys: u64 = 0;
        let visit = &mut |_: RecordKey<'_>, _: &[u8]| {
            keys += 1;
            Visit::NextHashKey
        };
        let rest = self.engine.scan(partition, &Position::START, limit, visit).map_err(request_error)?;
        let Some(rest) = rest else { return Ok(keys) };
        let all = (u128::from(keys) << 64) / u128::from(rest.hash().max(1));
        // There is one more at least.
        Ok(u64::try_from(all).unwrap_or(u64::MAX).max(keys + 1))
    }

    /// What the engine tells about the table on this node.
    pub fn statistics(&self) -> EngineStatistics {
        self.engine.statistics()
    }

    /// Whether hash keys of this partition may have records besides the one under the empty sort key.
    pub fn may_hold_sort_keys(&self, partition: u32) -> bool {
        self.engine.may_hold_sort_keys(partition)
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
        let mut outcome = Ok(());
        let next = self
            .engine
            .scan(partition, from, limit, &mut |key, bytes| match StoredValue::decode(bytes) {
                Some(stored) if stored.is_live(seen_at) => visit(key, stored),
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

    /// Watches a hash key for writes.
    pub fn watch(&self, hash_key: &[u8]) -> Watch {
        let partition = self.partition_of(&RecordKey::new(hash_key, b""));
        self.partitions[partition as usize].watched.watch(Bytes::copy_from_slice(hash_key))
    }

    /// Whether a write waits for an fsync, or why it cannot have what it asks for.
    pub(crate) fn sync_for(&self, asked: Option<Durability>) -> Result<bool, RequestError> {
        let durability = asked.unwrap_or(self.schema.durability);
        if !self.schema.is_persistent() && durability != Durability::None {
            return Err(RequestError::DurabilityUnavailable(durability));
        }
        Ok(durability == Durability::Hard)
    }
}

/// What the engine reports, as an error of the request.
pub fn request_error(error: EngineError) -> RequestError {
    match error {
        EngineError::Corruption(what) => RequestError::Corruption(what),
        EngineError::WouldWait => RequestError::WouldWait,
        disk if disk.is_disk() => RequestError::DiskUnreadable(disk.to_string()),
        other => RequestError::Engine(other.to_string()),
    }
}

/// The error for a record whose bytes are no value.
pub fn damaged(key: &RecordKey<'_>) -> RequestError {
    RequestError::Corruption(format!("the record under hash key '{}'", key.hash_key.escape_ascii()))
}

#[cfg(test)]
mod tests;
