//! How a request fails.

use std::borrow::Cow;
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
    /// No active table has this name or number.
    #[error("no such table: {0}")]
    NoSuchTable(String),
    /// One command can only reach keys of one partition atomically.
    #[error("keys are in different partitions of the table")]
    CrossPartition,
    /// A key, a value or a command is longer than the limit allows.
    #[error("the {what} has {actual} bytes, the limit `{limit}` is {allowed}")]
    TooLarge {
        /// What is too long, in words for the client.
        what: Cow<'static, str>,
        /// The name of the limit in the configuration.
        limit: Cow<'static, str>,
        /// Its length in bytes.
        actual: usize,
        /// The limit in bytes.
        allowed: usize,
    },
    /// A request would write or delete more records in one go than the limit allows.
    #[error(
        "a request may write or delete {allowed} records at once (`limits.write_records`), and this one has more to write; send it \
         in parts"
    )]
    TooManyRecords {
        /// The limit.
        allowed: usize,
    },
    /// The request asked for a durability that needs a log, and the table has none.
    #[error("the table keeps nothing on disk (durability none), so this request's durability '{0}' cannot be given")]
    DurabilityUnavailable(crate::Durability),
    /// The memory limit for the records of memory tables is reached.
    #[error(
        "memory for records is used up: {needed} bytes needed, {spare} left; delete records or raise `memory.limit_bytes`"
    )]
    MemoryFull {
        /// Bytes that the write needs.
        needed: u64,
        /// Bytes that are left below the limit.
        spare: u64,
    },
    /// The queue of the partition's worker is full.
    #[error("busy: the queue of writes is full; try again")]
    Busy,
    /// The request came when the rate was so far above the limit that requests are refused.
    #[error("the table is asked for more than its rate allows, and nothing was done; try again later")]
    Throttled,
    /// The setting `deny` of the table forbids the request.
    #[error("the table denies clients its {}, by its setting `deny`", if *is_write { "writes" } else { "reads" })]
    Denied {
        /// Whether the request writes.
        is_write: bool,
    },
    /// The partition has no leader that serves yet.
    #[error("the partition has no leader yet that serves and can be reached; nothing was done; try again")]
    NotReady,
    /// Transactions over partitions have held the key for as long as commands wait: one after the other, or one of which it cannot
    /// be learned what became of it, since a partition that knows has no leader.
    #[error(
        "transactions over several partitions have held the key for as long as commands wait; nothing was done; try again"
    )]
    Held,
    /// A transaction gave way to others until its client's patience was over.
    #[error(
        "others held or changed what the transaction concerns each time that it was tried; nothing was done; try again"
    )]
    Contended,
    /// The log cannot be written until there is space.
    #[error("the data directory's disk is full; free space, then writes go on by themselves")]
    DiskFull,
    /// A write or an fsync of the log failed, with this error of the system.
    #[error("the data directory's disk failed ({0}); writes are refused until the node is restarted on a sound disk")]
    DiskFailed(String),
    /// An engine does not take what is committed, with this error; it is tried again and again.
    #[error(
        "the records of acknowledged writes cannot be written to the data directory ({0}); no more are taken until that succeeds, which the \
         node tries by itself: look whether the disk is full or failing"
    )]
    NotApplied(String),
    /// A read of records failed, with this error of the system.
    #[error(
        "the data directory's disk cannot be read ({0}), so nothing was done; try again, and if that fails too, restart the node on a sound disk"
    )]
    DiskUnreadable(String),
    /// A write was on its way when its node stopped or lost its disk, or when the nodes that were to have it were cut off.
    #[error(
        "the node that writes stopped, was cut off from other nodes, or its disk failed before the write was safe; it may or may not have taken effect, now or later"
    )]
    Interrupted,
    /// The node is no longer part of the cluster.
    #[error(
        "this node was removed from its cluster; ask another node. To use its machine again, stop it and start it with an empty data directory"
    )]
    Removed,
    /// Returned only to a caller that asked for what the caches have; a thread that may wait then makes the read again.
    #[error("the read would have to wait for the disk")]
    WouldWait,
    /// The node stops and takes no more requests.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// A record cannot be decoded, or its checksum is wrong.
    #[error("stored data is damaged: {0}")]
    Corruption(String),
    /// Any other error of the storage engine, in its words.
    #[error("storage engine: {0}")]
    Engine(String),
}

impl RequestError {
    /// Whether a write that failed with this error may have taken effect.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Interrupted => Outcome::Unknown,
            _ => Outcome::NotDone,
        }
    }

    /// Whether the same request fails like this wherever and whenever it is made: nobody need try it again.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::CrossPartition
                | Self::TooLarge { .. }
                | Self::TooManyRecords { .. }
                | Self::DurabilityUnavailable(_)
                | Self::Denied { .. }
        )
    }

    /// Whether a node refuses all writes like this that its disk would have to take.
    pub fn is_of_disk(&self) -> bool {
        matches!(self, Self::DiskFull | Self::DiskFailed(_) | Self::NotApplied(_))
    }

    /// Whether the same request may succeed later without anybody changing it.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::Throttled
                | Self::NotReady
                | Self::Held
                | Self::Contended
                | Self::DiskFull
                | Self::NotApplied(_)
                | Self::MemoryFull { .. }
        )
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
