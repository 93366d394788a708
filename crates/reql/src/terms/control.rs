//! Calling functions, errors and what catches them.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Definition, Grouping};
use crate::term::code;
use crate::together::OPTARG;
use crate::val::{Groups, Kind, Shortcut, Val};
use crate::value::{Value, ValueExt as _};

/// Set by `update` on the call of its function: what comes out may have markers of `r.literal`. No client can send it.
pub const LITERALS_OPTARG: &str = "\0literals";

pub const TERMS: &[Definition] = &[
    Definition::variadic(code::FUNCALL, 1, funcall).optargs(&["_SHORTCUT_", "_EVAL_FLAGS_", LITERALS_OPTARG, OPTARG]),
    Definition::new(92, 2, 2, default).grouping(Grouping::Ignored),
    Definition::new(12, 0, 1, error),
    Definition::new(code::ARGS, 1, 1, args),
];

fn funcall(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    if let Some(shortcut) = call.optarg(env, "_SHORTCUT_")? {
        shortcut.as_integer()?;
    }
    let literals = call.optarg_node(LITERALS_OPTARG).is_some();
    let function = call.arg_with(env, 0, literals)?.into_function(Shortcut::Constant)?;
    if call.count() == 1 {
        return function.call(env, &[], literals);
    }
    let first = call.arg_with(env, 1, literals)?;
    let mut args = vec![Value::Null];
    for at in 2..call.count() {
        args.push(call.arg_with(env, at, literals)?.into_datum()?);
    }
    let frame = first.frame;
    let groups = match first.kind {
        Kind::Grouped(groups) => groups,
        Kind::Stream(stream) if stream.is_grouped() => stream.into_groups(env)?,
        kind => {
            args[0] = Val { frame, kind }.into_datum()?;
            return function.call(env, &args, literals);
        }
    };
    let mut out = Groups::default();
    for (group, value) in groups.into_iter() {
        args[0] = value;
        out.insert(group, function.call(env, &args, literals)?.into_datum()?)?;
    }
    Ok(call.result(Kind::Grouped(out)))
}

fn default(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let literals = call.literals;
    let (argument, failed, value) = match call.arg_with(env, 0, literals) {
        Ok(value) => match value.peek() {
            Some(Value::Null) => (Value::Null, None, Some(value)),
            _ => return Ok(value),
        },
        Err(error) if error.is_non_existence() => (Value::from(error.message()), Some(error), None),
        Err(error) => return Err(error),
    };
    let result = call.arg_with(env, 1, literals).and_then(|otherwise| match otherwise.kind {
        Kind::Function(function) => function.call(env, &[argument], literals),
        _ => Ok(otherwise),
    });
    match result {
        Err(inner) if inner.kind() == ErrorKind::EmptyUser => match (failed, value) {
            (Some(error), _) => Err(error),
            (None, Some(value)) => Ok(value),
            (None, None) => Err(inner),
        },
        other => other,
    }
}

fn error(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    if call.count() == 0 {
        return Err(Error::new(ErrorKind::EmptyUser, "Empty ERROR term outside a default block."));
    }
    let message = call.string(env, 0)?;
    Err(Error::new(ErrorKind::User, &*message))
}

/// The list that is spread; whose arguments it becomes takes it from here.
fn args(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let list = call.arg(env, 0)?;
    list.as_datum()?.to_items()?;
    Ok(list)
}
