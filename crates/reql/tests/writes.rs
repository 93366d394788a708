//! Writes of many documents: what is answered if they fail half-way, and how much is listed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod tables;

use std::sync::Arc;

use serde_json::{Value, json};
use tables::{Tables, t};
use tessera_reql::{ErrorKind, Pacer, Source, Stop};

/// Drops the table `t` while a query runs, once it has so many documents.
struct Drops {
    source: Arc<dyn Source>,
    documents: u64,
}

impl Pacer for Drops {
    fn goes_on(&self) -> bool {
        let database = self.source.database("test").unwrap().unwrap();
        if let Some(table) = self.source.table(&database, "t").unwrap()
            && self.source.document_counts(&table).unwrap().iter().sum::<u64>() >= self.documents
        {
            self.source.drop_table(&database, "t").unwrap();
        }
        true
    }
}

fn documents(count: u32) -> Value {
    json!([38, [[173, [count]], [69, [[2, [1]], {"id": [10, [1]]}]]]])
}

#[test]
fn a_write_that_fails_when_it_has_written_is_not_said_to_be_undone() {
    let each = json!([68, [documents(1000), [69, [[2, [2]], [56, [t(), [10, [2]]]]]]]]);
    let array = json!([2, [[56, [t(), documents(1000)]], [56, [[15, ["u"]], {}]], [56, [t(), documents(1000)]]]]);
    for (term, reads) in [(json!([56, [t(), documents(1000)]]), false), (each, false), (array, true)] {
        for documents in [0, 1] {
            let tables = Tables::new(&["t", "u"]);
            let pacer = Drops { source: tables.0.clone(), documents };
            let failed = tables.ask_while(Arc::new(pacer), &term, &json!({})).unwrap_err();
            let expected = if documents == 0 && !reads { ErrorKind::OpFailed } else { ErrorKind::OpIndeterminate };
            if documents == 1 {
                assert_eq!(failed.kind, expected, "{term} {documents}: {}", failed.message);
                assert!(failed.message.contains("a part of the query was carried out"), "{}", failed.message);
            } else {
                assert_eq!(failed.kind, ErrorKind::OpFailed, "{term}: {}", failed.message);
            }
        }
    }
}

/// Only writes that failed later were once said to be in doubt. What is read between makes the query ask whether it goes on.
#[test]
fn a_read_that_fails_when_the_query_has_written_does_not_say_that_nothing_was_done() {
    let insert = json!([56, [t(), documents(1)]]);
    let wait = json!([43, [[173, [100_000]]]]);
    for read in [json!([16, [t(), 1]]), json!([43, [t()]])] {
        let tables = Tables::new(&["t"]);
        let pacer = Drops { source: tables.0.clone(), documents: 1 };
        let failed = tables.ask_while(Arc::new(pacer), &json!([2, [insert, wait, read]]), &json!({})).unwrap_err();
        assert_eq!(failed.kind, ErrorKind::OpIndeterminate, "{read}: {}", failed.message);
    }
}

/// Only documents that were written once counted.
#[test]
fn a_read_that_fails_when_the_query_has_changed_tables_does_not_say_that_nothing_was_done() {
    let u = || json!([15, ["u"]]);
    for change in [
        json!([57, ["other"]]),
        json!([58, ["made"]]),
        json!([60, ["new"]]),
        json!([61, ["v"]]),
        json!([75, [u(), "n"]]),
        json!([76, [u(), "old"]]),
        json!([156, [u(), "old", "newer"]]),
        json!([188, [u(), "ann", {"read": true}]]),
        json!([189, [u(), [69, [[2, [1, 2, 3]], [10, [3]]]]]]),
    ] {
        let tables = Tables::new(&["t", "u", "v"]);
        let ask = |term: &Value| tables.ask(term, &json!({}));
        ask(&json!([57, ["made"]])).unwrap();
        ask(&json!([75, [u(), "old"]])).unwrap();
        ask(&json!([56, [[15, [[14, ["rethinkdb"]], "users"]], {"id": "ann", "password": false}]])).unwrap();
        let missing = json!([43, [[15, ["nowhere"]]]]);
        assert_eq!(ask(&missing).unwrap_err().kind, ErrorKind::OpFailed);
        let failed = ask(&json!([2, [change, missing]])).unwrap_err();
        assert_eq!(failed.kind, ErrorKind::OpIndeterminate, "{change}: {}", failed.message);
        let failed = ask(&json!([2, [missing, change]])).unwrap_err();
        assert_eq!(failed.kind, ErrorKind::OpFailed, "{change}: {}", failed.message);
    }
}

#[test]
fn lists_of_what_was_written_are_as_long_as_arrays_may_be() {
    let tables = Tables::new(&["t"]);
    let ask = |term: &Value| tables.ask(term, &json!({"array_limit": 4})).unwrap();
    let length = |answer: &Value, list: &str| answer[list].as_array().unwrap().len();
    let without_keys = json!([38, [[173, [10]], [69, [[2, [1]], {"n": [10, [1]]}]]]]);
    let inserted = ask(&json!([56, [t(), without_keys], {"return_changes": true}]));
    assert_eq!((&inserted["inserted"], length(&inserted, "generated_keys")), (&json!(10), 4));
    assert_eq!(length(&inserted, "changes"), 4);
    let (changes, keys) =
        ("Too many changes, array truncated to 4.", "Too many generated keys (10), array truncated to 4.");
    assert_eq!(inserted["warnings"], json!([changes, keys]));

    let updated = ask(&json!([53, [t(), {"n": 77}], {"return_changes": true}]));
    assert_eq!((&updated["replaced"], length(&updated, "changes")), (&json!(10), 4));
    assert_eq!(updated["warnings"], json!([changes]));

    let update = json!([53, [t(), {"m": [10, [1]]}], {"return_changes": true}]);
    let each = json!([68, [[173, [3]], [69, [[2, [1]], update]]]]);
    let updated = ask(&each);
    assert_eq!((&updated["replaced"], length(&updated, "changes")), (&json!(30), 4));
    assert_eq!(updated["warnings"], json!([changes]));

    // As many as there is room for are no reason to warn.
    let few =
        tables.ask(&json!([53, [t(), {"n": 78}], {"return_changes": true}]), &json!({"array_limit": 10})).unwrap();
    assert_eq!(length(&few, "changes"), 10);
    assert_eq!(few.get("warnings"), None);
}

#[test]
fn results_of_many_writes_are_added_up_in_time() {
    let tables = Tables::new(&["t"]);
    let insert = json!([56, [t(), {}]]);
    let began = std::time::Instant::now();
    let each = json!([68, [[173, [30_000]], [69, [[2, [1]], insert]]]]);
    let inserted = tables.ask_while(Arc::new(Stop::default()), &each, &json!({})).unwrap();
    assert_eq!(inserted["inserted"], 30_000);
    assert_eq!(inserted["generated_keys"].as_array().unwrap().len(), 30_000);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}
