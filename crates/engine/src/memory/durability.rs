//! When a partition's records are written to files, and when they are replaced by those of a file.
//!
//! A checkpoint that was written while the records are being replaced would hold some of the new ones under the log index of
//! the old ones. In the place of a sound checkpoint it loses records without a trace: after a crash the replica takes itself
//! for complete at that index. So one thread at a time does either, and what a failed replacement left behind is never
//! written.

use super::checkpoint::{self, Reflects};
use super::partition::Partition;
use crate::EngineError;
use parking_lot::Mutex;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The files of one partition.
#[derive(Default)]
pub(super) struct Durability {
    /// Held while the records are written to a file, or replaced by those of one.
    file: Mutex<()>,
    /// The log index that the partition's own checkpoint reflects; zero if there is none.
    index: AtomicU64,
    /// Whether the records were replaced after the checkpoint was written. Equal indexes do not say then that it is up to date.
    is_outdated: AtomicBool,
}

impl Durability {
    pub(super) fn index(&self) -> u64 {
        self.index.load(Ordering::Acquire)
    }

    /// Loads the partition's own checkpoint when the table is opened.
    pub(super) fn open(&self, partition: &Partition, path: &Path) -> Result<(), EngineError> {
        let Reflects { index, end } = checkpoint::load(partition, path)?;
        partition.reflected.set_settled_from(end);
        partition.reflected.set_applied(index);
        self.index.store(index, Ordering::Release);
        Ok(())
    }

    /// Writes the partition's own checkpoint; see [`crate::Engine::make_durable`].
    pub(super) fn make_durable(
        &self,
        partition: &Partition,
        path: &Path,
        log_synced: &dyn Fn() -> Result<(), String>,
    ) -> Result<(), EngineError> {
        let _file = self.file.lock();
        check_whole(partition)?;
        if self.index() == partition.reflected.applied() && !self.is_outdated.load(Ordering::Acquire) {
            return Ok(());
        }
        let unfinished = path.with_extension("unfinished");
        let write = || -> Result<u64, EngineError> {
            let index = checkpoint::write(partition, &unfinished)?;
            // The checkpoint may hold effects of entries applied while it was written: their log must not be lost.
            log_synced().map_err(EngineError::LogNotSynced)?;
            fs::rename(&unfinished, path).map_err(EngineError::io(path))?;
            Ok(index)
        };
        let index = write().inspect_err(|_| remove_unfinished(&unfinished))?;
        checkpoint::sync_directory(path.parent().unwrap_or(Path::new(".")))?;
        self.is_outdated.store(false, Ordering::Release);
        self.index.store(index, Ordering::Release);
        Ok(())
    }

    /// Writes a checkpoint for somebody else; see [`crate::Engine::checkpoint`].
    pub(super) fn checkpoint(&self, partition: &Partition, path: &Path) -> Result<u64, EngineError> {
        let _file = self.file.lock();
        check_whole(partition)?;
        checkpoint::write(partition, path)
    }

    /// Replaces the records by those of somebody else's checkpoint. Meanwhile the partition reflects no log index, so nobody
    /// finds that it ought to be made durable; its own checkpoint stays what a crash would find.
    pub(super) fn restore(&self, partition: &Partition, path: &Path, index: u64) -> Result<(), EngineError> {
        let _file = self.file.lock();
        partition.reflected.set_partial(true);
        self.is_outdated.store(true, Ordering::Release);
        partition.reflected.set_applied(0);
        partition.clear();
        let Reflects { end, .. } = checkpoint::load(partition, path)?;
        partition.reflected.set_settled_from(end);
        partition.reflected.set_applied(index);
        partition.reflected.set_partial(false);
        Ok(())
    }
}

fn check_whole(partition: &Partition) -> Result<(), EngineError> {
    if partition.reflected.are_partial() { Err(EngineError::PartialRecords) } else { Ok(()) }
}

/// The disk may be full: what cannot be finished takes nothing of it until the next try.
fn remove_unfinished(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "an unfinished checkpoint is left over");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryBudget, MemoryConfig, MemoryEngine};
    use super::*;
    use crate::{Applied, Engine};
    use std::sync::Arc;
    use tempfile::TempDir;

    /// It once stayed, and kept a full disk full.
    #[test]
    fn a_checkpoint_that_cannot_be_finished_leaves_no_file() {
        let directory = TempDir::new().unwrap();
        let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }));
        let engine = MemoryEngine::open(1, budget, Some(directory.path().to_path_buf())).unwrap();
        engine.write(&[Applied { partition: 0, index: 7, term: 1, payloads: &[] }]).unwrap();
        let files = || fs::read_dir(directory.path()).unwrap().count();
        let before = files();
        let unsynced = engine.make_durable(0, &|| Err("the log's disk is gone".into()));
        assert!(matches!(unsynced, Err(EngineError::LogNotSynced(_))), "{unsynced:?}");
        assert_eq!(files(), before);
        // Whatever is written through this link finds a full disk.
        #[cfg(target_os = "linux")]
        {
            let unfinished = directory.path().join("partition-00000.unfinished");
            std::os::unix::fs::symlink("/dev/full", unfinished).unwrap();
            let full = engine.make_durable(0, &|| Ok(()));
            assert!(matches!(full, Err(EngineError::Io { .. })), "{full:?}");
            assert_eq!(files(), before);
        }
        engine.make_durable(0, &|| Ok(())).unwrap();
        assert_eq!((engine.durable_index(0).unwrap(), files()), (7, before + 1));
    }
}
