//! Streams: sequences that are read in batches when somebody asks for them.
//!
//! A stream is where its rows come from ([`Rows`]) and what is done to each of them ([`Operation`]), which is data: it
//! can be carried out in the loop here or where the rows are. Rows are in groups once a `group` is among the operations.

mod accumulate;
mod accumulator;
mod apply;
mod bytes;
mod feed_sort;
mod index_runs;
mod join_rows;
mod operation;
mod pipeline;
mod rows;
mod run;
mod subject;
mod table_rows;
mod terminal;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use accumulate::sort_key;
pub use accumulator::Accumulator;
pub use feed_sort::{FeedKind, FeedSort};
pub use index_runs::{DistinctKeys, SortedRuns};
pub use join_rows::EqualityJoinRows;
use operation::GroupedRow;
pub use operation::Operation;
pub use pipeline::{Partial, Pipeline};
pub use rows::{
    ArrayRows, DeferredRows, FoldRows, FoldSteps, MapRows, OffsetRows, RangeRows, ReadyRows, SliceRows, UnionRows,
};
pub use run::Run;
pub use subject::{FirstRows, Subject, eager, no_end};
pub use table_rows::TableRows;
pub use terminal::{OrderKey, Terminal};

use crate::env::Env;
use crate::error::{At as _, Error, FrameId, Result};
use crate::lazy::{self, Lazy};
use crate::size::Size;
use crate::val::{Groups, Kind, Val};
use crate::value::{Array, Value};

/// Rows read at once where nothing else bounds them.
pub const BATCH_ROWS: usize = 256;

/// Where the rows of a stream come from.
pub trait Rows: Send {
    /// At most `limit` rows; none means that there are no more.
    ///
    /// # Errors
    /// If rows cannot be computed or read.
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>>;

    /// The rows as documents of a table, if they are: what is done to these can be done where they are.
    fn as_table(&mut self) -> Option<&mut TableRows> {
        None
    }

    /// Whether the rows are an array in disguise, which answers and types show.
    fn is_array(&self) -> bool {
        false
    }

    fn is_infinite(&self) -> bool {
        false
    }

    /// What kind of a feed the rows are, if they are one.
    fn feed(&self) -> Option<FeedSort> {
        None
    }

    /// What a feed of these rows is about. `place` is the term that has them.
    ///
    /// # Errors
    /// If there can be no feed of them.
    fn subjects(self: Box<Self>, _place: FrameId) -> Result<Vec<Subject>> {
        Err(eager())
    }
}

pub struct Stream {
    pub frame: FrameId,
    rows: Box<dyn Rows>,
    operations: Vec<Operation>,
    /// Rows that are to go through the operations from this one on. The last ones come first.
    waiting: Vec<(usize, VecDeque<GroupedRow>)>,
    /// Rows that are ready, of an operation that made more than were asked for.
    ready: VecDeque<Lazy>,
    is_grouped: bool,
}

fn in_no_group(rows: Vec<Lazy>) -> VecDeque<GroupedRow> {
    rows.into_iter().map(|row| (None, row)).collect()
}

impl Stream {
    pub fn new(frame: FrameId, rows: Box<dyn Rows>) -> Self {
        let (waiting, ready) = (Vec::new(), VecDeque::new());
        Self { frame, rows, operations: Vec::new(), waiting, ready, is_grouped: false }
    }

    pub fn of_array(frame: FrameId, items: Array) -> Self {
        Self::new(frame, Box::new(ArrayRows::new(items)))
    }

    pub fn of_rows(frame: FrameId, rows: Vec<Lazy>) -> Self {
        Self::new(frame, Box::new(ReadyRows::new(rows)))
    }

    /// Does something to each row from here on.
    #[must_use]
    pub fn with(mut self, operation: Operation) -> Self {
        self.is_grouped |= matches!(operation, Operation::Group { .. });
        self.operations.push(operation);
        self
    }

    pub fn is_array(&self) -> bool {
        self.rows.is_array()
    }

    pub fn is_infinite(&self) -> bool {
        self.rows.is_infinite()
    }

    pub fn is_grouped(&self) -> bool {
        self.is_grouped
    }

    /// What kind of a feed the rows are, if they are one.
    pub fn feed(&self) -> Option<FeedSort> {
        self.rows.feed()
    }

    /// What a feed of these rows is about.
    ///
    /// # Errors
    /// If there can be no feed of them.
    pub fn subjects(self, place: FrameId) -> Result<Vec<Subject>> {
        let frame = self.frame;
        let is_eager = |error: &Error| error.message() == eager().message();
        let subjects = self.rows.subjects(place);
        let mut subjects = subjects.map_err(|error| if is_eager(&error) { error.at(frame) } else { error })?;
        for operation in self.operations {
            subjects.iter_mut().try_for_each(|subject| subject.add(operation.clone(), place))?;
        }
        Ok(subjects)
    }

    fn raw(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        env.step()?;
        if env.is_portable
            && let Some(table) = self.rows.as_table()
        {
            table.take_operations(&mut self.operations);
        }
        self.rows.next(env, limit)
    }

    /// What the operations make of some rows, with their groups; `None` if there are no more rows. One operation is done to all of them
    /// before the next one, which errors show; but only to so many that what they become is enough at a time.
    fn batch(&mut self, env: &Env, limit: usize) -> Result<Option<VecDeque<GroupedRow>>> {
        let (mut at, mut rows) = match self.waiting.pop() {
            Some(waiting) => waiting,
            None => (0, in_no_group(self.raw(env, limit)?)),
        };
        if rows.is_empty() {
            return Ok(None);
        }
        while let Some(operation) = self.operations.get(at).filter(|_| !rows.is_empty()) {
            let done = operation.apply(env, &mut rows)?;
            if !rows.is_empty() {
                self.waiting.push((at, rows));
            }
            (at, rows) = (at + 1, done);
        }
        Ok(Some(rows))
    }

    /// At most `limit` rows; none means that there are no more.
    ///
    /// # Errors
    /// If rows cannot be read, or an operation complains.
    pub fn next_batch(&mut self, env: &Env, limit: usize) -> Result<Vec<Value>> {
        lazy::values(self.next_rows(env, limit)?)
    }

    /// As [`Stream::next_batch`], without decoding what is still encoded.
    ///
    /// # Errors
    /// As [`Stream::next_batch`].
    pub fn next_rows(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        if self.is_grouped {
            let message = "Cannot treat the output of `group` as a stream (did you mean to `ungroup`?).";
            return Err(Error::logic(message).at(self.frame));
        }
        while self.ready.is_empty() {
            if self.waiting.is_empty() {
                let rows = self.raw(env, limit)?;
                if rows.is_empty() || self.operations.is_empty() {
                    return Ok(rows);
                }
                self.waiting.push((0, in_no_group(rows)));
            }
            let Some(rows) = self.batch(env, limit)? else { break };
            self.ready = rows.into_iter().map(|(_, row)| row).collect();
        }
        let count = self.ready.len().min(limit);
        Ok(self.ready.drain(..count).collect())
    }

    /// One row.
    ///
    /// # Errors
    /// As [`Stream::next_batch`].
    pub fn next(&mut self, env: &Env) -> Result<Option<Value>> {
        if self.ready.is_empty() {
            let batch = self.next_rows(env, BATCH_ROWS)?;
            self.ready.extend(batch);
        }
        self.ready.pop_front().map(Lazy::into_value).transpose()
    }

    /// One row of which the one at position `last` is the last that is asked for; -1 means that all are.
    ///
    /// # Errors
    /// As [`Stream::next_batch`].
    pub fn next_lazily_or_batch(&mut self, env: &Env, last: i32) -> Result<Option<Value>> {
        if last == 0 { Ok(self.next_batch(env, 1)?.pop()) } else { self.next(env) }
    }

    /// # Errors
    /// If the stream has no end.
    pub fn check_finite(&self) -> Result<()> {
        if self.is_infinite() && self.feed().is_some() {
            return Err(no_end().at(self.frame));
        }
        if self.is_infinite() {
            let message = "Cannot use an infinite stream with an aggregation function (`reduce`, `count`, etc.) or \
                           coerce it to an array.";
            return Err(Error::logic(message).at(self.frame));
        }
        Ok(())
    }

    /// All rows, as many as an array may have.
    ///
    /// # Errors
    /// As [`Stream::next_batch`], and if there are too many, or no end of them.
    pub fn collect(mut self, env: &Env) -> Result<Vec<Value>> {
        self.check_finite()?;
        let (mut items, mut size) = (Vec::new(), Size::default());
        loop {
            let batch = self.next_batch(env, BATCH_ROWS)?;
            if batch.is_empty() {
                return Ok(items);
            }
            batch.iter().try_for_each(|row| size.add(row.encoded_len()))?;
            items.extend(batch);
            env.check_array(items.len()).at(FrameId::ROOT)?;
        }
    }

    /// All rows by group.
    ///
    /// # Errors
    /// As [`Stream::collect`].
    pub fn into_groups(mut self, env: &Env) -> Result<Groups> {
        self.check_finite()?;
        let collected = self.fold(env, FrameId::ROOT, &Arc::new(Terminal::Collect), |so_far| {
            if so_far.row_count() <= env.array_limit {
                return Ok(());
            }
            let message = format!(
                "Grouped data over size limit `{}`.  Try putting a reduction (like `.reduce` or `.count`) on the end.",
                env.array_limit
            );
            Err(Error::limit(message).at(FrameId::ROOT))
        })?;
        let mut out = Groups::default();
        for (group, accumulator) in collected {
            out.insert(group.unwrap_or(Value::Null), accumulator.finish()?)?;
        }
        Ok(out)
    }

    /// What a terminal has come to after all rows, by group. `check` sees what there is after each batch.
    fn fold(
        &mut self,
        env: &Env,
        frame: FrameId,
        terminal: &Arc<Terminal>,
        check: impl Fn(&Partial) -> Result<()>,
    ) -> Result<BTreeMap<Option<Value>, Accumulator>> {
        let pipeline =
            Arc::new(Pipeline { operations: self.operations.clone(), terminal: Some((terminal.clone(), frame)) });
        let mut all = pipeline.nothing();
        if env.is_portable
            && self.ready.is_empty()
            && self.waiting.is_empty()
            && let Some(table) = self.rows.as_table()
            && table.can_end_there(&pipeline)
        {
            table.end_there(env, &pipeline, &mut all, check)?;
        } else {
            let mut run = pipeline.run();
            self.ready.drain(..).try_for_each(|row| run.take(env, None, row))?;
            while let Some(rows) = self.batch(env, BATCH_ROWS)? {
                rows.into_iter().try_for_each(|(group, row)| run.take(env, group, row))?;
                check(run.partial())?;
            }
            all = run.finish();
        }
        match all {
            Partial::Groups(groups) => Ok(groups),
            Partial::Rows(_) => Ok(BTreeMap::new()),
        }
    }

    /// The rows that a terminal keeps, of a stream that is not in groups.
    ///
    /// # Errors
    /// As [`Stream::aggregate`].
    pub fn gather(mut self, env: &Env, frame: FrameId, terminal: Terminal) -> Result<Vec<Lazy>> {
        self.check_finite()?;
        if self.is_grouped {
            // Says that groups are no rows.
            return self.next_rows(env, 1);
        }
        let mut all = self.fold(env, frame, &Arc::new(terminal), |_| Ok(()))?;
        Ok(all.remove(&None).map_or_else(Vec::new, Accumulator::into_rows))
    }

    /// What a terminal makes of all rows: a value, or one for each group.
    ///
    /// # Errors
    /// As [`Stream::next_batch`], and what the terminal complains about.
    pub fn aggregate(mut self, env: &Env, frame: FrameId, terminal: &Arc<Terminal>) -> Result<Val> {
        let own = self.frame;
        self.check_finite()?;
        let mut accumulators = self.fold(env, frame, terminal, |_| Ok(()))?;
        if !self.is_grouped {
            let accumulator = accumulators.remove(&None).unwrap_or_else(|| terminal.accumulator(frame));
            return Ok(Val::datum(own, accumulator.finish()?));
        }
        let mut out = Groups::default();
        for (group, accumulator) in accumulators {
            out.insert(group.unwrap_or(Value::Null), accumulator.finish()?)?;
        }
        Ok(Val { frame: own, kind: Kind::Grouped(out) })
    }
}
