//! The order of values.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod common;

use common::value;
use proptest::prelude::*;
use std::hash::{BuildHasher, RandomState};
use tessera_document::Value;

/// Each value is less than the next one, as RethinkDB 2.4.4 sorts them.
const ASCENDING: &[&str] = &[
    "[]",
    "[[1]]",
    "[false]",
    "[1]",
    "[1,2]",
    "[\"a\"]",
    "false",
    "true",
    "null",
    "-1",
    "0",
    "1",
    "1.5",
    "1e300",
    "{}",
    r#"{"a":1}"#,
    r#"{"a":1,"b":1}"#,
    r#"{"a":2}"#,
    r#"{"b":0}"#,
    r#"{"$reql_type$":"BINARY","data":""}"#,
    r#"{"$reql_type$":"BINARY","data":"YQ=="}"#,
    r#"{"$reql_type$":"TIME","epoch_time":0,"timezone":"+05:00"}"#,
    r#"{"$reql_type$":"TIME","epoch_time":1,"timezone":"+00:00"}"#,
    "\"\"",
    "\"a\"",
    "\"ab\"",
    "\"b\"",
    "\"é\"",
];

#[test]
fn values_are_ordered_by_the_names_of_types_and_then_by_content() {
    let mut values: Vec<Value> = ASCENDING.iter().map(|text| Value::from_json(text).unwrap()).collect();
    values.insert(0, Value::MinVal);
    values.push(Value::MaxVal);
    for (place, one) in values.iter().enumerate() {
        for (other_place, other) in values.iter().enumerate() {
            assert_eq!(one.cmp(other), place.cmp(&other_place), "{one:?} {other:?}");
            assert_eq!(one.compare_as_reql(other), place.cmp(&other_place), "{one:?} {other:?}");
        }
    }
}

#[test]
fn what_is_equal_in_reql_is_equal_whatever_it_prints() {
    let value = |text| Value::from_json(text).unwrap();
    assert_eq!(value("-0.0"), value("0"));
    assert_eq!(
        value(r#"[{"$reql_type$":"TIME","epoch_time":5,"timezone":"+05:00"}]"#),
        value(r#"[{"$reql_type$":"TIME","epoch_time":5,"timezone":"Z"}]"#)
    );
}

#[test]
fn a_geometry_is_an_object_except_beside_a_binary_where_reql_goes_by_its_name() {
    let value = |text| Value::from_json(text).unwrap();
    let geometry = value(r#"{"$reql_type$":"GEOMETRY","type":"Point","coordinates":[1,2]}"#);
    let binary = value(r#"{"$reql_type$":"BINARY","data":"YQ=="}"#);
    assert!(geometry < value(r#"{"a":1}"#));
    assert!(geometry > value("{}"));
    assert!(geometry < binary);
    assert!(geometry.compare_as_reql(&binary).is_gt());
    assert!(binary.compare_as_reql(&geometry).is_lt());
}

proptest! {
    #[test]
    fn the_order_is_total_and_hashes_follow_it(one in value(), other in value(), third in value()) {
        prop_assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
        prop_assert_eq!(one.cmp(&one.clone()), std::cmp::Ordering::Equal);
        if one <= other && other <= third {
            prop_assert!(one <= third);
        }
        let state = RandomState::new();
        if one == other {
            prop_assert_eq!(state.hash_one(&one), state.hash_one(&other));
        }
    }
}
