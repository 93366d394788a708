//! What is done to the rows of a stream. [`apply`](super::apply) does it.

use std::sync::Arc;

use crate::error::FrameId;
use crate::function::Function;
use crate::lazy::Lazy;
use crate::value::Value;

/// A row with its group; `None` where there are no groups.
pub type GroupedRow = (Option<Value>, Lazy);

#[derive(Debug, Clone)]
pub enum Operation {
    Map(Arc<Function>),
    /// Keeps rows for which the function is true; the second function says what to do where something is not there.
    Filter(Arc<Function>, Option<Arc<Function>>),
    /// Every row of what the function gives; the place is for complaints that it gives no sequence.
    ConcatMap(Arc<Function>, FrameId),
    /// As `ConcatMap` of one value, leaving out rows for which something is not there.
    MapPresent(Arc<Function>),
    Group {
        frame: FrameId,
        functions: Vec<Arc<Function>>,
        multi: bool,
    },
    Zip(FrameId),
}

impl Operation {
    /// The functions that are called for rows.
    pub fn functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        let (one, more): (Vec<&Arc<Function>>, &[Arc<Function>]) = match self {
            Self::Map(function) | Self::ConcatMap(function, _) | Self::MapPresent(function) => (vec![function], &[]),
            Self::Filter(function, default) => (std::iter::once(function).chain(default).collect(), &[]),
            Self::Group { functions, .. } => (Vec::new(), functions),
            Self::Zip(_) => (Vec::new(), &[]),
        };
        one.into_iter().chain(more)
    }
}
