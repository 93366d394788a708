//! What a survivor says.

use serde::{Deserialize, Serialize};
use tessera_types::{ReplicaId, TableId};

/// A replica of a table without a log that has forgotten nothing, where amnesiac replicas are waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// The table of the partition.
    pub table: TableId,
    /// The number of the partition, counted from 0.
    pub partition: u32,
    /// The replica that says so.
    pub replica: ReplicaId,
    /// What it knows of its group.
    pub knows: SurvivorKnows,
}

/// What a survivor knows of its group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SurvivorKnows {
    /// It is one of two voters, and misses this one. So it has everything that was acknowledged.
    Misses(ReplicaId),
    /// It leads, and these are the voters: others than the catalog knew.
    Leads(Vec<ReplicaId>),
}
