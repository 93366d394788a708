//! Arrays as sets.

use std::collections::BTreeSet;

use crate::call::Call;
use crate::env::Env;
use crate::error::Result;
use crate::plan::Definition;
use crate::val::Val;
use crate::value::{Array, Value, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::new(88, 2, 2, insert),
    Definition::new(89, 2, 2, intersection),
    Definition::new(90, 2, 2, union),
    Definition::new(91, 2, 2, difference),
];

fn insert(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let array = call.datum(env, 0)?;
    let item = call.datum(env, 1)?;
    env.work(array.encoded_len())?;
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for value in array.to_items()?.iter().chain([&item]) {
        if seen.insert(value) {
            out.push(value.clone());
        }
    }
    call.value(env.array(out)?)
}

fn both(call: &mut Call<'_>, env: &Env) -> Result<(Array, Array)> {
    let left = call.datum(env, 0)?;
    let right = call.datum(env, 1)?;
    env.work(left.encoded_len().saturating_add(right.encoded_len()))?;
    Ok((left.to_items()?.clone(), right.to_items()?.clone()))
}

fn union(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let (left, right) = both(call, env)?;
    let mut seen = BTreeSet::new();
    let out: Vec<Value> = left.iter().chain(right.iter()).filter(|value| seen.insert(*value)).cloned().collect();
    call.value(env.array(out)?)
}

fn intersection(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let (left, right) = both(call, env)?;
    let mut wanted: BTreeSet<&Value> = left.iter().collect();
    let out: Vec<Value> = right.iter().filter(|value| wanted.remove(*value)).cloned().collect();
    call.value(env.array(out)?)
}

fn difference(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let left = call.datum(env, 0)?;
    let right = call.datum(env, 1)?;
    env.work(left.encoded_len().saturating_add(right.encoded_len()))?;
    let (right, left) = (right.to_items()?, left.to_items()?);
    let mut seen: BTreeSet<&Value> = right.iter().collect();
    let out: Vec<Value> = left.iter().filter(|value| seen.insert(*value)).cloned().collect();
    call.value(env.array(out)?)
}
