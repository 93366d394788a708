//! The log of a data directory of format 4, whose blocks had no [salt](super::block).
//!
//! Segments are written anew one after the other, each beside the old one, which it then replaces in one step. Until the
//! last one is done some segments are old and others new; recovery reads both, since a segment's first block says what
//! kind its blocks are. So a conversion that was interrupted begins again and leaves alone what is done.
//!
//! The torn tail is cut off first. A value that looks like a block could vouch for it as long as blocks had no salt; the
//! log is refused then, as the version that wrote it would have refused it.

use super::block::{self, BlockHeader, Salt};
use super::recovery::recover;
use super::writer::remove_torn_tail;
use super::{LogError, segments};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What was just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    TailRemoved,
    /// A segment has been written beside the old one, up to this block.
    BlockWritten(u64),
    /// The segment is durable beside the old one.
    SegmentWritten(u64),
    /// It has replaced the old one.
    SegmentReplaced(u64),
}

/// Calls `after` after each step, and ends if that fails.
pub(super) fn convert(directory: &Path, mut after: impl FnMut(Step) -> io::Result<()>) -> Result<(), LogError> {
    let io_error = |source| LogError::Io { path: directory.to_path_buf(), source };
    fs::create_dir_all(directory).map_err(io_error)?;
    remove_torn_tail(directory, &recover(directory)?)?;
    after(Step::TailRemoved).map_err(io_error)?;
    for segment in segments::list(directory)? {
        let path = segments::path(directory, segment);
        convert_segment(&path, segment, &mut after).map_err(|source| LogError::Io { path, source })?;
    }
    Ok(())
}

fn convert_segment(path: &Path, segment: u64, after: &mut impl FnMut(Step) -> io::Result<()>) -> io::Result<()> {
    let bytes = fs::read(path)?;
    if block::read(&bytes, segment, None).is_none_or(|(first, _)| first.salt != Salt::Former) {
        return Ok(());
    }
    // Not the extension of a segment.
    let unfinished = path.with_extension("unfinished");
    let mut out = BufWriter::new(File::create(&unfinished)?);
    let (mut offset, salt, mut converted) = (0, Salt::new(), Vec::new());
    while let Some((header, records)) =
        bytes.get(offset..).and_then(|bytes| block::read(bytes, segment, Some(Salt::Former)))
    {
        block::begin(&mut converted);
        converted.extend_from_slice(&bytes[offset..][records.clone()]);
        block::finish(&mut converted, BlockHeader { salt, ..header });
        out.write_all(&converted)?;
        after(Step::BlockWritten(header.number))?;
        offset = block::after(offset + records.end);
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    after(Step::SegmentWritten(segment))?;
    fs::rename(unfinished, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    after(Step::SegmentReplaced(segment))
}

#[cfg(test)]
mod tests {
    use super::super::record::{LogRecord, StoredEntry};
    use super::super::{LogBatch, LogConfig, RecoveredGroup, SharedLog};
    use super::*;
    use crate::GroupId;
    use std::collections::HashMap;
    use tempfile::TempDir;

    const ENTRIES: u64 = 30;

    /// Where the blocks of a segment begin.
    fn blocks(directory: &Path, segment: u64) -> Vec<usize> {
        let bytes = fs::read(segments::path(directory, segment)).unwrap();
        let (mut offset, mut blocks) = (0, Vec::new());
        while let Some((_, records)) = bytes.get(offset..).and_then(|bytes| block::read(bytes, segment, None)) {
            blocks.push(offset);
            offset = block::after(offset + records.end);
        }
        blocks
    }

    fn last_segment(directory: &Path) -> u64 {
        *segments::list(directory).unwrap().last().unwrap()
    }

    /// A log of several segments whose process was killed, as the version of format 4 would have written it. The last segment has
    /// three blocks at least.
    fn former_log() -> (TempDir, HashMap<GroupId, RecoveredGroup>) {
        let directory = TempDir::new().unwrap();
        let config = LogConfig { segment_bytes: 32 << 10, ..LogConfig::default() };
        let (log, _) = SharedLog::open(directory.path(), &config).unwrap();
        let mut entries_written = 0;
        while entries_written < ENTRIES || blocks(directory.path(), last_segment(directory.path())).len() < 3 {
            entries_written += 1;
            let index = entries_written;
            let payload = vec![index as u8; 997 * index as usize % 5_000].into();
            let entries = vec![StoredEntry { index, term: 1, kind: 0, payload }];
            log.submit(LogBatch {
                records: vec![LogRecord::Entries { group: GroupId(index % 3), entries }],
                ..Default::default()
            });
            log.wait_synced().unwrap();
        }
        let former = TempDir::new().unwrap();
        for segment in segments::list(directory.path()).unwrap() {
            let bytes = fs::read(segments::path(directory.path(), segment)).unwrap();
            fs::write(segments::path(former.path(), segment), former_segment(&bytes, segment)).unwrap();
        }
        assert!(segments::list(former.path()).unwrap().len() >= 3);
        let groups = recover(directory.path()).unwrap().groups;
        assert_eq!(groups.values().map(|group| group.entries.len()).sum::<usize>(), entries_written as usize);
        (former, groups)
    }

    /// The blocks of a segment without salt, and zeros up to its allocated length.
    fn former_segment(bytes: &[u8], segment: u64) -> Vec<u8> {
        let (mut offset, mut former) = (0, Vec::new());
        while let Some((header, records)) = bytes.get(offset..).and_then(|bytes| block::read(bytes, segment, None)) {
            let records = &bytes[offset..][records];
            former.resize(block::after(former.len()), 0);
            let mut checked = Vec::new();
            for word in [segment, header.number, header.durable, header.batch] {
                checked.extend_from_slice(&word.to_le_bytes());
            }
            checked.extend_from_slice(&(records.len() as u32).to_le_bytes());
            checked.extend_from_slice(records);
            former.extend_from_slice(b"TSSL");
            former.extend_from_slice(&crc32c::crc32c(&checked).to_le_bytes());
            former.extend_from_slice(&checked);
            offset = block::after(offset + block::HEADER_LEN + records.len());
        }
        former.resize(block::after(former.len()).max(bytes.len()), 0);
        former
    }

    fn copy_of(directory: &TempDir) -> TempDir {
        let copy = TempDir::new().unwrap();
        for file in fs::read_dir(directory.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        copy
    }

    fn steps(directory: &TempDir) -> Vec<Step> {
        let mut steps = Vec::new();
        convert(directory.path(), |step| {
            steps.push(step);
            Ok(())
        })
        .unwrap();
        steps
    }

    fn check_converted(directory: &TempDir, groups: &HashMap<GroupId, RecoveredGroup>) {
        assert_eq!(recover(directory.path()).unwrap().groups, *groups);
        for segment in segments::list(directory.path()).unwrap() {
            let bytes = fs::read(segments::path(directory.path(), segment)).unwrap();
            let first = block::read(&bytes, segment, None).map(|(first, _)| first.salt);
            assert!(matches!(first, Some(Salt::Random(_))), "segment {segment}: {first:?}");
        }
        let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names.len(), segments::list(directory.path()).unwrap().len(), "{names:?}");
        assert_eq!(steps(directory), [Step::TailRemoved], "nothing is left to be done");
        let (log, opened) = SharedLog::open(directory.path(), &LogConfig::default()).unwrap();
        assert_eq!(opened, *groups);
        log.close();
    }

    #[test]
    fn a_conversion_that_is_interrupted_at_any_step_is_taken_up_again() {
        let (former, groups) = former_log();
        assert_eq!(recover(former.path()).unwrap().groups, groups, "a former log is read as it is");
        let all = steps(&copy_of(&former));
        let segments = segments::list(former.path()).unwrap().len();
        assert_eq!(all.iter().filter(|step| matches!(step, Step::SegmentReplaced(_))).count(), segments);
        assert!(all.len() > ENTRIES as usize + 2 * segments, "{all:?}");
        for last in &all {
            let directory = copy_of(&former);
            let interrupted = convert(directory.path(), |step| match step == *last {
                true => Err(io::Error::other("the process ends")),
                false => Ok(()),
            });
            assert!(matches!(interrupted, Err(LogError::Io { .. })), "{last:?}");
            assert_eq!(recover(directory.path()).unwrap().groups, groups, "after {last:?}");
            convert(directory.path(), |_| Ok(())).unwrap();
            check_converted(&directory, &groups);
        }
    }

    #[test]
    fn a_torn_tail_of_a_former_log_is_cut_off_and_damage_is_refused() {
        let (former, groups) = former_log();
        let segment = last_segment(former.path());
        let path = segments::path(former.path(), segment);
        let mut torn = fs::read(&path).unwrap();
        let last = blocks(former.path(), segment).pop().unwrap();
        torn[last + 60] ^= 1;
        fs::write(&path, &torn).unwrap();
        convert(former.path(), |_| Ok(())).unwrap();
        let converted = recover(former.path()).unwrap().groups;
        let entries =
            |groups: &HashMap<GroupId, RecoveredGroup>| groups.values().map(|group| group.entries.len()).sum::<usize>();
        assert_eq!(entries(&converted) + 1, entries(&groups), "the last entry was torn");

        let (former, _) = former_log();
        let segment = last_segment(former.path());
        let path = segments::path(former.path(), segment);
        let mut damaged = fs::read(&path).unwrap();
        damaged[blocks(former.path(), segment)[1] + 60] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(matches!(convert(former.path(), |_| Ok(())), Err(LogError::Corrupt { .. })));
        assert_eq!(fs::read(&path).unwrap(), damaged, "nothing was changed");
    }
}
