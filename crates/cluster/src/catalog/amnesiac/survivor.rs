//! What a survivor says.

use serde::{Deserialize, Serialize};
use tessera_types::{ReplicaId, TableId};

/// A replica of a table without a log that has forgotten nothing and has no leader, because amnesiac replicas are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// The table of the partition.
    pub table: TableId,
    /// The number of the partition, counted from 0.
    pub partition: u32,
    /// The replica that says so.
    pub replica: ReplicaId,
    /// The only other voter of its group, if there are two and no others may vote: then the survivor has everything that was
    /// acknowledged. `None` if it cannot know, and has been without a leader for a while.
    pub counterpart: Option<ReplicaId>,
}
