//! Documents of a table, and what is made of them where they are.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Operation, Partial, Pipeline, Rows, Stream, Subject};
use crate::env::Env;
use crate::error::{FrameId, Result};
use crate::lazy::Lazy;
use crate::scan::{KeyRange, Order, Scan};
use crate::selection::{Table, TableSlice};

/// Documents of a table, scan after scan; each one as often as its scan says. Operations that may be carried out where the
/// documents are go there with the scan.
pub struct TableRows {
    table: Arc<Table>,
    scans: VecDeque<(Scan, usize)>,
    pipeline: Arc<Pipeline>,
    has_begun: bool,
    ready: VecDeque<Lazy>,
}

impl TableRows {
    pub fn new(table: Arc<Table>, scans: Vec<(Scan, usize)>) -> Self {
        let (pipeline, ready) = (Arc::<Pipeline>::default(), VecDeque::new());
        Self { table, scans: scans.into(), pipeline, has_begun: false, ready }
    }

    pub fn nothing(table: Arc<Table>) -> Self {
        Self::new(table, Vec::new())
    }

    /// Takes over those of the operations that can be carried out where the documents are, before rows are read.
    pub fn take_operations(&mut self, operations: &mut Vec<Operation>) {
        let can_go = |operation: &Operation| !matches!(operation, Operation::Group { .. }) && operation.is_portable();
        let count = operations.iter().take_while(|operation| can_go(operation)).count();
        if count == 0 || self.has_begun {
            return;
        }
        let mut pipeline = Pipeline::clone(&self.pipeline);
        pipeline.operations.extend(operations.drain(..count));
        self.pipeline = Arc::new(pipeline);
    }

    /// Whether all that is left to do can be done where the documents are.
    pub fn can_end_there(&self, pipeline: &Pipeline) -> bool {
        let heeds_order = pipeline.terminal.as_ref().is_none_or(|(terminal, _)| terminal.heeds_order());
        let can_go = |scan: &Scan, times| times == 1 && !(heeds_order && scan.order != Order::Any);
        !self.has_begun
            && self.pipeline.operations.is_empty()
            && self.scans.iter().all(|(scan, times)| can_go(scan, *times))
            && pipeline.is_portable()
    }

    /// Adds what the pipeline, which has a terminal, makes of all documents. `check` sees what there is after each page.
    ///
    /// # Errors
    /// If documents cannot be read, or the pipeline or the check complains.
    pub fn end_there(
        &mut self,
        env: &Env,
        pipeline: &Arc<Pipeline>,
        all: &mut Partial,
        check: impl Fn(&Partial) -> Result<()>,
    ) -> Result<()> {
        while let Some((scan, _)) = self.scans.front_mut() {
            env.check()?;
            scan.limit = super::BATCH_ROWS;
            let page = env.ask("Evaluating documents of table", &self.table.info, |source| {
                source.evaluate(env, &self.table.info, scan, pipeline)
            })?;
            all.merge(env, pipeline, page.partial)?;
            check(all)?;
            match page.next {
                Some(position) => scan.after = Some(position),
                None => drop(self.scans.pop_front()),
            }
        }
        Ok(())
    }

    fn page(&mut self, env: &Env, limit: usize) -> Result<()> {
        let Some((scan, times)) = self.scans.front_mut() else { return Ok(()) };
        let times = *times;
        scan.limit = limit.div_ceil(times);
        let (rows, next) = if self.pipeline.operations.is_empty() {
            let page =
                env.ask("Reading from table", &self.table.info, |source| source.scan(env, &self.table.info, scan))?;
            (page.rows, page.next)
        } else {
            let page = env.ask("Evaluating documents of table", &self.table.info, |source| {
                source.evaluate(env, &self.table.info, scan, &self.pipeline)
            })?;
            (page.partial.into_rows(), page.next)
        };
        match next {
            Some(position) => scan.after = Some(position),
            None => drop(self.scans.pop_front()),
        }
        self.ready.extend(rows.into_iter().flat_map(|row| std::iter::repeat_n(row, times)));
        Ok(())
    }
}

impl Rows for TableRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        self.has_begun = true;
        while self.ready.is_empty() && !self.scans.is_empty() {
            env.step()?;
            self.page(env, limit)?;
        }
        if self.ready.len() <= limit {
            return Ok(std::mem::take(&mut self.ready).into());
        }
        Ok(self.ready.drain(..limit).collect())
    }

    fn as_table(&mut self) -> Option<&mut TableRows> {
        Some(self)
    }

    fn subjects(self: Box<Self>, _place: FrameId) -> Result<Vec<Subject>> {
        Ok(vec![Subject::new(self.table, self.scans.into())])
    }
}

impl TableSlice {
    /// The scan that reads the documents.
    pub fn scan(&self) -> Scan {
        Scan {
            index: self.secondary(),
            range: self.range.clone().unwrap_or(KeyRange::ALL),
            cells: None,
            order: self.order,
            after: None,
            limit: 0,
            reads: self.table.reads,
        }
    }

    /// The documents, which are read when they are asked for.
    pub fn stream(self, _env: &Env, frame: FrameId) -> Stream {
        if self.is_empty {
            return Stream::new(frame, Box::new(TableRows::nothing(self.table)));
        }
        let scan = self.scan();
        Stream::new(frame, Box::new(TableRows::new(self.table, vec![(scan, 1)])))
    }
}
