//! Parts of sequences by position.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::selection::Row;
use crate::stream::{SliceRows, Stream};
use crate::term::code;
use crate::val::{Kind, Val};
use crate::value::Value;

pub const TERMS: &[Definition] = &[
    Definition::new(code::NTH, 2, 2, nth),
    Definition::new(code::SLICE, 2, 3, slice).optargs(&["left_bound", "right_bound"]),
    Definition::new(code::LIMIT, 2, 2, limit),
];

fn nth(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let sequence = call.arg(env, 0)?;
    let index = call.arg(env, 1)?;
    if matches!(sequence.kind, Kind::Datum(_)) {
        check_sequence(&sequence)?;
    }
    nth_of(call, env, sequence, &index)
}

/// Whether a value, if it is one, is an array.
fn check_sequence(sequence: &Val) -> Result<()> {
    match sequence.peek() {
        None | Some(Value::Array(_)) => Ok(()),
        Some(other) => Err(Error::typed(other, format!("Cannot convert {} to SEQUENCE", other.type_name()))),
    }
}

fn out_of_bounds(at: i32) -> Error {
    Error::non_existence(format!("Index out of bounds: {at}"))
}

pub fn nth_of(call: &mut Call<'_>, env: &Env, sequence: Val, index: &Val) -> Result<Val> {
    let at = index.as_small_integer()?;
    if let Some(value) = sequence.peek() {
        check_sequence(&sequence)?;
        let Value::Array(items) = value else { return Err(out_of_bounds(at)) };
        let from_start = if at < 0 { items.len() as i64 + i64::from(at) } else { i64::from(at) };
        let item = usize::try_from(from_start).ok().and_then(|at| items.get(at));
        return call.value(item.cloned().ok_or_else(|| out_of_bounds(at))?);
    }
    let table = match &sequence.kind {
        Kind::Selection(table, _) | Kind::Table(table) => Some(table.clone()),
        Kind::Slice(slice) => Some(slice.table.clone()),
        _ => None,
    };
    let mut stream = sequence.into_stream(env)?;
    if at < -1 {
        return Err(Error::logic(format!("Cannot use an index < -1 ({at}) on a stream.")));
    }
    stream.check_finite()?;
    let (mut last, mut seen) = (None, 0);
    while seen <= at || at == -1 {
        let Some(row) = stream.next_lazily_or_batch(env, at)? else { break };
        last = Some(row);
        seen += 1;
    }
    let row = last.filter(|_| at == -1 || seen > at).ok_or_else(|| out_of_bounds(at))?;
    match table {
        Some(table) => {
            let key = row.get_field(table.primary_key()).unwrap_or(Value::Null);
            Ok(call.result(Kind::Row(Row { error: None, table, key, value: row })))
        }
        None => call.value(row),
    }
}

/// The result with the table that rows are from, if they are documents.
pub fn sequence_like(
    call: &Call<'_>,
    env: &Env,
    table: Option<std::sync::Arc<crate::selection::Table>>,
    stream: Stream,
) -> Result<Val> {
    match table {
        Some(table) => Ok(call.result(Kind::Selection(table, stream))),
        None => call.sequence(env, stream),
    }
}

/// The table that the rows of a selection are from.
pub fn table_of(value: &Val) -> Option<std::sync::Arc<crate::selection::Table>> {
    match &value.kind {
        Kind::Selection(table, _) | Kind::Table(table) => Some(table.clone()),
        Kind::Slice(slice) => Some(slice.table.clone()),
        _ => None,
    }
}

fn limit(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let sequence = call.arg(env, 0)?;
    let table = table_of(&sequence);
    let stream = sequence.into_stream(env)?;
    let count = call.small_integer(env, 1)?;
    let Ok(count) = u64::try_from(count) else {
        return Err(Error::logic(format!("LIMIT takes a non-negative argument (got {count})")));
    };
    let sliced = Stream::new(stream.frame, Box::new(SliceRows::new(stream, 0, Some(count))));
    sequence_like(call, env, table, sliced)
}

/// The places from which and up to which to take of something with a known size.
fn resolve(left: i64, right: i64, left_closed: bool, right_closed: bool, size: usize) -> (usize, usize) {
    let size = size as i64;
    let from_start = |at: i64| if at < 0 { at + size } else { at };
    let mut from = from_start(left).max(if left < 0 { -1 } else { 0 });
    if left < 0 && from < 0 {
        from = 0;
        if !left_closed {
            from = 0;
        }
    } else if !left_closed {
        from += 1;
    }
    let mut until = from_start(right);
    if right_closed {
        until += 1;
    }
    let from = from.clamp(0, size);
    let until = until.clamp(0, size).max(from);
    (from as usize, until as usize)
}

fn slice(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let value = call.arg(env, 0)?;
    let mut left = call.integer(env, 1)?;
    let has_right = call.count() == 3;
    let mut right = if has_right { call.integer(env, 2)? } else { -1 };
    let (left_closed, mut right_closed) = call.bounds(env, true, false)?;
    if !has_right {
        right_closed = true;
    }
    match value.peek() {
        Some(Value::Array(items)) => {
            let (from, until) = resolve(left, right, left_closed, right_closed, items.len());
            return call.value(env.array(items[from..until].to_vec())?);
        }
        Some(Value::Binary(bytes)) => {
            let (from, until) = resolve(left, right, left_closed, right_closed, bytes.len());
            return call.value(Value::binary(&bytes[from..until]));
        }
        Some(Value::String(text)) => {
            let (from, until) = resolve(left, right, left_closed, right_closed, text.chars().count());
            let place = |count: usize| text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
            return call.value(Value::from(&text[place(from)..place(until)]));
        }
        Some(other) => {
            let message = format!("Expected ARRAY, BINARY, or STRING, but found {}.", other.type_name());
            return Err(Error::logic(message).at(value.frame));
        }
        None if !value.is_sequence() => return Err(Error::logic("Cannot slice non-sequences.").at(value.frame)),
        None => {}
    }
    let table = table_of(&value);
    let stream = value.into_stream(env)?;
    if left < 0 {
        return Err(Error::logic("Cannot use a negative left index on a stream."));
    }
    if !left_closed {
        left += 1;
    }
    if right < -1 {
        return Err(Error::logic("Cannot use a right index < -1 on a stream."));
    }
    if right == -1 && !right_closed {
        return Err(Error::logic("Cannot slice to an open right index of -1 on a stream."));
    }
    let until = if right == -1 {
        None
    } else {
        right += i64::from(right_closed);
        Some(right.max(0) as u64)
    };
    let sliced = Stream::new(stream.frame, Box::new(SliceRows::new(stream, left as u64, until)));
    sequence_like(call, env, table, sliced)
}
