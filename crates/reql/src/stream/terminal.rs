//! What makes one value of many rows.

use std::sync::Arc;

use crate::function::Function;

/// A key to sort by, and whether greater ones come first.
pub type OrderKey = (bool, Arc<Function>);

#[derive(Debug)]
pub enum Terminal {
    Count,
    Sum(Option<Arc<Function>>),
    Average(Option<Arc<Function>>),
    Min(Option<Arc<Function>>),
    Max(Option<Arc<Function>>),
    Reduce(Arc<Function>),
    /// All rows, as an array.
    Collect,
    /// The rows without those that equal another one, sorted.
    Distinct,
    /// The rows sorted by the keys; only so many of the first ones, if that is said.
    Sort(Vec<OrderKey>, Option<usize>),
}

impl Terminal {
    /// Whether it matters in which order the rows come.
    pub fn heeds_order(&self) -> bool {
        match self {
            Self::Count | Self::Sum(_) | Self::Average(_) | Self::Distinct => false,
            // Of equal rows the first one counts.
            Self::Min(_) | Self::Max(_) | Self::Reduce(_) | Self::Collect | Self::Sort(..) => true,
        }
    }

    /// The functions that are called for rows.
    pub fn functions(&self) -> Vec<&Arc<Function>> {
        match self {
            Self::Count | Self::Collect | Self::Distinct => Vec::new(),
            Self::Sum(function) | Self::Average(function) | Self::Min(function) | Self::Max(function) => {
                function.iter().collect()
            }
            Self::Reduce(function) => vec![function],
            Self::Sort(keys, _) => keys.iter().map(|(_, function)| function).collect(),
        }
    }
}
