//! What a feed is about.

use std::sync::Arc;

use super::Operation;
use crate::change_log::Interest;
use crate::error::{Error, FrameId, Result};
use crate::function::{Body, Function};
use crate::scan::Scan;
use crate::selection::Table;

/// Documents of a table, with what is made of each.
pub struct Subject {
    pub table: Arc<Table>,
    /// Which documents, and how often each of a scan's documents counts.
    pub scans: Vec<(Scan, usize)>,
    /// What is made of each.
    pub operations: Vec<Operation>,
    /// Whether it is one document by its key.
    pub is_point: bool,
    /// If only the first rows count: how many, and which of these are shown. The only scan then has an order.
    pub first: Option<FirstRows>,
}

/// The first rows of an order.
pub struct FirstRows {
    pub count: usize,
    /// Filters of those rows.
    pub filters: Vec<Operation>,
}

/// The error about a sequence whose rows have been computed.
pub fn eager() -> Error {
    Error::logic("Cannot call `changes` on an eager stream.")
}

/// The error about a value that would be that of all rows of a feed.
pub fn no_end() -> Error {
    Error::logic("Cannot call a terminal (`reduce`, `count`, etc.) on an infinite stream (such as a changefeed).")
}

fn is_deterministic(function: &Function) -> bool {
    match &function.body {
        // Rows stand in the place of its first argument.
        Body::Again { .. } => function.is_portable(),
        _ => function.is_deterministic(),
    }
}

/// What a search of a geospatial index of several shapes does with a document is no function of the query.
fn is_search(function: &Function) -> bool {
    matches!(function.body, Body::Meets { .. })
}

impl Subject {
    pub fn new(table: Arc<Table>, scans: Vec<(Scan, usize)>) -> Self {
        Self { table, scans, operations: Vec::new(), is_point: false, first: None }
    }

    /// Does something more to each document. `place` is the term that does.
    ///
    /// # Errors
    /// If a feed cannot do that.
    pub fn add(&mut self, operation: Operation, place: FrameId) -> Result<()> {
        match &operation {
            Operation::ConcatMap(function, _) if !is_search(function) => {
                return Err(Error::logic("Cannot call `changes` after `concat_map`."));
            }
            Operation::Zip(_) => return Err(Error::logic("Cannot call `changes` after `zip`.")),
            Operation::Group { frame, .. } => return Err(eager().at(*frame)),
            _ => {}
        }
        if let Some(function) = operation.functions().find(|function| !is_deterministic(function)) {
            let error = Error::logic("Cannot call `changes` after a non-deterministic function.");
            return Err(error.at(function.frame));
        }
        match &mut self.first {
            None => self.operations.push(operation),
            Some(first) if matches!(operation, Operation::Filter(..)) => first.filters.push(operation),
            Some(_) => return Err(after_limit().at(place)),
        }
        Ok(())
    }

    /// Only the first rows.
    ///
    /// # Errors
    /// If the rows have no order that a feed can keep.
    pub fn limit(&mut self, count: u64) -> Result<()> {
        let is_ordered = matches!(&self.scans[..], [(scan, 1)] if scan.order != crate::scan::Order::Any);
        if self.first.is_some() || !is_ordered {
            return Err(Error::logic("Cannot get changes on the first elements of an unordered stream."));
        }
        self.first = Some(FirstRows { count: usize::try_from(count).unwrap_or(usize::MAX), filters: Vec::new() });
        Ok(())
    }

    /// The documents that may concern it.
    pub fn interest(&self) -> Interest {
        if self.scans.iter().any(|(scan, _)| scan.index.is_some()) {
            return Interest::All;
        }
        Interest::Keys(self.scans.iter().map(|(scan, _)| scan.range.clone()).collect())
    }
}

fn after_limit() -> Error {
    Error::logic(
        "Changefeeds are not supported on queries that have a transformation following a `limit` term.  Transformations \
         include terms such as `filter`, `map`, `pluck`, etc.  Consider moving the transformation before the `limit` term.",
    )
}
