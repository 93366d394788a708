//! Joins by a key; those by a condition are rewritten.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::{Definition, Grouping};
use crate::stream::{EqualityJoinRows, Stream};
use crate::term::code;
use crate::val::{Shortcut, Val};
use crate::value::ValueExt as _;

pub const TERMS: &[Definition] =
    &[Definition::new(code::EQ_JOIN, 3, 3, eq_join).grouping(Grouping::Stream).optargs(&["index", "ordered"])];

fn eq_join(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let left = call.stream(env, 0)?;
    let function = call.function(env, 1, Shortcut::GetField)?;
    let table = call.arg(env, 2)?.into_table()?;
    let index = match call.optarg(env, "index")? {
        Some(name) => Some(name.into_datum()?.to_text()?.clone()).filter(|name| **name != *table.info.primary_key),
        None => None,
    };
    let _ordered = call.optarg_bool(env, "ordered")?;
    if !function.is_deterministic() {
        return Err(Error::logic("Could not prove argument deterministic."));
    }
    let frame = call.frame();
    let rows = EqualityJoinRows::new(left, function, table, index);
    call.sequence(env, Stream::new(frame, Box::new(rows)))
}
