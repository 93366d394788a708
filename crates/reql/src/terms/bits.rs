//! Bits of integers.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::val::Val;
use crate::value;

pub const TERMS: &[Definition] = &[
    Definition::variadic(191, 1, |call, env| fold(call, env, |left, right| left & right)),
    Definition::variadic(192, 1, |call, env| fold(call, env, |left, right| left | right)),
    Definition::variadic(193, 1, |call, env| fold(call, env, |left, right| left ^ right)),
    Definition::new(194, 1, 1, not),
    Definition::new(195, 2, 2, |call, env| shift(call, env, |left, by| left * power(by))),
    Definition::new(196, 2, 2, |call, env| shift(call, env, |left, by| (left / power(by)).floor())),
];

/// Integers of bit operations have 53 bits and a sign.
const LIMIT: i64 = 1 << 53;

fn check(number: i64) -> Result<i64> {
    if (-LIMIT..LIMIT).contains(&number) {
        Ok(number)
    } else {
        Err(Error::logic(format!("Integer too large: {number}")))
    }
}

fn fold(call: &mut Call<'_>, env: &Env, operation: fn(i64, i64) -> i64) -> Result<Val> {
    let mut result = call.integer(env, 0)?;
    for at in 1..call.count() {
        result = check(result)?;
        result = operation(result, check(call.integer(env, at)?)?);
    }
    call.value(value::number(result as f64)?)
}

fn not(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let operand = check(call.integer(env, 0)?)?;
    call.value(value::number(!operand as f64)?)
}

fn shift(call: &mut Call<'_>, env: &Env, operation: fn(f64, i64) -> f64) -> Result<Val> {
    let mut result = check(call.integer(env, 0)?)? as f64;
    for at in 1..call.count() {
        let by = call.integer(env, at)?;
        if by < 0 {
            return Err(Error::logic("Cannot bit-shift by a negative value"));
        }
        result = operation(result, by);
    }
    call.value(value::number(result)?)
}

/// A power of two, as far as doubles go.
fn power(by: i64) -> f64 {
    2_f64.powi(i32::try_from(by).unwrap_or(i32::MAX))
}
