use super::CommandError;
use super::call::{Call, Outcome};
use super::cursor::{Ends, parse_cursor};
use super::options::is;
use crate::glob;
use bytes::Bytes;
use std::ops::Bound;
use tessera_engine::Order;
use tessera_store::Record;

/// Fields come in the order of their names, and a cursor is the first bytes of the name to go on with that not all have, as a
/// number: it needs no memory in the server and stays right while other fields come and go.
pub fn hscan(call: &mut Call<'_, '_>) -> Outcome {
    let cursor = parse_cursor(call.args[2])?;
    let (mut pattern, mut count, mut with_values) = (None, 10usize, true);
    let mut at = 3;
    while at < call.args.len() {
        let word = call.args[at];
        if is(word, "MATCH") && at + 1 < call.args.len() {
            pattern = Some(call.args[at + 1]);
            at += 1;
        } else if is(word, "COUNT") && at + 1 < call.args.len() {
            let number = call.integer(at + 1)?;
            count = usize::try_from(number).ok().filter(|count| *count > 0).ok_or(CommandError::SYNTAX)?;
            at += 1;
        } else if is(word, "NOVALUES") {
            with_values = false;
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 1;
    }
    let key = call.args[1];
    call.field(key, b"")?; // a string is the wrong type
    let (page, next) = page_of_fields(call, key, cursor, count)?;
    let page: Vec<_> =
        page.iter().filter(|(field, _)| pattern.is_none_or(|pattern| glob::matches(pattern, field))).collect();
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    call.reply.array(if with_values { page.len() * 2 } else { page.len() });
    for (field, record) in page {
        call.reply.bulk(field);
        if with_values {
            call.reply.bulk(&record.value);
        }
    }
    Ok(())
}

/// Fields from a cursor on: at least `count`, and never ending between two that share a cursor. Returns the next cursor.
fn page_of_fields(
    call: &Call<'_, '_>,
    key: &[u8],
    cursor: u64,
    count: usize,
) -> Result<(Vec<(Bytes, Record)>, u64), CommandError> {
    let from = match cursor {
        0 => Vec::new(),
        _ => match ends_of(call, key)? {
            Some((first, last)) => Ends { first: &first, last: &last }.place_of(cursor),
            None => return Ok((Vec::new(), 0)),
        },
    };
    let mut limit = count.saturating_add(1);
    loop {
        let range = (Bound::Included(&from[..]), Bound::Unbounded);
        let mut page = call.transaction.scan(key, range, Order::Ascending, limit)?;
        if page.len() < limit {
            return Ok((page, 0));
        }
        let Some((first, last)) = ends_of(call, key)? else { return Ok((page, 0)) };
        let ends = Ends { first: &first, last: &last };
        let next = page.last().map_or(0, |(field, _)| ends.cursor_of(field));
        let end = page.iter().position(|(field, _)| ends.cursor_of(field) == next).unwrap_or(0);
        if end > 0 {
            page.truncate(end);
            return Ok((page, next));
        }
        // The whole page shares its first bytes: read on until they change.
        limit = limit.saturating_mul(4);
    }
}

/// The names of the first and of the last field of a hash, if it has any.
fn ends_of(call: &Call<'_, '_>, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, CommandError> {
    let end = |order| {
        let mut one = call.transaction.scan(key, (Bound::Unbounded, Bound::Unbounded), order, 1)?;
        Ok::<_, CommandError>(one.pop().map(|(field, _)| field))
    };
    Ok(end(Order::Ascending)?.zip(end(Order::Descending)?))
}
