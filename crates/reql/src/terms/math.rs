//! Arithmetic.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::time;
use crate::val::Val;
use crate::value::{self, Value, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::variadic(24, 1, |call, env| fold(call, env, add)),
    Definition::variadic(25, 1, |call, env| fold(call, env, subtract)),
    Definition::variadic(26, 1, |call, env| fold(call, env, multiply)),
    Definition::variadic(27, 1, |call, env| fold(call, env, divide)),
    Definition::new(28, 2, 2, modulo),
    Definition::new(183, 1, 1, |call, env| round_with(call, env, f64::floor)),
    Definition::new(184, 1, 1, |call, env| round_with(call, env, f64::ceil)),
    Definition::new(185, 1, 1, |call, env| round_with(call, env, f64::round)),
];

type Operation = fn(&Env, &Value, &Value) -> Result<Value>;

fn fold(call: &mut Call<'_>, env: &Env, operation: Operation) -> Result<Val> {
    let mut result = call.datum(env, 0)?;
    for at in 1..call.count() {
        let operand = call.datum(env, at)?;
        env.work(result.encoded_len())?;
        result = operation(env, &result, &operand)?;
    }
    call.value(result)
}

fn add(env: &Env, left: &Value, right: &Value) -> Result<Value> {
    match (left, right) {
        (Value::Time(moment), duration) | (duration, Value::Time(moment)) => {
            Ok(Value::Time(time::add(*moment, duration.to_number()?)?))
        }
        (Value::Number(left), right) => value::number(left.get() + right.to_number()?),
        (Value::String(left), right) => {
            let right = right.to_text()?;
            env.check_text(left.len() + right.len())?;
            Ok(Value::from([&**left, &**right].concat()))
        }
        (Value::Array(left), right) => {
            let right = right.to_items()?;
            env.array([&left[..], &right[..]].concat())
        }
        (left, _) => {
            left.to_number()?;
            Ok(Value::Null)
        }
    }
}

fn subtract(_env: &Env, left: &Value, right: &Value) -> Result<Value> {
    match (left, right) {
        (Value::Time(left), Value::Time(right)) => {
            let seconds = left.epoch_seconds() - right.epoch_seconds();
            value::number((seconds * 1000.0).round() / 1000.0)
        }
        (Value::Time(moment), duration) => Ok(Value::Time(time::add(*moment, -duration.to_number()?)?)),
        (left, right) => value::number(left.to_number()? - right.to_number()?),
    }
}

fn multiply(env: &Env, left: &Value, right: &Value) -> Result<Value> {
    match (left, right) {
        (Value::Array(items), times) | (times, Value::Array(items)) => {
            let times = times.to_integer()?;
            if times < 0 {
                return Err(Error::logic("Cannot multiply an ARRAY by a negative number."));
            }
            let times = times as usize;
            env.check_array(items.len().saturating_mul(times))?;
            let times = if items.is_empty() { 0 } else { times };
            env.array(std::iter::repeat_n(&items[..], times).flatten().cloned().collect())
        }
        (left, right) => value::number(left.to_number()? * right.to_number()?),
    }
}

fn divide(_env: &Env, left: &Value, right: &Value) -> Result<Value> {
    let (left, right) = (left.to_number()?, right.to_number()?);
    if right == 0.0 {
        return Err(Error::logic("Cannot divide by zero."));
    }
    value::number(left / right)
}

fn modulo(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let left = call.integer(env, 0)?;
    let right = call.integer(env, 1)?;
    if right == 0 {
        return Err(Error::logic("Cannot take a number modulo 0."));
    }
    call.value(value::number((left % right) as f64)?)
}

fn round_with(call: &mut Call<'_>, env: &Env, round: fn(f64) -> f64) -> Result<Val> {
    let number = call.number(env, 0)?;
    call.value(value::number(round(number))?)
}
