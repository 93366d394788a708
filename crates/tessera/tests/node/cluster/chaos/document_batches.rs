//! Queries that write several documents: each of these is written for itself, but a query that is said to be undone has written none.

use super::documents::{Documents, NAME, Outcome};
use crate::reql::{Client, insert, table};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Documents of one query, at most.
const MOST: u64 = 12;

#[derive(Default)]
pub struct Batches {
    next: AtomicU64,
    /// Documents that were inserted, or were not, and acknowledged as such.
    there: Mutex<BTreeSet<String>>,
    not_there: Mutex<BTreeSet<String>>,
}

impl Batches {
    /// Does something with new documents. `false` if the connection has ended.
    pub fn step(&self, documents: &Documents, client: &mut Client, random: &mut StdRng) -> bool {
        let count = random.random_range(2..=MOST);
        let first = self.next.fetch_add(MOST, Ordering::Relaxed);
        let ids: Vec<String> = (first..first + count).map(|number| format!("batch{number}")).collect();
        let rows: Vec<Value> = ids.iter().map(|id| json!({"id": id, "b": 0})).collect();
        let (outcome, goes_on) = documents.ask(client, &insert(NAME, &rows));
        if !self.note(documents, outcome, "inserted", &ids, (&self.there, &self.not_there)) || !goes_on {
            return goes_on;
        }
        if random.random_bool(0.5) {
            return true;
        }
        let selected: Vec<Value> = std::iter::once(table(NAME)).chain(ids.iter().map(|id| json!(id))).collect();
        let (outcome, goes_on) = documents.ask(client, &json!([54, [[78, selected]]]));
        self.there.lock().unwrap().retain(|id| !ids.contains(id));
        self.note(documents, outcome, "deleted", &ids, (&self.not_there, &self.there));
        goes_on
    }

    /// Notes where documents are by what was answered to a query about all of them. Returns whether all of it was done.
    fn note(
        &self,
        documents: &Documents,
        outcome: Outcome,
        done: &str,
        ids: &[String],
        (then, else_): (&Mutex<BTreeSet<String>>, &Mutex<BTreeSet<String>>),
    ) -> bool {
        match outcome {
            Outcome::Done(result) if result[done] == ids.len() => {
                then.lock().unwrap().extend(ids.iter().cloned());
                return true;
            }
            Outcome::Done(result) => {
                let reason = result["first_error"].as_str().unwrap_or_default();
                if !reason.starts_with("Cannot perform") && !reason.starts_with("The operation may or may not") {
                    documents.contradict(format!("a write of {} documents was answered {result}", ids.len()));
                }
            }
            Outcome::NotDone => else_.lock().unwrap().extend(ids.iter().cloned()),
            Outcome::Unknown => {}
        }
        false
    }

    /// What is there in the end, of these `documents`.
    pub fn finish(&self, all: &Documents, documents: &[Value]) {
        let found: BTreeSet<&str> = documents.iter().filter_map(|document| document["id"].as_str()).collect();
        let (there, not_there) = (self.there.lock().unwrap(), self.not_there.lock().unwrap());
        let lost: Vec<&String> = there.iter().filter(|id| !found.contains(id.as_str())).collect();
        let back: Vec<&String> = not_there.iter().filter(|id| found.contains(id.as_str())).collect();
        if !lost.is_empty() || !back.is_empty() {
            all.contradict(format!("of batches are gone: {lost:?}; are there: {back:?}"));
        }
        println!("{} documents of batches are there, {} are not", there.len(), not_there.len());
    }
}
