//! Names that only one document may have at a time, by a unique index.
//!
//! Clients insert documents with one of a few names, move some of them to another name, and delete them again. From the moment on at which a client knows
//! that its document has a name until it wants to give it up, nobody else may have it. At the end no two documents have the same name.

use super::documents::{Documents, NAME, Outcome};
use crate::reql::{Client, PATIENCE, insert, table};
use crate::server::wait_for;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NAMES: u64 = 10;

/// When a document certainly had a name.
struct Span {
    document: String,
    began: Duration,
    ended: Duration,
}

#[derive(Default)]
pub struct Names {
    next: AtomicU64,
    spans: Mutex<BTreeMap<u64, Vec<Span>>>,
    /// Documents that were deleted, and acknowledged.
    gone: Mutex<BTreeSet<String>>,
    refused: AtomicU64,
}

impl Names {
    /// Makes the index.
    pub fn new(client: &mut Client) -> Self {
        assert_eq!(client.ask(&json!([75, [table(NAME), "name"], {"unique": true}]))["created"], 1);
        assert_eq!(client.ask(&json!([140, [table(NAME), "name"]]))[0]["ready"], true);
        Self::default()
    }

    fn note(&self, name: u64, span: Span) {
        self.spans.lock().unwrap().entry(name).or_default().push(span);
    }

    /// Does something with a new document. `false` if the connection has ended.
    pub fn step(&self, documents: &Documents, client: &mut Client, random: &mut StdRng) -> bool {
        let id = format!("named{}", self.next.fetch_add(1, Ordering::Relaxed));
        let get = json!([16, [table(NAME), id]]);
        let mut name = random.random_range(0..NAMES);
        let (outcome, goes_on) = documents.ask(client, &insert(NAME, &[json!({"id": id, "name": name})]));
        if !self.is_done(documents, &outcome, "inserted") || !goes_on {
            return goes_on;
        }
        let mut began = documents.elapsed();
        if random.random_bool(0.5) {
            let other = random.random_range(0..NAMES);
            let ended = documents.elapsed();
            let (outcome, goes_on) = documents.ask(client, &json!([53, [get, {"name": other}]]));
            self.note(name, Span { document: id.clone(), began, ended });
            match self.is_done(documents, &outcome, "replaced") {
                true => name = other,
                // It has either name, or still the first one.
                false if !goes_on || matches!(outcome, Outcome::Unknown) => return goes_on,
                false => {}
            }
            began = documents.elapsed();
        }
        let ended = documents.elapsed();
        let (outcome, goes_on) = documents.ask(client, &json!([54, [get]]));
        self.note(name, Span { document: id.clone(), began, ended });
        if self.is_done(documents, &outcome, "deleted") {
            self.gone.lock().unwrap().insert(id);
        }
        goes_on
    }

    fn is_done(&self, documents: &Documents, outcome: &Outcome, count: &str) -> bool {
        let Outcome::Done(answer) = outcome else { return false };
        if answer["errors"] == 1 {
            let reason = answer["first_error"].as_str().unwrap_or_default();
            match reason.starts_with("Duplicate key of unique index `name`") {
                true => _ = self.refused.fetch_add(1, Ordering::Relaxed),
                false if reason.starts_with("Cannot perform") => {}
                false => documents.contradict(format!("a name was answered {answer}")),
            }
        }
        answer[count] == 1
    }

    /// What is there in the end.
    pub fn finish(&self, documents: &Documents, client: &mut Client) {
        let mut count = 0;
        for (name, spans) in self.spans.lock().unwrap().iter_mut() {
            spans.sort_by_key(|span| span.began);
            count += spans.len();
            for two in spans.windows(2) {
                if two[0].document != two[1].document && two[1].began < two[0].ended {
                    let (one, other) = (&two[0].document, &two[1].document);
                    documents.contradict(format!("both {one} and {other} had the name {name} at {:?}", two[1].began));
                }
            }
        }
        let rows = wait_for("the names are read", PATIENCE, || {
            let rows = client.ask(&json!([39, [table(NAME), [69, [[2, [1]], [32, [[10, [1]], "name"]]]]]]));
            rows.as_array().cloned()
        });
        let mut holders: BTreeMap<u64, &Value> = BTreeMap::new();
        for row in &rows {
            if let Some(other) = holders.insert(row["name"].as_u64().unwrap(), row) {
                documents.contradict(format!("two documents have one name: {row} and {other}"));
            }
            if self.gone.lock().unwrap().contains(row["id"].as_str().unwrap()) {
                documents.contradict(format!("{row} was deleted"));
            }
        }
        // Names are taken by documents only.
        for name in (0..NAMES).filter(|name| !holders.contains_key(name)) {
            let answer = client.ask(&insert(NAME, &[json!({"id": format!("last{name}"), "name": name})]));
            if answer["inserted"] != 1 {
                documents.contradict(format!("nobody has the name {name}, and {answer}"));
            }
        }
        println!("{count} times a document had a name, {} were refused one", self.refused.load(Ordering::Relaxed));
    }
}
