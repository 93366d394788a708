//! What indexes tell while faults go on, also those that are made and dropped meanwhile.
//!
//! Whoever reads the registers by an index sees values that these have at that time, like whoever reads them by their keys. A register that was
//! written is found by its value, unless it has another one by then.

use super::documents::{Documents, NAME, Outcome};
use crate::reql::{Client, PATIENCE, table};
use crate::server::wait_for;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often it is looked whether a new index is ready, and what is waited in between.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
pub struct Indexes {
    next: AtomicU64,
    built: AtomicU64,
}

fn by_index(name: &str) -> Value {
    json!([41, [table(NAME)], {"index": name}])
}

impl Indexes {
    /// All registers as an index has them.
    pub fn read(&self, documents: &Documents, client: &mut Client, name: &str) -> bool {
        let began = documents.now();
        let (outcome, goes_on) = documents.ask(client, &by_index(name));
        if let Outcome::Done(rows) = outcome {
            documents.note_seen(rows.as_array().unwrap(), began);
        }
        goes_on
    }

    /// Looks for a register by the value that was just written.
    pub fn find(&self, documents: &Documents, client: &mut Client, number: u32, value: u64) -> bool {
        let began = documents.now();
        let (outcome, goes_on) = documents.ask(client, &json!([78, [table(NAME), value], {"index": "v"}]));
        let Outcome::Done(rows) = outcome else { return goes_on };
        let rows = rows.as_array().unwrap();
        documents.note_seen(rows, began);
        if !rows.is_empty() || !goes_on {
            return goes_on;
        }
        // No value is written twice, so the register has another one from now on.
        let (outcome, goes_on) = documents.ask(client, &documents.register(number));
        if let Outcome::Done(document) = outcome
            && document["v"] == value
        {
            documents.contradict(format!("the index does not find {document}, which was written before"));
        }
        goes_on
    }

    /// Makes an index, reads by it if it is built soon, and drops it again.
    pub fn make(&self, documents: &Documents, client: &mut Client) -> bool {
        let name = format!("made{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (outcome, goes_on) =
            documents.ask(client, &json!([75, [table(NAME), name, [69, [[2, [1]], [170, [[10, [1]], "v"]]]]]]));
        if !matches!(outcome, Outcome::Done(_)) || !goes_on {
            return goes_on;
        }
        for _ in 0..LOOKS {
            let (outcome, goes_on) = documents.ask(client, &json!([139, [table(NAME), name]]));
            if !goes_on {
                return false;
            }
            if matches!(outcome, Outcome::Done(status) if status[0]["ready"] == true) {
                self.built.fetch_add(1, Ordering::Relaxed);
                if !self.read(documents, client, &name) {
                    return false;
                }
                break;
            }
            if documents.stop.load(Ordering::Relaxed) {
                return true;
            }
            std::thread::park_timeout(PAUSE);
        }
        documents.ask(client, &json!([76, [table(NAME), name]])).1
    }

    /// The indexes that were not dropped again have what `documents` have, in their order.
    pub fn finish(&self, all: &Documents, client: &mut Client, documents: &[Value]) {
        let mut values: Vec<u64> = documents.iter().filter_map(|document| document["v"].as_u64()).collect();
        values.sort_unstable();
        let names = client.ask(&json!([77, [table(NAME)]]));
        let names = names.as_array().unwrap().iter().filter_map(Value::as_str);
        let left: Vec<&str> = names.filter(|name| name.starts_with("made")).collect();
        for name in &left {
            wait_for("an index is built", PATIENCE, || {
                let status = client.ask(&json!([139, [table(NAME), name]]));
                (status[0]["ready"] == true).then_some(())
            });
            let rows = client.ask(&by_index(name));
            let told: Vec<u64> = rows.as_array().unwrap().iter().filter_map(|row| row["v"].as_u64()).collect();
            if told != values {
                all.contradict(format!("the index {name} has {} entries of {} documents", told.len(), values.len()));
            }
        }
        let (made, built) = (self.next.load(Ordering::Relaxed), self.built.load(Ordering::Relaxed));
        println!("{made} indexes were made, {built} of them were built soon, {} are left", left.len());
    }
}
