use super::*;
use crate::small_disk::SmallDisk;
use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tempfile::TempDir;

const SMALL: u64 = 16 << 10;

fn config() -> LogConfig {
    LogConfig { segment_bytes: SMALL, soft_sync_interval: Duration::from_millis(1), ..Default::default() }
}

fn entry(index: u64, payload: &[u8]) -> StoredEntry {
    StoredEntry { index, term: 1, kind: 0, payload: Bytes::copy_from_slice(payload) }
}

fn append(log: &SharedLog, group: u64, indexes: std::ops::Range<u64>, payload_len: usize) {
    let entries = indexes.map(|index| entry(index, &vec![index as u8; payload_len])).collect();
    let group = GroupId(group);
    log.submit(LogBatch { records: vec![LogRecord::Entries { group, entries }], ..Default::default() });
}

fn indexes(group: &RecoveredGroup) -> Vec<u64> {
    group.entries.iter().map(|entry| entry.index).collect()
}

/// Ends the log's thread without the mark of a clean shutdown, as a kill would.
fn kill(log: Arc<SharedLog>, directory: &TempDir) -> TempDir {
    log.wait_synced().unwrap();
    copy_of(directory)
}

fn copy_of(directory: &TempDir) -> TempDir {
    let copy = TempDir::new().unwrap();
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

/// A log with a staging file whose thread writes only when it must.
fn staging(directory: &TempDir) -> LogConfig {
    let soft_sync_interval = Duration::from_secs(3_600);
    LogConfig { soft_sync_interval, staging_directory: Some(directory.path().to_path_buf()), ..config() }
}

/// Stages an entry. Returns whether it counts at once.
fn stage(log: &SharedLog, group: u64, index: u64, payload_len: usize) -> bool {
    let mut counts = false;
    let entries = vec![entry(index, &vec![index as u8; payload_len])];
    log.stage(vec![LogRecord::Entries { group: GroupId(group), entries }], false, |is_staged| {
        counts = is_staged;
        None
    });
    counts
}

/// What a kill would leave just now, of a log whose thread is idle and has its staging file beside its segments.
fn left_by_a_kill(directory: &TempDir) -> TempDir {
    let copy = copy_of(directory);
    let mark = copy.path().join("staging");
    let path = std::path::PathBuf::from(std::fs::read_to_string(&mark).unwrap());
    std::fs::write(mark, copy.path().join(path.file_name().unwrap()).to_str().unwrap()).unwrap();
    copy
}

/// Until what was submitted is durable, and what follows from it (space, statistics) done as well.
fn settle(log: &SharedLog) {
    log.wait_synced().unwrap();
    log.wait_synced().unwrap();
}

fn newest_segment(directory: &TempDir) -> (u64, std::path::PathBuf) {
    let number = *segments::list(directory.path()).unwrap().last().unwrap();
    (number, segments::path(directory.path(), number))
}

#[test]
fn entries_states_and_replacements_come_back() {
    let directory = TempDir::new().unwrap();
    let (log, groups) = SharedLog::open(directory.path(), &config()).unwrap();
    assert!(groups.is_empty());
    append(&log, 7, 1..10, 100);
    append(&log, 7, 5..7, 3); // a new leader's entries replace 5 and all behind it
    append(&log, 8, 1..3, 0);
    let state = StoredState { term: 3, vote: 1, commit: 6 };
    log.submit(LogBatch { records: vec![LogRecord::State { group: GroupId(7), state }], ..Default::default() });
    let members = Bytes::from_static(b"members");
    let records = vec![
        LogRecord::Members { group: GroupId(8), index: 2, members: members.clone() },
        LogRecord::Restoring { group: GroupId(10), snapshot: snapshot(5) },
        LogRecord::Restored { group: GroupId(10), index: 5, term: 2 },
        LogRecord::Restoring { group: GroupId(11), snapshot: snapshot(7) },
    ];
    append(&log, 10, 1..9, 10); // a snapshot takes the place of these
    log.submit(LogBatch { records, ..Default::default() });
    append(&log, 10, 6..7, 10);
    append(&log, 9, 1..2, 10);
    log.submit(LogBatch { records: vec![LogRecord::Removed { group: GroupId(9) }], ..Default::default() });
    log.close();
    let (_log, groups) = SharedLog::open(directory.path(), &config()).unwrap();
    assert_eq!(groups[&GroupId(7)].state, state);
    assert_eq!(indexes(&groups[&GroupId(7)]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(groups[&GroupId(7)].entries[5].payload.len(), 3);
    assert_eq!(indexes(&groups[&GroupId(8)]), [1, 2]);
    assert_eq!(groups[&GroupId(8)].members, (2, members));
    assert_eq!((groups[&GroupId(10)].truncated, indexes(&groups[&GroupId(10)])), ((5, 2), vec![6]));
    assert!(!groups.contains_key(&GroupId(9)));
    assert_eq!(groups[&GroupId(10)].restoring, None);
    assert_eq!(groups[&GroupId(11)].restoring, Some(snapshot(7)));
}

fn snapshot(index: u64) -> StoredSnapshot {
    StoredSnapshot { index, term: 2, members_index: 4, members: Bytes::from_static(b"members") }
}

/// What is to replace a state is still known when the segment that said so is gone.
#[test]
fn a_snapshot_that_was_begun_is_known_in_every_later_segment() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &config()).unwrap();
    let records = vec![LogRecord::Restoring { group: GroupId(2), snapshot: snapshot(7) }];
    log.submit(LogBatch { records, sync: true, ..Default::default() });
    (1..100).for_each(|index| append(&log, 1, index..index + 1, 1_000));
    settle(&log);
    let records = vec![LogRecord::Truncated { group: GroupId(1), index: 99, term: 1 }];
    log.submit(LogBatch { records, ..Default::default() });
    settle(&log);
    assert!(!directory.path().join("0000000000000001.log").exists());
    log.close();
    let (_log, groups) = SharedLog::open(directory.path(), &config()).unwrap();
    assert_eq!(groups[&GroupId(2)].restoring, Some(snapshot(7)));
}

#[test]
fn segments_go_when_no_group_needs_them() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &config()).unwrap();
    for index in 1..200 {
        append(&log, 1, index..index + 1, 1_000);
    }
    append(&log, 2, 1..2, 10);
    settle(&log);
    assert!(log.statistics().segments > 5);
    assert_eq!(log.groups_holding_space(), [GroupId(1)]);
    let truncate = |group, index| {
        let records = vec![LogRecord::Truncated { group: GroupId(group), index, term: 1 }];
        log.submit(LogBatch { records, ..Default::default() });
        settle(&log);
    };
    truncate(1, 199);
    assert!(log.statistics().segments <= 2, "{:?}", log.statistics());
    log.close();
    let (_log, groups) = SharedLog::open(directory.path(), &config()).unwrap();
    assert_eq!(groups[&GroupId(1)].truncated, (199, 1));
    assert_eq!(indexes(&groups[&GroupId(1)]), [0u64; 0]);
    assert_eq!(indexes(&groups[&GroupId(2)]), [1]);
}

#[test]
fn one_fsync_serves_all_that_queued() {
    let directory = TempDir::new().unwrap();
    let config = LogConfig { soft_sync_interval: Duration::from_secs(3600), ..config() };
    let (log, _) = SharedLog::open(directory.path(), &config).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    for index in 1..=1_000 {
        let done = done.clone();
        let completion: Completion = Box::new(move |outcome| {
            outcome.unwrap();
            done.fetch_add(1, Ordering::SeqCst);
        });
        let records = vec![LogRecord::Entries { group: GroupId(1), entries: vec![entry(index, b"payload")] }];
        log.submit(LogBatch { records, sync: true, completion: Some(completion) });
    }
    log.wait_synced().unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1_000);
    assert!(log.statistics().syncs < 1_000, "{:?}", log.statistics());
}

/// Every single flipped bit, and every cut, of what a killed process left: recovery gives back a prefix, or refuses.
#[test]
fn a_damaged_log_gives_a_prefix_or_is_refused_but_never_a_hole() {
    let directory = TempDir::new().unwrap();
    let config = LogConfig { segment_bytes: 8 * SMALL, ..config() };
    let (log, _) = SharedLog::open(directory.path(), &config).unwrap();
    for index in 1..=20 {
        append(&log, 1, index..index + 1, 30);
        if index <= 10 {
            log.wait_synced().unwrap();
        }
    }
    let killed = kill(log, &directory);
    let (_, path) = newest_segment(&killed);
    let sound = std::fs::read(&path).unwrap();
    let used = sound.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let (mut refused, mut cut) = (0, 0);
    // Most of a block are the zeros behind its records, and all of them are alike.
    let is_worthwhile = |at: &usize| at % block::ALIGNMENT < 128 || at.is_multiple_of(512);
    for at in (0..used).filter(is_worthwhile) {
        let mut damaged = sound.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        match recovery::recover(killed.path()) {
            Err(LogError::Corrupt { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
            Ok(recovered) => {
                cut += 1;
                let indexes = recovered.groups.get(&GroupId(1)).map(indexes).unwrap_or_default();
                let prefix: Vec<u64> = (1..=indexes.len() as u64).collect();
                assert_eq!(indexes, prefix, "byte {at}");
                assert!(indexes.len() >= 10, "byte {at}: an entry that later blocks vouch for was cut off");
            }
        }
    }
    assert!(refused > 500 && cut > 50, "{refused} refused, {cut} cut");
    for end in (0..used).filter(is_worthwhile) {
        std::fs::write(&path, &sound[..end]).unwrap();
        let recovered = recovery::recover(killed.path()).unwrap();
        let indexes = recovered.groups.get(&GroupId(1)).map(indexes).unwrap_or_default();
        assert_eq!(indexes, (1..=indexes.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn a_torn_tail_is_cut_once_and_writing_goes_on() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &config()).unwrap();
    append(&log, 1, 1..3, 30);
    let killed = kill(log, &directory);
    let (_, path) = newest_segment(&killed);
    let mut bytes = std::fs::read(&path).unwrap();
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    bytes[used..used + 50].fill(0x55); // the start of a block that never became whole
    std::fs::write(&path, &bytes).unwrap();
    for round in 0..3 {
        let (log, groups) = SharedLog::open(killed.path(), &config()).unwrap();
        assert_eq!(indexes(&groups[&GroupId(1)]), (1..3 + round).collect::<Vec<_>>());
        append(&log, 1, 3 + round..4 + round, 10);
        log.close();
    }
}

#[test]
fn after_a_clean_shutdown_even_the_last_block_is_known_to_be_needed() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &config()).unwrap();
    append(&log, 1, 1..2, 64);
    log.close();
    let (_, path) = newest_segment(&directory);
    let mut bytes = std::fs::read(&path).unwrap();
    let payload = bytes.windows(64).position(|window| window == [1; 64]).unwrap();
    bytes[payload + 3] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let error = SharedLog::open(directory.path(), &config()).err().expect("refused");
    assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
}

#[test]
fn a_missing_segment_is_refused() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &config()).unwrap();
    for index in 1..60 {
        append(&log, 1, index..index + 1, 1_000);
    }
    log.close();
    let numbers = segments::list(directory.path()).unwrap();
    std::fs::remove_file(segments::path(directory.path(), numbers[1])).unwrap();
    assert!(matches!(SharedLog::open(directory.path(), &config()), Err(LogError::Corrupt { .. })));
}

#[test]
fn entries_larger_than_a_segment_fit() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &config()).unwrap();
    append(&log, 1, 1..2, 100_000);
    append(&log, 1, 2..3, 10);
    log.close();
    let (_log, groups) = SharedLog::open(directory.path(), &config()).unwrap();
    assert_eq!(indexes(&groups[&GroupId(1)]), [1, 2]);
    assert_eq!(groups[&GroupId(1)].entries[0].payload.len(), 100_000);
}

#[test]
fn what_is_staged_outlives_the_process_and_goes_on() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &staging(&directory)).unwrap();
    let blocks = log.statistics().blocks;
    append(&log, 2, 1..2, 10); // nobody stages yet
    log.wait_synced().unwrap();
    assert!((1..=50).all(|index| stage(&log, 1, index, 100)));
    append(&log, 2, 2..3, 10);
    assert!(stage(&log, 1, 40, 7), "a new leader's entry takes the place of eleven");
    assert_eq!(log.statistics().blocks, blocks + 1, "the log's thread let them wait");
    let mut killed = left_by_a_kill(&directory);
    for round in 0..3 {
        let config = staging(&killed);
        let (log, groups) = SharedLog::open(killed.path(), &config).unwrap();
        assert_eq!(indexes(&groups[&GroupId(1)]), (1..=40 + round).collect::<Vec<_>>(), "round {round}");
        assert_eq!(groups[&GroupId(1)].entries[39].payload.len(), 7);
        assert_eq!(indexes(&groups[&GroupId(2)]), [1, 2]);
        assert!(stage(&log, 1, 41 + round, 1));
        let next = left_by_a_kill(&killed);
        log.close();
        killed = next;
    }
}

/// As much as does not fit waits for the log, nothing that comes behind it counts before it, and all comes back at any
/// time.
#[test]
fn more_than_can_be_staged_waits_for_the_log() {
    let directory = TempDir::new().unwrap();
    let config = LogConfig { segment_bytes: 64 << 20, ..staging(&directory) };
    let (log, _) = SharedLog::open(directory.path(), &config).unwrap();
    assert!(stage(&log, 1, 1, 100));
    assert!(!stage(&log, 1, 2, 5 << 20), "it is longer than a half");
    log.wait_synced().unwrap();
    for index in 3..12 {
        assert!(stage(&log, 1, index, 3 << 20), "the log has all before it");
        log.wait_synced().unwrap();
    }
    assert!(stage(&log, 1, 12, 100));
    let killed = left_by_a_kill(&directory);
    let (_log, groups) = SharedLog::open(killed.path(), &staging(&killed)).unwrap();
    assert_eq!(indexes(&groups[&GroupId(1)]), (1..=12).collect::<Vec<_>>());
}

#[test]
fn a_log_that_was_closed_leaves_no_staging_file() {
    let (directory, memory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (log, _) = SharedLog::open(directory.path(), &staging(&memory)).unwrap();
    assert!(stage(&log, 1, 1, 100));
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 1);
    log.close();
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0);
    assert!(!SharedLog::has_lost_staged(directory.path()).unwrap());
    let (log, groups) = SharedLog::open(directory.path(), &config()).unwrap();
    assert_eq!(indexes(&groups[&GroupId(1)]), [1]);
    assert!(!stage(&log, 1, 2, 100), "without a place for one nothing counts at once");
}

/// A kill after any block, with what was staged while the log's thread wrote: everything comes back.
#[test]
fn a_kill_between_any_two_blocks_loses_nothing_that_was_staged() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &staging(&directory)).unwrap();
    assert!((1..=40).all(|index| stage(&log, 1, index, 1_000 + 900 * (index as usize % 5))));
    log.wait_synced().unwrap();
    let killed = left_by_a_kill(&directory);
    let segments = segments::list(killed.path()).unwrap();
    let (mut cuts, mut short) = (0, 0);
    for &segment in segments.iter().rev() {
        let path = segments::path(killed.path(), segment);
        let mut bytes = std::fs::read(&path).unwrap();
        let mut ends = vec![0];
        while let Some((_, range)) = block::read(&bytes[ends[ends.len() - 1]..], segment, None) {
            ends.push(block::after(ends[ends.len() - 1] + range.end).min(bytes.len()));
        }
        for end in ends.into_iter().rev() {
            bytes[end..].fill(0);
            std::fs::write(&path, &bytes).unwrap();
            let recovered = recovery::recover(killed.path()).unwrap();
            short += usize::from(recovered.groups.get(&GroupId(1)).is_none_or(|group| group.entries.len() < 40));
            let again = left_by_a_kill(&killed);
            let (_log, groups) = SharedLog::open(again.path(), &config()).unwrap();
            assert_eq!(indexes(&groups[&GroupId(1)]), (1..=40).collect::<Vec<_>>(), "segment {segment}, {end} bytes");
            assert_eq!(groups[&GroupId(1)].entries[3].payload.len(), 1_000 + 900 * 4);
            cuts += 1;
        }
        std::fs::remove_file(path).unwrap();
    }
    assert!(segments.len() > 5 && cuts > 20 && short > 20, "{} segments, {cuts} cuts, {short} short", segments.len());
}

#[test]
fn what_was_staged_when_the_disk_failed_is_there_after_the_next_start() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &staging(&directory)).unwrap();
    assert!((1..=30).all(|index| stage(&log, 1, index, 1_000)));
    let (segment, _) = newest_segment(&directory);
    let obstacle = segments::path(directory.path(), segment + 1);
    std::fs::create_dir(&obstacle).unwrap();
    // Whose batch was being written hears of it like whoever comes later, and when nothing counts any more.
    for _ in 0..2 {
        let failure = log.wait_synced().unwrap_err().to_string();
        assert!(failure.contains("os error"), "{failure}");
    }
    assert!(!stage(&log, 1, 31, 1_000));
    log.close();
    std::fs::remove_dir(&obstacle).unwrap();
    let (_log, groups) = SharedLog::open(directory.path(), &staging(&directory)).unwrap();
    assert_eq!(indexes(&groups[&GroupId(1)]), (1..=30).collect::<Vec<_>>());
}

/// A client's value holds what looks like a block that vouches for everything. Behind a torn one it once made a torn
/// tail damage, and the node did not start.
#[test]
fn a_value_that_looks_like_a_block_vouches_for_nothing() {
    let directory = TempDir::new().unwrap();
    let config = LogConfig { segment_bytes: 8 * SMALL, ..config() };
    let (log, _) = SharedLog::open(directory.path(), &config).unwrap();
    append(&log, 1, 1..2, 10);
    settle(&log);
    let (segment, _) = newest_segment(&directory);
    let mut forged = Vec::new();
    block::begin(&mut forged);
    block::finish(
        &mut forged,
        block::BlockHeader { segment, salt: block::Salt::Random(1), number: 9, durable: u64::MAX, batch: 0 },
    );
    // At every place of a page there is one that begins there, as far as there is room.
    let payload = forged[..block::HEADER_LEN].repeat(3 * block::ALIGNMENT / block::HEADER_LEN);
    for shift in 0..block::HEADER_LEN as u64 {
        let padded = [&vec![0; shift as usize], &payload[..]].concat();
        let entries = vec![entry(2 + shift, &padded)];
        log.submit(LogBatch { records: vec![LogRecord::Entries { group: GroupId(1), entries }], ..Default::default() });
        settle(&log);
        let killed = copy_of(&directory);
        let (_, path) = newest_segment(&killed);
        let mut bytes = std::fs::read(&path).unwrap();
        let torn = last_block(&bytes, segment);
        let has_forged = (torn + 1..bytes.len()).any(|at| {
            at.is_multiple_of(block::ALIGNMENT)
                && block::read(&bytes[at..], segment, Some(block::Salt::Random(1))).is_some()
        });
        bytes[torn] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let recovered = recovery::recover(killed.path()).unwrap();
        assert_eq!(recovered.groups[&GroupId(1)].entries.len() as u64, 1 + shift);
        if has_forged {
            return;
        }
    }
    panic!("no forged block was where a block could be");
}

/// Where the last block of a segment begins.
fn last_block(bytes: &[u8], segment: u64) -> usize {
    let (mut at, mut last) = (0, 0);
    while let Some((_, range)) = bytes.get(at..).and_then(|bytes| block::read(bytes, segment, None)) {
        (last, at) = (at, block::after(at + range.end));
    }
    last
}

#[test]
fn a_segment_whose_first_block_is_damaged_is_no_torn_tail() {
    let directory = TempDir::new().unwrap();
    let (log, _) = SharedLog::open(directory.path(), &LogConfig { segment_bytes: 8 * SMALL, ..config() }).unwrap();
    append(&log, 1, 1..2, 10);
    let killed = kill(log, &directory);
    let (_, path) = newest_segment(&killed);
    let sound = std::fs::read(&path).unwrap();
    let mut damaged = sound.clone();
    damaged[20] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    assert!(matches!(recovery::recover(killed.path()).err(), Some(LogError::Corrupt { .. })));
    // Without another block it never became whole.
    std::fs::write(&path, &damaged[..block::ALIGNMENT]).unwrap();
    assert!(recovery::recover(killed.path()).unwrap().groups.is_empty());
}

fn await_status(log: &SharedLog, status: &LogStatus) {
    let began = Instant::now();
    while log.status() != *status {
        assert!(began.elapsed() < Duration::from_secs(20), "the log is {:?}, not {status:?}", log.status());
        std::thread::yield_now();
    }
}

/// What was begun before the disk filled up once could not be ended until there was space.
#[test]
fn on_a_full_disk_the_log_has_one_segment_left() {
    let Some(disk) = SmallDisk::mount(64 * SMALL as usize) else { return };
    let directory = disk.path().join("log");
    let (log, _) = SharedLog::open(&directory, &config()).unwrap();
    disk.fill();
    let mut index = 0;
    let mut append_durably = || {
        index += 1;
        append(&log, 1, index..index + 1, 1_000);
        log.wait_synced().unwrap();
        index
    };
    while log.status() == LogStatus::Ok {
        assert!(append_durably() < 100, "the disk never filled up");
    }
    assert_eq!(log.status(), LogStatus::Reserve);
    assert!(!log.is_reserve_low());
    while !log.is_reserve_low() {
        append_durably();
    }
    let first_lost = index + 1;
    append(&log, 1, first_lost..first_lost + 10, 1_000);
    append(&log, 1, first_lost + 10..first_lost + 20, 1_000);
    await_status(&log, &LogStatus::Full);
    disk.empty();
    log.wait_synced().unwrap();
    await_status(&log, &LogStatus::Ok);
    log.close();
    let (_log, groups) = SharedLog::open(&directory, &config()).unwrap();
    assert_eq!(indexes(&groups[&GroupId(1)]), (1..first_lost + 20).collect::<Vec<_>>());
}

/// Nobody need write anything for the log to notice.
#[test]
fn the_reserve_is_there_again_when_there_is_space() {
    let Some(disk) = SmallDisk::mount(64 * SMALL as usize) else { return };
    let directory = disk.path().join("log");
    let (log, _) = SharedLog::open(&directory, &config()).unwrap();
    disk.fill();
    for index in 1..=4 {
        append(&log, 1, index..index + 1, 1_000);
        log.wait_synced().unwrap();
    }
    assert_eq!(log.status(), LogStatus::Reserve);
    disk.empty();
    await_status(&log, &LogStatus::Ok);
    disk.fill();
    log.close();
    assert_eq!(log.status(), LogStatus::Ok);
    let (log, groups) = SharedLog::open(&directory, &config()).expect("what was kept is enough for a segment");
    assert_eq!(indexes(&groups[&GroupId(1)]), [1, 2, 3, 4]);
    assert_eq!(log.status(), LogStatus::Reserve);
}
