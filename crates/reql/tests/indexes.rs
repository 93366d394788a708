//! What is made of documents by an index, of more documents than an array may have.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod tables;

use serde_json::{Value, json};
use tables::{Tables, t};

/// Thirty documents of three kinds, and an index of the kinds.
fn thirty() -> Tables {
    let tables = Tables::new(&["t"]);
    for index in ["kind", "long"] {
        tables.ask(&json!([75, [t(), index]]), &json!({})).unwrap();
    }
    let long = |kind: u32| format!("{}{}", "x".repeat(300), kind);
    let documents: Vec<Value> = (0..30)
        .map(|number: u32| json!({"id": number, "kind": number % 3, "long": long(number % 3), "n": 30 - number}))
        .collect();
    tables.ask(&json!([56, [t(), [2, documents]]]), &json!({"array_limit": 100})).unwrap();
    tables
}

/// Asks for a value where no array has more than ten elements.
fn ask(tables: &Tables, term: &Value) -> Value {
    tables.ask(term, &json!({"array_limit": 10})).unwrap()
}

#[test]
fn distinct_keys_of_an_index() {
    let tables = thirty();
    let distinct = |of: &Value, index: &str| json!([51, [[42, [of], {"index": index}], "array"]]);
    assert_eq!(ask(&tables, &distinct(&t(), "kind")), json!([0, 1, 2]));
    let some = json!([182, [t(), 1, 3], {"index": "kind"}]);
    assert_eq!(ask(&tables, &distinct(&some, "kind")), json!([1, 2]));
    assert_eq!(ask(&tables, &json!([43, [[42, [t()], {"index": "id"}]]])), 30);
    // Keys that the index has cut, so that documents with different ones stand among one another.
    let long = ask(&tables, &distinct(&t(), "long"));
    let ends: Vec<&str> = long.as_array().unwrap().iter().map(|key| &key.as_str().unwrap()[299..]).collect();
    assert_eq!(ends, ["x0", "x1", "x2"]);
}

#[test]
fn groups_by_an_index() {
    let tables = thirty();
    let grouped = |options: &Value| json!([43, [[144, [t()], options]]]);
    let ungrouped = ask(&tables, &json!([150, [grouped(&json!({"index": "kind"}))]]));
    let expected: Vec<Value> = (0..3).map(|kind| json!({"group": kind, "reduction": 10})).collect();
    assert_eq!(ungrouped, json!(expected));
    let with_function =
        json!([150, [[43, [[144, [t(), [69, [[2, [1]], [21, [[170, [[10, [1]], "n"]], 15]]]]], {"index": "kind"}]]]]]);
    let ungrouped = ask(&tables, &with_function);
    assert_eq!(ungrouped[0], json!({"group": [false, 0], "reduction": 5}));
    assert_eq!(ungrouped.as_array().unwrap().len(), 6);
}

#[test]
fn sorted_by_an_index_and_more() {
    let tables = thirty();
    let sorted = |index: &Value| json!([41, [t(), "n"], {"index": index}]);
    let first =
        |index: &Value, count: u32| ask(&tables, &json!([51, [[170, [[71, [sorted(index), count]], "id"]], "array"]]));
    assert_eq!(first(&json!("kind"), 10), json!([27, 24, 21, 18, 15, 12, 9, 6, 3, 0]));
    assert_eq!(first(&json!([74, ["kind"]]), 3), json!([29, 26, 23]));
    assert_eq!(ask(&tables, &json!([43, [sorted(&json!("kind"))]])), 30);
    assert_eq!(ask(&tables, &json!([43, [sorted(&json!("id"))]])), 30);
}

#[test]
fn a_table_contains_documents() {
    let tables = thirty();
    let contains = |what: &Value| ask(&tables, &json!([93, [[170, [t(), "kind"]], what]]));
    assert_eq!(contains(&json!(2)), true);
    assert_eq!(contains(&json!(3)), false);
}
