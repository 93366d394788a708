//! The thread that writes the log.

use super::block::{self, BlockHeader, Salt};
use super::file::SegmentFile;
use super::queue::Queued;
use super::record::{LogRecord, StoredSnapshot, StoredState};
use super::recovery::{Recovered, RecoveredGroup};
use super::reserve::{Reserve, is_full};
use super::{LogConfig, LogError, LogStatus, Shared, segments};
use crate::GroupId;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long to wait before writing again to a disk that was full.
const RETRY_FULL: Duration = Duration::from_millis(500);
/// A block is closed when it has grown to this or to a quarter of a segment, so that memory and the cost of one damaged
/// block stay bounded.
const BLOCK_BYTES: usize = 8 << 20;

pub(super) struct Writer {
    directory: PathBuf,
    config: LogConfig,
    shared: Arc<Shared>,
    file: SegmentFile,
    reserve: Reserve,
    segment: u64,
    salt: Salt,
    /// Number of the last block written, and of the last one that is durable.
    last_block: u64,
    durable_block: u64,
    /// Number of the last batch that is whole in the blocks written.
    last_batch: u64,
    groups: HashMap<GroupId, GroupState>,
    /// Highest index per group in the segment being written.
    highest: HashMap<GroupId, u64>,
    /// The same for older segments, oldest first.
    closed: VecDeque<(u64, HashMap<GroupId, u64>)>,
    block: Vec<u8>,
    unsynced_since: Option<Instant>,
}

#[derive(Clone, Default)]
struct GroupState {
    state: StoredState,
    members: (u64, Bytes),
    truncated: (u64, u64),
    restoring: Option<StoredSnapshot>,
}

impl Writer {
    /// Always begins a new segment, so that a tail that recovery cut off is never written over.
    pub(super) fn new(
        directory: &Path,
        config: &LogConfig,
        recovered: &Recovered,
        shared: Arc<Shared>,
    ) -> Result<Self, LogError> {
        remove_torn_tail(directory, recovered)?;
        let segment = recovered.segments.last().map_or(1, |(last, _)| last + 1);
        let io_error = |source| LogError::Io { path: segments::path(directory, segment), source };
        let groups = recovered.groups.iter();
        let mut reserve = Reserve::new(directory, config.segment_bytes);
        reserve.allocate().map_err(io_error)?;
        let file = reserve.begin_segment(&segments::path(directory, segment)).map_err(io_error)?;
        let mut writer = Self {
            directory: directory.to_path_buf(),
            config: config.clone(),
            shared,
            file,
            reserve,
            segment,
            salt: Salt::new(),
            last_block: recovered.last_block,
            durable_block: recovered.last_block,
            last_batch: recovered.last_batch,
            groups: groups
                .map(|(id, group)| {
                    let RecoveredGroup { state, truncated, ref members, ref restoring, .. } = *group;
                    (*id, GroupState { state, members: members.clone(), truncated, restoring: restoring.clone() })
                })
                .collect(),
            highest: HashMap::new(),
            closed: recovered.segments.iter().cloned().collect(),
            block: Vec::new(),
            unsynced_since: None,
        };
        writer.write_group_states().and_then(|()| writer.look_after_reserve()).map_err(io_error)?;
        writer.publish();
        Ok(writer)
    }

    pub(super) fn run(mut self) {
        loop {
            let (mut batches, closing) = self.next_batches();
            if let Err(error) = self.write(&mut batches) {
                return self.fail(&error, batches);
            }
            if self.reserve.due().is_some_and(|due| Instant::now() >= due)
                && let Err(error) = self.look_after_reserve()
            {
                return self.fail(&error, Vec::new());
            }
            if closing {
                if let Err(error) = self.write_closing_mark() {
                    self.fail(&error, Vec::new());
                }
                return;
            }
        }
    }

    /// Waits until a batch is urgent or has waited long enough, a delayed fsync is due, the disk may not be full any more, or the log is
    /// being closed.
    fn next_batches(&self) -> (Vec<Queued>, bool) {
        let mut queue = self.shared.queue.lock();
        while !queue.is_urgent && !queue.closing {
            let since = self.unsynced_since.into_iter().chain(queue.batches.first().map(|first| first.since)).min();
            let due = since.map(|since| since + self.config.soft_sync_interval);
            match due.into_iter().chain(self.reserve.due()).min() {
                None => self.shared.wake.wait(&mut queue),
                Some(due) if self.shared.wake.wait_until(&mut queue, due).timed_out() => break,
                Some(_) => {}
            }
        }
        queue.take()
    }

    /// Writes batches and calls their completions. If it fails, no completion that waits for an fsync has been called.
    pub(super) fn write(&mut self, batches: &mut [Queued]) -> io::Result<()> {
        let is_due = self.unsynced_since.is_some_and(|since| since.elapsed() >= self.config.soft_sync_interval);
        // Staged batches have waited long enough.
        let sync = is_due || batches.iter().any(|batch| batch.sync || batch.is_staged);
        let staged = batches.iter().filter(|batch| batch.is_staged).count() as u64;
        let only_here = batches.iter().filter(|batch| batch.is_only_here()).count();
        // A block is not durable before the earlier blocks that wait for an fsync.
        let durably = sync && self.durable_block == self.last_block;
        let mut has_truncated = false;
        let block_limit = BLOCK_BYTES.min(usize::try_from(self.config.segment_bytes / 4).unwrap_or(BLOCK_BYTES));
        block::begin(&mut self.block);
        let mut whole = self.last_batch;
        for batch in &*batches {
            for record in &batch.records {
                has_truncated |= matches!(
                    record,
                    LogRecord::Truncated { .. } | LogRecord::Restored { .. } | LogRecord::Removed { .. }
                );
                record.encode(&mut self.block);
                self.remember(record);
                if self.block.len() >= block_limit {
                    self.write_block(durably, whole)?;
                    block::begin(&mut self.block);
                }
            }
            whole = batch.number;
        }
        // A batch whose last record ended a block is known to be whole only by the next block.
        if self.block.len() > block::HEADER_LEN || whole > self.last_batch {
            self.write_block(durably, whole)?;
        }
        if sync {
            self.sync()?;
        }
        self.shared.queue.lock().only_here -= only_here;
        self.shared.statistics.staged.fetch_add(staged, Ordering::Relaxed);
        for completion in batches.iter_mut().filter_map(|batch| batch.completion.take()) {
            completion(Ok(()));
        }
        if has_truncated {
            self.delete_unneeded()?;
        }
        self.publish();
        Ok(())
    }

    fn remember(&mut self, record: &LogRecord) {
        let id = record.group();
        match record {
            LogRecord::Entries { entries, .. } => {
                if let Some(last) = entries.last() {
                    let highest = self.highest.entry(id).or_default();
                    *highest = last.index.max(*highest);
                }
                self.groups.entry(id).or_default();
            }
            LogRecord::State { state, .. } => self.groups.entry(id).or_default().state = *state,
            LogRecord::Truncated { index, term, .. } => self.groups.entry(id).or_default().truncated = (*index, *term),
            LogRecord::Restored { index, term, .. } => {
                let group = self.groups.entry(id).or_default();
                (group.truncated, group.restoring) = ((*index, *term), None);
            }
            LogRecord::Restoring { snapshot, .. } => {
                self.groups.entry(id).or_default().restoring = Some(snapshot.clone());
            }
            LogRecord::Members { index, members, .. } => {
                self.groups.entry(id).or_default().members = (*index, members.clone());
            }
            LogRecord::Removed { .. } => _ = self.groups.remove(&id),
        }
    }

    /// Writes `self.block`, beginning a new segment first if it would not fit. With it, all batches up to number
    /// `whole` are.
    fn write_block(&mut self, durably: bool, whole: u64) -> io::Result<()> {
        if !self.file.is_empty() && !self.file.has_room_for(self.block.len()) {
            let block = std::mem::take(&mut self.block);
            self.begin_segment(block.len())?;
            self.block = block;
        }
        let number = self.last_block + 1;
        let (segment, salt, durable) = (self.segment, self.salt, self.durable_block);
        let header = BlockHeader { segment, salt, number, durable, batch: whole };
        block::finish(&mut self.block, header);
        let began = Instant::now();
        if durably {
            retry_while_full(&self.shared, || self.file.append_durably(&self.block))?;
            self.durable_block = number;
            self.count_sync(began);
        } else {
            retry_while_full(&self.shared, || self.file.append(&self.block))?;
            self.unsynced_since.get_or_insert(began);
        }
        (self.last_block, self.last_batch) = (number, whole);
        self.shared.is_segment_half_full.store(self.file.is_half_full(), Ordering::Relaxed);
        let statistics = &self.shared.statistics;
        statistics.blocks.fetch_add(1, Ordering::Relaxed);
        statistics.bytes.fetch_add(self.block.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn begin_segment(&mut self, at_least: usize) -> io::Result<()> {
        // Recovery assumes that a segment is complete once the next one exists, so this one must be durable first.
        self.sync()?;
        let next = self.segment + 1;
        let members = |group: &GroupState| {
            group.members.1.len() + group.restoring.as_ref().map_or(0, |snapshot| snapshot.members.len())
        };
        let states = self.groups.values().map(|group| 160 + members(group)).sum::<usize>();
        let bytes = block::after(block::HEADER_LEN + states) + block::after(at_least);
        let bytes = self.config.segment_bytes.max(bytes as u64);
        let path = segments::path(&self.directory, next);
        let file = match self.reserve.is_enough_for(bytes) {
            true => retry_while_full(&self.shared, || self.reserve.begin_segment(&path))?,
            false => retry_while_full(&self.shared, || SegmentFile::create(&path, bytes))?,
        };
        // What is indexed for the block about to be written belongs to the new segment too; leaving it with the old
        // one as well only keeps that one a little longer.
        let highest = self.highest.clone();
        self.closed.push_back((self.segment, std::mem::replace(&mut self.highest, highest)));
        (self.file, self.segment, self.salt) = (file, next, Salt::new());
        self.write_group_states()?;
        self.look_after_reserve()
    }

    /// Allocates the reserve if there is space, and says whether it is there.
    fn look_after_reserve(&mut self) -> io::Result<()> {
        self.reserve.try_to_allocate()?;
        *self.shared.status.lock() = if self.reserve.is_there() { LogStatus::Ok } else { LogStatus::Reserve };
        Ok(())
    }

    /// The first block of a segment.
    fn write_group_states(&mut self) -> io::Result<()> {
        block::begin(&mut self.block);
        for (&group, &GroupState { state, truncated: (index, term), ref members, ref restoring }) in &self.groups {
            LogRecord::State { group, state }.encode(&mut self.block);
            LogRecord::Truncated { group, index, term }.encode(&mut self.block);
            if !members.1.is_empty() {
                let (index, members) = members.clone();
                LogRecord::Members { group, index, members }.encode(&mut self.block);
            }
            if let Some(snapshot) = restoring.clone() {
                LogRecord::Restoring { group, snapshot }.encode(&mut self.block);
            }
        }
        self.write_block(true, self.last_batch)
    }

    fn write_closing_mark(&mut self) -> io::Result<()> {
        self.sync()?;
        block::begin(&mut self.block);
        self.write_block(true, self.last_batch)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.durable_block == self.last_block {
            return Ok(());
        }
        let began = Instant::now();
        self.file.sync()?;
        self.durable_block = self.last_block;
        self.unsynced_since = None;
        self.count_sync(began);
        Ok(())
    }

    fn count_sync(&self, began: Instant) {
        let statistics = &self.shared.statistics;
        statistics.syncs.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        statistics.sync_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Deletes the oldest segments as long as all their entries are truncated.
    fn delete_unneeded(&mut self) -> io::Result<()> {
        let is_needed = |groups: &HashMap<GroupId, GroupState>, highest: &HashMap<GroupId, u64>| {
            highest.iter().any(|(id, index)| groups.get(id).is_some_and(|group| group.truncated.0 < *index))
        };
        if self.closed.front().is_none_or(|(_, highest)| is_needed(&self.groups, highest)) {
            return Ok(());
        }
        // The truncation that makes a segment unneeded must not be lost with it.
        self.sync()?;
        while let Some((segment, highest)) = self.closed.front() {
            if is_needed(&self.groups, highest) {
                break;
            }
            segments::delete(&self.directory, *segment)?;
            self.closed.pop_front();
        }
        Ok(())
    }

    fn publish(&self) {
        let statistics = &self.shared.statistics;
        let segments = self.closed.len() as u64 + 1;
        statistics.segments.store(segments, Ordering::Relaxed);
        statistics.disk_bytes.store(segments * self.config.segment_bytes, Ordering::Relaxed);
        let mut holding = statistics.holding_space.lock();
        holding.clear();
        if let Some((_, highest)) = self.closed.front() {
            let holds =
                |(id, index): &(&GroupId, &u64)| self.groups.get(id).is_some_and(|group| group.truncated.0 < **index);
            holding.extend(highest.iter().filter(holds).map(|(id, _)| *id));
        }
    }

    /// Refuses everything from now on, beginning with `batches`, which were being written. Calls their completions with
    /// the error.
    fn fail(&self, error: &io::Error, mut batches: Vec<Queued>) {
        let message = format!("{}: {error}", self.directory.display());
        tracing::error!(%message, "the log failed; writes are refused until the node is restarted");
        *self.shared.status.lock() = LogStatus::Failed(message.clone());
        // The staging file must stay as it is for the next start.
        self.shared.queue.lock().staging = None;
        loop {
            for completion in batches.into_iter().filter_map(|batch| batch.completion) {
                completion(Err(LogError::Failed(message.clone())));
            }
            let mut queue = self.shared.queue.lock();
            while queue.batches.is_empty() && !queue.closing {
                self.shared.wake.wait(&mut queue);
            }
            if queue.batches.is_empty() {
                return;
            }
            (batches, _) = queue.take();
        }
    }
}

/// Runs `operation` until it succeeds or fails for another reason than a full disk; meanwhile the log's status is `Full`.
fn retry_while_full<T>(shared: &Shared, mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut before = None;
    loop {
        match operation() {
            Err(error) if is_full(&error) => {
                let status = std::mem::replace(&mut *shared.status.lock(), LogStatus::Full);
                if status != LogStatus::Full {
                    tracing::warn!(%error, "the log has no space; it goes on by itself when there is some");
                }
                before.get_or_insert(status);
                if shared.queue.lock().closing {
                    return Err(error);
                }
                std::thread::park_timeout(RETRY_FULL);
            }
            outcome => {
                if let Some(before) = before {
                    *shared.status.lock() = before;
                }
                return outcome;
            }
        }
    }
}

/// Removes what recovery did not use, so that it does not look like damage once later blocks vouch for everything
/// before them. Later segments first: a crash in between then leaves a shorter tail, never a hole.
pub(super) fn remove_torn_tail(directory: &Path, recovered: &Recovered) -> Result<(), LogError> {
    let used = recovered.segments.last().map_or(0, |(last, _)| *last);
    let io_error = |segment| move |source| LogError::Io { path: segments::path(directory, segment), source };
    for torn in segments::list(directory)?.into_iter().filter(|segment| *segment > used).rev() {
        segments::delete(directory, torn).map_err(io_error(torn))?;
    }
    if used == 0 {
        return Ok(());
    }
    let path = segments::path(directory, used);
    let cut = || -> io::Result<()> {
        let bytes = std::fs::read(&path)?;
        let (mut offset, mut salt) = (0, None);
        while let Some((header, range)) = block::read(&bytes[offset..], used, salt) {
            salt = Some(header.salt);
            offset = block::after(offset + range.end).min(bytes.len());
        }
        let file = File::options().write(true).open(&path)?;
        file.set_len(offset as u64)?;
        file.sync_all()
    };
    cut().map_err(io_error(used))
}
