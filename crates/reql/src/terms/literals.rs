//! Values written down in a query, and values out of nothing: random numbers, UUIDs, constants.

use std::sync::Arc;

use rand::Rng as _;

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::{Definition, Grouping};
use crate::term::code;
use crate::uuid;
use crate::val::{Kind, Val};
use crate::value::{self, ObjectBuilder, PSEUDO_TYPE_KEY, Value, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::variadic(code::MAKE_ARRAY, 0, make_array).optargs(&[crate::together::OPTARG]),
    Definition::new(code::MAKE_OBJ, 0, 0, make_object),
    Definition::new(137, 0, 1, literal).grouping(Grouping::Ignored),
    Definition::new(180, 0, 0, |call, _| call.value(Value::MinVal)),
    Definition::new(181, 0, 0, |call, _| call.value(Value::MaxVal)),
    Definition::new(169, 0, 1, uuid_term).nondeterministic(),
    Definition::new(151, 0, 2, random).optargs(&["float"]).nondeterministic(),
    Definition::new(98, 1, 1, json),
    Definition::new(172, 1, 1, to_json_string),
    Definition::new(155, 1, 1, binary),
    Definition::new(code::NOW, 0, 0, |call, env| call.value(env.now.clone())),
    Definition::new(107, 0, 0, |call, _| call.value(Value::from(1))),
    Definition::new(108, 0, 0, |call, _| call.value(Value::from(2))),
    Definition::new(109, 0, 0, |call, _| call.value(Value::from(3))),
    Definition::new(110, 0, 0, |call, _| call.value(Value::from(4))),
    Definition::new(111, 0, 0, |call, _| call.value(Value::from(5))),
    Definition::new(112, 0, 0, |call, _| call.value(Value::from(6))),
    Definition::new(113, 0, 0, |call, _| call.value(Value::from(7))),
    Definition::new(114, 0, 0, |call, _| call.value(Value::from(1))),
    Definition::new(115, 0, 0, |call, _| call.value(Value::from(2))),
    Definition::new(116, 0, 0, |call, _| call.value(Value::from(3))),
    Definition::new(117, 0, 0, |call, _| call.value(Value::from(4))),
    Definition::new(118, 0, 0, |call, _| call.value(Value::from(5))),
    Definition::new(119, 0, 0, |call, _| call.value(Value::from(6))),
    Definition::new(120, 0, 0, |call, _| call.value(Value::from(7))),
    Definition::new(121, 0, 0, |call, _| call.value(Value::from(8))),
    Definition::new(122, 0, 0, |call, _| call.value(Value::from(9))),
    Definition::new(123, 0, 0, |call, _| call.value(Value::from(10))),
    Definition::new(124, 0, 0, |call, _| call.value(Value::from(11))),
    Definition::new(125, 0, 0, |call, _| call.value(Value::from(12))),
];

fn make_array(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let literals = call.literals;
    let mut items = Vec::with_capacity(call.count());
    for at in 0..call.count() {
        items.push(call.arg_with(env, at, literals)?.into_datum()?);
    }
    call.value(env.array(items)?)
}

fn make_object(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut builder = ObjectBuilder::with_capacity(call.call.optargs.len());
    for (name, node) in &call.call.optargs {
        let value = env.evaluate(node, call.scope, call.literals)?.into_datum()?;
        builder.insert(name.clone(), value);
    }
    let object = if call.literals { builder.finish_with_literal() } else { builder.finish() };
    call.value(object?)
}

fn literal(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    if !call.literals {
        return Err(tessera_document::ValueError::StrayLiteral.into());
    }
    let mut builder = ObjectBuilder::with_capacity(2);
    builder.insert(PSEUDO_TYPE_KEY, Value::from("LITERAL"));
    if call.count() == 1 {
        builder.insert("value", call.arg_with(env, 0, false)?.into_datum()?);
    }
    call.value(builder.finish_with_literal()?)
}

fn uuid_term(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let text = if call.count() == 0 { uuid::random() } else { uuid::of_name(&call.string(env, 0)?) };
    call.value(Value::from(text))
}

fn random(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let is_float = call.optarg_bool(env, "float")?;
    let count = call.count();
    if count == 0 || is_float == Some(true) {
        let (mut lower, mut upper) = (0.0, 1.0);
        if count == 1 {
            upper = call.number(env, 0)?;
        } else if count == 2 {
            lower = call.number(env, 0)?;
            upper = call.number(env, 1)?;
        }
        if count == 0 && is_float == Some(false) {
            return Err(Error::logic("Generating a random integer requires one or two bounds."));
        }
        let fraction: f64 = rand::rng().random();
        return call.value(value::number(lower + (upper - lower) * fraction)?);
    }
    let mut bound = |at: usize| -> Result<i64> {
        let value = call.arg(env, at)?;
        let number = value.as_number()?;
        value.as_datum()?.to_integer().map_err(|_| {
            let shown = tessera_document::reconstructable(number);
            let side = if count == 2 && at == 0 { "Lower" } else { "Upper" };
            Error::logic(format!("{side} bound ({shown}) could not be safely converted to an integer."))
        })
    };
    let (lower, upper) = if count == 1 { (0, bound(0)?) } else { (bound(0)?, bound(1)?) };
    if lower >= upper {
        return Err(Error::logic(format!("Lower bound ({lower}) is not less than upper bound ({upper}).")));
    }
    let picked = rand::rng().random_range(lower..upper);
    call.value(value::number(picked as f64)?)
}

fn json(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let text = call.string(env, 0)?;
    if text.contains('\0') {
        return Err(Error::logic("Encountered unescaped null byte in JSON string."));
    }
    match Value::from_json(&text) {
        Ok(value) => {
            env.check_arrays(&value)?;
            call.value(value)
        }
        Err(tessera_document::ValueError::InvalidJson(fault)) => {
            let quoted = if text.len() > 40 {
                let mut end = 37;
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                format!("{}...", &text[..end])
            } else {
                text.to_string()
            };
            Err(Error::logic(format!("Failed to parse \"{quoted}\" as JSON: {fault}")))
        }
        Err(other) => Err(other.into()),
    }
}

fn to_json_string(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let value = call.datum(env, 0)?;
    call.value(Value::String(env.json_text(&value)?))
}

fn binary(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let argument = call.arg(env, 0)?;
    match argument.kind {
        Kind::Datum(value @ Value::Binary(_)) => call.value(value),
        kind => {
            let text = Val { frame: argument.frame, kind }.into_datum()?.to_text().cloned()?;
            call.value(Value::Binary(Arc::from(text.as_bytes())))
        }
    }
}
