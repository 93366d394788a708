//! How far a split is.

use super::super::SharedList;
use serde::{Deserialize, Serialize};
use tessera_types::{TableId, TableNumber, UnixMillis};

/// A table that is being split into twice as many partitions, or truncated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The table which replaces this one when all is copied. It has twice the partitions, or as many if this one is truncated.
    pub into: TableId,
    /// The state of each partition of the old table.
    pub copies: SharedList<CopyState>,
    /// Whether the partitions are being sealed; then the split can no longer be cancelled.
    pub takes_effect: bool,
    /// What is to become of this table if the other one is to begin empty; `None` if the table is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncation: Option<Truncation>,
}

/// What becomes of a table when another one has taken its place empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncation {
    /// The number that it gets, by which it can be recalled.
    pub number: TableNumber,
    /// The time from which it may be forgotten.
    pub purge_at: UnixMillis,
    /// When the truncation was asked for, which counts as when it was dropped.
    pub dropped_at: Option<UnixMillis>,
}

impl Truncation {
    /// The number of a table whose place is taken by this one. Numbers of tables and their identifiers are counted together, and these
    /// two are taken at once.
    pub fn number_beside(into: TableId) -> TableNumber {
        TableNumber(into.0 + 1)
    }
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
