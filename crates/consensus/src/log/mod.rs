//! The log that all groups of a disk share.
//!
//! **The problem.** A node hosts hundreds of groups, and a write counts only when it is fsynced. A file per group would
//! mean an fsync per group; a disk does a few thousand a second in all.
//!
//! **The design.** One thread owns one sequence of segment files. It takes whatever batches have queued while it was
//! busy and writes them as one block, durably if any asked for that; that is the whole group commit: it never waits for
//! more to come. Batches complete through callbacks, so no worker ever blocks on the disk.
//!
//! **Recovery** must tell three things apart, since only the first may be repaired silently:
//! - a *torn tail*: blocks that were being written when the machine died. They were never acknowledged as durable and
//!   are cut off;
//! - a *corrupt middle*: a block that had been durable. Cutting there would lose acknowledged writes and, worse, leave a
//!   hole under later ones, so the log is refused;
//! - a *missing segment*, likewise refused.
//!
//! Block order alone cannot tell the first two apart: after a power cut a later block may be on disk and an earlier one
//! not. So every block carries the number of the last block that was durable when it was written. A bad block is corrupt
//! if any later block vouches for it, torn otherwise. A clean shutdown writes an empty block that vouches for everything.
//!
//! **Space.** A segment begins with the state of all groups (term, vote, truncation), so older segments are needed for
//! entries only, and go when every group's state machine has made durable what they hold.

mod block;
mod file;
mod record;
mod recovery;
mod segments;
mod status;
mod writer;

use crate::GroupId;
use parking_lot::{Condvar, Mutex};
pub use record::{LogRecord, StoredEntry, StoredState};
pub use recovery::{RecoveredGroup, decode_record, decode_segment};
pub use status::{LogStatistics, LogStatus};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How the log uses its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Bytes of a segment file, allocated when it is begun.
    pub segment_bytes: u64,
    /// How long a batch that did not ask for an fsync may stay without one.
    pub soft_sync_interval: Duration,
    /// Bytes that may be queued before [`SharedLog::is_backlogged`] says so.
    pub backlog_bytes: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, soft_sync_interval: Duration::from_millis(100), backlog_bytes: 64 << 20 }
    }
}

/// Why the log could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path}: the log is damaged at byte {offset} ({what}), in a part that had been acknowledged as durable. Nothing \
         was changed. Restore this node's data directory from another copy, or, to go on without the writes from there \
         on, move this and all later segment files away"
    )]
    Corrupt { path: PathBuf, offset: u64, what: &'static str },
    #[error("the log failed earlier: {0}")]
    Failed(String),
}

/// What is called when a batch is durable, or never will be.
pub type Completion = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// Records to append together.
#[derive(Default)]
pub struct LogBatch {
    pub records: Vec<LogRecord>,
    /// Whether to fsync before completing.
    pub sync: bool,
    pub completion: Option<Completion>,
}

/// The handle to the log; the thread behind it ends when the last handle is [closed](Self::close).
pub struct SharedLog {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    backlog_limit: usize,
}

pub(crate) struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    status: Mutex<LogStatus>,
    statistics: status::Counters,
}

#[derive(Default)]
struct Queue {
    batches: Vec<LogBatch>,
    bytes: usize,
    closing: bool,
}

impl SharedLog {
    /// Opens the log in `directory`, creating it if there is none, and returns what it holds per group.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if a part that had been durable is damaged; I/O errors otherwise.
    pub fn open(
        directory: &Path,
        config: &LogConfig,
    ) -> Result<(Arc<Self>, HashMap<GroupId, RecoveredGroup>), LogError> {
        let io_error = |source| LogError::Io { path: directory.to_path_buf(), source };
        std::fs::create_dir_all(directory).map_err(io_error)?;
        let recovered = recovery::recover(directory)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            status: Mutex::new(LogStatus::Ok),
            statistics: status::Counters::default(),
        });
        let writer = writer::Writer::new(directory, config, &recovered, shared.clone())?;
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || writer.run()).map_err(io_error)?;
        let log = Arc::new(Self { shared, thread: Mutex::new(Some(thread)), backlog_limit: config.backlog_bytes });
        Ok((log, recovered.groups))
    }

    /// Queues a batch. Batches are written in the order in which they are queued.
    pub fn submit(&self, batch: LogBatch) {
        let bytes = batch.records.iter().map(LogRecord::encoded_len).sum::<usize>();
        let mut queue = self.shared.queue.lock();
        queue.bytes += bytes;
        queue.batches.push(batch);
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// Whether so much is queued that producers should hold back.
    pub fn is_backlogged(&self) -> bool {
        self.shared.queue.lock().bytes > self.backlog_limit
    }

    /// Blocks until everything submitted so far is durable.
    ///
    /// # Errors
    /// If the log failed.
    pub fn wait_synced(&self) -> Result<(), LogError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let completion: Completion = Box::new(move |outcome| _ = sender.send(outcome));
        self.submit(LogBatch { records: Vec::new(), sync: true, completion: Some(completion) });
        receiver.recv().unwrap_or_else(|_| Err(LogError::Failed("the log is closed".into())))
    }

    pub fn status(&self) -> LogStatus {
        self.shared.status.lock().clone()
    }

    pub fn statistics(&self) -> LogStatistics {
        self.shared.statistics.read()
    }

    /// Groups whose entries keep the oldest closed segment from being deleted.
    pub fn groups_holding_space(&self) -> Vec<GroupId> {
        self.shared.statistics.holding_space()
    }

    /// Writes and fsyncs what is queued, marks the log as cleanly closed, and ends the thread.
    pub fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the log's thread has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

impl Drop for SharedLog {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
