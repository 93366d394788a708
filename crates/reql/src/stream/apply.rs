//! Doing operations to rows, one batch after the other, or to one row.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::no_end;
use super::operation::{GroupedRow, Operation};
use crate::env::Env;
use crate::error::{At as _, Error, FrameId, Result};
use crate::function::Function;
use crate::lazy::Lazy;
use crate::size::Size;
use crate::val::Val;
use crate::value::{Value, ValueExt as _};

impl Operation {
    /// Does it to rows, in this order, until all are done or what they have become is [enough](Size::is_batch) at a time. Those that
    /// are not done stay. A group puts rows in the order of the groups.
    ///
    /// # Errors
    /// What a function complains about, or that one row becomes more than a query may gather.
    pub fn apply(&self, env: &Env, rows: &mut VecDeque<GroupedRow>) -> Result<VecDeque<GroupedRow>> {
        let (mut out, mut size, mut groups) = (VecDeque::with_capacity(rows.len()), Size::default(), BTreeSet::new());
        while !size.is_batch()
            && let Some((group, row)) = rows.pop_front()
        {
            if matches!(self, Self::Group { .. }) {
                // The groups share the row.
                size.add(row.encoded_len())?;
                for key in self.groups_of(env, &row)? {
                    size.add(key.encoded_len())?;
                    groups.insert(key.clone());
                    out.push_back((Some(key), row.clone()));
                }
                check_groups(env, groups.len())?;
                continue;
            }
            self.apply_to_row(env, row, &mut |row| {
                size.add(row.encoded_len())?;
                out.push_back((group.clone(), row));
                Ok(())
            })?;
            if let Self::ConcatMap(function, _) = self {
                env.check_array(out.len()).at(function.frame)?;
            }
        }
        if !groups.is_empty() {
            out.make_contiguous().sort_by(|(left, _), (right, _)| left.cmp(right));
        }
        Ok(out)
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
        if *multi { combinations(env, &keys) } else { env.array(keys).map(|key| vec![key]) }.at(*frame)
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
///
/// # Errors
/// If there are more than a query may have groups.
fn combinations(env: &Env, keys: &[Value]) -> Result<Vec<Value>> {
    let choices: Vec<Vec<&Value>> = keys
        .iter()
        .map(|key| {
            let (items, mut seen) =
                (key.as_array().map_or(std::slice::from_ref(key), |items| &**items), BTreeSet::new());
            items.iter().filter(|item| seen.insert(*item)).collect()
        })
        .collect();
    check_groups(env, choices.iter().fold(1, |product: usize, choices| product.saturating_mul(choices.len())))?;
    if let [choices] = &choices[..] {
        return Ok(choices.iter().map(|choice| (*choice).clone()).collect());
    }
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for choices in choices {
        let with = |row: &Vec<Value>, choice: &Value| [&row[..], std::slice::from_ref(choice)].concat();
        rows = rows.iter().flat_map(|row| choices.iter().map(move |choice| with(row, choice))).collect();
    }
    rows.into_iter().map(|row| Ok(Value::array(row)?)).collect()
}
