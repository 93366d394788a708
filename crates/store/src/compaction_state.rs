//! What a table's handle says about compactions on this node.

use serde::{Deserialize, Serialize};
use tessera_types::UnixMillis;

/// How far a node is with compacting its replicas of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionState {
    /// How many are under way.
    pub running: u32,
    /// Share of the one that began last that is done, 0 to 1.
    pub done: f64,
    /// When one last ended, since the node started.
    pub ended: Option<UnixMillis>,
}
