//! Adding rows to accumulators, and merging those of parts of the rows.

use std::sync::Arc;

use super::accumulator::{Accumulator, Sorted, State, bytes_of, compare};
use super::terminal::{OrderKey, Terminal};
use crate::env::Env;
use crate::error::{At as _, FrameId, Result};
use crate::function::Function;
use crate::lazy::Lazy;
use crate::size::ELEMENT_BYTES;
use crate::val::Val;
use crate::value::{Value, ValueExt as _};

/// The fewest rows beyond its limit with which a sort goes on before it looks which of them are to stay.
const LEAST_SPARE: usize = 64;

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

impl Sorted {
    fn add(&mut self, env: &Env, order: &[OrderKey], limit: Option<usize>, row: Lazy) -> Result<()> {
        if self.rows.is_empty() && self.alone.is_none() {
            self.bytes = bytes_of(&[], &row);
            self.alone = Some(row);
            return Ok(());
        }
        // The library that RethinkDB sorts with looks at the second row first, which errors show.
        let keys = sort_keys(env, order, &row)?;
        self.settle(env, order)?;
        let last = limit.map(|limit| limit.checked_sub(1).and_then(|last| self.rows.get(last)));
        // Of equal rows the first one stays.
        if self.is_full && last.is_some_and(|last| last.is_none_or(|(last, _)| compare(order, &keys, last).is_ge())) {
            return Ok(());
        }
        self.bytes += bytes_of(&keys, &row);
        self.rows.push((keys, row));
        if limit.is_some_and(|limit| self.rows.len() >= limit.saturating_add(limit.max(LEAST_SPARE))) {
            self.cut(order, limit);
        }
        Ok(())
    }

    /// Computes the keys of a row that is no longer alone.
    fn settle(&mut self, env: &Env, order: &[OrderKey]) -> Result<()> {
        if let Some(first) = self.alone.take() {
            let keys = sort_keys(env, order, &first)?;
            self.bytes = bytes_of(&keys, &first);
            self.rows.push((keys, first));
        }
        Ok(())
    }

    fn merge(&mut self, env: &Env, order: &[OrderKey], limit: Option<usize>, other: Self) -> Result<()> {
        if let Some(row) = other.alone {
            self.add(env, order, limit, row)?;
        } else if !other.rows.is_empty() {
            self.settle(env, order)?;
            self.bytes += other.bytes;
            self.rows.extend(other.rows);
            if limit.is_some_and(|limit| self.rows.len() > limit) {
                self.cut(order, limit);
            }
        }
        Ok(())
    }
}

impl Accumulator {
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
                    *best = Some((row, key));
                    self.measure();
                }
            }
            (Terminal::Reduce(function), State::Reduced(reduced)) => {
                let row = row.into_value()?;
                *reduced = Some(reduce(env, function, reduced.take(), row)?);
                self.measure();
            }
            (Terminal::Sort(order, limit), State::Sorted(sorted)) => {
                sorted.add(env, order, *limit, row)?;
                self.bytes = sorted.bytes;
                check_sorted(env, sorted, *limit)?;
            }
            (_, State::Numbers { count, .. }) => *count += 1,
            (_, State::Rows(rows)) => {
                self.bytes += bytes_of(&[], &row);
                rows.push(row);
            }
            (_, State::Set(set)) => {
                let (row, size) = (row.to_value()?, bytes_of(&[], &row));
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
        match (&mut self.state, other.state) {
            (State::Numbers { count, sum }, State::Numbers { count: more, sum: others }) => {
                *count += more;
                *sum += others;
            }
            (State::Best(best), State::Best(Some((row, key)))) if is_better(&self.terminal, &key, best.as_ref()) => {
                *best = Some((row, key));
                self.measure();
            }
            (State::Reduced(reduced), State::Reduced(Some(other))) => {
                if let Terminal::Reduce(function) = &*self.terminal {
                    *reduced = Some(reduce(env, function, reduced.take(), other)?);
                    self.measure();
                }
            }
            (State::Rows(rows), State::Rows(others)) => {
                self.bytes += other.bytes;
                rows.extend(others);
            }
            (State::Set(set), State::Set(others)) => {
                for value in others {
                    let size = value.encoded_len() + ELEMENT_BYTES;
                    self.bytes += if set.insert(value) { size } else { 0 };
                }
                env.check_array(set.len())?;
            }
            (State::Sorted(sorted), State::Sorted(others)) => {
                if let Terminal::Sort(order, limit) = &*self.terminal {
                    sorted.merge(env, order, *limit, others)?;
                    self.bytes = sorted.bytes;
                    check_sorted(env, sorted, *limit)?;
                }
            }
            _ => {}
        }
        Ok(())
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
