//! Sorting and leaving out equal rows.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::slices::sequence_like;
use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::function::Function;
use crate::plan::Definition;
use crate::source::Order;
use crate::stream::{DeferredRows, Stream};
use crate::term::code;
use crate::val::{Kind, Shortcut, Val};
use crate::value::{self, Value};

pub const TERMS: &[Definition] = &[
    Definition::variadic(code::ORDER_BY, 1, order_by).optargs(&["index"]),
    Definition::new(code::ASC, 1, 1, |call, env| call.arg(env, 0)),
    Definition::new(code::DESC, 1, 1, |call, env| call.arg(env, 0)),
    Definition::new(42, 1, 1, distinct).optargs(&["index"]),
];

/// Keys to sort by, the first one first; true for descending.
pub type Orders = Vec<(bool, Arc<Function>)>;

/// Compares two rows by what the functions make of them. What is not there comes before what is.
///
/// # Errors
/// What the functions complain about.
pub fn compare(env: &Env, orders: &[(bool, Arc<Function>)], left: &Value, right: &Value) -> Result<Ordering> {
    for (descending, function) in orders {
        let ordering = key(env, function, left)?.cmp(&key(env, function, right)?);
        if ordering.is_ne() {
            return Ok(if *descending { ordering.reverse() } else { ordering });
        }
    }
    Ok(Ordering::Equal)
}

fn key(env: &Env, function: &Function, row: &Value) -> Result<Option<Value>> {
    match function.call(env, std::slice::from_ref(row), false).and_then(Val::into_datum) {
        Ok(key) => Ok(Some(key)),
        Err(error) if error.is_non_existence() => Ok(None),
        Err(error) => Err(error),
    }
}

fn order_by(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut orders = Orders::new();
    for at in 1..call.count() {
        let descending = call.term_code(at) == Some(code::DESC);
        let argument = call.arg(env, at)?;
        let function = argument.into_function(Shortcut::GetField)?;
        if !function.is_deterministic() {
            return Err(Error::logic("Sorting by a non-deterministic function is not supported."));
        }
        orders.push((descending, function));
    }
    let first = call.arg(env, 0)?;
    let index = call.optarg(env, "index")?;
    let (table, stream) = match first.kind {
        Kind::Table(_) | Kind::Slice(_) => {
            let mut slice = first.into_slice()?;
            let place = slice.table.frame;
            let Some(index) = index else {
                let table = slice.table.clone();
                let stream = slice.stream(env, call.frame());
                if orders.is_empty() {
                    return Err(nothing());
                }
                return sort(call, env, Some(table), stream, &orders);
            };
            let name = index.as_string()?;
            if slice.order != Order::Any {
                return Err(Error::logic("Cannot perform multiple indexed ORDER_BYs on the same table.").at(place));
            }
            super::selection::set_index(&mut slice, &name, place)?;
            let descending = call.optarg_node("index").is_some_and(|node| node.code == code::DESC);
            slice.order = if descending { Order::Descending } else { Order::Ascending };
            if orders.is_empty() {
                return Ok(call.result(Kind::Slice(slice)));
            }
            return Ok(sort_within(call, slice, orders));
        }
        Kind::Selection(table, stream) => (Some(table), stream),
        kind => (None, Val { frame: first.frame, kind }.into_stream(env)?),
    };
    if index.is_some() {
        return Err(Error::logic(
            "Indexed order_by can only be performed on a TABLE or TABLE_SLICE. Make sure order_by comes before any \
             transformations (such as map) or filters.",
        ));
    }
    if orders.is_empty() {
        return Err(nothing());
    }
    sort(call, env, table, stream, &orders)
}

fn nothing() -> Error {
    Error::logic("Must specify something to order by.")
}

fn sort(
    call: &Call<'_>,
    env: &Env,
    table: Option<Arc<crate::selection::Table>>,
    stream: Stream,
    orders: &Orders,
) -> Result<Val> {
    let rows = sort_rows(env, stream.collect(env)?, orders)?;
    let stream = Stream::of_array(call.frame(), value::Array::new(rows)?);
    sequence_like(call, env, table, stream)
}

/// Sorts rows; keys are computed once for each row.
fn sort_rows(env: &Env, rows: Vec<Value>, orders: &[(bool, Arc<Function>)]) -> Result<Vec<Value>> {
    let mut keyed = Vec::with_capacity(rows.len());
    let mut rows = rows;
    if rows.len() < 2 {
        // Nothing is compared, so the functions are not called.
        return Ok(rows);
    }
    // The library that RethinkDB sorts with looks at the second row first, which errors show.
    rows.swap(0, 1);
    for row in rows {
        let keys = orders.iter().map(|(_, function)| key(env, function, &row)).collect::<Result<Vec<_>>>()?;
        keyed.push((keys, row));
    }
    keyed.swap(0, 1);
    keyed.sort_by(|(left, _), (right, _)| {
        for ((descending, _), (left, right)) in orders.iter().zip(left.iter().zip(right)) {
            let ordering = left.cmp(right);
            if ordering.is_ne() {
                return if *descending { ordering.reverse() } else { ordering };
            }
        }
        Ordering::Equal
    });
    Ok(keyed.into_iter().map(|(_, row)| row).collect())
}

/// Sorts by an index and, among rows of the same key there, by more. Only rows of the same key are compared.
fn sort_within(call: &Call<'_>, slice: crate::selection::TableSlice, orders: Orders) -> Val {
    let table = slice.table.clone();
    let rows = DeferredRows::new(move |env| {
        let mut keyed = super::selection::index_keys(env, &slice)?;
        if slice.order == Order::Descending {
            keyed.reverse();
        }
        let (mut sorted, mut same): (Vec<Value>, Vec<Value>) = (Vec::with_capacity(keyed.len()), Vec::new());
        let mut keyed = keyed.into_iter().peekable();
        while let Some((key, row)) = keyed.next() {
            same.push(row);
            if keyed.peek().is_some_and(|(next, _)| *next == key) {
                continue;
            }
            let run = std::mem::take(&mut same);
            sorted.extend(if run.len() == 1 { run } else { sort_rows(env, run, &orders)? });
        }
        Ok(sorted)
    });
    call.result(Kind::Selection(table, Stream::new(call.frame(), Box::new(rows))))
}

fn distinct(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let sequence = call.arg(env, 0)?;
    let index = call.optarg(env, "index")?;
    if let Some(index) = index {
        let is_same = match &sequence.kind {
            Kind::Table(_) => true,
            Kind::Slice(slice) => slice.index.as_deref() == Some(&*index.as_string()?),
            _ => false,
        };
        if !is_same {
            return Err(Error::logic("Can only perform an indexed distinct on a TABLE."));
        }
        let name = index.as_string()?;
        let mut slice = sequence.into_slice()?;
        let place = slice.table.frame;
        super::selection::set_index(&mut slice, &name, place)?;
        let rows = DeferredRows::new(move |env| {
            let keys = super::selection::index_keys(env, &slice)?;
            let distinct: BTreeSet<Value> = keys.into_iter().map(|(key, _)| key).collect();
            Ok(distinct.into_iter().collect())
        });
        return Ok(call.result(Kind::Stream(Stream::new(call.frame(), Box::new(rows)))));
    }
    let is_table = matches!(sequence.kind, Kind::Table(_));
    let mut stream = sequence.into_stream(env)?;
    stream.check_finite()?;
    let mut seen = BTreeSet::new();
    while let Some(row) = stream.next(env)? {
        seen.insert(row);
        env.check_array(seen.len())?;
    }
    let rows: Vec<Value> = seen.into_iter().collect();
    if is_table {
        return Ok(call.result(Kind::Stream(Stream::of_items(call.frame(), rows))));
    }
    call.value(env.array(rows)?)
}
