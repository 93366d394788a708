//! Unique indexes, on tables in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod tables;

use serde_json::{Value, json};
use tables::{Tables, t};
use tessera_reql::Failure;

fn tables() -> Tables {
    Tables::new(&["t"])
}

fn ask(tables: &Tables, term: &Value) -> Result<Value, Failure> {
    tables.ask(term, &json!({}))
}

fn create(name: &str, options: Value) -> Value {
    json!([75, [t(), name], options])
}

fn insert(documents: Value, options: Value) -> Value {
    json!([56, [t(), [2, documents]], options])
}

#[test]
fn a_second_document_with_a_key_is_refused() {
    let tables = tables();
    ask(&tables, &create("n", json!({"unique": true}))).unwrap();
    let answer = ask(&tables, &insert(json!([{"id": 1, "n": 5}, {"id": 2, "n": 5}, {"id": 3}, {"id": 4}]), json!({})));
    let answer = answer.unwrap();
    assert_eq!((&answer["inserted"], &answer["errors"]), (&json!(3), &json!(1)), "{answer}");
    let wanted = "Duplicate key of unique index `n`: `5` belongs to the document with primary key `1`.";
    assert_eq!(answer["first_error"], wanted);
    // Both at once.
    let refused = ask(&tables, &insert(json!([{"id": 8, "n": 8}, {"id": 9, "n": 8}]), json!({"atomic": true})));
    assert!(refused.unwrap_err().message.contains("Duplicate key of unique index `n`"));
    let status = ask(&tables, &json!([139, [t()]])).unwrap();
    assert_eq!((&status[0]["unique"], &status[0]["ready"]), (&json!(true), &json!(true)), "{status}");
}

#[test]
fn an_index_over_duplicates_is_not_ready_and_says_why() {
    let tables = tables();
    ask(&tables, &insert(json!([{"id": 1, "n": 5}, {"id": 2, "n": 5}]), json!({}))).unwrap();
    ask(&tables, &create("n", json!({"unique": true}))).unwrap();
    let reason = "the documents with primary keys `1` and `2` both have the key `5`.";
    let status = ask(&tables, &json!([139, [t()]])).unwrap();
    assert_eq!((&status[0]["error"], &status[0]["ready"]), (&json!(reason), &json!(false)), "{status}");
    let failed = ask(&tables, &json!([140, [t()]])).unwrap_err();
    assert_eq!(failed.message, format!("Index `n` on table `test.t` cannot be built: {reason}"));
}

#[test]
fn the_source_of_an_index_says_that_it_is_unique_and_a_geospatial_one_cannot_be() {
    let tables = tables();
    ask(&tables, &create("n", json!({"unique": true, "multi": true}))).unwrap();
    let function = ask(&tables, &json!([170, [[45, [[139, [t()]], 0]], "function"]])).unwrap();
    ask(&tables, &json!([75, [t(), "again", function]])).unwrap();
    let status = ask(&tables, &json!([139, [t(), "again"]])).unwrap();
    assert_eq!((&status[0]["unique"], &status[0]["multi"]), (&json!(true), &json!(true)), "{status}");
    let refused = ask(&tables, &create("g", json!({"unique": true, "geo": true}))).unwrap_err();
    assert_eq!(refused.message, "A geospatial index cannot be unique.");
}
