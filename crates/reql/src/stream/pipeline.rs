//! What is done to the rows of a scan, one row after the other: it may be carried out where the rows are, for each part of
//! them, and the partial results are merged. [`run`](super::run) does it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Accumulator, Operation, Terminal};
use crate::error::FrameId;
use crate::lazy::Lazy;
use crate::value::Value;

/// Operations, and what makes a value of their rows, if something does. With groups among the operations something has to.
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    /// The operations in their order.
    pub operations: Vec<Operation>,
    /// With the place for complaints about rows.
    pub terminal: Option<(Arc<Terminal>, FrameId)>,
}

/// What a pipeline has made of some rows.
#[derive(Debug)]
pub enum Partial {
    /// The rows that are left after the operations.
    Rows(Vec<Lazy>),
    /// By group, `None` where there are no groups.
    Groups(BTreeMap<Option<Value>, Accumulator>),
}

impl Partial {
    /// The rows, if there is no terminal.
    pub fn into_rows(self) -> Vec<Lazy> {
        match self {
            Self::Rows(rows) => rows,
            Self::Groups(_) => Vec::new(),
        }
    }

    /// How many rows it holds.
    pub fn row_count(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.len(),
            Self::Groups(groups) => groups.values().map(Accumulator::row_count).sum(),
        }
    }
}

impl Pipeline {
    /// What there is before the first row.
    pub fn nothing(&self) -> Partial {
        if self.terminal.is_some() { Partial::Groups(BTreeMap::new()) } else { Partial::Rows(Vec::new()) }
    }

    /// Whether one of the operations groups the rows.
    pub fn is_grouped(&self) -> bool {
        self.operations.iter().any(|operation| matches!(operation, Operation::Group { .. }))
    }
}
