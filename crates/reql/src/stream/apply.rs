//! Doing operations to rows, one batch after the other, or to one row.

use std::sync::Arc;

use super::no_end;
use super::operation::{Grouped, Operation};
use crate::env::Env;
use crate::error::{At as _, Error, FrameId, Result};
use crate::function::Function;
use crate::lazy::Lazy;
use crate::val::Val;
use crate::value::{Value, ValueExt as _};

impl Operation {
    /// Does it to a batch of rows.
    ///
    /// # Errors
    /// What a function complains about.
    pub fn apply(&self, env: &Env, groups: &mut Grouped) -> Result<()> {
        if let Self::Group { frame, .. } = self {
            for row in std::mem::take(groups).into_values().flatten() {
                for key in self.groups_of(env, &row)? {
                    groups.entry(Some(key)).or_default().push(row.clone());
                }
                check_groups(env, groups.len()).at(*frame)?;
            }
            return Ok(());
        }
        for rows in groups.values_mut() {
            let mut out = Vec::with_capacity(rows.len());
            for row in std::mem::take(rows) {
                self.apply_to_row(env, row, &mut |row| {
                    out.push(row);
                    Ok(())
                })?;
                if let Self::ConcatMap(function, _) = self
                    && out.len() > env.array_limit
                {
                    env.check_array(out.len()).at(function.frame)?;
                }
            }
            *rows = out;
        }
        groups.retain(|_, rows| !rows.is_empty());
        Ok(())
    }

    /// Does it to a row, and hands on what becomes of it. A group is no concern of this: see [`Operation::groups_of`].
    ///
    /// # Errors
    /// What a function complains about, and whoever takes the rows.
    pub fn apply_to_row(&self, env: &Env, row: Lazy, take: &mut dyn FnMut(Lazy) -> Result<()>) -> Result<()> {
        match self {
            Self::Map(function) => take(function.value_of_row(env, &row)?.into()),
            Self::Filter(function, default) => {
                if function.accepts(env, &row, default.as_deref())? {
                    take(row)?;
                }
                Ok(())
            }
            Self::ConcatMap(function, frame) => {
                let mut stream = function.call_row(env, &row)?.into_stream(env).at(*frame)?;
                if stream.feed().is_some() {
                    return Err(no_end().at(FrameId::ROOT));
                }
                stream.check_finite()?;
                let mut count = 0;
                loop {
                    let batch = stream.next_rows(env, super::BATCH_ROWS)?;
                    if batch.is_empty() {
                        return Ok(());
                    }
                    count += batch.len();
                    if count > env.array_limit {
                        env.check_array(count).at(function.frame)?;
                    }
                    batch.into_iter().try_for_each(&mut *take)?;
                }
            }
            Self::MapPresent(function) => match function.value_of_row(env, &row) {
                Ok(value) => take(value.into()),
                Err(error) if error.is_non_existence() => Ok(()),
                Err(error) => Err(error),
            },
            Self::Zip(frame) => take(zip(&row.into_value()?).at(*frame)?.into()),
            Self::Group { .. } => take(row),
        }
    }

    /// The groups that a row belongs to, if this makes groups.
    ///
    /// # Errors
    /// What a function complains about.
    pub fn groups_of(&self, env: &Env, row: &Lazy) -> Result<Vec<Value>> {
        let Self::Group { frame, functions, multi } = self else { return Ok(Vec::new()) };
        let key = |function: &Arc<Function>| match function.call_row(env, row).and_then(Val::into_datum) {
            Err(error) if error.is_non_existence() => Ok(Value::Null),
            key => key,
        };
        if let ([function], false) = (&functions[..], multi) {
            return Ok(vec![key(function).at(*frame)?]);
        }
        let keys = functions.iter().map(key).collect::<Result<Vec<_>>>().at(*frame)?;
        if *multi { combinations(&keys, functions.len()) } else { env.array(keys).map(|key| vec![key]) }.at(*frame)
    }
}

/// # Errors
/// If there are more groups than a query may have.
pub fn check_groups(env: &Env, count: usize) -> Result<()> {
    if count <= env.array_limit {
        return Ok(());
    }
    Err(Error::limit(format!("Too many groups (> {}).", env.array_limit)).at(FrameId::ROOT))
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
