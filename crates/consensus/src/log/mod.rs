//! The log that all groups of a disk share.
//!
//! **The problem.** A node hosts hundreds of groups, and a write counts only when it is fsynced. A file per group would
//! mean an fsync per group; a disk does a few thousand a second in all.
//!
//! **The design.** One thread owns one sequence of segment files. It takes whatever batches have queued while it was
//! busy and writes them as one block, durably if any asked for that; that is the whole group commit: it never waits for
//! more to come. Batches complete through callbacks, so no worker ever blocks on the disk. Batches that need no fsync
//! at once are [staged](staging) in memory, where they survive the process; they are written together with others, or
//! after a while.
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
//! entries only, and go when every group's state machine has made durable what they hold. The space of the next segment is
//! allocated [ahead](reserve), so that the log can still write when the disk is full.

mod block;
mod conversion;
mod file;
mod queue;
mod record;
mod recovery;
mod reserve;
mod segments;
mod staging;
mod status;
mod writer;

use crate::GroupId;
use parking_lot::{Condvar, Mutex};
use queue::{Queue, Queued};
pub use record::{LogRecord, StoredEntry, StoredSnapshot, StoredState};
pub use recovery::{RecoveredGroup, decode_record, decode_segment};
use staging::Staging;
pub use staging::decode_staged;
pub use status::{LogStatistics, LogStatus};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How the log uses its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Bytes of a segment file. Those of the next one are allocated when one is begun.
    pub segment_bytes: u64,
    /// How long a batch that did not ask for an fsync may stay without one.
    pub soft_sync_interval: Duration,
    /// Bytes that may be queued before [`SharedLog::is_backlogged`] says so.
    pub backlog_bytes: usize,
    /// A directory in memory for batches that need no fsync at once; `None` to write them like others.
    pub staging_directory: Option<PathBuf>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            soft_sync_interval: Duration::from_millis(100),
            backlog_bytes: 64 << 20,
            staging_directory: None,
        }
    }
}

/// Why the log could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refused an operation on a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A block that had been acknowledged as durable does not hold what was written.
    #[error(
        "{path}: the log is damaged at byte {offset} ({what}), in a part that had been acknowledged as durable. Nothing \
         was changed. Restore this node's data directory from another copy, or, to go on without the writes from there \
         on, move this and all later segment files away"
    )]
    Corrupt {
        /// The segment file.
        path: PathBuf,
        /// The first byte that is wrong, counted from the beginning of the file.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An earlier write or fsync failed, so the log takes nothing until the process is restarted.
    #[error("the log failed earlier: {0}")]
    Failed(String),
}

/// Called when a batch is written, and fsynced if it asked for that, or when it never will be.
pub type Completion = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// Records to append together.
#[derive(Default)]
pub struct LogBatch {
    /// The records, which become durable together or not at all.
    pub records: Vec<LogRecord>,
    /// Whether to fsync before completing.
    pub sync: bool,
    /// What to call when the batch is written, or never will be.
    pub completion: Option<Completion>,
}

/// The handle to the log; the thread behind it ends when the last handle is [closed](Self::close).
pub struct SharedLog {
    directory: PathBuf,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    backlog_limit: usize,
    /// Whether there is a staging file.
    stages: bool,
    /// Whether a batch was queued that could be staged; until then no batch is laid out for it.
    is_staging_wanted: AtomicBool,
}

pub(crate) struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    status: Mutex<LogStatus>,
    is_segment_half_full: AtomicBool,
    statistics: status::Counters,
}

impl SharedLog {
    /// Whether the [staging file](LogConfig::staging_directory) of the log in `directory` was lost with its machine or
    /// container. Then batches may be missing that had counted and had not been fsynced.
    ///
    /// # Errors
    /// I/O errors.
    pub fn has_lost_staged(directory: &Path) -> io::Result<bool> {
        staging::is_lost(directory)
    }

    /// Writes the log of a data directory of format 4 as this version writes it. It may be done again if it was
    /// interrupted.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn convert_from_format_4(directory: &Path) -> Result<(), LogError> {
        conversion::convert(directory, |_| Ok(()))
    }

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
        let mut recovered = recovery::recover(directory)?;
        let staged = staging::recover(directory, recovered.last_batch).map_err(io_error)?;
        let last_number = staged.last().map_or(recovered.last_batch, |(number, _)| *number);
        staged.iter().for_each(|(_, records)| recovered.take_in(records));
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { last_number, ..Queue::default() }),
            wake: Condvar::new(),
            status: Mutex::new(LogStatus::Ok),
            is_segment_half_full: AtomicBool::new(false),
            statistics: status::Counters::default(),
        });
        let mut writer = writer::Writer::new(directory, config, &recovered, shared.clone())?;
        if !staged.is_empty() {
            writer.write(&mut staged.into_iter().map(Queued::again).collect::<Vec<_>>()).map_err(io_error)?;
        }
        staging::remove(directory).map_err(io_error)?;
        let staging = config.staging_directory.as_ref().and_then(|place| match Staging::create(directory, place) {
            Ok(staging) => Some(staging),
            Err(error) => {
                tracing::warn!(place = %place.display(), %error, "no staging file there; soft writes wait for the log");
                None
            }
        });
        let stages = staging.is_some();
        shared.queue.lock().staging = staging;
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || writer.run()).map_err(io_error)?;
        let backlog_limit = config.backlog_bytes;
        let (directory, is_staging_wanted) = (directory.to_path_buf(), AtomicBool::new(false));
        let log = Arc::new(Self {
            directory,
            shared,
            thread: Mutex::new(Some(thread)),
            backlog_limit,
            stages,
            is_staging_wanted,
        });
        Ok((log, recovered.groups))
    }

    /// Reads what the log in `directory` holds per group, without opening it: nothing on disk is changed. Nobody may
    /// use it meanwhile.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn read(directory: &Path) -> Result<HashMap<GroupId, RecoveredGroup>, LogError> {
        let mut recovered = recovery::recover(directory)?;
        let staged = staging::recover(directory, recovered.last_batch)
            .map_err(|source| LogError::Io { path: directory.to_path_buf(), source })?;
        staged.iter().for_each(|(_, records)| recovered.take_in(records));
        Ok(recovered.groups)
    }

    /// Queues a batch. Batches are written in the order in which they are queued.
    pub fn submit(&self, LogBatch { records, sync, completion }: LogBatch) {
        self.queue(records, sync, |_| completion);
    }

    /// Queues records that may be staged. `completion` is called with whether they, and all records queued before them,
    /// already survive this process; it returns what to call when they are written, if anything.
    pub fn stage(&self, records: Vec<LogRecord>, sync: bool, completion: impl FnOnce(bool) -> Option<Completion>) {
        if self.stages {
            self.is_staging_wanted.store(true, Ordering::Relaxed);
        }
        self.queue(records, sync, completion);
    }

    fn queue(&self, records: Vec<LogRecord>, sync: bool, completion: impl FnOnce(bool) -> Option<Completion>) {
        // Nothing more is staged once the log has failed or is full; the staging file would only fill up.
        let may_stage = self.is_staging_wanted.load(Ordering::Relaxed) && self.status() == LogStatus::Ok;
        let bytes = records.iter().map(LogRecord::encoded_len).sum();
        let laid_out = (may_stage && !records.is_empty()).then(|| staging::lay_out(&records, bytes));
        let batch = Queued::new(records, sync);
        let is_news = self.shared.queue.lock().push(batch, bytes, laid_out, completion);
        if is_news {
            self.shared.wake.notify_one();
        }
    }

    /// Whether so many bytes are queued that producers should hold back.
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

    /// Whether the log takes writes now.
    pub fn status(&self) -> LogStatus {
        self.shared.status.lock().clone()
    }

    /// Whether the disk is full and half of what the log [still has](LogStatus::Reserve) is used up.
    pub fn is_reserve_low(&self) -> bool {
        self.shared.is_segment_half_full.load(Ordering::Relaxed) && self.status() == LogStatus::Reserve
    }

    /// Counts of what the log has written.
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
        // A panic of the log's thread has been reported by the panic hook already.
        let has_ended = self.thread.lock().take().is_some_and(|thread| thread.join().is_ok());
        let has_all = has_ended && self.status().is_writing();
        if self.shared.queue.lock().staging.take().is_some_and(|_| has_all)
            && let Err(error) = staging::remove(&self.directory)
        {
            tracing::warn!(%error, "the staging file is left; the next start sees that all of it is in the log");
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
