//! Sequences made, changed and combined.

use std::sync::Arc;

use rand::Rng as _;
use rand::seq::SliceRandom as _;

use super::slices::{sequence_like, table_of};
use crate::call::Call;
use crate::env::Env;
use crate::error::{At as _, Error, Result};
use crate::function::{Body, Function};
use crate::plan::{Definition, Grouping};
use crate::size::{self, ELEMENT_BYTES};
use crate::stream::{FoldRows, FoldSteps, MapRows, OffsetRows, Operation, RangeRows, Stream, UnionRows};
use crate::term::code;
use crate::val::{Kind, Shortcut, Val};
use crate::value::{self, Value};

pub const TERMS: &[Definition] = &[
    Definition::variadic(code::MAP, 2, map).grouping(Grouping::Stream),
    Definition::new(code::CONCAT_MAP, 2, 2, concat_map).grouping(Grouping::Stream),
    Definition::new(code::FILTER, 2, 2, filter).grouping(Grouping::Stream).optargs(&["default"]),
    Definition::new(72, 1, 1, zip),
    Definition::new(87, 2, 2, offsets_of),
    Definition::new(86, 1, 1, is_empty),
    Definition::variadic(code::UNION, 0, union).optargs(&["interleave"]),
    Definition::new(81, 2, 2, sample).nondeterministic(),
    Definition::new(173, 0, 2, range),
    Definition::new(187, 3, 3, fold).grouping(Grouping::Stream).optargs(&["emit", "final_emit"]),
];

fn map(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let count = call.count();
    let mut streams = Vec::with_capacity(count - 1);
    for at in 0..count - 1 {
        let value = call.arg(env, at)?;
        let frame = value.frame;
        let is_sequence = value.is_sequence();
        streams.push(value.into_stream(env).map_err(|error| if is_sequence { error } else { error.at(frame) })?);
    }
    let function = call.function(env, count - 1, Shortcut::None)?;
    if let Some(parameters) = function.parameters()
        && parameters != 0
        && parameters != streams.len()
    {
        let arguments = if parameters == 1 { "argument" } else { "arguments" };
        let found = match streams.len() {
            1 => "1 sequence was found".to_string(),
            more => format!("{more} sequences were found"),
        };
        return Err(Error::logic(format!(
            "The function passed to `map` expects {parameters} {arguments}, but {found}."
        )));
    }
    let mut streams = streams;
    let stream = if streams.len() == 1
        && let Some(stream) = streams.pop()
    {
        stream.with(Operation::Map(function))
    } else {
        Stream::new(call.frame(), Box::new(MapRows::new(streams, function)))
    };
    call.sequence(env, stream)
}

fn concat_map(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let stream = call.stream(env, 0)?;
    let function = call.arg(env, 1)?;
    let frame = function.frame;
    let function = function.into_function(Shortcut::None)?;
    call.sequence(env, stream.with(Operation::ConcatMap(function, frame)))
}

fn filter(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let sequence = call.arg(env, 0)?;
    let function = call.arg_with(env, 1, true)?.into_function(Shortcut::Constant)?;
    let default = match call.optarg_node("default") {
        None => None,
        Some(node) => Some(Arc::new(Function {
            frame: node.frame,
            body: Body::Query {
                template: Arc::new(crate::plan::Template {
                    frame: node.frame,
                    parameters: Vec::new(),
                    body: node.clone(),
                }),
                scope: call.scope.clone(),
            },
        })),
    };
    let table = table_of(&sequence);
    let stream = sequence.into_stream(env)?.with(Operation::Filter(function, default));
    sequence_like(call, env, table, stream)
}

fn zip(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let stream = call.stream(env, 0)?;
    let frame = call.frame();
    call.sequence(env, stream.with(Operation::Zip(frame)))
}

/// The argument as a condition: a function, or the value that rows are to equal.
pub fn condition(call: &mut Call<'_>, env: &Env, at: usize) -> Result<Arc<Function>> {
    let value = call.arg(env, at)?;
    let frame = value.frame;
    match value.kind {
        Kind::Function(function) => Ok(function),
        kind => {
            let value = Val { frame, kind }.into_datum()?;
            Ok(Arc::new(Function { frame, body: Body::Equals(value) }))
        }
    }
}

fn offsets_of(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let sequence = call.arg(env, 0)?;
    let function = condition(call, env, 1)?;
    let stream = sequence.into_stream(env)?;
    let offsets = Stream::new(call.frame(), Box::new(OffsetRows::new(stream, function)));
    call.sequence(env, offsets)
}

fn is_empty(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut stream = call.stream(env, 0)?;
    let is_empty = stream.next(env)?.is_none();
    call.bool(is_empty)
}

fn union(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut streams = Vec::with_capacity(call.count());
    for at in 0..call.count() {
        streams.push(call.stream(env, at)?);
    }
    let mut orders = Vec::new();
    if let Some(node) = call.optarg_node("interleave") {
        let value = env.evaluate(node, call.scope, false)?;
        match value.peek() {
            Some(Value::Bool(_)) => {}
            Some(Value::Array(_)) if node.code == code::MAKE_ARRAY => {
                for part in node.call().into_iter().flat_map(|part| &part.args) {
                    let descending = part.code == code::DESC;
                    let key = env.evaluate(part, call.scope, false)?;
                    orders.push((descending, key.into_function(Shortcut::GetField)?));
                }
            }
            _ => {
                let descending = node.code == code::DESC;
                orders.push((descending, value.into_function(Shortcut::GetField)?));
            }
        }
    }
    if !orders.is_empty() && streams.iter().any(|stream| stream.feed().is_some()) {
        return Err(Error::logic("Cannot merge changefeeds by an order, since they have no end."));
    }
    let rows = if orders.is_empty() {
        UnionRows::new(streams)
    } else {
        UnionRows::merged(streams, Box::new(move |env, left, right| super::order::compare(env, &orders, left, right)))
    };
    let stream = Stream::new(call.frame(), Box::new(rows));
    call.sequence(env, stream)
}

fn sample(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let count = call.integer(env, 1)?;
    let Ok(count) = usize::try_from(count) else {
        return Err(Error::logic(format!("Number of items to sample must be non-negative, got `{count}`.")));
    };
    env.check_array(count)?;
    let sequence = call.arg(env, 0)?;
    let table = table_of(&sequence);
    let mut stream = sequence.into_stream(env)?;
    stream.check_finite()?;
    let (mut picked, mut seen, mut random) = (Vec::new(), 0_usize, rand::rng());
    let mut bytes = 0;
    while let Some(row) = stream.next(env)? {
        seen += 1;
        let at = if picked.len() < count { picked.len() } else { random.random_range(0..seen) };
        if at >= count {
            continue;
        }
        bytes += row.encoded_len() + ELEMENT_BYTES;
        match picked.get_mut(at) {
            Some(place) => bytes -= std::mem::replace(place, row).encoded_len() + ELEMENT_BYTES,
            None => picked.push(row),
        }
        env.check_array(picked.len())?;
        size::check(bytes)?;
    }
    picked.shuffle(&mut random);
    let stream = Stream::of_array(call.frame(), value::Array::new(picked)?);
    sequence_like(call, env, table, stream)
}

fn range(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let (at, end) = match call.count() {
        0 => (0, None),
        1 => (0, Some(call.integer(env, 0)?)),
        _ => (call.integer(env, 0)?, Some(call.integer(env, 1)?)),
    };
    Ok(call.result(Kind::Stream(Stream::new(call.frame(), Box::new(RangeRows { at, end })))))
}

fn fold(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut stream = call.stream(env, 0)?;
    let accumulator = call.datum(env, 1)?;
    let step = call.function(env, 2, Shortcut::None)?;
    if step.parameters().is_some_and(|count| count != 2 && count != 0) {
        return Err(Error::logic("The accumulator function passed to `fold` should expect 2 arguments"));
    }
    let optional = |name: &str| -> Result<Option<Arc<Function>>> {
        call.optarg(env, name)?.map(|value| value.into_function(Shortcut::None)).transpose()
    };
    let emit = optional("emit")?;
    let final_emit = optional("final_emit")?;
    if emit.is_none() {
        stream.check_finite()?;
        let mut accumulator = accumulator;
        while let Some(row) = stream.next(env)? {
            accumulator = step.call(env, &[accumulator, row], false)?.into_datum().at(step.frame)?;
        }
        return match final_emit {
            Some(function) => function.call(env, &[accumulator], false),
            None => call.value(accumulator),
        };
    }
    let steps = FoldSteps { accumulator, step, emit, final_emit };
    let stream = Stream::new(call.frame(), Box::new(FoldRows::new(stream, steps)));
    call.sequence(env, stream)
}
