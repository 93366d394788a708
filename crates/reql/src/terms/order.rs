//! Sorting and leaving out equal rows.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::slices::sequence_like;
use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::lazy::{self, Lazy};
use crate::plan::Definition;
use crate::source::Order;
use crate::stream::{DeferredRows, DistinctKeys, OrderKey, SortedRuns, Stream, Terminal, sort_key};
use crate::term::code;
use crate::val::{Kind, Shortcut, Val};
use crate::value::{self, Value};

pub const TERMS: &[Definition] = &[
    Definition::variadic(code::ORDER_BY, 1, order_by).optargs(&["index"]),
    Definition::new(code::ASC, 1, 1, |call, env| call.arg(env, 0)),
    Definition::new(code::DESC, 1, 1, |call, env| call.arg(env, 0)),
    Definition::new(42, 1, 1, distinct).optargs(&["index"]),
];

/// Keys to sort by, the first one first.
pub type Orders = Vec<OrderKey>;

/// Compares two rows by what the functions make of them. What is not there comes before what is.
///
/// # Errors
/// What the functions complain about.
pub fn compare(env: &Env, orders: &[OrderKey], left: &Lazy, right: &Lazy) -> Result<Ordering> {
    for (descending, function) in orders {
        let ordering = sort_key(env, function, left)?.cmp(&sort_key(env, function, right)?);
        if ordering.is_ne() {
            return Ok(if *descending { ordering.reverse() } else { ordering });
        }
    }
    Ok(Ordering::Equal)
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
            let table = slice.table.clone();
            let Some(key) = super::selection::key_function(env, &slice, call.frame())? else {
                return Ok(sort_within(call, slice, orders));
            };
            let rows = slice.stream(env, call.frame());
            let rows = SortedRuns::new(rows, key, Terminal::Sort(orders, None), call.frame());
            return Ok(call.result(Kind::Selection(table, Stream::new(call.frame(), Box::new(rows)))));
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
    let sort = Terminal::Sort(orders.clone(), call.call.first_rows);
    let rows = lazy::values(stream.gather(env, call.frame(), sort)?)?;
    let stream = Stream::of_array(call.frame(), value::Array::new(rows)?);
    sequence_like(call, env, table, stream)
}

/// Sorts rows that are all there.
fn sort_rows(env: &Env, rows: Vec<Value>, frame: FrameId, orders: &Orders) -> Result<Vec<Value>> {
    let mut sorted = Arc::new(Terminal::Sort(orders.clone(), None)).accumulator(frame);
    for row in rows {
        sorted.add(env, Lazy::Value(row))?;
    }
    lazy::values(sorted.into_rows())
}

/// Sorts by an index that may have a row under several keys and, among rows of the same key there, by more. Only rows of the same key
/// are compared.
fn sort_within(call: &Call<'_>, slice: crate::selection::TableSlice, orders: Orders) -> Val {
    let (table, frame) = (slice.table.clone(), call.frame());
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
            sorted.extend(if run.len() == 1 { run } else { sort_rows(env, run, frame, &orders)? });
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
        if let Some(key) = super::selection::key_function(env, &slice, call.frame())?
            && !slice.is_empty
        {
            slice.order = Order::Ascending;
            let rows = DistinctKeys::new(slice.table.clone(), slice.scan(), key);
            return Ok(call.result(Kind::Stream(Stream::new(call.frame(), Box::new(rows)))));
        }
        let rows = DeferredRows::new(move |env| {
            let keys = super::selection::index_keys(env, &slice)?;
            let distinct: BTreeSet<Value> = keys.into_iter().map(|(key, _)| key).collect();
            Ok(distinct.into_iter().collect())
        });
        return Ok(call.result(Kind::Stream(Stream::new(call.frame(), Box::new(rows)))));
    }
    let is_table = matches!(sequence.kind, Kind::Table(_));
    let rows = sequence.into_stream(env)?.gather(env, call.frame(), Terminal::Distinct)?;
    if is_table {
        return Ok(call.result(Kind::Stream(Stream::of_rows(call.frame(), rows))));
    }
    call.value(env.array(lazy::values(rows)?)?)
}
