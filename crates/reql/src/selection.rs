//! Databases, tables, and what is selected of them.

use std::sync::Arc;

use crate::error::{Error, FrameId};
use crate::scan::{DatabaseInfo, KeyRange, Order, ReadMode, TableInfo};
use crate::value::Value;

pub type Database = DatabaseInfo;

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
}
