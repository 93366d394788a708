//! What is known of an amnesiac replica.

use serde::{Deserialize, Serialize};
use tessera_types::{ReplicaId, TableId};

/// An amnesiac replica, as its node reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmnesiacReplica {
    /// The table whose records the replica held.
    pub table: TableId,
    /// The number of the partition, counted from 0.
    pub partition: u32,
    /// The replica itself; its successor on the same node gets another incarnation.
    pub replica: ReplicaId,
    /// Term and index of the last entry that it still has; zeros if unknown.
    pub end: (u64, u64),
    /// Whether its node's data is older than the data that the node had before.
    #[serde(default)]
    pub is_overtaken: bool,
}

/// An amnesiac replica in the catalog. It is kept until its group has had a leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amnesiac {
    pub(in crate::catalog) replica: ReplicaId,
    pub(super) end: (u64, u64),
    /// Whether it takes part all the same, because the others are no majority.
    #[serde(rename = "goes_on")]
    pub(super) is_readmitted: bool,
    #[serde(default)]
    pub(super) is_overtaken: bool,
}
