//! Terms that make one value of a sequence, and groups.

use std::sync::Arc;

use super::sequences::condition;
use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::function::{Body, Function};
use crate::plan::{Definition, Grouping};
use crate::stream::{DeferredRows, Operation, Stream, Terminal};
use crate::term::code;
use crate::val::{Kind, Shortcut, Val};
use crate::value::{self, Value};

pub const TERMS: &[Definition] = &[
    Definition::new(code::COUNT, 1, 2, count).grouping(Grouping::Stream),
    Definition::new(145, 1, 2, |call, env| aggregate(call, env, "sum", Terminal::Sum))
        .grouping(Grouping::Stream)
        .optargs(&["index"]),
    Definition::new(146, 1, 2, |call, env| aggregate(call, env, "avg", Terminal::Average))
        .grouping(Grouping::Stream)
        .optargs(&["index"]),
    Definition::new(code::MIN, 1, 2, |call, env| aggregate_by(call, env, Terminal::Min))
        .grouping(Grouping::Stream)
        .optargs(&["index"]),
    Definition::new(code::MAX, 1, 2, |call, env| aggregate_by(call, env, Terminal::Max))
        .grouping(Grouping::Stream)
        .optargs(&["index"]),
    Definition::new(code::REDUCE, 2, 2, reduce).grouping(Grouping::Stream).optargs(&["base"]),
    Definition::variadic(code::GROUP, 1, group).grouping(Grouping::Stream).optargs(&["index", "multi"]),
    Definition::new(150, 1, 1, ungroup).grouping(Grouping::Ignored),
    Definition::variadic(code::CONTAINS, 1, contains),
];

fn count(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let value = call.arg(env, 0)?;
    if call.count() == 1 {
        match value.peek() {
            Some(Value::String(text)) => return call.value(value::integer(text.chars().count())),
            Some(Value::Binary(bytes)) => return call.value(value::integer(bytes.len())),
            Some(object) if object.to_object().is_some() => {
                return call.value(value::integer(object.to_object().map_or(0, |object| object.len())));
            }
            Some(Value::Array(items)) => return Ok(Val::datum(value.frame, value::integer(items.len()))),
            _ => {}
        }
        let stream = value.into_stream(env)?;
        return stream.aggregate(env, call.frame(), &Arc::new(Terminal::Count));
    }
    let function = condition(call, env, 1)?;
    let stream = value.into_stream(env)?.with(Operation::Filter(function, None));
    stream.aggregate(env, call.frame(), &Arc::new(Terminal::Count))
}

type MakeTerminal = fn(Option<Arc<Function>>) -> Terminal;

fn aggregate(call: &mut Call<'_>, env: &Env, name: &str, make: MakeTerminal) -> Result<Val> {
    let value = call.arg(env, 0)?;
    if call.optarg(env, "index")?.is_some() {
        value.into_table()?;
        return Err(Error::logic(format!("Cannot call {name} on an index.")));
    }
    let function = if call.count() == 2 { Some(call.function(env, 1, Shortcut::GetField)?) } else { None };
    let stream = value.into_stream(env)?;
    stream.aggregate(env, call.frame(), &Arc::new(make(function)))
}

fn aggregate_by(call: &mut Call<'_>, env: &Env, make: MakeTerminal) -> Result<Val> {
    let value = call.arg(env, 0)?;
    let Some(index) = call.optarg(env, "index")? else {
        let function = if call.count() == 2 { Some(call.function(env, 1, Shortcut::GetField)?) } else { None };
        let stream = value.into_stream(env)?;
        return stream.aggregate(env, call.frame(), &Arc::new(make(function)));
    };
    if call.count() == 2 {
        return Err(Error::logic("Cannot provide both a function and an index to `min` or `max`."));
    }
    let table = value.into_table()?;
    let name = index.as_string()?;
    let mut slice = crate::selection::TableSlice::whole(table);
    super::selection::set_index(&mut slice, &name, call.frame())?;
    let is_max = matches!(make(None), Terminal::Max(_));
    slice.order = if is_max { crate::source::Order::Descending } else { crate::source::Order::Ascending };
    let mut stream = slice.stream(env, call.frame());
    match stream.next_batch(env, 1)?.pop() {
        Some(row) => call.value(row),
        None => {
            let what = if is_max { "max" } else { "min" };
            Err(Error::logic(format!("`{what}` found no entries in the specified index.")))
        }
    }
}

fn reduce(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let stream = call.stream(env, 0)?;
    let function = call.function(env, 1, Shortcut::None)?;
    stream.aggregate(env, call.frame(), &Arc::new(Terminal::Reduce(function)))
}

fn group(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let value = call.arg(env, 0)?;
    if matches!(&value.kind, Kind::Stream(stream) if stream.is_grouped()) {
        let message = "Cannot call `group` on the output of `group` (did you mean to `ungroup`?).";
        return Err(Error::logic(message).at(value.frame));
    }
    let mut functions = Vec::new();
    for at in 1..call.count() {
        functions.push(call.function(env, at, Shortcut::GetField)?);
    }
    let index = call.optarg(env, "index")?;
    if index.is_none() && functions.is_empty() {
        return Err(Error::logic("Cannot group by nothing."));
    }
    let multi = call.optarg_bool(env, "multi")?.unwrap_or(false);
    let frame = call.frame();
    let stream = match index {
        None => value.into_stream(env)?,
        Some(index) => {
            let name = index.as_string()?;
            let table = value.into_table()?;
            let mut slice = crate::selection::TableSlice::whole(table);
            super::selection::set_index(&mut slice, &name, call.frame())?;
            match super::selection::key_function(env, &slice, frame)? {
                None => return Ok(group_by_index(call, slice, functions, multi)),
                Some(key) => functions.push(key),
            }
            slice.stream(env, frame)
        }
    };
    let mut stream = stream.with(Operation::Group { frame, functions, multi });
    stream.frame = frame;
    Ok(call.result(Kind::Stream(stream)))
}

/// Groups by the keys that an index has for the rows, of which it may have several for one, and by functions.
fn group_by_index(
    call: &Call<'_>,
    slice: crate::selection::TableSlice,
    functions: Vec<Arc<Function>>,
    multi: bool,
) -> Val {
    let frame = call.frame();
    let of_pair = |name: &str| Arc::new(Function { frame, body: Body::GetField(Value::from(name)) });
    let mut all: Vec<_> = functions
        .into_iter()
        .map(|function| Arc::new(Function { frame: function.frame, body: Body::OfField("row".into(), function) }))
        .collect();
    all.push(of_pair("key"));
    let rows = DeferredRows::new(move |env| {
        let keyed = super::selection::index_keys(env, &slice)?;
        keyed.into_iter().map(|(key, row)| value::object([("key", key), ("row", row)])).collect()
    });
    let stream = Stream::new(frame, Box::new(rows))
        .with(Operation::Group { frame, functions: all, multi })
        .with(Operation::Map(of_pair("row")));
    call.result(Kind::Stream(stream))
}

fn ungroup(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let value = call.arg(env, 0)?;
    let frame = value.frame;
    let groups = match value.kind {
        Kind::Grouped(groups) => groups,
        Kind::Stream(stream) if stream.is_grouped() => stream.into_groups(env)?,
        kind => return Err(Val { frame, kind }.expected("GROUPED_DATA")),
    };
    let rows = groups
        .into_iter()
        .map(|(group, reduction)| value::object([("group", group), ("reduction", reduction)]))
        .collect::<Result<Vec<_>>>()?;
    call.value(env.array(rows)?)
}

fn contains(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut stream = call.stream(env, 0)?;
    let (mut values, mut functions) = (Vec::new(), Vec::new());
    for at in 1..call.count() {
        let wanted = call.arg(env, at)?;
        match wanted.kind {
            Kind::Function(function) => functions.push(function),
            _ => values.push(wanted.into_datum()?),
        }
    }
    stream.check_finite()?;
    if let ([wanted], [], false) = (&values[..], &functions[..], stream.is_array()) {
        // This can be found out where the rows are.
        let equals = Arc::new(Function { frame: call.frame(), body: Body::Equals(wanted.clone()) });
        let found = stream.with(Operation::Filter(equals, None)).next_rows(env, 1)?;
        return call.bool(!found.is_empty());
    }
    // Each row may stand for one of several equal values that are asked for.
    while let Some(row) = stream.next(env)? {
        if let Some(at) = values.iter().position(|value| *value == row) {
            values.swap_remove(at);
        }
        let mut at = 0;
        while at < functions.len() {
            if functions[at].call(env, std::slice::from_ref(&row), false)?.as_bool()? {
                functions.swap_remove(at);
            } else {
                at += 1;
            }
        }
        if values.is_empty() && functions.is_empty() {
            return call.bool(true);
        }
    }
    call.bool(values.is_empty() && functions.is_empty())
}
