//! What is made of documents in the order of an index, run by run: those of a run have the same key.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tessera_document::{Document, SecondaryKey};

use super::{Accumulator, BATCH_ROWS, Operation, Pipeline, Rows, Stream, Terminal};
use crate::env::Env;
use crate::error::{FrameId, Result};
use crate::function::Function;
use crate::lazy::{self, Lazy};
use crate::scan::Scan;
use crate::selection::Table;
use crate::size;
use crate::value::Value;

/// The keys that an index has, each once, in its order.
pub struct DistinctKeys {
    table: Arc<Table>,
    scan: Scan,
    /// Makes its key of a document.
    pipeline: Arc<Pipeline>,
    /// Keys that are one for the index, which cuts long ones: they come in any order.
    run: BTreeSet<Value>,
    bytes_of_run: Vec<u8>,
    ready: VecDeque<Lazy>,
    is_at_end: bool,
}

/// The bytes that an index has for a key, and whether it may have the same for others.
fn bytes_of(key: &Value) -> (Vec<u8>, bool) {
    match SecondaryKey::of_entry(Document::encode(key).value()) {
        Ok(found) => (found.bytes().to_vec(), found.is_cut()),
        // A primary key may be what none of a secondary index is.
        Err(_) => (Document::encode(key).bytes().to_vec(), false),
    }
}

impl DistinctKeys {
    /// The scan is in ascending order, and `key` makes of a document its only key.
    pub fn new(table: Arc<Table>, scan: Scan, key: Arc<Function>) -> Self {
        let pipeline = Arc::new(Pipeline { operations: vec![Operation::Map(key)], terminal: None });
        let (run, bytes_of_run) = (BTreeSet::new(), Vec::new());
        Self { table, scan, pipeline, run, bytes_of_run, ready: VecDeque::new(), is_at_end: false }
    }

    fn page(&mut self, env: &Env) -> Result<()> {
        self.scan.limit = BATCH_ROWS;
        let (rows, next) = if env.is_portable && self.pipeline.is_portable() {
            let page = env.ask("Evaluating documents of table", &self.table.info, |source| {
                source.evaluate(env, &self.table.info, &self.scan, &self.pipeline)
            })?;
            (page.partial.into_rows(), page.next)
        } else {
            let mut run = self.pipeline.run();
            let page = env
                .ask("Reading from table", &self.table.info, |source| source.scan(env, &self.table.info, &self.scan))?;
            page.rows.into_iter().try_for_each(|row| run.add(env, row))?;
            (run.finish().into_rows(), page.next)
        };
        let keys = lazy::values(rows)?;
        if let [first, .., last] = &keys[..]
            && first == last
            && !bytes_of(last).1
        {
            // There may be many more of this key, which need not be read.
            self.scan.range.lower = Bound::Excluded(last.clone());
        }
        for key in keys {
            let (bytes, _) = bytes_of(&key);
            if bytes != self.bytes_of_run {
                self.end_run();
                self.bytes_of_run = bytes;
            }
            self.run.insert(key);
            env.check_array(self.run.len())?;
        }
        self.is_at_end = next.is_none();
        self.scan.after = next;
        if self.is_at_end {
            self.end_run();
        }
        Ok(())
    }

    fn end_run(&mut self) {
        self.ready.extend(std::mem::take(&mut self.run).into_iter().map(Lazy::Value));
    }
}

impl Rows for DistinctKeys {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        while self.ready.is_empty() && !self.is_at_end {
            env.check()?;
            self.page(env)?;
        }
        let count = self.ready.len().min(limit);
        Ok(self.ready.drain(..count).collect())
    }
}

/// Rows in the order of an index; those of the same key are sorted.
pub struct SortedRuns {
    rows: Stream,
    /// Makes of a row its only key in the index.
    key: Arc<Function>,
    sort: Arc<Terminal>,
    /// The place for complaints about rows that are sorted.
    frame: FrameId,
    run: Option<(Value, Accumulator)>,
    ready: VecDeque<Lazy>,
    is_at_end: bool,
}

impl SortedRuns {
    pub fn new(rows: Stream, key: Arc<Function>, sort: Terminal, frame: FrameId) -> Self {
        Self { rows, key, sort: Arc::new(sort), frame, run: None, ready: VecDeque::new(), is_at_end: false }
    }

    fn end_run(&mut self) {
        if let Some((_, run)) = self.run.take() {
            self.ready.extend(run.into_rows());
        }
    }
}

impl Rows for SortedRuns {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        while self.ready.is_empty() && !self.is_at_end {
            let Some(row) = self.rows.next(env)? else {
                self.is_at_end = true;
                self.end_run();
                break;
            };
            let key = self.key.value_of(env, &row)?;
            if self.run.as_ref().is_some_and(|(run, _)| *run != key) {
                self.end_run();
            }
            let (_, run) = self.run.get_or_insert_with(|| (key, self.sort.accumulator(self.frame)));
            run.add(env, Lazy::Value(row))?;
            size::check(run.bytes())?;
        }
        let count = self.ready.len().min(limit);
        Ok(self.ready.drain(..count).collect())
    }
}
