//! Values drawn at random.

use proptest::collection::vec;
use proptest::prelude::*;
use tessera_document::{Time, Timezone, Value};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-c]{0,3}",
        1 => vec(prop_oneof!["[a-z]", Just("\"".into()), Just("\\".into()), "[\0-\u{1f}]", Just("é😀".into())], 0..6)
            .prop_map(|parts| parts.concat()),
        1 => "[a-z]{0,40}",
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-d]{1,2}", 1 => text().prop_filter("a pseudo-type", |key| key != "$reql_type$")]
}

fn number() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        (-3..300i32).prop_map(f64::from),
        any::<i64>().prop_map(|integer| (integer >> 11) as f64),
        any::<i64>().prop_map(|integer| integer as f64),
        any::<f64>().prop_filter("finite", |number| number.is_finite()),
        prop_oneof![Just(-0.0), Just(0.0), Just(0.5), Just(-0.5), Just(f64::MAX), Just(5e-324)],
    ];
    number.prop_map(|number| Value::number(number).unwrap())
}

fn time() -> impl Strategy<Value = Value> {
    (-5..5i32, prop_oneof![Just("Z"), Just("+05:30"), Just("-07:00")]).prop_map(|(seconds, zone)| {
        Value::Time(Time::new(f64::from(seconds) / 2.0, Timezone::parse(zone).unwrap()).unwrap())
    })
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        4 => number(),
        4 => text().prop_map(Value::from),
        1 => vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..5).prop_map(Value::binary),
        1 => time(),
    ]
}

/// Any value that may be a secondary key.
#[allow(dead_code, reason = "not every test has keys")]
pub fn keyable() -> impl Strategy<Value = Value> {
    let long = ("[ab]{0,2}", 225..260usize).prop_map(|(end, length)| Value::from("x".repeat(length) + &end));
    let scalar = prop_oneof![
        1 => any::<bool>().prop_map(Value::Bool),
        3 => number(),
        3 => text().prop_map(Value::from),
        1 => vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..5).prop_map(Value::binary),
        1 => time(),
        1 => long,
    ];
    scalar.prop_recursive(3, 12, 4, |inner| vec(inner, 0..4).prop_map(|elements| Value::array(elements).unwrap()))
}

/// Any value that a document may hold.
pub fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 40, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(|elements| Value::array(elements).unwrap()),
            vec((key(), inner.clone()), 0..8).prop_map(|fields| Value::object(fields).unwrap()),
            vec(inner, 0..3).prop_map(|coordinates| {
                Value::object([
                    ("$reql_type$", Value::from("GEOMETRY")),
                    ("type", Value::from("Point")),
                    ("coordinates", Value::array(coordinates).unwrap()),
                ])
                .unwrap()
            }),
        ]
    })
}
