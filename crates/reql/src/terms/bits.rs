//! Bits of integers.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::val::Val;
use crate::value::{self, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::variadic(191, 1, |call, env| fold(call, env, |left, right| Ok(left & right))),
    Definition::variadic(192, 1, |call, env| fold(call, env, |left, right| Ok(left | right))),
    Definition::variadic(193, 1, |call, env| fold(call, env, |left, right| Ok(left ^ right))),
    Definition::new(194, 1, 1, not),
    Definition::variadic(195, 1, |call, env| fold(call, env, shift_left)),
    Definition::variadic(196, 1, |call, env| fold(call, env, shift_right)),
];

fn fold(call: &mut Call<'_>, env: &Env, operation: fn(i64, i64) -> Result<i64>) -> Result<Val> {
    let first = call.datum(env, 0)?;
    if call.count() == 1 {
        return call.value(first);
    }
    let mut result = first;
    for at in 1..call.count() {
        let operand = call.datum(env, at)?;
        result = value::number(operation(result.to_integer()?, operand.to_integer()?)? as f64)?;
    }
    call.value(result)
}

fn not(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let operand = call.datum(env, 0)?.to_integer()?;
    call.value(value::number(!operand as f64)?)
}

fn shift_left(left: i64, right: i64) -> Result<i64> {
    check_shift(right)?;
    Ok(left.checked_shl(right.min(64) as u32).unwrap_or(0))
}

fn shift_right(left: i64, right: i64) -> Result<i64> {
    check_shift(right)?;
    Ok(left >> right.min(63))
}

fn check_shift(by: i64) -> Result<()> {
    if by < 0 { Err(Error::logic("Cannot bit-shift by a negative value")) } else { Ok(()) }
}
