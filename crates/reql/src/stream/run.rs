//! A pipeline at work.

use std::sync::Arc;

use super::apply::check_groups;
use super::{Accumulator, Operation, Partial, Pipeline};
use crate::env::Env;
use crate::error::Result;
use crate::lazy::Lazy;
use crate::size::{self, ELEMENT_BYTES};
use crate::value::Value;

impl Partial {
    /// Takes what the pipeline has made of other rows, which come behind those of this one.
    ///
    /// # Errors
    /// If the result is larger than the query allows, or a function complains.
    pub fn merge(&mut self, env: &Env, pipeline: &Pipeline, other: Self) -> Result<()> {
        match (self, other) {
            (Self::Rows(rows), Self::Rows(others)) => rows.extend(others),
            (Self::Groups(groups), Self::Groups(others)) => {
                for (group, accumulator) in others {
                    match groups.get_mut(&group) {
                        Some(own) => own.merge(env, accumulator)?,
                        None => drop(groups.insert(group, accumulator)),
                    }
                }
                if pipeline.is_grouped() {
                    check_groups(env, groups.len())?;
                }
                size::check(groups.values().map(Accumulator::bytes).sum())?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Pipeline {
    /// Begins with no rows.
    pub fn run(self: &Arc<Self>) -> Run {
        Run { pipeline: self.clone(), partial: self.nothing(), bytes: 0 }
    }
}

/// A pipeline at work.
pub struct Run {
    pipeline: Arc<Pipeline>,
    partial: Partial,
    /// About what the result takes.
    bytes: usize,
}

impl Run {
    /// Takes a row through all operations.
    ///
    /// # Errors
    /// What a function complains about, or that the result is larger than a query allows. The run is of no use then.
    pub fn add(&mut self, env: &Env, row: Lazy) -> Result<()> {
        env.step()?;
        let pipeline = self.pipeline.clone();
        through(env, &pipeline.operations, None, row, &mut |group, row| self.take(env, group, row))
    }

    /// Takes a row that has gone through the operations.
    ///
    /// # Errors
    /// As [`Run::add`].
    pub fn take(&mut self, env: &Env, group: Option<Value>, row: Lazy) -> Result<()> {
        let Self { pipeline, partial, bytes } = self;
        match (partial, &pipeline.terminal) {
            (Partial::Rows(rows), _) => {
                *bytes += row.encoded_len() + ELEMENT_BYTES;
                rows.push(row);
            }
            (Partial::Groups(groups), Some((terminal, frame))) => {
                if let Some(accumulator) = groups.get_mut(&group) {
                    let before = accumulator.bytes();
                    accumulator.add(env, row)?;
                    *bytes = (*bytes + accumulator.bytes()).saturating_sub(before);
                } else {
                    let mut accumulator = terminal.accumulator(*frame);
                    if accumulator.add(env, row)? {
                        *bytes += accumulator.bytes() + group.as_ref().map_or(0, Value::encoded_len);
                        let is_group = group.is_some();
                        groups.insert(group, accumulator);
                        if is_group {
                            check_groups(env, groups.len())?;
                        }
                    }
                }
            }
            (Partial::Groups(_), None) => {}
        }
        size::check(*bytes)
    }

    /// The result so far.
    pub fn partial(&self) -> &Partial {
        &self.partial
    }

    /// About what the result takes so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Rows of a result that has no terminal.
    pub fn row_count(&self) -> usize {
        self.partial.row_count()
    }

    /// The result of all rows.
    pub fn finish(self) -> Partial {
        self.partial
    }
}

type Take<'a> = dyn FnMut(Option<Value>, Lazy) -> Result<()> + 'a;

fn through(env: &Env, operations: &[Operation], group: Option<Value>, row: Lazy, take: &mut Take<'_>) -> Result<()> {
    let Some((operation, rest)) = operations.split_first() else { return take(group, row) };
    if matches!(operation, Operation::Group { .. }) {
        let mut groups = operation.groups_of(env, &row)?;
        let Some(last) = groups.pop() else { return Ok(()) };
        for group in groups {
            through(env, rest, Some(group), row.clone(), take)?;
        }
        return through(env, rest, Some(last), row, take);
    }
    operation.apply_to_row(env, row, &mut |row| through(env, rest, group.clone(), row, take))
}
