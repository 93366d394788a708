//! What `profile` tells of a query.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod tables;

use std::sync::Arc;

use serde_json::{Value, json};
use tables::{Tables, t};
use tessera_reql::{Answer, Profile, Request, Stop};

/// The tasks of a query, and of the rows of its stream.
fn profile(tables: &Tables, term: &Value) -> Value {
    let Ok(Request::Start(query)) = Request::read(&json!([1, term, {}]).to_string()) else { panic!("a query") };
    let profile = Arc::new(Profile::default());
    let prepared = query.prepare(0.into()).unwrap().measured(Some(profile.clone()));
    if let Answer::Cursor(mut cursor) = prepared.run(tables.0.clone(), Arc::new(Stop::default())).unwrap() {
        while !cursor.next(2).unwrap().is_empty() {}
    }
    serde_json::from_slice(&profile.take()).unwrap()
}

/// The descriptions, with how often each task was done, and its parts; checks that no part takes longer than the whole.
fn shown(tasks: &Value) -> String {
    let show = |task: &Value| {
        let description = task["description"].as_str().unwrap();
        if let Some(times) = task["n_samples"].as_u64() {
            assert!(task["mean_duration(ms)"].as_f64().unwrap() >= 0.0 && times > 1, "{task}");
            return format!("{times} x {description}");
        }
        let took = task["duration(ms)"].as_f64().unwrap();
        let parts = task["sub_tasks"].as_array().unwrap();
        let of_parts: f64 = parts.iter().filter_map(|part| part["duration(ms)"].as_f64()).sum();
        assert!(took >= of_parts, "{task}");
        format!("{description}[{}]", shown(&task["sub_tasks"]))
    };
    tasks.as_array().unwrap().iter().map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_profile_tells_terms_reads_and_writes() {
    let tables = Tables::new(&["t"]);
    let documents: Vec<Value> = (0..5).map(|id| json!({"id": id, "n": id})).collect();
    let insert = profile(&tables, &json!([56, [t(), [2, documents]]]));
    let text = shown(&insert);
    assert!(text.starts_with("Evaluating insert.[Evaluating table.[] Evaluating make_array.["), "{text}");
    assert!(text.ends_with("Writing to table `test.t`.[]]"), "{text}");
    assert_eq!(
        shown(&profile(&tables, &json!([16, [t(), 1]]))),
        "Evaluating get.[Evaluating table.[] Getting a document of table `test.t`.[]]"
    );
}

#[test]
fn what_is_done_for_each_row_is_one_task() {
    let tables = Tables::new(&[]);
    // `r.range(10).map(x => (x + 1) * 2)`
    let product = json!([26, [[24, [[10, [1]], 1]], 2]]);
    let map = json!([38, [[173, [10]], [69, [[2, [1]], product]]]]);
    assert_eq!(shown(&profile(&tables, &map)), "Evaluating map.[Evaluating range.[]] 10 x Evaluating mul.");
    let sum = json!([145, [map]]);
    assert_eq!(
        shown(&profile(&tables, &sum)),
        "Evaluating sum.[Evaluating map.[Evaluating range.[]] 10 x Evaluating mul.]"
    );
}

#[test]
fn a_failed_query_has_no_task_under_way() {
    let tables = Tables::new(&[]);
    let profile = Arc::new(Profile::default());
    for _ in 0..2 {
        let Ok(Request::Start(query)) = Request::read(r#"[1,[24,[1,[24,["a",2]]]]]"#) else { panic!("a query") };
        let prepared = query.prepare(0.into()).unwrap().measured(Some(profile.clone()));
        assert!(prepared.run(tables.0.clone(), Arc::new(Stop::default())).is_err());
        assert_eq!(shown(&serde_json::from_slice(&profile.take()).unwrap()), "Evaluating add.[Evaluating add.[]]");
    }
}
