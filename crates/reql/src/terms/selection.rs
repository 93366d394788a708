//! Documents by key.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::function::{Body, Function};
use crate::key;
use crate::plan::Definition;
use crate::selection::{Row, Table, TableSlice};
use crate::source::{KeyRange, Order, Scan};
use crate::stream::{Stream, TableRows};
use crate::val::{Kind, Val};
use crate::value::Value;

pub const TERMS: &[Definition] = &[
    Definition::new(16, 2, 2, get),
    Definition::variadic(78, 1, get_all).optargs(&["index"]),
    Definition::new(182, 3, 3, |call, env| between(call, env, false)).optargs(&["index", "left_bound", "right_bound"]),
    Definition::new(36, 3, 3, |call, env| between(call, env, true)).optargs(&["index", "left_bound", "right_bound"]),
];

pub fn no_index(table: &Table, name: &str) -> Error {
    table.info.index_not_found(name)
}

/// Reads a slice by an index.
///
/// # Errors
/// If the slice is already by another index.
pub fn set_index(slice: &mut TableSlice, name: &Arc<str>, place: FrameId) -> Result<()> {
    if let Some(other) = slice.index.as_ref().filter(|other| *other != name) {
        return Err(
            Error::logic(format!("Cannot order by index `{name}` after calling BETWEEN on index `{other}`.")).at(place)
        );
    }
    slice.index = Some(name.clone());
    Ok(())
}

/// The function that makes of a document the key by which the slice's index has it; none if the index may have it under several keys,
/// or is not in the order of keys, or not there.
///
/// # Errors
/// If the source cannot tell.
pub fn key_function(env: &Env, slice: &TableSlice, frame: FrameId) -> Result<Option<Arc<Function>>> {
    let Some(name) = slice.secondary() else {
        let body = Body::GetField(Value::String(slice.table.info.primary_key.clone()));
        return Ok(Some(Arc::new(Function { frame, body })));
    };
    let definition = env.source()?.index_definition(&slice.table.info, &name)?;
    Ok(definition.filter(|index| !index.multi && !index.geo).map(|index| index.function))
}

/// The rows of a slice, each with the key by which the slice's index has it: where that is not a [function](key_function) of the row.
///
/// # Errors
/// If rows cannot be read, or there are more than an array may hold.
pub fn index_keys(env: &Env, slice: &TableSlice) -> Result<Vec<(Value, Value)>> {
    let mut ordered = slice.clone();
    ordered.order = Order::Ascending;
    let definition = match slice.secondary() {
        None => None,
        Some(name) => env
            .source()?
            .indexes(&slice.table.info)?
            .into_iter()
            .find(|index| *index.name == *name)
            .map(|index| index.definition),
    };
    let mut stream = ordered.stream(env, FrameId::ROOT);
    let (mut out, mut turns) = (Vec::new(), BTreeMap::<Vec<u8>, usize>::new());
    while let Some(row) = stream.next(env)? {
        let primary = row.get_field(slice.table.primary_key()).unwrap_or(Value::Null);
        let key = match &definition {
            None => primary,
            Some(definition) if definition.multi => {
                // The row comes once for each of its keys, in the order of the keys.
                let turn = turns.entry(key::primary_key(&primary)?).or_default();
                let mut keys = crate::index::keys(env, definition, &row);
                keys.sort();
                let key = keys.get(*turn).cloned().unwrap_or(Value::Null);
                *turn += 1;
                key
            }
            Some(definition) => definition.function.value_of(env, &row)?,
        };
        out.push((key, row));
        env.check_array(out.len())?;
    }
    Ok(out)
}

fn get(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?;
    let key = call.datum(env, 1)?;
    let table = table.into_table()?;
    let (value, error) = match env.get(&table.info, &key, table.reads).map(|found| found.unwrap_or(Value::Null)) {
        Ok(value) => (value, None),
        Err(error) => (Value::Null, Some(error)),
    };
    Ok(call.result(Kind::Row(Row { error, table, key, value })))
}

fn get_all(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let index = match call.optarg(env, "index")? {
        Some(index) => Some(index.as_string()?),
        None => None,
    };
    let index = index.filter(|name| **name != *table.info.primary_key);
    let mut counts = BTreeMap::<Value, usize>::new();
    for at in 1..call.count() {
        let argument = call.arg(env, at)?;
        let key = argument.as_datum()?;
        if matches!(key, Value::Null) {
            return Err(Error::non_existence("Keys cannot be NULL.").at(argument.frame));
        }
        if matches!(key, Value::Geometry(_)) {
            let message = "Cannot use a geospatial index with `get_all`. Use `get_intersecting` instead.";
            return Err(Error::logic(message).at(argument.frame));
        }
        *counts.entry(key.clone()).or_default() += 1;
    }
    let mut scans = Vec::with_capacity(counts.len());
    for (value, count) in counts {
        if index.is_none() {
            key::primary_key(&value)?;
        }
        let scan = Scan {
            index: index.clone(),
            range: KeyRange::only(value),
            cells: None,
            order: Order::Any,
            after: None,
            limit: 0,
            reads: table.reads,
        };
        scans.push((scan, count));
    }
    let stream = Stream::new(call.frame(), Box::new(TableRows::new(table.clone(), scans)));
    Ok(call.result(Kind::Selection(table, stream)))
}

fn bound(call: &mut Call<'_>, env: &Env, at: usize, unbounded: Value, allows_null: bool) -> Result<Value> {
    let argument = call.arg(env, at)?;
    let value = argument.as_datum()?;
    if !matches!(value, Value::Null) {
        return Ok(value.clone());
    }
    if allows_null {
        return Ok(unbounded);
    }
    Err(Error::logic("Cannot use `null` in BETWEEN, use `r.minval` or `r.maxval` to denote unboundedness.")
        .at(argument.frame))
}

fn between(call: &mut Call<'_>, env: &Env, allows_null: bool) -> Result<Val> {
    let slice = call.arg(env, 0)?.into_slice()?;
    let place = slice.table.frame;
    let (left_closed, right_closed) = call.bounds(env, true, false)?;
    let lower = bound(call, env, 1, Value::MinVal, allows_null)?;
    let upper = bound(call, env, 2, Value::MaxVal, allows_null)?;
    let mut slice = slice;
    let index = match call.optarg(env, "index")? {
        Some(index) => index.as_string()?,
        None => slice.index.clone().unwrap_or_else(|| slice.table.info.primary_key.clone()),
    };
    if slice.range.is_some() {
        return Err(Error::logic("Cannot perform multiple BETWEENs on the same table.").at(place));
    }
    if let Some(other) = slice.index.as_ref().filter(|other| **other != index) {
        return Err(Error::logic(format!("Cannot call BETWEEN on index `{index}` after ordering on index `{other}`.")));
    }
    let ordering = lower.cmp(&upper);
    slice.is_empty = ordering.is_gt() || (ordering.is_eq() && !(left_closed && right_closed));
    slice.index = Some(index);
    slice.range = Some(KeyRange {
        lower: if left_closed { Bound::Included(lower) } else { Bound::Excluded(lower) },
        upper: if right_closed { Bound::Included(upper) } else { Bound::Excluded(upper) },
    });
    Ok(call.result(Kind::Slice(slice)))
}
