//! Databases, tables, and what is selected of them.

use std::ops::Bound;
use std::sync::Arc;

use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::source::{KeyRange, Order, ReadMode, Scan, TableInfo};
use crate::stream::{Stream, TableRows};
use crate::value::Value;

pub type Database = crate::source::DatabaseInfo;

/// A table of a query.
#[derive(Debug)]
pub struct Table {
    pub info: TableInfo,
    /// The term that named the table.
    pub frame: FrameId,
    pub reads: ReadMode,
}

impl Table {
    pub fn name(&self) -> &str {
        &self.info.name
    }

    pub fn primary_key(&self) -> &str {
        &self.info.primary_key
    }

    /// The document with this key, `null` if there is none.
    ///
    /// # Errors
    /// If the value can be no key, or the source cannot tell.
    pub fn get(&self, env: &Env, key: &Value) -> Result<Value> {
        Ok(env.source.get(&self.info, key, self.reads)?.unwrap_or(Value::Null))
    }
}

/// A document that was got by its key, or its absence. Why it could not be got concerns those only who look at it.
pub struct Row {
    pub error: Option<Error>,
    pub table: Arc<Table>,
    pub key: Value,
    pub value: Value,
}

/// A table, or the part of it between two keys, perhaps in an order.
#[derive(Clone)]
pub struct TableSlice {
    pub table: Arc<Table>,
    pub index: Option<Arc<str>>,
    pub range: Option<KeyRange>,
    pub order: Order,
    /// Whether the bounds leave nothing.
    pub is_empty: bool,
}

impl TableSlice {
    pub fn whole(table: Arc<Table>) -> Self {
        Self { table, index: None, range: None, order: Order::Any, is_empty: false }
    }

    /// The secondary index, if it is not the primary key that is meant.
    pub fn secondary(&self) -> Option<Arc<str>> {
        self.index.clone().filter(|index| **index != *self.table.info.primary_key)
    }

    pub fn stream(self, _env: &Env, frame: FrameId) -> Stream {
        if self.is_empty {
            return Stream::new(frame, Box::new(TableRows::nothing(self.table)));
        }
        let scan = Scan {
            index: self.secondary(),
            range: self.range.unwrap_or(KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded }),
            order: self.order,
            after: None,
            limit: 0,
            reads: self.table.reads,
        };
        Stream::new(frame, Box::new(TableRows::new(self.table, vec![(scan, 1)])))
    }
}
