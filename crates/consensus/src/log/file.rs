//! The segment file that is being written.
//!
//! A block that is to be durable at once goes past the page cache (`O_DIRECT` and `O_DSYNC`), which is one request to
//! the disk if its place in the file has been written before. A place that is only allocated takes a second one, since
//! the file system has to note that it holds data now; so zeros are written ahead of small blocks, a stretch at a time.
//! docs/decisions/0014 has what that saves.

use super::block::{self, ALIGNMENT};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Zeros are written ahead in stretches of this many bytes.
const STRETCH: u64 = 1 << 20;
/// No zeros are written ahead of a block of at least this many bytes: they would cost as much as they save.
const LARGE: usize = 128 << 10;

pub(super) struct SegmentFile {
    /// For writes through the page cache.
    cached: File,
    /// For direct writes, which are durable when they return; `None` if the file system does not support them.
    direct: Option<File>,
    /// The position of the next block.
    end: u64,
    /// The position up to which the file has been written, zeros included.
    filled: u64,
    allocated: u64,
    buffer: AlignedBuffer,
}

/// The address of what is written directly has to be a multiple of [`ALIGNMENT`] too.
#[derive(Default)]
struct AlignedBuffer(Vec<u8>);

impl AlignedBuffer {
    fn of_length(&mut self, length: usize) -> &mut [u8] {
        self.0.resize(length + ALIGNMENT, 0);
        let begin = self.0.as_ptr().align_offset(ALIGNMENT);
        &mut self.0[begin..begin + length]
    }
}

/// Reserves space, so that a full disk shows here.
#[expect(
    unsafe_code,
    reason = "libc's function also works where the file system cannot allocate; rustix has only the system call"
)]
pub(super) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: a plain call on an open descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl SegmentFile {
    /// Creates a segment with its space allocated, so that a full disk shows here and not in the middle of a block.
    pub(super) fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let allocated = bytes.next_multiple_of(ALIGNMENT as u64);
        let cached = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        if let Err(error) = allocate(&cached, allocated) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        cached.sync_all()?;
        let directory = path.parent().expect("a segment is in a directory");
        File::open(directory)?.sync_all()?;
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC).open(path);
        let mut file = Self { cached, direct: None, end: 0, filled: 0, allocated, buffer: AlignedBuffer::default() };
        match direct {
            Ok(direct) => file.direct = Some(direct),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
        // Some file systems let a file be opened for direct writes and then refuse to write to it.
        match file.fill_to(1) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => file.direct = None,
            outcome => outcome?,
        }
        Ok(file)
    }

    /// Whether a block of `bytes` bytes, not counting the zeros after its records, fits into the file.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.end + block::after(bytes) as u64 <= self.allocated
    }

    /// Whether blocks take more than half of the file.
    pub(super) fn is_half_full(&self) -> bool {
        2 * self.end > self.allocated
    }

    /// Whether no block has been written yet.
    pub(super) fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Appends a block, which is whole pages long. It is durable after [`Self::sync`].
    pub(super) fn append(&mut self, block: &[u8]) -> io::Result<()> {
        self.cached.write_all_at(block, self.end)?;
        self.end += block.len() as u64;
        self.filled = self.filled.max(self.end);
        Ok(())
    }

    /// Appends a block that is durable when this returns, if all blocks before it are.
    pub(super) fn append_durably(&mut self, block: &[u8]) -> io::Result<()> {
        let end = self.end + block.len() as u64;
        if block.len() < LARGE {
            self.fill_to(end)?;
        }
        let Some(direct) = &self.direct else {
            self.append(block)?;
            return self.sync();
        };
        let aligned = self.buffer.of_length(block.len());
        aligned.copy_from_slice(block);
        direct.write_all_at(aligned, self.end)?;
        (self.end, self.filled) = (end, self.filled.max(end));
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.cached.sync_data()
    }

    fn fill_to(&mut self, end: u64) -> io::Result<()> {
        let Some(direct) = &self.direct else { return Ok(()) };
        // A segment's first block may be longer than the segment was to be.
        while self.filled < end.min(self.allocated) {
            let stretch = STRETCH.min(self.allocated - self.filled);
            let zeros = self.buffer.of_length(stretch as usize);
            zeros.fill(0);
            direct.write_all_at(zeros, self.filled)?;
            self.filled += stretch;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks written one way and the other, across stretches, are all there, and zeros behind them.
    #[test]
    fn zeros_written_ahead_never_cover_a_block() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("segment");
        let mut file = SegmentFile::create(&path, 4 * STRETCH).unwrap();
        let mut expected = Vec::new();
        for (number, pages) in [1, 3, 200, 1, 90, 300, 2].into_iter().enumerate() {
            let block = vec![number as u8 + 1; pages * ALIGNMENT];
            assert!(file.has_room_for(block.len()));
            if number % 3 == 1 {
                file.append(&block).unwrap();
                file.sync().unwrap();
            } else {
                file.append_durably(&block).unwrap();
            }
            expected.extend(block);
        }
        assert!(!file.has_room_for(4 * STRETCH as usize));
        expected.resize(4 * STRETCH as usize, 0);
        assert!(std::fs::read(&path).unwrap() == expected);
    }

    #[test]
    fn a_block_longer_than_the_segment_is_written_whole() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("segment");
        let mut file = SegmentFile::create(&path, 1).unwrap();
        let block = vec![7; 3 * ALIGNMENT];
        file.append_durably(&block).unwrap();
        assert!(!file.has_room_for(1) && std::fs::read(&path).unwrap() == block);
    }
}
