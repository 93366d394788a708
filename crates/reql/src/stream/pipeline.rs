//! What is done to the rows of a scan, one row after the other: it may be carried out where the rows are, for each part of
//! them, and the partial results are merged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::operation::check_groups;
use super::{Accumulator, Grouped, Operation, Terminal};
use crate::env::Env;
use crate::error::{Error, FrameId, Result};
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

    /// Takes rows that have gone through the operations, to the terminal.
    ///
    /// # Errors
    /// As [`Run::add`].
    pub fn add_batch(&mut self, env: &Env, pipeline: &Pipeline, batch: Grouped) -> Result<()> {
        let (Self::Groups(groups), Some((terminal, frame))) = (self, &pipeline.terminal) else { return Ok(()) };
        for (group, rows) in batch {
            let is_new = !groups.contains_key(&group);
            let accumulator = groups.entry(group.clone()).or_insert_with(|| terminal.accumulator(*frame));
            let mut took_some = false;
            for row in rows {
                took_some |= accumulator.add(env, row)?;
            }
            if is_new && !took_some {
                groups.remove(&group);
            } else if groups.len() > env.array_limit {
                return Err(Error::limit(format!("Too many groups (> {}).", env.array_limit)));
            }
        }
        Ok(())
    }

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
            }
            _ => {}
        }
        Ok(())
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
    /// What a function complains about. The run is of no use then.
    pub fn add(&mut self, env: &Env, row: Lazy) -> Result<()> {
        env.step()?;
        let Self { pipeline, partial, bytes } = self;
        through(env, &pipeline.operations, None, row, &mut |group, row| {
            let groups = match (&mut *partial, &pipeline.terminal) {
                (Partial::Groups(groups), Some(terminal)) => (groups, terminal),
                (Partial::Rows(rows), _) => {
                    *bytes += row.encoded_len();
                    rows.push(row);
                    return Ok(());
                }
                (Partial::Groups(_), None) => return Ok(()),
            };
            let (groups, (terminal, frame)) = groups;
            if let Some(accumulator) = groups.get_mut(&group) {
                let before = accumulator.bytes();
                accumulator.add(env, row)?;
                *bytes = (*bytes + accumulator.bytes()).saturating_sub(before);
                return Ok(());
            }
            let mut accumulator = terminal.accumulator(*frame);
            if accumulator.add(env, row)? {
                *bytes += accumulator.bytes() + group.as_ref().map_or(0, Value::encoded_len);
                let is_group = group.is_some();
                groups.insert(group, accumulator);
                if is_group {
                    check_groups(env, groups.len())?;
                }
            }
            Ok(())
        })
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
