//! How many rows of a stream go into one answer.

use crate::memory::Kept;
use crate::respond::{PARTIAL, SEQUENCE, Values};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_reql::{Batches, Cursor, Failure, Lazy, Profile, Wait};

/// Rows asked of the evaluator at a time. It looks at no clock in between, so there are few at first, and where they take long.
/// Fewer still would have a page of a table read for each.
const LEAST_ROWS: usize = 200;
const MOST_ROWS: usize = 1000;

/// A stream that is open.
pub(crate) struct Rows {
    cursor: Box<Cursor>,
    /// Rows that had no room in the last answer.
    ready: VecDeque<Lazy>,
    /// Their bytes. Those that share bytes with others, which count where they are, count twice.
    kept: Kept,
    /// Rows to ask for next.
    step: usize,
    is_first: bool,
    /// Whether the client waits since it was asked for rows before.
    is_awaited: bool,
    /// Of a feed, the numbers by which the protocol tells its kind.
    notes: Vec<u8>,
    /// What each answer tells, if its client has asked for it.
    profile: Option<Arc<Profile>>,
}

/// What comes of asking a stream for rows.
pub(crate) enum Batch {
    /// The next answer, and whether it is the last one.
    Answer(Vec<u8>, bool),
    /// A feed has nothing yet.
    Wait(Wait),
}

impl Rows {
    /// `kept` is for rows that wait for the client.
    pub(crate) fn new(cursor: Box<Cursor>, kept: Kept, profile: Option<Arc<Profile>>) -> Self {
        let notes = cursor.notes();
        Self {
            cursor,
            ready: VecDeque::new(),
            kept,
            step: LEAST_ROWS,
            is_first: true,
            is_awaited: true,
            notes,
            profile,
        }
    }

    pub(crate) fn is_feed(&self) -> bool {
        !self.notes.is_empty()
    }

    /// The answer of a feed that has nothing yet, for a client that is not to wait for more.
    pub(crate) fn nothing_yet(&mut self) -> Vec<u8> {
        self.is_awaited = false;
        self.finished(Values::new(), PARTIAL)
    }

    /// The next answer, if it need not wait for changes.
    ///
    /// # Errors
    /// That of the stream, which ends with it.
    pub(crate) fn answer(&mut self) -> Result<Batch, Failure> {
        let (began, mut values) = (Instant::now(), Values::new());
        self.cursor.note_awaited(std::mem::replace(&mut self.is_awaited, false));
        let batches = self.cursor.batches();
        let batches = if std::mem::take(&mut self.is_first) { batches.first() } else { batches };
        let is_full = |values: &Values| {
            values.count() >= batches.rows || values.bytes() >= batches.bytes && values.count() >= batches.min_rows
        };
        loop {
            let bytes = self.ready.iter().map(Lazy::encoded_len).sum::<usize>();
            values.reserve(bytes.min(batches.bytes));
            while let Some(row) = self.ready.pop_front() {
                values.push_row(&row)?;
                if is_full(&values) {
                    self.kept.change(self.ready.iter().map(Lazy::encoded_len).sum());
                    return Ok(Batch::Answer(self.finished(values, PARTIAL), false));
                }
            }
            if values.count() > 0 && began.elapsed() >= batches.time {
                return Ok(Batch::Answer(self.finished(values, PARTIAL), false));
            }
            if !self.fetch(batches, batches.rows - values.count(), began)? {
                return Ok(match self.cursor.wait() {
                    None => Batch::Answer(self.finished(values, SEQUENCE), true),
                    Some(wait) if values.count() == 0 => {
                        self.is_awaited = true;
                        Batch::Wait(wait)
                    }
                    Some(_) => Batch::Answer(self.finished(values, PARTIAL), false),
                });
            }
        }
    }

    fn finished(&self, values: Values, kind: u8) -> Vec<u8> {
        values.finish_with(kind, self.profile.as_deref(), &self.notes)
    }

    /// Gets more rows. `false` if there are none.
    fn fetch(&mut self, batches: Batches, wanted: usize, began: Instant) -> Result<bool, Failure> {
        let (count, asked) = (self.step.min(wanted), Instant::now());
        self.ready = self.cursor.next(count)?.into();
        self.kept.change(0);
        // As many as may come in the time that is left.
        let each = asked.elapsed() / u32::try_from(self.ready.len().max(1)).unwrap_or(u32::MAX);
        let left = batches.time.saturating_sub(began.elapsed());
        let may_come = left.as_nanos() / each.max(Duration::from_nanos(1)).as_nanos();
        self.step = usize::try_from(may_come).unwrap_or(MOST_ROWS).clamp(LEAST_ROWS, MOST_ROWS);
        Ok(!self.ready.is_empty())
    }
}
