//! Queries whose writes take effect together or not at all, on tables in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod tables;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tables::{Tables, t};
use tessera_reql::{Pacer, Source};

/// The tables `t`, with three documents, and `u`.
fn filled() -> Tables {
    let tables = Tables::new(&["t", "u"]);
    let three = json!([2, [{"id": 1, "n": 10}, {"id": 2, "n": 20}, {"id": 3, "n": 30}]]);
    tables.ask(&json!([56, [t(), three]]), &json!({})).unwrap();
    tables
}

/// The field `n` of the documents of a table, in the order of their keys.
fn numbers(tables: &Tables, table: &str) -> Value {
    let ordered = json!([41, [[15, [table]], "id"]]);
    tables.ask(&json!([170, [ordered, "n"]]), &json!({})).unwrap()
}

fn u() -> Value {
    json!([15, ["u"]])
}

fn documents(ids: &[i32]) -> Value {
    json!([2, ids.iter().map(|id| json!({"id": id, "n": 1})).collect::<Vec<_>>()])
}

fn atomic() -> Value {
    json!({"atomic": true})
}

/// Adds to the field `n` of a document.
fn add(table: &Value, id: i32, amount: i32) -> Value {
    let sum = json!([24, [[170, [[10, [1]], "n"]], amount]]);
    json!([53, [[16, [table, id]], [69, [[2, [1]], {"n": sum}]]]])
}

#[test]
fn an_insert_of_which_one_document_is_there_inserts_none() {
    let tables = filled();
    let answer = tables.ask(&json!([56, [t(), documents(&[7, 2, 8])], atomic()]), &json!({})).unwrap();
    for (field, count) in [("inserted", 0), ("errors", 1), ("undone", 2), ("replaced", 0), ("skipped", 0)] {
        assert_eq!(answer[field], count, "{answer}");
    }
    let several = tables.ask(&json!([56, [t(), documents(&[7, 2, 8, 1, 3])], atomic()]), &json!({})).unwrap();
    assert_eq!((&several["errors"], &several["undone"]), (&json!(3), &json!(2)), "{several}");
    assert!(answer["first_error"].as_str().unwrap().starts_with("Duplicate primary key `id`"), "{answer}");
    assert_eq!(numbers(&tables, "t"), json!([10, 20, 30]));
    let answer = tables.ask(&json!([56, [t(), [2, [{"n": 5}, 6]]], atomic()]), &json!({})).unwrap();
    assert_eq!((&answer["errors"], &answer["undone"], answer.get("generated_keys")), (&json!(1), &json!(1), None));
    let answer = tables.ask(&json!([56, [t(), documents(&[7, 8])], atomic()]), &json!({})).unwrap();
    assert_eq!((&answer["inserted"], answer.get("undone")), (&json!(2), None));
    assert_eq!(numbers(&tables, "t"), json!([10, 20, 30, 1, 1]));
}

#[test]
fn a_failing_function_undoes_an_update_and_changes_list_what_failed() {
    let tables = filled();
    // 100 / (n - 20), which fails for the second document.
    let quotient = json!([27, [100, [25, [[170, [[10, [1]], "n"]], 20]]]]);
    let options = json!({"atomic": true, "return_changes": "always"});
    let answer = tables.ask(&json!([53, [t(), [69, [[2, [1]], {"n": quotient}]]], options]), &json!({})).unwrap();
    assert_eq!((&answer["replaced"], &answer["errors"], &answer["undone"]), (&json!(0), &json!(1), &json!(2)));
    assert_eq!(answer["changes"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(numbers(&tables, "t"), json!([10, 20, 30]));
    let answer = tables.ask(&json!([54, [t()], atomic()]), &json!({})).unwrap();
    assert_eq!((&answer["deleted"], numbers(&tables, "t")), (&json!(3), json!([])));
}

#[test]
fn an_array_of_writes_concerns_several_tables_and_each_write_sees_those_before_it() {
    let tables = filled();
    let writes = json!([2, [add(&t(), 1, 5), add(&t(), 1, 6), [56, [u(), {"id": 1, "n": 4}]], add(&u(), 1, 3)]]);
    for (term, options) in [(writes.clone(), atomic()), (json!([2, writes[1], atomic()]), json!({}))] {
        let tables = filled();
        let answer = tables.ask(&term, &options).unwrap();
        assert_eq!(answer.as_array().unwrap().len(), 4, "{answer}");
        assert_eq!((numbers(&tables, "t"), numbers(&tables, "u")), (json!([21, 20, 30]), json!([7])));
    }
    let refused = json!([2, [add(&t(), 1, 5), [56, [t(), {"id": 3}]], [56, [u(), {"id": 1}]]]]);
    let failure = tables.ask(&refused, &atomic()).unwrap_err();
    assert!(failure.message.starts_with("Nothing was written, since the query is atomic: Duplicate"), "{failure:?}");
    // An error of the query itself, after writes.
    let failure = tables.ask(&json!([2, [add(&t(), 1, 5), [12, ["no"]]]]), &atomic()).unwrap_err();
    assert_eq!(
        (&*failure.message, numbers(&tables, "t"), numbers(&tables, "u")),
        ("no", json!([10, 20, 30]), json!([]))
    );
}

#[test]
fn for_each_is_atomic_as_a_whole() {
    let tables = filled();
    let move_row = json!([69, [[2, [9]], [56, [u(), [10, [9]]]]]]);
    let for_each = |options: Value| json!([68, [t(), move_row], options]);
    tables.ask(&json!([56, [u(), {"id": 3, "n": 0}]]), &json!({})).unwrap();
    let answer = tables.ask(&for_each(atomic()), &json!({})).unwrap();
    assert_eq!((&answer["inserted"], &answer["errors"], &answer["undone"]), (&json!(0), &json!(1), &json!(2)));
    assert_eq!(numbers(&tables, "u"), json!([0]));
    // Without the option, what could be done is done.
    assert_eq!(tables.ask(&for_each(json!({})), &json!({})).unwrap()["inserted"], 2);
    assert_eq!(numbers(&tables, "u"), json!([10, 20, 0]));
}

#[test]
fn a_field_of_this_name_is_a_field() {
    let tables = filled();
    let made = tables.ask(&json!({"atomic": true, "made": [60, ["v"]], "sum": [24, [1, 2]]}), &json!({})).unwrap();
    assert_eq!((&made["atomic"], &made["made"]["tables_created"], &made["sum"]), (&json!(true), &json!(1), &json!(3)));
}

/// Moves five from the first document to the second one, as another client would, when it is asked for the nth time.
struct Meanwhile {
    tables: Arc<dyn Source>,
    left: AtomicUsize,
}

impl Pacer for Meanwhile {
    fn goes_on(&self) -> bool {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let tables = Tables(self.tables.clone());
            tables.ask(&json!([2, [add(&t(), 1, -5), add(&t(), 2, 5)]]), &atomic()).unwrap();
        }
        true
    }
}

#[test]
fn a_query_that_fails_has_seen_one_instant_too() {
    let n = |id: i32| json!([170, [[16, [t(), id]], "n"]]);
    let is_whole = json!([17, [[24, [n(1), n(2)]], 30]]);
    let refuse = json!([65, [is_whole, "whole", [12, ["broken"]]]]);
    let update = json!([53, [[16, [t(), 3]], [69, [[2, [1]], {"n": refuse}]]], {"non_atomic": true}]);
    for term in [refuse, json!([2, [update]])] {
        for nth in 1..60 {
            let tables = filled();
            let pacer = Arc::new(Meanwhile { tables: tables.0.clone(), left: AtomicUsize::new(nth) });
            let outcome = tables.ask_while(pacer, &term, &atomic());
            assert!(outcome.is_ok(), "{nth}: {outcome:?}");
        }
    }
}

#[test]
fn a_stream_is_read_before_the_query_takes_effect() {
    for nth in 1..30 {
        let tables = filled();
        let pacer = Arc::new(Meanwhile { tables: tables.0.clone(), left: AtomicUsize::new(nth) });
        // The range has 1 and 2.
        let got = json!([38, [[173, [1, 3]], [69, [[2, [1]], [170, [[16, [t(), [10, [1]]]], "n"]]]]]]);
        let seen = tables.ask_while(pacer, &got, &atomic()).unwrap();
        assert!(seen == json!([10, 20]) || seen == json!([5, 25]), "{nth}: {seen}");
    }
}

#[test]
fn what_a_query_gathers_is_bounded() {
    let tables = filled();
    let text = "x".repeat(1_000_000);
    let write = json!([56, [t(), {"id": [24, [100, [10, [1]]]], "text": text}]]);
    for (count, is_refused) in [(60, false), (70, true)] {
        let for_each = json!([68, [[173, [count]], [69, [[2, [1]], write]]]]);
        let outcome = tables.ask(&for_each, &atomic());
        match is_refused {
            true => assert!(outcome.unwrap_err().message.contains("67108864 bytes")),
            false => assert_eq!(outcome.unwrap()["inserted"], 60),
        }
    }
    // However small they are.
    let write = json!([56, [u(), {"id": [10, [1]]}]]);
    let failure = tables.ask(&json!([68, [[173, [1_000_000]], [69, [[2, [1]], write]]]]), &atomic()).unwrap_err();
    assert!(failure.message.contains("67108864 bytes"), "{failure:?}");
    assert_eq!(numbers(&tables, "u"), json!([]));
}

/// Adds one to both documents each time that it is asked.
struct Busy(Arc<dyn Source>);

impl Pacer for Busy {
    fn goes_on(&self) -> bool {
        Tables(self.0.clone()).ask(&json!([2, [add(&t(), 1, 1), add(&t(), 2, 1)]]), &atomic()).unwrap();
        true
    }
}

#[test]
fn a_query_that_only_reads_does_not_wait_for_others_to_stop() {
    let tables = filled();
    let n = |id: i32| json!([170, [[16, [t(), id]], "n"]]);
    let seen = tables.ask_while(Arc::new(Busy(tables.0.clone())), &json!([2, [n(1), n(2)]]), &atomic()).unwrap();
    assert_eq!(seen[1].as_f64().unwrap() - seen[0].as_f64().unwrap(), 10.0, "{seen}");
}

#[test]
fn what_is_done_at_once_is_refused() {
    let tables = filled();
    for term in [
        json!([60, ["v"]]),
        json!([61, ["u"]]),
        json!([75, [t(), "n"]]),
        json!([138, [t()]]),
        json!([188, [t(), "bob", {"read": true}]]),
    ] {
        let failure = tables.ask(&json!([2, [add(&t(), 1, 5), term]]), &atomic()).unwrap_err();
        assert!(failure.message.starts_with("An atomic query writes documents"), "{failure:?}");
    }
    let of_system = json!([53, [[16, [[15, [[14, ["rethinkdb"]], "table_config"]], "x"]], {"name": "v"}]]);
    let failure = tables.ask(&of_system, &atomic()).unwrap_err();
    assert!(failure.message.contains("system tables"), "{failure:?}");
    assert_eq!(numbers(&tables, "t"), json!([10, 20, 30]));
}
