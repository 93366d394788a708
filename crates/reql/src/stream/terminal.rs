//! What makes one value of many rows.

use std::sync::Arc;

use crate::env::Env;
use crate::error::{At as _, Error, FrameId, Result};
use crate::function::Function;
use crate::value::{self, Value, ValueExt as _};

#[derive(Debug)]
pub enum Terminal {
    Count,
    Sum(Option<Arc<Function>>),
    Average(Option<Arc<Function>>),
    Min(Option<Arc<Function>>),
    Max(Option<Arc<Function>>),
    Reduce(Arc<Function>),
}

impl Terminal {
    pub fn accumulator(self: &Arc<Self>, frame: FrameId) -> Accumulator {
        Accumulator { terminal: self.clone(), frame, count: 0, sum: 0.0, best: None }
    }
}

/// What a terminal has so far.
pub struct Accumulator {
    terminal: Arc<Terminal>,
    frame: FrameId,
    count: usize,
    sum: f64,
    /// The best row and what it is compared by; of a reduction, what it has come to.
    best: Option<(Value, Value)>,
}

fn argument(env: &Env, function: Option<&Arc<Function>>, row: &Value) -> Result<Value> {
    match function {
        Some(function) => function.call(env, std::slice::from_ref(row), false)?.into_datum(),
        None => Ok(row.clone()),
    }
}

impl Accumulator {
    /// Takes a row; says whether it counted. Rows for which something is not there do not.
    ///
    /// # Errors
    /// What a function complains about.
    pub fn add(&mut self, env: &Env, row: Value) -> Result<bool> {
        match self.add_inside(env, row).at(self.frame) {
            Ok(()) => Ok(true),
            Err(error) if error.is_non_existence() && !matches!(*self.terminal, Terminal::Reduce(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn add_inside(&mut self, env: &Env, row: Value) -> Result<()> {
        match &*self.terminal {
            Terminal::Count => self.count += 1,
            Terminal::Sum(function) | Terminal::Average(function) => {
                self.sum += argument(env, function.as_ref(), &row)?.to_number()?;
                self.count += 1;
            }
            Terminal::Min(function) | Terminal::Max(function) => {
                let key = argument(env, function.as_ref(), &row)?;
                let is_max = matches!(*self.terminal, Terminal::Max(_));
                let is_better = match &self.best {
                    None => true,
                    Some((_, best)) => {
                        if is_max {
                            key > *best
                        } else {
                            key < *best
                        }
                    }
                };
                if is_better {
                    self.best = Some((row, key));
                }
            }
            Terminal::Reduce(function) => {
                let value = match self.best.take() {
                    None => row,
                    Some((so_far, _)) => function.call(env, &[so_far, row], false)?.into_datum().at(function.frame)?,
                };
                self.best = Some((value, Value::Null));
            }
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
        match &*self.terminal {
            Terminal::Count => Ok(value::integer(self.count)),
            Terminal::Sum(_) => value::number(self.sum),
            Terminal::Average(_) if self.count == 0 => Err(empty("avg")),
            Terminal::Average(_) => value::number(self.sum / self.count as f64),
            Terminal::Min(_) => self.best.map(|(row, _)| row).ok_or_else(|| empty("min")),
            Terminal::Max(_) => self.best.map(|(row, _)| row).ok_or_else(|| empty("max")),
            Terminal::Reduce(function) => self
                .best
                .map(|(value, _)| value)
                .ok_or_else(|| Error::non_existence("Cannot reduce over an empty stream.").at(function.frame)),
        }
    }
}
