//! What is done to the rows of a stream, one batch after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::env::Env;
use crate::error::{At as _, Error, FrameId, Result};
use crate::function::Function;
use crate::val::Kind;
use crate::value::{Value, ValueExt as _};

/// Rows by group; `None` where there are no groups.
pub type Grouped = BTreeMap<Option<Value>, Vec<Value>>;

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
    /// # Errors
    /// What a function complains about.
    pub fn apply(&self, env: &Env, groups: &mut Grouped) -> Result<()> {
        if let Self::Group { frame, functions, multi } = self {
            let rows: Vec<Value> = std::mem::take(groups).into_values().flatten().collect();
            return group(env, rows, functions, *multi, groups).at(*frame);
        }
        for rows in groups.values_mut() {
            *rows = self.apply_to_rows(env, std::mem::take(rows))?;
        }
        groups.retain(|_, rows| !rows.is_empty());
        Ok(())
    }

    fn apply_to_rows(&self, env: &Env, rows: Vec<Value>) -> Result<Vec<Value>> {
        let mut out = Vec::with_capacity(rows.len());
        for row in rows {
            match self {
                Self::Map(function) => out.push(function.value_of(env, &row)?),
                Self::Filter(function, default) => {
                    if function.accepts(env, &row, default.as_deref())? {
                        out.push(row);
                    }
                }
                Self::ConcatMap(function, frame) => {
                    let result = function.call(env, &[row], false)?;
                    let mut stream = result.into_stream(env).at(*frame)?;
                    stream.check_finite()?;
                    loop {
                        let batch = stream.next_batch(env, super::BATCH_ROWS)?;
                        if batch.is_empty() {
                            break;
                        }
                        out.extend(batch);
                        if out.len() > env.array_limit {
                            env.check_array(out.len()).at(function.frame)?;
                        }
                    }
                }
                Self::MapPresent(function) => match function.value_of(env, &row) {
                    Ok(value) => out.push(value),
                    Err(error) if error.is_non_existence() => {}
                    Err(error) => return Err(error),
                },
                Self::Zip(frame) => out.push(zip(&row).at(*frame)?),
                Self::Group { .. } => {}
            }
        }
        Ok(out)
    }
}

fn zip(row: &Value) -> Result<Value> {
    let Some(left) = row.to_fields()?.get("left").cloned() else {
        return Err(Error::logic("ZIP can only be called on the result of a join."));
    };
    match row.get_field("right") {
        Some(right) => Ok(left.merge(&right)?),
        None => Ok(left),
    }
}

fn group(env: &Env, rows: Vec<Value>, functions: &[Arc<Function>], multi: bool, out: &mut Grouped) -> Result<()> {
    for row in rows {
        let mut keys = Vec::with_capacity(functions.len());
        for function in functions {
            let key = match function.call(env, std::slice::from_ref(&row), false).and_then(|value| match value.kind {
                Kind::Datum(value) => Ok(value),
                _ => value.into_datum(),
            }) {
                Ok(key) => key,
                Err(error) if error.is_non_existence() => Value::Null,
                Err(error) => return Err(error),
            };
            keys.push(key);
        }
        if multi {
            for key in combinations(&keys, functions.len())? {
                out.entry(Some(key)).or_default().push(row.clone());
            }
        } else {
            let key = if let [key] = &keys[..] { key.clone() } else { env.array(keys)? };
            out.entry(Some(key)).or_default().push(row);
        }
        if out.len() > env.array_limit {
            return Err(Error::limit(format!("Too many groups (> {}).", env.array_limit)).at(FrameId::ROOT));
        }
    }
    Ok(())
}

/// The groups of a row whose group keys are arrays of keys: all combinations of one element of each.
fn combinations(keys: &[Value], count: usize) -> Result<Vec<Value>> {
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for key in keys {
        let choices: &[Value] = match key {
            Value::Array(items) => items,
            other => std::slice::from_ref(other),
        };
        rows = rows
            .into_iter()
            .flat_map(|row| choices.iter().map(move |choice| [&row[..], std::slice::from_ref(choice)].concat()))
            .collect();
    }
    let mut out: Vec<Value> = Vec::with_capacity(rows.len());
    for mut row in rows {
        let key = if count == 1 { row.pop().unwrap_or(Value::Null) } else { Value::array(row)? };
        if !out.contains(&key) {
            out.push(key);
        }
    }
    Ok(out)
}
