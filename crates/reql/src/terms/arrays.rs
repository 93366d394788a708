//! Arrays changed at a place.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::val::Val;
use crate::value::{Value, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::new(29, 2, 2, append),
    Definition::new(80, 2, 2, prepend),
    Definition::new(82, 3, 3, insert_at),
    Definition::new(83, 2, 3, delete_at),
    Definition::new(84, 3, 3, change_at),
    Definition::new(85, 3, 3, splice_at),
];

fn items(call: &mut Call<'_>, env: &Env) -> Result<Vec<Value>> {
    let array = call.datum(env, 0)?;
    env.work(array.as_array().map_or(0, |items| items.len() * size_of::<Value>()))?;
    match array {
        Value::Array(items) => Ok(items.into_vec()),
        other => other.to_items().map(|items| items.to_vec()),
    }
}

fn append(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let array = call.datum(env, 0)?;
    let item = call.datum(env, 1)?;
    let mut items = array.to_items()?.to_vec();
    items.push(item);
    call.value(env.array(items)?)
}

fn prepend(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let array = call.datum(env, 0)?;
    let item = call.datum(env, 1)?;
    let mut items = array.to_items()?.to_vec();
    items.insert(0, item);
    call.value(env.array(items)?)
}

/// A position that counts from the end if it is negative; `slots` is how many positions there are.
fn position(index: i64, slots: usize) -> Result<usize> {
    let from_start = if index < 0 { index + slots as i64 } else { index };
    usize::try_from(from_start).map_err(|_| Error::non_existence(format!("Index out of bounds: {index}")))
}

fn out_of_bounds(index: i64, size: usize) -> Error {
    Error::non_existence(format!("Index `{index}` out of bounds for array of size: `{size}`."))
}

fn insert_at(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut items = items(call, env)?;
    let index = call.datum(env, 1)?.to_integer()?;
    let at = position(index, items.len() + 1)?;
    let item = call.datum(env, 2)?;
    if at > items.len() {
        return Err(out_of_bounds(at as i64, items.len()));
    }
    items.insert(at, item);
    call.value(env.array(items)?)
}

fn splice_at(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut items = items(call, env)?;
    let index = call.datum(env, 1)?.to_integer()?;
    let at = position(index, items.len() + 1)?;
    let inserted = call.datum(env, 2)?;
    let inserted = inserted.to_items()?;
    if at > items.len() {
        return Err(out_of_bounds(at as i64, items.len()));
    }
    items.splice(at..at, inserted.iter().cloned());
    call.value(env.array(items)?)
}

fn delete_at(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut items = items(call, env)?;
    let size = items.len();
    let index = call.datum(env, 1)?.to_integer()?;
    let at = position(index, size)?;
    if call.count() == 2 {
        if at >= size {
            return Err(out_of_bounds(at as i64, size));
        }
        items.remove(at);
    } else {
        let index = call.datum(env, 2)?.to_integer()?;
        let end = position(index, size)?;
        if at > size {
            return Err(out_of_bounds(at as i64, size));
        }
        if end > size {
            return Err(out_of_bounds(end as i64, size));
        }
        if at > end {
            return Err(Error::logic(format!("Start index `{at}` is greater than end index `{end}`.")));
        }
        items.drain(at..end);
    }
    call.value(env.array(items)?)
}

fn change_at(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut items = items(call, env)?;
    let index = call.datum(env, 1)?.to_integer()?;
    let at = position(index, items.len())?;
    let item = call.datum(env, 2)?;
    let size = items.len();
    match items.get_mut(at) {
        Some(place) => *place = item,
        None => return Err(out_of_bounds(at as i64, size)),
    }
    call.value(env.array(items)?)
}
