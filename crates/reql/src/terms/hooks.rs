//! Giving tables write hooks, and telling what they have.

use crate::account::{Place, unexpected};
use crate::call::Call;
use crate::cluster::TableChange;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::function::Function;
use crate::plan::Definition;
use crate::term::code;
use crate::val::{Kind, Shortcut, Val};
use crate::value::{self, Value};
use crate::write_hook::WriteHook;
use std::sync::Arc;
use tessera_types::Right;

pub const TERMS: &[Definition] = &[
    Definition::new(189, 2, 2, set_write_hook).nondeterministic(),
    Definition::new(190, 1, 1, get_write_hook).nondeterministic(),
];

fn set_write_hook(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let source = env.source_alone()?;
    source.require(Right::Config, Place::Table(&table.info)).map_err(unexpected)?;
    let argument = call.arg(env, 1)?;
    let frame = argument.frame;
    let hook = match argument.kind {
        Kind::Datum(Value::Null) => None,
        Kind::Datum(Value::Binary(bytes)) => {
            let known = WriteHook::from_source(bytes, String::new()).ok_or_else(|| {
                Error::logic(
                    "Cannot create a write hook except from a reql_write_hook_function returned from `get_write_hook`.",
                )
            })?;
            Some(known.function().clone())
        }
        kind => Some(Val { frame, kind }.into_function(Shortcut::None)?),
    };
    if let Some(function) = &hook {
        check(function)?;
    }
    let hook = hook.map(WriteHook::new).transpose()?;
    let done = match (&hook, source.write_hook(&table.info)?) {
        (None, _) => "deleted",
        (Some(_), None) => "created",
        (Some(_), Some(_)) => "replaced",
    };
    env.alter(|source| source.change_table(&table.info, &TableChange::WriteHook(hook.map(Arc::new))))?;
    call.value(value::object([(done, Value::from(1))])?)
}

/// Whether the function may be a hook.
fn check(function: &Function) -> Result<()> {
    if function.parameters() != Some(3) {
        return Err(Error::logic("Write hook functions must expect 3 arguments."));
    }
    if !function.is_deterministic() || function.mentions(code::NOW) {
        let message = "Could not prove function deterministic.  Write hook functions must be deterministic.";
        return Err(Error::logic(message).at(function.frame));
    }
    Ok(())
}

fn get_write_hook(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let source = env.source()?;
    source.require(Right::Config, Place::Table(&table.info))?;
    let hook = source.write_hook(&table.info)?;
    call.value(hook.map_or(Ok(Value::Null), |hook| hook.row())?)
}
