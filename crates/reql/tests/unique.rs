//! Unique indexes, on tables in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::sync::Arc;

use serde_json::{Value, json};
use tessera_document::{Time, Timezone};
use tessera_reql::{Answer, Failure, MemorySource, Request, Source, Stop};

struct Tables(Arc<dyn Source>);

impl Tables {
    fn new() -> Self {
        let source = MemorySource::new("test");
        source.create_database("test").unwrap();
        let tables = Self(Arc::new(source));
        tables.ask(&json!([60, ["t"]])).unwrap();
        tables
    }

    fn ask(&self, term: &Value) -> Result<Value, Failure> {
        let Request::Start(query) = Request::read(&json!([1, term, {}]).to_string())? else { panic!("a query") };
        let prepared = query.prepare(Time::new(0.0, Timezone::UTC).unwrap().into())?;
        match prepared.run(self.0.clone(), Arc::new(Stop::default()))? {
            Answer::Value(value) => Ok(serde_json::from_str(&value.to_json().unwrap()).unwrap()),
            Answer::Cursor(_) => panic!("a value"),
        }
    }
}

fn t() -> Value {
    json!([15, ["t"]])
}

fn create(name: &str, options: Value) -> Value {
    json!([75, [t(), name], options])
}

fn insert(documents: Value, options: Value) -> Value {
    json!([56, [t(), [2, documents]], options])
}

#[test]
fn a_second_document_with_a_key_is_refused() {
    let tables = Tables::new();
    tables.ask(&create("n", json!({"unique": true}))).unwrap();
    let answer = tables.ask(&insert(json!([{"id": 1, "n": 5}, {"id": 2, "n": 5}, {"id": 3}, {"id": 4}]), json!({})));
    let answer = answer.unwrap();
    assert_eq!((&answer["inserted"], &answer["errors"]), (&json!(3), &json!(1)), "{answer}");
    let wanted = "Duplicate key of unique index `n`: `5` belongs to the document with primary key `1`.";
    assert_eq!(answer["first_error"], wanted);
    // Both at once.
    let refused = tables.ask(&insert(json!([{"id": 8, "n": 8}, {"id": 9, "n": 8}]), json!({"atomic": true})));
    assert!(refused.unwrap_err().message.contains("Duplicate key of unique index `n`"));
    let status = tables.ask(&json!([139, [t()]])).unwrap();
    assert_eq!((&status[0]["unique"], &status[0]["ready"]), (&json!(true), &json!(true)), "{status}");
}

#[test]
fn an_index_over_duplicates_is_not_ready_and_says_why() {
    let tables = Tables::new();
    tables.ask(&insert(json!([{"id": 1, "n": 5}, {"id": 2, "n": 5}]), json!({}))).unwrap();
    tables.ask(&create("n", json!({"unique": true}))).unwrap();
    let reason = "the documents with primary keys `1` and `2` both have the key `5`.";
    let status = tables.ask(&json!([139, [t()]])).unwrap();
    assert_eq!((&status[0]["error"], &status[0]["ready"]), (&json!(reason), &json!(false)), "{status}");
    let failed = tables.ask(&json!([140, [t()]])).unwrap_err();
    assert_eq!(failed.message, format!("Index `n` on table `test.t` cannot be built: {reason}"));
}

#[test]
fn the_source_of_an_index_says_that_it_is_unique_and_a_geospatial_one_cannot_be() {
    let tables = Tables::new();
    tables.ask(&create("n", json!({"unique": true, "multi": true}))).unwrap();
    let function = tables.ask(&json!([170, [[45, [[139, [t()]], 0]], "function"]])).unwrap();
    tables.ask(&json!([75, [t(), "again", function]])).unwrap();
    let status = tables.ask(&json!([139, [t(), "again"]])).unwrap();
    assert_eq!((&status[0]["unique"], &status[0]["multi"]), (&json!(true), &json!(true)), "{status}");
    let refused = tables.ask(&create("g", json!({"unique": true, "geo": true}))).unwrap_err();
    assert_eq!(refused.message, "A geospatial index cannot be unique.");
}
