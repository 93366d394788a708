//! Joins by a key.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{FeedSort, Rows, Stream};
use crate::env::{Env, Later};
use crate::error::{At as _, Result};
use crate::function::Function;
use crate::lazy::{self, Lazy};
use crate::scan::{KeyRange, Order, Scan};
use crate::selection::Table;
use crate::size::Size;
use crate::value::{self, Value, ValueExt as _};

/// For each row of a stream the documents of a table whose key is what a function makes of the row.
pub struct EqualityJoinRows {
    left: Stream,
    function: Arc<Function>,
    table: Arc<Table>,
    index: Option<Arc<str>>,
    /// A row with documents that were not read yet, and where these are.
    under_way: Option<(Value, Scan)>,
    ready: VecDeque<Value>,
}

impl EqualityJoinRows {
    /// `index` is that of the table by which the documents are found; without one, that is the primary key.
    pub fn new(left: Stream, function: Arc<Function>, table: Arc<Table>, index: Option<Arc<str>>) -> Self {
        Self { left, function, table, index, under_way: None, ready: VecDeque::new() }
    }

    fn scan(&self, index: &Arc<str>, key: Value) -> Scan {
        Scan {
            index: Some(index.clone()),
            range: KeyRange::only(key),
            cells: None,
            order: Order::Any,
            after: None,
            limit: 0,
            reads: self.table.reads,
        }
    }

    /// At most `limit` documents that belong to the row under way.
    fn page(&mut self, env: &Env, limit: usize) -> Result<Vec<Value>> {
        let Some((row, scan)) = &mut self.under_way else { return Ok(Vec::new()) };
        env.check()?;
        scan.limit = limit;
        let page =
            env.ask("Reading from table", &self.table.info, |source| source.scan(env, &self.table.info, scan))?;
        let joined = lazy::values(page.rows)?.into_iter().map(|found| joined(row, found)).collect::<Result<_>>()?;
        match page.next {
            Some(position) => scan.after = Some(position),
            None => self.under_way = None,
        }
        Ok(joined)
    }
}

fn joined(row: &Value, found: Value) -> Result<Value> {
    value::object([("left", row.clone()), ("right", found)])
}

impl Rows for EqualityJoinRows {
    fn is_array(&self) -> bool {
        self.left.is_array()
    }

    fn is_infinite(&self) -> bool {
        self.left.is_infinite()
    }

    fn feed(&self) -> Option<FeedSort> {
        self.left.feed()
    }

    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        let mut size = Size::default();
        while self.ready.len() < limit && !size.is_batch() {
            if self.under_way.is_some() {
                for row in self.page(env, limit - self.ready.len())? {
                    size.add(row.encoded_len())?;
                    self.ready.push_back(row);
                }
                continue;
            }
            let Later::Row(row) = env.row_or_later(self.left.next(env).at(self.left.frame), !self.ready.is_empty())?
            else {
                break;
            };
            if row.is_null() {
                continue;
            }
            let key = match self.function.value_of(env, &row) {
                Ok(Value::Null) => continue,
                Ok(key) => key,
                Err(error) if error.is_non_existence() => continue,
                Err(error) => return Err(error),
            };
            if let Some(index) = &self.index {
                let scan = self.scan(index, key);
                self.under_way = Some((row, scan));
            } else if let Some(found) = env.get(&self.table.info, &key, self.table.reads)? {
                let row = joined(&row, found)?;
                size.add(row.encoded_len())?;
                self.ready.push_back(row);
            }
        }
        let count = self.ready.len().min(limit);
        Ok(self.ready.drain(..count).map(Lazy::Value).collect())
    }
}
