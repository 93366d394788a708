//! The staging file: a file in memory in which batches survive the process while they wait for the log.
//!
//! **The problem.** A batch that needs no fsync at once must survive the process before it counts. Through the log's
//! thread that costs two switches of threads for each batch, and a wait for the disk, only to have the batch in the
//! page cache. The worker cannot write to the page cache itself, because such a write may wait for write-back as long
//! as an fsync takes.
//!
//! **The design.** The thread that queues a batch first writes it to this file, on a file system in memory, where a
//! write is a copy. The file has two halves: one takes batches, the other one holds those that the log's thread is
//! writing. When that thread takes the next batches, the halves [swap](Staging::turn). When a half is full, batches
//! wait for the log.
//!
//! **Recovery.** Batches are numbered, and every block of the log names the last batch that is whole in it and the
//! blocks before it. Later batches in the file, up to the first gap, are written to the log before anything else.
//!
//! The file [`IN_USE`] in the log's directory names the staging file for as long as that may hold something. If the
//! named file does not exist, it was lost with its machine or its container.
//!
//! A batch in it, integers little-endian: `u64 number | u32 length | u32 CRC-32C of the records | u32 CRC-32C of those
//! three
//! | records`.

use super::file::allocate;
use super::record::LogRecord;
use bytes::{BufMut, Bytes};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of each half.
const HALF: u64 = 4 << 20;
const HEAD: usize = 20;
/// Names the file in memory.
const IN_USE: &str = "staging";
/// A random name that Linux makes at each reading.
const UUID: &str = "/proc/sys/kernel/random/uuid";

pub(super) struct Staging {
    file: File,
    /// The start of the half that takes batches, and how many bytes it holds.
    begin: u64,
    held: u64,
}

/// Lays out a batch of records of `length` bytes; its number is filled in later.
pub(super) fn lay_out(records: &[LogRecord], length: usize) -> Vec<u8> {
    let mut batch = Vec::with_capacity(HEAD + length);
    batch.resize(HEAD, 0);
    records.iter().for_each(|record| record.encode(&mut batch));
    let checksum = crc32c::crc32c(&batch[HEAD..]);
    let mut head = &mut batch[8..16];
    // A batch that does not fit into a half is not staged.
    head.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
    head.put_u32_le(checksum);
    batch
}

impl Staging {
    /// Makes the file in `place` and notes in the log's `directory` that it is in use.
    ///
    /// # Errors
    /// I/O errors; then no staging file is in use.
    pub(super) fn create(directory: &Path, place: &Path) -> io::Result<Self> {
        let path = place.join(format!("tessera-{}", fs::read_to_string(UUID)?.trim()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let prepared = file.lock().and_then(|()| allocate(&file, 2 * HALF)).and_then(|()| {
            let mark = directory.join(IN_USE).with_extension("new");
            fs::write(&mark, path.to_str().ok_or(io::ErrorKind::InvalidFilename)?)?;
            File::open(&mark)?.sync_all()?;
            fs::rename(mark, directory.join(IN_USE))?;
            File::open(directory)?.sync_all()
        });
        if let Err(error) = prepared {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(Self { file, begin: 0, held: 0 })
    }

    /// Stages a batch that was [laid out](lay_out). Returns whether there was room.
    pub(super) fn append(&mut self, number: u64, mut batch: Vec<u8>) -> bool {
        if self.held + batch.len() as u64 > HALF {
            return false;
        }
        batch[..8].copy_from_slice(&number.to_le_bytes());
        let checksum = crc32c::crc32c(&batch[..16]);
        batch[16..HEAD].copy_from_slice(&checksum.to_le_bytes());
        if let Err(error) = self.file.write_all_at(&batch, self.begin + self.held) {
            tracing::warn!(%error, "the staging file takes no writes; soft writes wait for the log");
            return false;
        }
        self.held += batch.len() as u64;
        true
    }

    /// Swaps the halves: the log's thread now writes the batches of this half to the log, and has written those of the
    /// other half.
    pub(super) fn turn(&mut self) {
        if self.held > 0 {
            (self.begin, self.held) = (HALF - self.begin, 0);
        }
    }
}

/// The file that is named as in use, whether it is there or not.
fn in_use(directory: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_to_string(directory.join(IN_USE)) {
        Ok(path) => Ok(Some(path.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file was in use and is gone.
pub(super) fn is_lost(directory: &Path) -> io::Result<bool> {
    in_use(directory)?.map_or(Ok(false), |path| path.try_exists().map(|is_there| !is_there))
}

/// Records of the batches after number `last`, without a gap, in order, each batch with its number.
pub(super) fn recover(directory: &Path, last: u64) -> io::Result<Vec<(u64, Vec<LogRecord>)>> {
    let content = match in_use(directory)?.map(|path| read_alone(&path)) {
        Some(Ok(content)) => Bytes::from(content),
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(Vec::new()),
    };
    let half = content.len().min(HALF as usize);
    let mut batches: Vec<_> = [content.slice(..half), content.slice(half..)].into_iter().flat_map(read_half).collect();
    batches.retain(|(number, _)| *number > last);
    batches.sort_by_key(|(number, _)| *number);
    Ok((last + 1..).zip(batches).take_while(|(due, (number, _))| due == number).map(|(_, batch)| batch).collect())
}

/// A copy of a data directory names the staging file of the original, which only the original may use.
fn read_alone(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let message = format!("{} is another process's; is this data directory a copy of one in use?", path.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Reads whole batches from the beginning of a half, up to the first bytes that are no batch, such as those of an
/// earlier filling.
fn read_half(mut bytes: Bytes) -> Vec<(u64, Vec<LogRecord>)> {
    let mut batches: Vec<(u64, Vec<LogRecord>)> = Vec::new();
    while let Some((number, records)) = read_batch(&mut bytes)
        && batches.last().is_none_or(|(before, _)| *before < number)
    {
        batches.push((number, records));
    }
    batches
}

fn read_batch(bytes: &mut Bytes) -> Option<(u64, Vec<LogRecord>)> {
    let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let number = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let (length, checksum) = (half(8)? as usize, half(12)?);
    if crc32c::crc32c(&bytes[..16]) != half(16)? || length > bytes.len() - HEAD {
        return None;
    }
    let mut records = bytes.split_to(HEAD + length).split_off(HEAD);
    if crc32c::crc32c(&records) != checksum {
        return None;
    }
    let mut decoded = Vec::new();
    while !records.is_empty() {
        decoded.push(LogRecord::decode(&mut records)?);
    }
    Some((number, decoded))
}

/// Reads one half, for fuzzing.
pub fn decode_staged(bytes: &[u8]) -> Vec<LogRecord> {
    read_half(Bytes::copy_from_slice(bytes)).into_iter().flat_map(|(_, records)| records).collect()
}

/// Removes the file, because the log has everything. The note that it is in use is removed first.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    let Some(path) = in_use(directory)? else { return Ok(()) };
    fs::remove_file(directory.join(IN_USE))?;
    File::open(directory)?.sync_all()?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupId;
    use crate::log::StoredEntry;
    use proptest::prelude::*;
    use tempfile::TempDir;

    /// An entry whose index is its batch's number.
    fn records(number: u64, bytes: usize) -> Vec<LogRecord> {
        let payload = vec![number as u8; bytes].into();
        vec![LogRecord::Entries {
            group: GroupId(number % 3),
            entries: vec![StoredEntry { index: number, term: 1, kind: 0, payload }],
        }]
    }

    fn laid_out(number: u64, bytes: usize) -> Vec<u8> {
        let records = records(number, bytes);
        lay_out(&records, records[0].encoded_len())
    }

    /// One that does not keep its process' successor off.
    fn create(directory: &TempDir) -> Staging {
        let staging = Staging::create(directory.path(), directory.path()).unwrap();
        assert_eq!(recover(directory.path(), 0).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        staging.file.unlock().unwrap();
        staging
    }

    fn recovered(directory: &TempDir, last: u64) -> Vec<u64> {
        let batches = recover(directory.path(), last).unwrap();
        batches.iter().for_each(|(number, batch)| {
            let LogRecord::Entries { entries, .. } = &batch[0] else { panic!("{batch:?}") };
            assert_eq!(*batch, records(*number, entries[0].payload.len()));
        });
        batches.into_iter().map(|(number, _)| number).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A batch of so many bytes.
        Batch(usize),
        /// The log's thread is done with what it had, and comes for more.
        Turn,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..2_000usize).prop_map(Step::Batch),
            2 => (0..(HALF as usize * 5 / 4)).prop_map(Step::Batch),
            2 => Just(Step::Turn),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// After every step: what is not in the log yet comes back, up to the first batch that was not staged.
        #[test]
        fn what_the_log_lacks_comes_back(steps in prop::collection::vec(step(), 1..40)) {
            let directory = TempDir::new().unwrap();
            let mut staging = create(&directory);
            let (mut number, mut in_log, mut taken) = (0, 0, 0);
            let mut unstaged = Vec::new();
            for step in steps {
                match step {
                    Step::Batch(bytes) => {
                        number += 1;
                        if !staging.append(number, laid_out(number, bytes)) {
                            prop_assert!(bytes > 0);
                            unstaged.push(number);
                        }
                    }
                    Step::Turn => {
                        (in_log, taken) = (taken, number);
                        staging.turn();
                    }
                }
                let gap = unstaged.iter().copied().find(|number| *number > in_log);
                prop_assert_eq!(
                    recovered(&directory, in_log),
                    (in_log + 1..gap.unwrap_or(number + 1)).collect::<Vec<_>>()
                );
            }
        }
    }

    #[test]
    fn damage_ends_what_comes_back() {
        let directory = TempDir::new().unwrap();
        let mut staging = create(&directory);
        (1..=4).for_each(|number| assert!(staging.append(number, laid_out(number, 50))));
        let path = in_use(directory.path()).unwrap().unwrap();
        let sound = fs::read(&path).unwrap();
        let length = laid_out(1, 50).len();
        for at in 0..4 * length {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).unwrap();
            assert_eq!(recovered(&directory, 0), (1..=(at / length) as u64).collect::<Vec<_>>(), "byte {at}");
        }
        fs::write(&path, &sound[..2 * length + 7]).unwrap();
        assert_eq!(recovered(&directory, 0), [1, 2]);
    }

    #[test]
    fn a_file_that_is_gone_was_lost_unless_it_was_removed() {
        let directory = TempDir::new().unwrap();
        assert!(!is_lost(directory.path()).unwrap());
        let staging = create(&directory);
        assert!(!is_lost(directory.path()).unwrap());
        let path = in_use(directory.path()).unwrap().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(is_lost(directory.path()).unwrap() && recovered(&directory, 0).is_empty());
        drop(staging);
        remove(directory.path()).unwrap();
        create(&directory);
        let path = in_use(directory.path()).unwrap().unwrap();
        remove(directory.path()).unwrap();
        assert!(!is_lost(directory.path()).unwrap() && !path.exists());
        Staging::create(directory.path(), Path::new("/nosuch")).err().expect("no such place");
        assert!(!is_lost(directory.path()).unwrap());
    }
}
