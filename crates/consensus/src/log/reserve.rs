//! Space for one more segment, allocated before it is needed.
//!
//! Every segment but those that a single large block needs is one that was the reserve before, and the next one is allocated when it has
//! begun. If the disk is full by then, the log goes on in the segment that it has. Whoever writes is told by
//! [`LogStatus::Reserve`](super::LogStatus::Reserve), and takes nothing but what ends what was begun before.

use super::file::SegmentFile;
use rustix::fs::statvfs;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NAME: &str = "reserve";
/// Between two tries to allocate it.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether nothing is wrong but that there is no space: on the disk, for the user, or for a process with a limit (`ulimit -f`).
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

pub(super) struct Reserve {
    directory: PathBuf,
    bytes: u64,
    file: Option<SegmentFile>,
    /// When it was tried to allocate it, and the disk was full.
    tried: Instant,
}

impl Reserve {
    /// One for segments of this size that is not allocated yet. What an earlier process has left is used again.
    pub(super) fn new(directory: &Path, bytes: u64) -> Self {
        Self { directory: directory.to_path_buf(), bytes, file: None, tried: Instant::now() }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// When it is to be tried again to allocate it; `None` if it is there.
    pub(super) fn due(&self) -> Option<Instant> {
        self.file.is_none().then(|| self.tried + PAUSE)
    }

    /// Allocates it if it is not there.
    pub(super) fn allocate(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(SegmentFile::create(&self.path(), self.bytes)?);
        }
        Ok(())
    }

    /// As [`Self::allocate`], but a full disk is no failure: it is tried again later.
    pub(super) fn try_to_allocate(&mut self) -> io::Result<()> {
        self.tried = Instant::now();
        // Allocating in vain takes what others on the same disk need, for as long as it lasts.
        let has_space = self.file.is_some() || free_bytes(&self.directory)? >= self.bytes;
        match if has_space { self.allocate() } else { Ok(()) } {
            Err(error) if is_full(&error) => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether a segment of so many bytes can be begun with it.
    pub(super) fn is_enough_for(&self, bytes: u64) -> bool {
        self.file.is_some() && bytes <= self.bytes
    }

    /// Makes it the segment at `path`, durably. It can be tried again.
    ///
    /// # Panics
    /// If it is not there.
    pub(super) fn begin_segment(&mut self, path: &Path) -> io::Result<SegmentFile> {
        match fs::rename(self.path(), path) {
            // It was renamed when it was tried before, and that could not be made durable.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.exists() => {}
            renamed => renamed?,
        }
        File::open(&self.directory)?.sync_all()?;
        Ok(self.file.take().expect("the reserve is there"))
    }
}

fn free_bytes(directory: &Path) -> io::Result<u64> {
    let system = statvfs(directory)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory of a full disk may refuse its fsync when the reserve has its new name already. It once could not be tried again.
    #[test]
    fn what_was_renamed_and_not_made_durable_is_begun_all_the_same() {
        let directory = tempfile::TempDir::new().unwrap();
        let mut reserve = Reserve::new(directory.path(), 1 << 20);
        reserve.allocate().unwrap();
        let path = directory.path().join("segment");
        fs::rename(reserve.path(), &path).unwrap();
        assert!(reserve.begin_segment(&path).is_ok());
        assert!(!reserve.is_there());
        reserve.allocate().unwrap();
        fs::remove_file(reserve.path()).unwrap();
        assert!(reserve.begin_segment(&directory.path().join("other")).is_err(), "what was never there is missed");
    }
}
