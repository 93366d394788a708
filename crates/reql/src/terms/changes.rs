//! Changefeeds.

use std::sync::Arc;

use crate::call::Call;
use crate::env::Env;
use crate::error::{At as _, Error, FrameId, Result};
use crate::feed::{FeedOptions, FeedRows};
use crate::plan::{Definition, Grouping};
use crate::scan::{KeyRange, Order, Scan};
use crate::selection::{Table, TableSlice};
use crate::stream::{Stream, Subject, eager};
use crate::term::code;
use crate::val::{Kind, Val};

pub const TERMS: &[Definition] =
    &[Definition::new(152, 1, 1, changes).grouping(Grouping::Ignored).nondeterministic().optargs(&[
        "squash",
        "changefeed_queue_size",
        "include_initial",
        "include_offsets",
        "include_resume_token",
        "include_states",
        "include_types",
        "resume",
    ])];

fn changes(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let subjects = match extreme(call, env)? {
        Some(subject) => vec![subject],
        None => {
            let value = call.arg(env, 0)?;
            match value.kind {
                Kind::Grouped(groups) => {
                    let group = groups.into_iter().next().ok_or_else(eager)?.1;
                    subjects_of(env, Val::datum(value.frame, group))?
                }
                Kind::Stream(stream) if stream.is_grouped() => return Err(eager()),
                kind => subjects_of(env, Val { frame: value.frame, kind })?,
            }
        }
    };
    let options = FeedOptions::of(call, env)?;
    // What is wrong with tables and indexes is told without a place of its own.
    let rows = FeedRows::open(env, subjects, options, call.frame()).at(call.frame())?;
    Ok(call.result(Kind::Stream(Stream::new(call.frame(), Box::new(rows)))))
}

fn subjects_of(env: &Env, value: Val) -> Result<Vec<Subject>> {
    let place = value.frame;
    match value.kind {
        Kind::Row(row) => Ok(vec![point(row.table, row.key)]),
        Kind::Datum(_) | Kind::Stream(_) | Kind::Selection(..) | Kind::Slice(_) | Kind::Table(_) => {
            Val { frame: place, kind: value.kind }.into_stream(env)?.subjects(place)
        }
        kind => Err(Val { frame: place, kind }.expected("SELECTION")),
    }
}

/// The document with a key.
fn point(table: Arc<Table>, key: crate::value::Value) -> Subject {
    let scan = Scan {
        index: None,
        range: KeyRange::only(key),
        cells: None,
        order: Order::Any,
        after: None,
        limit: 0,
        reads: table.reads,
    };
    Subject { is_point: true, ..Subject::new(table, vec![(scan, 1)]) }
}

/// `min` and `max` of a table by an index are the first row of an order: which one may be another one later, so they are not evaluated.
fn extreme(call: &Call<'_>, env: &Env) -> Result<Option<Subject>> {
    let node = match call.call.args.first() {
        Some(node) if call.spread.is_none() && matches!(node.code, code::MIN | code::MAX) => node,
        _ => return Ok(None),
    };
    let Some(inner) = node.call().filter(|inner| inner.args.len() == 1 && !inner.has_spread) else { return Ok(None) };
    let Kind::Table(table) = env.evaluate(&inner.args[0], call.scope, false)?.kind else { return Ok(None) };
    let mut slice = TableSlice::whole(table);
    if let Some((_, index)) = inner.optargs.iter().find(|(name, _)| &**name == "index") {
        let name = env.evaluate(index, call.scope, false)?.as_string()?;
        super::selection::set_index(&mut slice, &name, node.frame)?;
    }
    slice.order = if node.code == code::MAX { Order::Descending } else { Order::Ascending };
    let mut subjects = slice.stream(env, node.frame).subjects(FrameId::ROOT)?;
    let mut subject = subjects.pop().ok_or_else(|| Error::logic("A table has no rows that could be ordered."))?;
    subject.limit(1)?;
    Ok(Some(subject))
}
