//! A table on this node, as readers and writers see it: where requests for its partitions go ([`leading`]), whether they may be read here
//! ([`serving`]), and [reading](reads). What a node does with the tables that it hosts is in [`hosting`].

mod counting;
mod hosted;
mod hosting;
mod identity;
mod leading;
mod reads;
mod serving;
#[cfg(test)]
mod tests;

use crate::admission::Admissions;
use crate::meter::Counts;
use crate::watch::Watch;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
pub use hosted::HostedTable;
pub use identity::TableIdentity;
pub use leading::Leader;
pub use reads::{InstantScope, KEYS_AT_ONCE};
pub(crate) use serving::Readable;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tessera_cluster::Indexes;
use tessera_engine::EngineStatistics;
use tessera_types::{Durability, Limits, RecordKey, RequestError, TableId, TableNumber, TableSchema, TableSettings};

/// A table with its partitions, as it is called by clients. Handles stay valid when the table is renamed or altered; after it is dropped,
/// requests through them are refused. Once another table has taken its place, a handle leads there for ever, also if what it held is
/// [recalled](Self::renewed) under another name: that has another handle.
pub struct Table {
    hosted: Arc<HostedTable>,
    number: TableNumber,
    /// Which of those that were made of the table this handle is: how often an empty table had taken its place before.
    truncations: u32,
    is_dropped: AtomicBool,
    /// Whether it is being split or truncated, or was.
    is_splitting: AtomicBool,
    /// The table that took this one's place.
    successor: ArcSwapOption<Table>,
    /// When this node heard that clients, which call the table by this number, have more partitions to ask than before.
    split_heard: OnceLock<Instant>,
}

impl Deref for Table {
    type Target = HostedTable;

    fn deref(&self) -> &HostedTable {
        &self.hosted
    }
}

impl Table {
    /// The identifier, which no other table ever has.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The number by which clients name the table. Once it is split or truncated, another one has it.
    pub fn number(&self) -> TableNumber {
        self.number
    }

    /// What names the table in requests between nodes.
    pub fn identity(&self) -> TableIdentity {
        TableIdentity { id: self.id, truncations: self.truncations }
    }

    /// Whether it came about by a split.
    pub fn was_split(&self) -> bool {
        self.was_split
    }

    /// When this node heard that the table has more partitions than before, also if it was truncated since. `None` if that was before the
    /// node started, or the table was not split, or was recalled since under a number of its own.
    pub fn split_heard(&self) -> Option<Instant> {
        self.split_heard.get().copied()
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
        // A split makes more partitions.
        self.next().is_some_and(|next| next.schema.partitions == self.schema.partitions)
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

    /// What the replica of a partition here was asked since it was opened.
    pub fn counts(&self, partition: u32) -> Counts {
        self.partitions[partition as usize].meter().counts()
    }

    /// The log index that the partition's records on this node reflect.
    pub fn applied_index(&self, partition: u32) -> u64 {
        self.engine.applied_index(partition)
    }

    /// What the engine tells about the table on this node.
    pub fn statistics(&self) -> EngineStatistics {
        self.engine.statistics()
    }

    /// Whether hash keys of this partition may have records besides the one under the empty sort key.
    pub fn may_hold_sort_keys(&self, partition: u32) -> bool {
        self.engine.may_hold_sort_keys(partition)
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
