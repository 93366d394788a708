//! What a node has of a table, whatever clients call it.

use crate::admission::Gate;
use crate::clock::ClusterClock;
use crate::compaction_state::CompactionState;
use crate::partition::Partition;
use crate::request_times::TableTimes;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tessera_cluster::Indexes;
use tessera_engine::Engine;
use tessera_types::{Limits, NodeId, TableId, TableSchema, TableSettings};

/// The records and partitions of a table, which all handles of it share.
pub struct HostedTable {
    pub(crate) id: TableId,
    /// Whether it came about by a split.
    pub(super) was_split: bool,
    /// How often an empty table has taken its place; see [`TableEntry::truncations`](tessera_cluster::TableEntry::truncations).
    pub(super) truncations_by_now: AtomicU32,
    pub(crate) schema: TableSchema,
    pub(crate) limits: Arc<Limits>,
    pub(crate) name: ArcSwap<String>,
    pub(crate) settings: ArcSwap<TableSettings>,
    pub(crate) indexes: ArcSwap<Indexes>,
    pub(crate) gate: Gate,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) compaction: Mutex<CompactionState>,
    pub(crate) clock: Arc<ClusterClock>,
    /// This node.
    pub(crate) node: NodeId,
    /// How long what clients asked of it took.
    pub(crate) times: TableTimes,
}
