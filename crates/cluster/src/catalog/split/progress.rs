//! How far a split is.

use super::super::SharedList;
use serde::{Deserialize, Serialize};
use tessera_types::TableId;

/// A table that is being split into twice as many partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The table with twice the partitions, which replaces this one when all is copied.
    pub into: TableId,
    /// The state of each partition of the old table.
    pub copies: SharedList<CopyState>,
    /// Whether the partitions are being sealed; then the split can no longer be cancelled.
    pub takes_effect: bool,
}

/// How far the copy of a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// No leader has begun to copy the partition.
    Waiting,
    /// The attempt of this number is sending records.
    Copying(u64),
    /// The attempt of this number has sent everything but the newest writes.
    CaughtUp(u64),
    /// Everything is copied, and the partition is sealed.
    Done,
}

/// The report of a partition's leader about its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyReport {
    /// The leader has begun another attempt.
    Begun,
    /// All records are sent, and newly applied writes follow as they come.
    CaughtUp,
    /// The partition is sealed, and everything that it accepted is copied.
    Done,
}
