//! Reading the log back.

use super::block::{self, BlockHeader, Salt};
use super::record::{LogRecord, StoredEntry, StoredSnapshot, StoredState};
use super::{LogError, segments};
use crate::GroupId;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

/// The content of the log for one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredGroup {
    /// The last term, vote and commit index that were logged.
    pub state: StoredState,
    /// The members, and the index of the entry that made them members.
    pub members: (u64, Bytes),
    /// Index and term up to which the state machine had become durable.
    pub truncated: (u64, u64),
    /// Consecutive entries; the first is at most one above what was truncated.
    pub entries: VecDeque<StoredEntry>,
    /// The snapshot that was about to replace the state, if the log does not say whether it did.
    pub restoring: Option<StoredSnapshot>,
}

pub(super) struct Recovered {
    pub(super) groups: HashMap<GroupId, RecoveredGroup>,
    /// Segments on disk, each with the highest index that it holds per group.
    pub(super) segments: Vec<(u64, HashMap<GroupId, u64>)>,
    /// Number of the last block.
    pub(super) last_block: u64,
    /// Number of the last batch that is whole.
    pub(super) last_batch: u64,
}

impl Recovered {
    /// Adds records that were [staged](super::staging) and are not in the log yet.
    pub(super) fn take_in(&mut self, records: &[LogRecord]) {
        let highest = &mut HashMap::new(); // of a segment that is still to be written
        records.iter().for_each(|record| take(&mut self.groups, highest, record.clone()));
    }
}

pub(super) fn recover(directory: &Path) -> Result<Recovered, LogError> {
    let numbers = segments::list(directory)?;
    let mut recovered = Recovered { groups: HashMap::new(), segments: Vec::new(), last_block: 0, last_batch: 0 };
    let mut torn: Option<Torn> = None;
    for (position, &segment) in numbers.iter().enumerate() {
        let path = segments::path(directory, segment);
        if position > 0 && segment != numbers[position - 1] + 1 {
            return Err(LogError::Corrupt { path, offset: 0, what: "the segment before it is missing" });
        }
        let bytes = std::fs::read(&path).map_err(|source| LogError::Io { path: path.clone(), source })?;
        let bytes = Bytes::from(bytes);
        if let Some(torn) = &torn {
            // Nothing after a bad block is used. But if a later block vouches for it, the bad block was no torn tail.
            let salt = block::read(&bytes, segment, None).map(|(first, _)| first.salt);
            torn.check_against(&bytes, segment, salt, 0)?;
            continue;
        }
        let mut highest = HashMap::new();
        let (mut offset, mut salt) = (0, None);
        while let Some((header, range)) = block::read(&bytes[offset..], segment, salt) {
            salt = Some(header.salt);
            if recovered.last_block != 0 && header.number != recovered.last_block + 1 {
                return Err(LogError::Corrupt { path, offset: offset as u64, what: "a block is missing before it" });
            }
            recovered.last_block = header.number;
            recovered.last_batch = header.batch;
            let mut records = bytes.slice(offset + range.start..offset + range.end);
            while !records.is_empty() {
                let record = LogRecord::decode(&mut records).ok_or_else(|| LogError::Corrupt {
                    path: path.clone(),
                    offset: offset as u64,
                    what: "its checksum is right, but a record in it cannot be read; was it written by a later version?",
                })?;
                take(&mut recovered.groups, &mut highest, record);
            }
            offset = block::after(offset + range.end).min(bytes.len());
        }
        recovered.segments.push((segment, highest));
        let is_unused = bytes[offset..].iter().all(|&byte| byte == 0);
        if !is_unused || position + 1 < numbers.len() {
            // Either damage, or simply the end of a full segment: later segments show which.
            let suspect = Torn { path, offset, block: recovered.last_block + 1 };
            suspect.check_against(&bytes, segment, salt, offset)?;
            if !is_unused {
                torn = Some(suspect);
            }
        }
    }
    recovered.groups.retain(|_, group| *group != RecoveredGroup::default());
    Ok(recovered)
}

/// A place where block number `block` should be and is not.
struct Torn {
    path: PathBuf,
    offset: usize,
    block: u64,
}

impl Torn {
    /// Fails if a whole block of `bytes`, a segment with this salt, from `from` on vouches for the missing one. Without
    /// a first block that tells the salt, what follows does: a segment's first block is on disk before anything else is
    /// written to it.
    fn check_against(&self, bytes: &[u8], segment: u64, salt: Option<Salt>, mut from: usize) -> Result<(), LogError> {
        let corrupt = |what| LogError::Corrupt { path: self.path.clone(), offset: self.offset as u64, what };
        let Some(salt) = salt else {
            let is_unused =
                bytes.get(block::ALIGNMENT..).unwrap_or_default().chunks(block::ALIGNMENT).all(block::is_no_block);
            return if is_unused {
                Ok(())
            } else {
                Err(corrupt("a segment's first block is damaged, and it has others"))
            };
        };
        while let Some(at) = block::find(bytes, segment, salt, from) {
            let Some((BlockHeader { durable, .. }, range)) = block::read(&bytes[at..], segment, Some(salt)) else {
                break;
            };
            if durable >= self.block {
                return Err(corrupt("the block's checksum does not match"));
            }
            from = at + range.end;
        }
        Ok(())
    }
}

fn take(groups: &mut HashMap<GroupId, RecoveredGroup>, highest: &mut HashMap<GroupId, u64>, record: LogRecord) {
    let id = record.group();
    if let LogRecord::Removed { .. } = record {
        groups.remove(&id);
        highest.remove(&id);
        return;
    }
    let group = groups.entry(id).or_default();
    match record {
        LogRecord::Entries { entries, .. } => {
            if let Some(first) = entries.first() {
                while group.entries.back().is_some_and(|last| last.index >= first.index) {
                    group.entries.pop_back();
                }
            }
            if let Some(last) = entries.last() {
                let highest = highest.entry(id).or_default();
                *highest = last.index.max(*highest);
            }
            group.entries.extend(entries);
        }
        LogRecord::State { state, .. } => group.state = state,
        LogRecord::Members { index, members, .. } => group.members = (index, members),
        LogRecord::Restored { index, term, .. } => {
            group.truncated = (index, term);
            group.entries.clear();
            group.restoring = None;
        }
        LogRecord::Restoring { snapshot, .. } => group.restoring = Some(snapshot),
        LogRecord::Truncated { index, term, .. } => {
            group.truncated = (index, term);
            while group.entries.front().is_some_and(|first| first.index <= index) {
                group.entries.pop_front();
            }
        }
        LogRecord::Removed { .. } => unreachable!("returned above"),
    }
}

/// Reads the blocks of one segment's bytes, for fuzzing and for inspection: whole blocks and records until the first
/// that is not.
pub fn decode_segment(bytes: &[u8], segment: u64) -> Vec<LogRecord> {
    let bytes = Bytes::copy_from_slice(bytes);
    let (mut offset, mut salt, mut decoded) = (0, None, Vec::new());
    while let Some((header, range)) = bytes.get(offset..).and_then(|bytes| block::read(bytes, segment, salt)) {
        salt = Some(header.salt);
        let mut records = bytes.slice(offset + range.start..offset + range.end);
        while let Some(record) = LogRecord::decode(&mut records) {
            decoded.push(record);
        }
        offset = block::after(offset + range.end);
    }
    decoded
}

/// Reads one record as it stands inside a block, for fuzzing.
pub fn decode_record(bytes: &[u8]) -> Option<LogRecord> {
    LogRecord::decode(&mut Bytes::copy_from_slice(bytes))
}
