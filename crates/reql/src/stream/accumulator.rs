//! What a [`Terminal`] has come to. [`accumulate`](super::accumulate) adds rows, and merges accumulators of parts of them.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::Terminal;
use super::terminal::OrderKey;
use crate::error::{Error, FrameId, Result};
use crate::lazy::Lazy;
use crate::size::ELEMENT_BYTES;
use crate::value::{self, Value};

#[derive(Debug)]
pub struct Accumulator {
    pub(super) terminal: Arc<Terminal>,
    pub(super) frame: FrameId,
    pub(super) state: State,
    /// About what the rows and values in it take.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) enum State {
    /// Rows that counted, and their sum.
    Numbers {
        count: u64,
        sum: f64,
    },
    /// The best row and what it is compared by.
    Best(Option<(Lazy, Value)>),
    Reduced(Option<Value>),
    Rows(Vec<Lazy>),
    Set(BTreeSet<Value>),
    Sorted(Sorted),
}

/// Rows with their keys. The keys of a row that is alone are not computed: nothing is compared with it, so that its functions do
/// not complain.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub rows: Vec<(Vec<Option<Value>>, Lazy)>,
    pub alone: Option<Lazy>,
    /// Whether the first rows are in order, and as many as are wanted: what does not belong before the last of these is left out.
    pub(super) is_full: bool,
    /// About what the rows take, with their keys.
    pub(super) bytes: usize,
}

pub(super) fn compare(keys: &[OrderKey], left: &[Option<Value>], right: &[Option<Value>]) -> Ordering {
    for ((descending, _), (left, right)) in keys.iter().zip(left.iter().zip(right)) {
        let ordering = left.cmp(right);
        if ordering.is_ne() {
            return if *descending { ordering.reverse() } else { ordering };
        }
    }
    Ordering::Equal
}

/// About what a row takes, with its keys.
pub(super) fn bytes_of(keys: &[Option<Value>], row: &Lazy) -> usize {
    keys.iter().flatten().map(Value::encoded_len).sum::<usize>() + row.encoded_len() + ELEMENT_BYTES
}

impl Sorted {
    pub(super) fn cut(&mut self, order: &[OrderKey], limit: Option<usize>) {
        self.rows.sort_by(|(left, _), (right, _)| compare(order, left, right));
        if let Some(limit) = limit {
            self.is_full = self.rows.len() >= limit;
            self.rows.truncate(limit);
            self.measure();
        }
    }

    /// Finds out what the rows take.
    pub(super) fn measure(&mut self) {
        let rows = self.rows.iter().map(|(keys, row)| bytes_of(keys, row)).sum::<usize>();
        self.bytes = rows + self.alone.as_ref().map_or(0, |row| bytes_of(&[], row));
    }

    fn into_rows(mut self, order: &[OrderKey], limit: Option<usize>) -> Vec<Lazy> {
        self.cut(order, limit);
        let limit = limit.unwrap_or(usize::MAX);
        self.rows.into_iter().map(|(_, row)| row).chain(self.alone).take(limit).collect()
    }
}

impl Accumulator {
    pub(super) fn new(terminal: Arc<Terminal>, frame: FrameId) -> Self {
        let state = match &*terminal {
            Terminal::Count | Terminal::Sum(_) | Terminal::Average(_) => State::Numbers { count: 0, sum: 0.0 },
            Terminal::Min(_) | Terminal::Max(_) => State::Best(None),
            Terminal::Reduce(_) => State::Reduced(None),
            Terminal::Collect => State::Rows(Vec::new()),
            Terminal::Distinct => State::Set(BTreeSet::new()),
            Terminal::Sort(..) => State::Sorted(Sorted::default()),
        };
        Self { terminal, frame, state, bytes: 0 }
    }

    /// About what the rows and values in it take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Finds out what the rows and values in it take.
    pub(super) fn measure(&mut self) {
        self.bytes = match &mut self.state {
            State::Numbers { .. } | State::Best(None) | State::Reduced(None) => 0,
            State::Best(Some((row, key))) => row.encoded_len() + key.encoded_len(),
            State::Reduced(Some(value)) => value.encoded_len(),
            State::Rows(rows) => rows.iter().map(|row| bytes_of(&[], row)).sum(),
            State::Set(set) => set.iter().map(|value| value.encoded_len() + ELEMENT_BYTES).sum(),
            State::Sorted(sorted) => {
                sorted.measure();
                sorted.bytes
            }
        };
    }

    /// How many rows are in it, of one that keeps them.
    pub fn row_count(&self) -> usize {
        match &self.state {
            State::Rows(rows) => rows.len(),
            State::Sorted(sorted) => sorted.rows.len() + usize::from(sorted.alone.is_some()),
            _ => 0,
        }
    }

    /// # Errors
    /// If there were no rows and the terminal needs some.
    pub fn finish(self) -> Result<Value> {
        let empty = |name: &str| {
            let what = if name == "avg" { "average" } else { name };
            Error::non_existence(format!(
                "Cannot take the {what} of an empty stream.  (If you passed `{name}` a field name, it may be that no \
                 elements of the stream had that field.)"
            ))
        };
        match (&*self.terminal, self.state) {
            (Terminal::Sum(_), State::Numbers { sum, .. }) => value::number(sum),
            (Terminal::Average(_), State::Numbers { count: 0, .. }) => Err(empty("avg")),
            (Terminal::Average(_), State::Numbers { count, sum }) => value::number(sum / count as f64),
            (_, State::Numbers { count, .. }) => value::number(count as f64),
            (_, State::Best(Some((row, _)))) => row.into_value(),
            (Terminal::Max(_), State::Best(None)) => Err(empty("max")),
            (_, State::Best(None)) => Err(empty("min")),
            (_, State::Reduced(Some(value))) => Ok(value),
            (Terminal::Reduce(function), State::Reduced(None)) => {
                Err(Error::non_existence("Cannot reduce over an empty stream.").at(function.frame))
            }
            (_, State::Reduced(None)) => Ok(Value::Null),
            (terminal, state) => {
                let rows = Self::rows(terminal, state);
                Ok(Value::array(crate::lazy::values(rows)?)?)
            }
        }
    }

    /// The rows of one that keeps them.
    pub fn into_rows(self) -> Vec<Lazy> {
        Self::rows(&self.terminal, self.state)
    }

    fn rows(terminal: &Terminal, state: State) -> Vec<Lazy> {
        match (terminal, state) {
            (_, State::Rows(rows)) => rows,
            (_, State::Set(set)) => set.into_iter().map(Lazy::Value).collect(),
            (Terminal::Sort(order, limit), State::Sorted(sorted)) => sorted.into_rows(order, *limit),
            _ => Vec::new(),
        }
    }
}

impl Terminal {
    /// `frame` is the place for complaints about rows.
    pub fn accumulator(self: &Arc<Self>, frame: FrameId) -> Accumulator {
        Accumulator::new(self.clone(), frame)
    }
}
