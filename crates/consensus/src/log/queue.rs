//! Batches on their way to the log's thread.

use super::Completion;
use super::record::LogRecord;
use super::staging::Staging;
use std::time::Instant;

/// The log's thread is woken at this many queued bytes even if nobody waits for them.
const MANY_BYTES: usize = 512 << 10;

#[derive(Default)]
pub(super) struct Queue {
    pub(super) batches: Vec<Queued>,
    pub(super) bytes: usize,
    pub(super) closing: bool,
    /// Whether somebody waits for one of the batches, or [`MANY_BYTES`] are queued.
    pub(super) is_urgent: bool,
    /// The number of the last batch.
    pub(super) last_number: u64,
    pub(super) staging: Option<Staging>,
    /// How many batches only this process has: they are neither in the log yet nor staged.
    pub(super) only_here: usize,
}

pub(super) struct Queued {
    /// The number of the batch. Numbers continue when the log is opened again.
    pub(super) number: u64,
    pub(super) records: Vec<LogRecord>,
    pub(super) sync: bool,
    pub(super) is_staged: bool,
    pub(super) since: Instant,
    pub(super) completion: Option<Completion>,
}

impl Queued {
    /// A batch that has no number yet.
    pub(super) fn new(records: Vec<LogRecord>, sync: bool) -> Self {
        Self { number: 0, records, sync, is_staged: false, since: Instant::now(), completion: None }
    }

    /// A batch that an earlier process had staged.
    pub(super) fn again((number, records): (u64, Vec<LogRecord>)) -> Self {
        Self { number, is_staged: true, ..Self::new(records, true) }
    }

    pub(super) fn is_only_here(&self) -> bool {
        !self.is_staged && !self.records.is_empty()
    }
}

impl Queue {
    /// Adds a batch of `bytes` bytes. It is staged if it is [laid out](super::staging::lay_out) and there is room.
    /// `completion` is called with whether this batch and all before it now survive the process. Returns whether the
    /// log's thread must be woken.
    pub(super) fn push(
        &mut self,
        mut batch: Queued,
        bytes: usize,
        laid_out: Option<Vec<u8>>,
        completion: impl FnOnce(bool) -> Option<Completion>,
    ) -> bool {
        // When the log is closing, nobody may count on a batch that came too late.
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

    /// Takes the batches to write now, and whether no more will follow.
    pub(super) fn take(&mut self) -> (Vec<Queued>, bool) {
        (self.bytes, self.is_urgent) = (0, false);
        self.staging.iter_mut().for_each(Staging::turn);
        (std::mem::take(&mut self.batches), self.closing)
    }
}
