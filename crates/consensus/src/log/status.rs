use crate::GroupId;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whether the log takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogStatus {
    /// The log takes writes.
    Ok,
    /// The disk is full. The log still writes what it is given, as long as the segment lasts that it has; that is to be used for nothing but
    /// what ends what was begun before. It is [`Ok`](Self::Ok) again by itself when there is space.
    Reserve,
    /// The disk is full, and that segment too. The log keeps trying and goes on by itself when there is space.
    Full,
    /// A write or fsync failed. What the disk holds is unknown, so the log stays closed until the process is started
    /// again: after a failed fsync the kernel may have dropped the pages, and a second fsync would lie.
    Failed(String),
}

impl LogStatus {
    /// Whether what the log is given is written.
    pub fn is_writing(&self) -> bool {
        matches!(self, Self::Ok | Self::Reserve)
    }
}

/// Counts since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Blocks that were written.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Calls of fsync.
    pub syncs: u64,
    /// The time that these calls took together.
    pub sync_time: Duration,
    /// Batches that were staged.
    pub staged: u64,
    /// Segment files that the log has now.
    pub segments: u64,
    /// Bytes of all segment files, without the reserve.
    pub disk_bytes: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) blocks: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) sync_nanos: AtomicU64,
    pub(super) staged: AtomicU64,
    pub(super) segments: AtomicU64,
    pub(super) disk_bytes: AtomicU64,
    pub(super) holding_space: Mutex<Vec<GroupId>>,
}

impl Counters {
    pub(super) fn read(&self) -> LogStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStatistics {
            blocks: read(&self.blocks),
            bytes: read(&self.bytes),
            syncs: read(&self.syncs),
            sync_time: Duration::from_nanos(read(&self.sync_nanos)),
            staged: read(&self.staged),
            segments: read(&self.segments),
            disk_bytes: read(&self.disk_bytes),
        }
    }

    pub(super) fn holding_space(&self) -> Vec<GroupId> {
        self.holding_space.lock().clone()
    }
}
