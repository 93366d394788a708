//! Fields of objects, and of all objects of a sequence.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::paths::Path;
use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::lazy;
use crate::plan::{Definition, Grouping};
use crate::stream::Operation;
use crate::term::code;
use crate::val::{Groups, Kind, Val};
use crate::value::{ObjectBuilder, Value, ValueExt as _};

const INSIDE: &[&str] = &["_NO_RECURSE_"];

pub const TERMS: &[Definition] = &[
    Definition::new(code::GET_FIELD, 2, 2, get_field).grouping(Grouping::Stream).optargs(INSIDE),
    Definition::new(code::BRACKET, 2, 2, bracket).grouping(Grouping::Stream).optargs(INSIDE),
    Definition::variadic(code::HAS_FIELDS, 1, has_fields).grouping(Grouping::Stream).optargs(INSIDE),
    Definition::variadic(code::PLUCK, 1, pluck).grouping(Grouping::Stream).optargs(INSIDE),
    Definition::variadic(34, 1, without).grouping(Grouping::Stream).optargs(INSIDE),
    Definition::variadic(code::MERGE, 1, merge).grouping(Grouping::Stream).optargs(INSIDE).literals(),
    Definition::new(94, 1, 1, keys),
    Definition::new(186, 1, 1, values),
    Definition::variadic(143, 0, object),
];

/// The argument as an object; for a sequence what `operation` makes of it, done in the place of the term itself.
pub(super) enum Subject {
    Object(Value),
    Done(Val),
}

fn subject(
    call: &mut Call<'_>,
    env: &Env,
    name: &str,
    first: Val,
    operation: fn(Arc<crate::function::Function>) -> Operation,
) -> Result<Subject> {
    subject_of(call, env, name, first, operation, |_| false)
}

/// The same for a term that takes objects of some pseudotypes too.
pub(super) fn subject_of(
    call: &mut Call<'_>,
    env: &Env,
    name: &str,
    first: Val,
    operation: fn(Arc<crate::function::Function>) -> Operation,
    takes: fn(&Value) -> bool,
) -> Result<Subject> {
    match first.peek() {
        Some(value) if value.is_object() && value.is_pseudotype() && !takes(value) => {
            let message = format!("Cannot call `{name}` on objects of type `{}`.", value.type_name());
            return Err(Error::logic(message).at(first.frame));
        }
        Some(value) if value.is_object() => return Ok(Subject::Object(first.into_datum()?)),
        Some(Value::Array(_)) | None if first.is_sequence() => {
            if call.inside_sequence {
                return Err(Error::logic(format!("Cannot perform {name} on a sequence of sequences.")));
            }
            let stream = first.into_stream(env)?.with(operation(call.again()));
            return Ok(Subject::Done(call.sequence(env, stream)?));
        }
        _ => {}
    }
    let shown = match first.peek() {
        Some(value) => value.print_truncated()?,
        None => first.print()?,
    };
    Err(first.typed_error(format!("Cannot perform {name} on a non-object non-sequence `{shown}`.")))
}

/// What the term gives if it asks a document, which is still encoded, for a field.
fn field_in_place(call: &Call<'_>) -> Option<Result<Value>> {
    match (call.document, call.constant(1)) {
        (Some(document), Some(Value::String(name))) => lazy::field(document, name),
        _ => None,
    }
}

/// Of a document that is still encoded the part that the paths name, if these are literals, instead of the argument.
fn part_or_first(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let paths: Option<Vec<Value>> = (1..call.count()).map(|at| call.constant(at).cloned()).collect();
    if let (Some(document), Some(paths)) = (call.document, paths)
        && let Ok(path) = Path::new(&Value::array(paths)?)
        && let Some(part) = lazy::part(document, path.names().into_iter())
    {
        return call.value(part);
    }
    call.arg(env, 0)
}

fn get_field(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    if let Some(found) = field_in_place(call) {
        return call.value(found?);
    }
    let first = call.arg(env, 0)?;
    match subject(call, env, "get_field", first, Operation::MapPresent)? {
        Subject::Done(result) => Ok(result),
        Subject::Object(object) => {
            let name = call.string(env, 1)?;
            call.value(object.field(&name)?)
        }
    }
}

/// What `get_field` with a constant name gives: functions that are given as the name of a field.
pub fn get_field_of(env: &Env, frame: FrameId, value: Value, name: &Value) -> Result<Val> {
    match &value {
        object if object.is_object() => Ok(Val::datum(frame, object.field(name.to_text()?)?)),
        Value::Array(items) => {
            let mut found = Vec::new();
            for item in items.iter() {
                match item {
                    object if object.is_object() => match object.field(name.to_text()?) {
                        Ok(value) => found.push(value),
                        Err(error) if error.is_non_existence() => {}
                        Err(error) => return Err(error),
                    },
                    Value::Array(_) => {
                        return Err(Error::logic("Cannot perform get_field on a sequence of sequences."));
                    }
                    Value::Null => {}
                    other => return Err(not_an_object("get_field", other)),
                }
            }
            Ok(Val::datum(frame, env.array(found)?))
        }
        other => Err(not_an_object("get_field", other)),
    }
}

fn not_an_object(name: &str, value: &Value) -> Error {
    match value.print_truncated() {
        Ok(shown) => Error::typed(value, format!("Cannot perform {name} on a non-object non-sequence `{shown}`.")),
        Err(error) => error,
    }
}

/// What `pluck` with constant paths gives.
pub fn pluck_of(env: &Env, frame: FrameId, value: &Value, paths: &Value) -> Result<Val> {
    match value {
        object if object.is_object() => Ok(Val::datum(frame, Path::new(paths)?.project(object)?)),
        Value::Array(items) => {
            let path = Path::new(paths)?;
            let plucked = items.iter().map(|item| path.project(item)).collect::<Result<_>>()?;
            Ok(Val::datum(frame, env.array(plucked)?))
        }
        other => Err(not_an_object("pluck", other)),
    }
}

fn bracket(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    if let Some(found) = field_in_place(call) {
        return call.value(found?);
    }
    let first = call.arg(env, 0)?;
    let second = call.arg(env, 1)?;
    match second.as_datum()? {
        Value::Number(_) => match first.kind {
            Kind::Stream(stream) if stream.is_grouped() => {
                let mut out = Groups::default();
                for (group, rows) in stream.into_groups(env)?.into_iter() {
                    let rows = Val::datum(first.frame, rows);
                    out.insert(group, super::slices::nth_of(call, env, rows, &second)?.into_datum()?)?;
                }
                Ok(call.result(Kind::Grouped(out)))
            }
            kind => super::slices::nth_of(call, env, Val { frame: first.frame, kind }, &second),
        },
        Value::String(name) => {
            let name = name.clone();
            match subject(call, env, "bracket", first, Operation::MapPresent)? {
                Subject::Done(result) => Ok(result),
                Subject::Object(object) => call.value(object.field(&name)?),
            }
        }
        other => Err(Error::typed(
            other,
            format!("Expected NUMBER or STRING as second argument to `bracket` but found {}.", other.type_name()),
        )),
    }
}

fn path(call: &mut Call<'_>, env: &Env) -> Result<Path> {
    let mut paths = Vec::with_capacity(call.count());
    for at in 1..call.count() {
        paths.push(call.datum(env, at)?);
    }
    Path::new(&Value::array(paths)?)
}

fn has_fields(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let first = part_or_first(call, env)?;
    match subject(call, env, "has_fields", first, |function| Operation::Filter(function, None))? {
        Subject::Done(result) => Ok(result),
        Subject::Object(object) => {
            let path = path(call, env)?;
            call.bool(path.is_in(&object))
        }
    }
}

fn pluck(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let first = part_or_first(call, env)?;
    match subject(call, env, "pluck", first, Operation::Map)? {
        Subject::Done(result) => Ok(result),
        Subject::Object(object) => {
            let path = path(call, env)?;
            call.value(path.project(&object)?)
        }
    }
}

fn without(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let first = call.arg(env, 0)?;
    match subject(call, env, "without", first, Operation::Map)? {
        Subject::Done(result) => Ok(result),
        Subject::Object(object) => {
            let path = path(call, env)?;
            call.value(path.remove_from(&object)?)
        }
    }
}

fn merge(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let first = call.arg(env, 0)?;
    let mut merged = match subject(call, env, "merge", first, Operation::Map)? {
        Subject::Done(result) => return Ok(result),
        Subject::Object(object) => object,
    };
    for at in 1..call.count() {
        let with = call.arg(env, at)?;
        let place = with.frame;
        let with = match with.kind {
            Kind::Function(function) => function.call(env, std::slice::from_ref(&merged), true)?.into_datum()?,
            Kind::Datum(_) | Kind::Row(_) => with.into_datum()?,
            _ => return Err(with.expected("FUNCTION")),
        };
        if with.is_object() && with.is_pseudotype() {
            return Err(Error::logic(format!("Cannot merge objects of type `{}`.", with.type_name())).at(place));
        }
        merged = merged.merge(&with)?;
    }
    call.value(merged)
}

/// The fields of an object that is no pseudotype.
fn plain_fields(call: &mut Call<'_>, env: &Env, name: &str) -> Result<Vec<(Arc<str>, Value)>> {
    let argument = call.arg(env, 0)?;
    match argument.as_datum()? {
        Value::Object(object) => Ok(object.fields().to_vec()),
        other => {
            let message = format!("Cannot call `{name}` on objects of type `{}`.", other.type_name());
            Err(Error::logic(message).at(argument.frame))
        }
    }
}

fn keys(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let fields = plain_fields(call, env, "keys")?;
    call.value(env.array(fields.into_iter().map(|(name, _)| Value::String(name)).collect())?)
}

fn values(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let fields = plain_fields(call, env, "values")?;
    call.value(env.array(fields.into_iter().map(|(_, value)| value).collect())?)
}

fn object(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let count = call.count();
    if !count.is_multiple_of(2) {
        return Err(Error::logic(format!("OBJECT expects an even number of arguments (but found {count}).")));
    }
    let mut seen: BTreeMap<Arc<str>, Value> = BTreeMap::new();
    for at in (0..count).step_by(2) {
        let name = call.string(env, at)?;
        let value = call.datum(env, at + 1)?;
        if let Some(earlier) = seen.get(&name) {
            return Err(Error::logic(format!(
                "Duplicate key \"{name}\" in object.  (got {} and {} as values)",
                earlier.print_truncated()?,
                value.print_truncated()?
            )));
        }
        seen.insert(name, value);
    }
    let mut builder = ObjectBuilder::with_capacity(seen.len());
    for (name, value) in seen {
        builder.insert(name, value);
    }
    call.value(builder.finish()?)
}
