//! How many rows of a stream go into one answer.

use crate::respond::{PARTIAL, SEQUENCE, Values};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tessera_reql::{Batches, Cursor, Failure, Lazy};

/// Rows asked of the evaluator at a time. It looks at no clock in between, so there are few at first, and where they take long.
/// Fewer still would have a page of a table read for each.
const LEAST_ROWS: usize = 200;
const MOST_ROWS: usize = 1000;

/// A stream that is open.
pub(crate) struct Rows {
    cursor: Box<Cursor>,
    /// Rows that had no room in the last answer.
    ready: VecDeque<Lazy>,
    /// Rows to ask for next.
    step: usize,
    is_first: bool,
}

impl Rows {
    pub(crate) fn new(cursor: Box<Cursor>) -> Self {
        Self { cursor, ready: VecDeque::new(), step: LEAST_ROWS, is_first: true }
    }

    /// The next answer, and whether it is the last one.
    ///
    /// # Errors
    /// That of the stream, which ends with it.
    pub(crate) fn answer(&mut self, has_profile: bool) -> Result<(Vec<u8>, bool), Failure> {
        let (began, mut values) = (Instant::now(), Values::new());
        let batches = self.cursor.batches();
        let batches = if std::mem::take(&mut self.is_first) { batches.first() } else { batches };
        let is_full = |values: &Values| {
            values.count() >= batches.rows || values.bytes() >= batches.bytes && values.count() >= batches.min_rows
        };
        loop {
            while let Some(row) = self.ready.pop_front() {
                values.push_row(&row)?;
                if is_full(&values) {
                    return Ok((values.finish(PARTIAL, has_profile), false));
                }
            }
            if values.count() > 0 && began.elapsed() >= batches.time {
                return Ok((values.finish(PARTIAL, has_profile), false));
            }
            if !self.fetch(batches, batches.rows - values.count(), began)? {
                return Ok((values.finish(SEQUENCE, has_profile), true));
            }
        }
    }

    /// Gets more rows. `false` if there are none.
    fn fetch(&mut self, batches: Batches, wanted: usize, began: Instant) -> Result<bool, Failure> {
        let (count, asked) = (self.step.min(wanted), Instant::now());
        self.ready = self.cursor.next(count)?.into();
        // As many as may come in the time that is left.
        let each = asked.elapsed() / u32::try_from(self.ready.len().max(1)).unwrap_or(u32::MAX);
        let left = batches.time.saturating_sub(began.elapsed());
        let may_come = left.as_nanos() / each.max(Duration::from_nanos(1)).as_nanos();
        self.step = usize::try_from(may_come).unwrap_or(MOST_ROWS).clamp(LEAST_ROWS, MOST_ROWS);
        Ok(!self.ready.is_empty())
    }
}
