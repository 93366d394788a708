//! Streams: sequences that are read in batches when somebody asks for them.
//!
//! A stream is where its rows come from ([`Rows`]) and what is done to each of them ([`Operation`]), which is data: it
//! can be carried out in the loop here or where the rows are. Rows are in groups once a `group` is among the operations.

mod operation;
mod rows;
mod terminal;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use operation::{Grouped, Operation};
pub use rows::{
    ArrayRows, DeferredRows, EqualityJoinRows, FoldRows, FoldSteps, LazyRows, MapRows, OffsetRows, RangeRows,
    SliceRows, TableRows, UnionRows,
};
pub use terminal::{Accumulator, Terminal};

use crate::env::Env;
use crate::error::{At as _, Error, FrameId, Result};
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
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Value>>;

    /// Whether the rows are an array in disguise, which answers and types show.
    fn is_array(&self) -> bool {
        false
    }

    fn is_infinite(&self) -> bool {
        false
    }
}

pub struct Stream {
    pub frame: FrameId,
    rows: Box<dyn Rows>,
    operations: Vec<Operation>,
    /// Rows that are ready, of an operation that made more than were asked for.
    ready: VecDeque<Value>,
    is_grouped: bool,
}

impl Stream {
    pub fn new(frame: FrameId, rows: Box<dyn Rows>) -> Self {
        Self { frame, rows, operations: Vec::new(), ready: VecDeque::new(), is_grouped: false }
    }

    pub fn of_array(frame: FrameId, items: Array) -> Self {
        Self::new(frame, Box::new(ArrayRows::new(items)))
    }

    pub fn of_items(frame: FrameId, items: Vec<Value>) -> Self {
        Self::new(frame, Box::new(LazyRows::new(items)))
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

    fn raw(&mut self, env: &Env, limit: usize) -> Result<Vec<Value>> {
        env.step()?;
        self.rows.next(env, limit)
    }

    /// At most `limit` rows; none means that there are no more.
    ///
    /// # Errors
    /// If rows cannot be read, or an operation complains.
    pub fn next_batch(&mut self, env: &Env, limit: usize) -> Result<Vec<Value>> {
        if self.is_grouped {
            let message = "Cannot treat the output of `group` as a stream (did you mean to `ungroup`?).";
            return Err(Error::logic(message).at(self.frame));
        }
        while self.ready.is_empty() {
            let rows = self.raw(env, limit)?;
            if rows.is_empty() {
                return Ok(rows);
            }
            let mut grouped = Grouped::from([(None, rows)]);
            for operation in &self.operations {
                operation.apply(env, &mut grouped)?;
            }
            for (_, rows) in grouped {
                if self.ready.is_empty() && rows.len() <= limit {
                    if rows.is_empty() {
                        continue;
                    }
                    return Ok(rows);
                }
                self.ready.extend(rows);
            }
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
            let batch = self.next_batch(env, BATCH_ROWS)?;
            self.ready.extend(batch);
        }
        Ok(self.ready.pop_front())
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
        let mut items = Vec::new();
        loop {
            let batch = self.next_batch(env, BATCH_ROWS)?;
            if batch.is_empty() {
                return Ok(items);
            }
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
        let (mut groups, mut size) = (BTreeMap::<Value, Vec<Value>>::new(), 0);
        self.for_each_batch(env, |grouped| {
            for (group, rows) in grouped {
                size += rows.len();
                if size > env.array_limit {
                    return Err(Error::limit(format!(
                        "Grouped data over size limit `{}`.  Try putting a reduction (like `.reduce` or `.count`) on \
                         the end.",
                        env.array_limit
                    ))
                    .at(FrameId::ROOT));
                }
                groups.entry(group.unwrap_or(Value::Null)).or_default().extend(rows);
            }
            Ok(())
        })?;
        let mut out = Groups::default();
        for (group, rows) in groups {
            out.insert(group, Value::array(rows)?);
        }
        Ok(out)
    }

    fn for_each_batch(&mut self, env: &Env, mut each: impl FnMut(Grouped) -> Result<()>) -> Result<()> {
        if !self.ready.is_empty() {
            let rows = std::mem::take(&mut self.ready).into();
            each(Grouped::from([(None, rows)]))?;
        }
        loop {
            let rows = self.raw(env, BATCH_ROWS)?;
            if rows.is_empty() {
                return Ok(());
            }
            let mut grouped = Grouped::from([(None, rows)]);
            for operation in &self.operations {
                operation.apply(env, &mut grouped)?;
            }
            each(grouped)?;
        }
    }

    /// What a terminal makes of all rows: a value, or one for each group.
    ///
    /// # Errors
    /// As [`Stream::next_batch`], and what the terminal complains about.
    pub fn aggregate(mut self, env: &Env, frame: FrameId, terminal: &Arc<Terminal>) -> Result<Val> {
        let own = self.frame;
        self.check_finite()?;
        let mut accumulators = BTreeMap::<Option<Value>, Accumulator>::new();
        self.for_each_batch(env, |grouped| {
            for (group, rows) in grouped {
                let is_new = !accumulators.contains_key(&group);
                let accumulator = accumulators.entry(group.clone()).or_insert_with(|| terminal.accumulator(frame));
                let mut took_some = false;
                for row in rows {
                    took_some |= accumulator.add(env, row)?;
                }
                if is_new && !took_some && group.is_some() {
                    accumulators.remove(&group);
                } else if accumulators.len() > env.array_limit {
                    return Err(Error::limit(format!("Too many groups (> {}).", env.array_limit)));
                }
            }
            Ok(())
        })?;
        if !self.is_grouped {
            let accumulator = accumulators.remove(&None).unwrap_or_else(|| terminal.accumulator(frame));
            return Ok(Val::datum(own, accumulator.finish()?));
        }
        let mut out = Groups::default();
        for (group, accumulator) in accumulators {
            out.insert(group.unwrap_or(Value::Null), accumulator.finish()?);
        }
        Ok(Val { frame: own, kind: Kind::Grouped(out) })
    }
}
