//! Batches on their way to the log's thread.

use super::Completion;
use super::record::LogRecord;
use super::staging::Staging;
use std::time::Instant;

/// So much is not left waiting although nobody waits for it.
const MANY_BYTES: usize = 512 << 10;

#[derive(Default)]
pub(super) struct Queue {
    pub(super) batches: Vec<Queued>,
    pub(super) bytes: usize,
    pub(super) closing: bool,
    /// Whether somebody waits for one of the batches, or they are many.
    pub(super) is_urgent: bool,
    /// Of the last batch.
    pub(super) last_number: u64,
    pub(super) staging: Option<Staging>,
    /// Batches that only this process has: not in the log yet, and not staged either.
    pub(super) only_here: usize,
}

pub(super) struct Queued {
    /// Counts batches over all lives of the log.
    pub(super) number: u64,
    pub(super) records: Vec<LogRecord>,
    pub(super) sync: bool,
    pub(super) is_staged: bool,
    pub(super) since: Instant,
    pub(super) completion: Option<Completion>,
}

impl Queued {
    /// One that has no number yet.
    pub(super) fn new(records: Vec<LogRecord>, sync: bool) -> Self {
        Self { number: 0, records, sync, is_staged: false, since: Instant::now(), completion: None }
    }

    /// One that an earlier process had staged.
    pub(super) fn again((number, records): (u64, Vec<LogRecord>)) -> Self {
        Self { number, is_staged: true, ..Self::new(records, true) }
    }

    pub(super) fn is_only_here(&self) -> bool {
        !self.is_staged && !self.records.is_empty()
    }
}

impl Queue {
    /// Adds a batch of so many bytes, staged if it comes [laid out](super::staging::lay_out) for that and there is room.
    /// `completion` is told whether it and all before it outlive the process now. Returns whether the log's thread should hear
    /// of it.
    pub(super) fn push(
        &mut self,
        mut batch: Queued,
        bytes: usize,
        laid_out: Option<Vec<u8>>,
        completion: impl FnOnce(bool) -> Option<Completion>,
    ) -> bool {
        // Nothing is left to wait for what came late, and to count on it.
        let may_count = self.staging.is_some() && !self.closing;
        self.last_number += u64::from(!batch.records.is_empty());
        batch.number = self.last_number;
        let staging = self.staging.as_mut().filter(|_| may_count).zip(laid_out);
        batch.is_staged = staging.is_some_and(|(staging, laid_out)| staging.append(batch.number, laid_out));
        let was_empty = self.batches.is_empty();
        self.bytes += bytes;
        self.only_here += usize::from(batch.is_only_here());
        batch.completion = completion(may_count && self.only_here == 0);
        self.is_urgent |= !batch.is_staged || batch.sync || batch.completion.is_some() || self.bytes >= MANY_BYTES;
        self.batches.push(batch);
        self.is_urgent || was_empty
    }

    /// What is to be written now, and whether that is all for ever.
    pub(super) fn take(&mut self) -> (Vec<Queued>, bool) {
        (self.bytes, self.is_urgent) = (0, false);
        self.staging.iter_mut().for_each(Staging::turn);
        (std::mem::take(&mut self.batches), self.closing)
    }
}
