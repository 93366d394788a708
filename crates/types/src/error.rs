//! How a request fails.

use std::fmt;

/// What a failed request may have changed. Clients decide by it whether they may simply try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was changed.
    NotDone,
    /// The write may or may not have taken effect, now or later.
    Unknown,
}

/// Why the store did not do what a face asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("no such table: {0}")]
    NoSuchTable(String),
    #[error("keys are in different partitions of the table")]
    CrossPartition,
    #[error("the {what} has {actual} bytes, the limit `{limit}` is {allowed}")]
    TooLarge { what: &'static str, limit: &'static str, actual: usize, allowed: usize },
    #[error("the table keeps nothing on disk (durability none), so this request's durability '{0}' cannot be given")]
    DurabilityUnavailable(crate::Durability),
    #[error(
        "memory for records is used up: {needed} bytes needed, {spare} left; delete records or raise `memory.limit_bytes`"
    )]
    MemoryFull { needed: u64, spare: u64 },
    #[error("busy: the queue of writes is full; try again")]
    Busy,
    #[error("the table is asked for more than its rate allows, and nothing was done; try again later")]
    Throttled,
    #[error("the table denies clients its {}, by its setting `deny`", if *is_write { "writes" } else { "reads" })]
    Denied { is_write: bool },
    #[error("the partition is starting; try again")]
    NotReady,
    #[error("the data directory's disk is full; free space, then writes go on by themselves")]
    DiskFull,
    #[error("the data directory's disk failed ({0}); writes are refused until the node is restarted on a sound disk")]
    DiskFailed(String),
    #[error(
        "the data directory's disk cannot be read ({0}), so nothing was done; try again, and if that fails too, restart the node on a sound disk"
    )]
    DiskUnreadable(String),
    /// A write was on its way when its node stopped or lost its disk, or when the nodes that were to have it were cut off.
    #[error(
        "the node that writes stopped, was cut off from other nodes, or its disk failed before the write was safe; it may or may not have taken effect, now or later"
    )]
    Interrupted,
    #[error(
        "this node was removed from its cluster; ask another node. To use its machine again, stop it and start it with an empty data directory"
    )]
    Removed,
    /// Only told to whoever has asked for what the caches have; the read is then made again by a thread that may wait.
    #[error("the read would have to wait for the disk")]
    WouldWait,
    #[error("the node is shutting down")]
    ShuttingDown,
    #[error("stored data is damaged: {0}")]
    Corruption(String),
    #[error("storage engine: {0}")]
    Engine(String),
}

impl RequestError {
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Interrupted => Outcome::Unknown,
            _ => Outcome::NotDone,
        }
    }

    /// Whether the same request may succeed later without anybody changing it.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy | Self::Throttled | Self::NotReady | Self::DiskFull | Self::MemoryFull { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotDone => "not done",
            Self::Unknown => "outcome unknown",
        })
    }
}
