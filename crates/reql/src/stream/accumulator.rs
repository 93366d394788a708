//! What a [`Terminal`] has come to. Accumulators of parts of the rows are merged into that of all.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::Terminal;
use super::terminal::OrderKey;
use crate::env::Env;
use crate::error::{At as _, Error, FrameId, Result};
use crate::function::Function;
use crate::lazy::Lazy;
use crate::val::Val;
use crate::value::{self, Value, ValueExt as _};

/// The fewest rows beyond its limit with which a sort goes on before it looks which of them are to stay.
const LEAST_SPARE: usize = 64;

#[derive(Debug)]
pub struct Accumulator {
    terminal: Arc<Terminal>,
    frame: FrameId,
    pub(super) state: State,
    /// About what the rows and values in it take.
    bytes: usize,
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
    is_full: bool,
}

fn argument(env: &Env, function: Option<&Arc<Function>>, row: &Lazy) -> Result<Value> {
    match function {
        Some(function) => function.call_row(env, row)?.into_datum(),
        None => row.to_value(),
    }
}

/// The key of a row; what is not there comes before what is.
///
/// # Errors
/// What the function complains about.
pub fn sort_key(env: &Env, function: &Function, row: &Lazy) -> Result<Option<Value>> {
    match function.call_row(env, row).and_then(Val::into_datum) {
        Ok(key) => Ok(Some(key)),
        Err(error) if error.is_non_existence() => Ok(None),
        Err(error) => Err(error),
    }
}

fn sort_keys(env: &Env, keys: &[OrderKey], row: &Lazy) -> Result<Vec<Option<Value>>> {
    keys.iter().map(|(_, function)| sort_key(env, function, row)).collect()
}

fn compare(keys: &[OrderKey], left: &[Option<Value>], right: &[Option<Value>]) -> Ordering {
    for ((descending, _), (left, right)) in keys.iter().zip(left.iter().zip(right)) {
        let ordering = left.cmp(right);
        if ordering.is_ne() {
            return if *descending { ordering.reverse() } else { ordering };
        }
    }
    Ordering::Equal
}

impl Sorted {
    /// Says by how many bytes it has grown, about.
    fn add(&mut self, env: &Env, order: &[OrderKey], limit: Option<usize>, row: Lazy) -> Result<usize> {
        let size = row.encoded_len();
        if self.rows.is_empty() && self.alone.is_none() {
            self.alone = Some(row);
            return Ok(size);
        }
        // The library that RethinkDB sorts with looks at the second row first, which errors show.
        let keys = sort_keys(env, order, &row)?;
        self.settle(env, order)?;
        let last = limit.map(|limit| limit.checked_sub(1).and_then(|last| self.rows.get(last)));
        // Of equal rows the first one stays.
        if self.is_full && last.is_some_and(|last| last.is_none_or(|(last, _)| compare(order, &keys, last).is_ge())) {
            return Ok(0);
        }
        self.rows.push((keys, row));
        if limit.is_some_and(|limit| self.rows.len() >= limit.saturating_add(limit.max(LEAST_SPARE))) {
            self.cut(order, limit);
        }
        Ok(size)
    }

    /// Computes the keys of a row that is no longer alone.
    fn settle(&mut self, env: &Env, order: &[OrderKey]) -> Result<()> {
        if let Some(first) = self.alone.take() {
            let keys = sort_keys(env, order, &first)?;
            self.rows.push((keys, first));
        }
        Ok(())
    }

    fn cut(&mut self, order: &[OrderKey], limit: Option<usize>) {
        self.rows.sort_by(|(left, _), (right, _)| compare(order, left, right));
        if let Some(limit) = limit {
            self.is_full = self.rows.len() >= limit;
            self.rows.truncate(limit);
        }
    }

    fn merge(&mut self, env: &Env, order: &[OrderKey], limit: Option<usize>, other: Self) -> Result<()> {
        if let Some(row) = other.alone {
            self.add(env, order, limit, row)?;
        } else if !other.rows.is_empty() {
            self.settle(env, order)?;
            self.rows.extend(other.rows);
            if limit.is_some_and(|limit| self.rows.len() > limit) {
                self.cut(order, limit);
            }
        }
        Ok(())
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

    /// How many rows are in it, of one that keeps them.
    pub fn row_count(&self) -> usize {
        match &self.state {
            State::Rows(rows) => rows.len(),
            State::Sorted(sorted) => sorted.rows.len() + usize::from(sorted.alone.is_some()),
            _ => 0,
        }
    }

    /// Takes a row; says whether it counted. Rows for which something is not there do not.
    ///
    /// # Errors
    /// What a function complains about.
    pub fn add(&mut self, env: &Env, row: Lazy) -> Result<bool> {
        match self.add_inside(env, row).at(self.frame) {
            Ok(()) => Ok(true),
            Err(error) if error.is_non_existence() && !matches!(*self.terminal, Terminal::Reduce(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn add_inside(&mut self, env: &Env, row: Lazy) -> Result<()> {
        match (&*self.terminal, &mut self.state) {
            (Terminal::Sum(function) | Terminal::Average(function), State::Numbers { count, sum }) => {
                *sum += argument(env, function.as_ref(), &row)?.to_number()?;
                *count += 1;
            }
            (Terminal::Min(function) | Terminal::Max(function), State::Best(best)) => {
                let key = argument(env, function.as_ref(), &row)?;
                if is_better(&self.terminal, &key, best.as_ref()) {
                    self.bytes = row.encoded_len();
                    *best = Some((row, key));
                }
            }
            (Terminal::Reduce(function), State::Reduced(reduced)) => {
                let row = row.into_value()?;
                *reduced = Some(reduce(env, function, reduced.take(), row)?);
            }
            (Terminal::Sort(order, limit), State::Sorted(sorted)) => {
                self.bytes += sorted.add(env, order, *limit, row)?;
                check_sorted(env, sorted, *limit)?;
            }
            (_, State::Numbers { count, .. }) => *count += 1,
            (_, State::Rows(rows)) => {
                self.bytes += row.encoded_len();
                rows.push(row);
            }
            (_, State::Set(set)) => {
                let (row, size) = (row.to_value()?, row.encoded_len());
                if set.insert(row) {
                    self.bytes += size;
                    env.check_array(set.len())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes what another one has come to over other rows.
    ///
    /// # Errors
    /// As [`Accumulator::add`].
    pub fn merge(&mut self, env: &Env, other: Self) -> Result<()> {
        self.merge_inside(env, other).at(self.frame)
    }

    fn merge_inside(&mut self, env: &Env, other: Self) -> Result<()> {
        self.bytes += other.bytes;
        match (&mut self.state, other.state) {
            (State::Numbers { count, sum }, State::Numbers { count: more, sum: others }) => {
                *count += more;
                *sum += others;
            }
            (State::Best(best), State::Best(Some((row, key)))) if is_better(&self.terminal, &key, best.as_ref()) => {
                *best = Some((row, key));
            }
            (State::Reduced(reduced), State::Reduced(Some(other))) => {
                if let Terminal::Reduce(function) = &*self.terminal {
                    *reduced = Some(reduce(env, function, reduced.take(), other)?);
                }
            }
            (State::Rows(rows), State::Rows(others)) => rows.extend(others),
            (State::Set(set), State::Set(others)) => {
                set.extend(others);
                env.check_array(set.len())?;
            }
            (State::Sorted(sorted), State::Sorted(others)) => {
                if let Terminal::Sort(order, limit) = &*self.terminal {
                    sorted.merge(env, order, *limit, others)?;
                    check_sorted(env, sorted, *limit)?;
                }
            }
            _ => {}
        }
        Ok(())
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

/// Rows that are all wanted become an array.
fn check_sorted(env: &Env, sorted: &Sorted, limit: Option<usize>) -> Result<()> {
    if limit.is_some() { Ok(()) } else { env.check_array(sorted.rows.len()).at(FrameId::ROOT) }
}

fn is_better(terminal: &Terminal, key: &Value, best: Option<&(Lazy, Value)>) -> bool {
    let Some((_, best)) = best else { return true };
    if matches!(terminal, Terminal::Max(_)) { key > best } else { key < best }
}

fn reduce(env: &Env, function: &Arc<Function>, so_far: Option<Value>, row: Value) -> Result<Value> {
    match so_far {
        None => Ok(row),
        Some(so_far) => function.call(env, &[so_far, row], false)?.into_datum().at(function.frame),
    }
}
