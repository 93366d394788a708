//! Comparison, logic and branches.

use std::cmp::Ordering;

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::term::code;
use crate::val::Val;

pub const TERMS: &[Definition] = &[
    Definition::variadic(code::EQ, 2, |call, env| compare(call, env, Ordering::is_eq, true)),
    Definition::variadic(18, 2, |call, env| compare(call, env, Ordering::is_eq, false)),
    Definition::variadic(19, 2, |call, env| compare(call, env, Ordering::is_lt, true)),
    Definition::variadic(20, 2, |call, env| compare(call, env, Ordering::is_le, true)),
    Definition::variadic(code::GT, 2, |call, env| compare(call, env, Ordering::is_gt, true)),
    Definition::variadic(22, 2, |call, env| compare(call, env, Ordering::is_ge, true)),
    Definition::new(code::NOT, 1, 1, not),
    Definition::variadic(66, 0, |call, env| any_or_all(call, env, true)),
    Definition::variadic(67, 0, |call, env| any_or_all(call, env, false)),
    Definition::variadic(code::BRANCH, 3, branch),
];

/// Whether each argument and the next one are in the relation; `wanted` false turns the answer round.
fn compare(call: &mut Call<'_>, env: &Env, relation: fn(Ordering) -> bool, wanted: bool) -> Result<Val> {
    let mut left = call.datum(env, 0)?;
    for at in 1..call.count() {
        let right = call.datum(env, at)?;
        env.work(left.encoded_len().min(right.encoded_len()))?;
        if !relation(left.compare_as_reql(&right)) {
            return call.bool(!wanted);
        }
        left = right;
    }
    call.bool(wanted)
}

fn not(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let value = call.arg(env, 0)?.as_bool()?;
    call.bool(!value)
}

/// The first argument that decides: a true one for `or`, a false one for `and`; else the last one.
fn any_or_all(call: &mut Call<'_>, env: &Env, deciding: bool) -> Result<Val> {
    let mut last = None;
    for at in 0..call.count() {
        let value = call.arg(env, at)?;
        if value.as_bool()? == deciding {
            return Ok(value);
        }
        last = Some(value);
    }
    last.map_or_else(|| call.bool(!deciding), Ok)
}

fn branch(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let count = call.count();
    if count.is_multiple_of(2) {
        return Err(Error::logic("Cannot call `branch` term with an even number of arguments."));
    }
    let literals = call.literals;
    for at in (0..count - 1).step_by(2) {
        if call.arg(env, at)?.as_bool()? {
            return call.arg_with(env, at + 1, literals);
        }
    }
    call.arg_with(env, count - 1, literals)
}
