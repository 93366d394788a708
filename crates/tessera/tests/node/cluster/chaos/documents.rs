//! Documents and an index through the ReQL port, whatever happens to nodes.
//!
//! Every document that is written again and again is a register: two fields that always get the same value, which nobody else writes.
//! Updates say what they have replaced, so that two of them that replaced the same value are found: one was lost. What is read, by
//! the primary key or by the index, must have an order with what is written (`linearizability`), and never show one field of an
//! update without the other one. Beside the registers there are [accounts](super::document_accounts), for atomic queries,
//! [names](super::document_names), for unique indexes, [indexes](super::document_indexes) that are made and dropped meanwhile, and
//! [batches](super::document_batches) of documents.

use super::document_accounts::Accounts;
use super::document_batches::Batches;
use super::document_indexes::Indexes;
use super::document_names::Names;
use super::replicas;
use super::tables::{Promise, Table};
use crate::cluster::Cluster;
use crate::cluster::linearizability::{self, Operation};
use crate::reql::{Client, PATIENCE, insert, table};
use crate::server::wait_for;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How the table is made, beside what clients call it.
pub const TABLE: Table = Table {
    name: "test.documents",
    options: "--model document --engine rocksdb --durability hard --replicas 3",
    promise: Promise::Everything,
};
/// What clients call it.
pub const NAME: &str = "documents";

const REGISTERS: u32 = 8;
const COUNTERS: u32 = 2;

/// Errors after which nothing was done, and after which it is not known.
const NOT_DONE: i64 = 4_100_000;
const UNKNOWN: i64 = 4_200_000;

/// What became of a query.
pub enum Outcome {
    Done(Value),
    NotDone,
    Unknown,
}

#[derive(Default)]
struct Register {
    operations: Vec<Operation>,
    /// Which value was replaced by which one.
    replaced: HashMap<u64, u64>,
}

/// What all clients share.
pub struct Documents {
    began: Instant,
    next_value: AtomicU64,
    pub stop: AtomicBool,
    pub done: AtomicU64,
    pub unknown: AtomicU64,
    pub refused: AtomicU64,
    registers: Mutex<HashMap<u32, Register>>,
    /// By counter, how many updates were acknowledged and how many may have been made.
    counts: Mutex<BTreeMap<u32, (u64, u64)>>,
    /// Documents that were inserted, or deleted again, and acknowledged.
    there: Mutex<BTreeSet<u64>>,
    gone: Mutex<BTreeSet<u64>>,
    contradictions: Mutex<Vec<String>>,
    accounts: Accounts,
    names: Names,
    indexes: Indexes,
    batches: Batches,
}

fn row(field: &str) -> Value {
    json!([170, [[10, [1]], field]])
}

fn function(body: &Value) -> Value {
    json!([69, [[2, [1]], body]])
}

fn get(key: &str) -> Value {
    json!([16, [table(NAME), key]])
}

fn register(number: u32) -> String {
    format!("register{number}")
}

/// All that a query finds after all faults.
fn rows(client: &mut Client, term: &Value) -> Value {
    wait_for("a scan after all faults", PATIENCE, || {
        let rows = client.ask(term);
        rows.is_array().then_some(rows)
    })
}

impl Documents {
    /// Makes the documents and the index.
    pub fn new(cluster: &Cluster) -> Self {
        let mut client = Client::to(cluster.reql_ports()[0]);
        let registers = (0..REGISTERS).map(|number| json!({"id": register(number), "v": 0, "w": 0}));
        let counters = (0..COUNTERS).map(|number| json!({"id": format!("counter{number}"), "n": 0}));
        let all: Vec<Value> = registers.chain(counters).collect();
        assert_eq!(client.ask(&insert(NAME, &all))["inserted"], all.len());
        assert_eq!(client.ask(&json!([75, [table(NAME), "v"]]))["created"], 1);
        assert_eq!(client.ask(&json!([140, [table(NAME)]]))[0]["ready"], true);
        Self {
            began: Instant::now(),
            next_value: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            registers: Mutex::default(),
            counts: Mutex::default(),
            there: Mutex::default(),
            gone: Mutex::default(),
            contradictions: Mutex::default(),
            accounts: Accounts::new(&mut client),
            names: Names::new(&mut client),
            indexes: Indexes::default(),
            batches: Batches::default(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// In nanoseconds. Zero is before everything.
    pub fn now(&self) -> u64 {
        1 + u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    pub fn contradict(&self, text: String) {
        self.contradictions.lock().unwrap().push(text);
    }

    /// What clients do until they are stopped.
    pub fn client(&self, ports: &[u16], seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let Some(mut client) = Client::try_to(*ports.choose(&mut random).unwrap()) else {
                std::thread::park_timeout(Duration::from_millis(20));
                continue;
            };
            for _ in 0..random.random_range(1..60) {
                if self.stop.load(Ordering::Relaxed) || !self.step(&mut client, &mut random) {
                    break;
                }
            }
        }
    }

    /// Does one thing. `false` if the connection has ended.
    fn step(&self, client: &mut Client, random: &mut StdRng) -> bool {
        let number = random.random_range(0..REGISTERS);
        match random.random_range(0..34) {
            33 => self.indexes.make(self, client),
            30..33 => self.batches.step(self, client, random),
            26..30 => self.names.step(self, client, random),
            20..26 => self.accounts.step(self, client, random),
            0..5 => self.write(client, number),
            5..8 => self.compare_and_set(client, number),
            8..13 => self.read(client, number, random.random_bool(0.5)),
            13..15 => self.indexes.read(self, client, "v"),
            15..17 => self.count(client, random.random_range(0..COUNTERS)),
            _ => self.insert_or_delete(client, random.random_bool(0.3)),
        }
    }

    /// Sends a query. `None` in the place of the second one if the connection has ended.
    pub fn ask(&self, client: &mut Client, term: &Value) -> (Outcome, bool) {
        let Some(answer) = client.try_ask(term) else {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            return (Outcome::Unknown, false);
        };
        let outcome = match (answer["t"].as_i64(), answer["e"].as_i64()) {
            (None, _) => Outcome::Done(answer),
            (_, Some(NOT_DONE)) => Outcome::NotDone,
            (_, Some(UNKNOWN)) => Outcome::Unknown,
            _ => {
                self.contradict(format!("{term} was answered {answer}"));
                Outcome::NotDone
            }
        };
        let count = match outcome {
            Outcome::Done(_) => &self.done,
            Outcome::NotDone => &self.refused,
            Outcome::Unknown => &self.unknown,
        };
        count.fetch_add(1, Ordering::Relaxed);
        (outcome, true)
    }

    /// The value of a register, of which both fields must tell the same. `None` for a document that is not there.
    fn value_of(&self, document: &Value) -> Option<u64> {
        if document["v"] != document["w"] {
            self.contradict(format!("an update was seen in part: {document}"));
        }
        let value = document["v"].as_u64();
        if value.is_none() && document["n"].is_null() {
            self.contradict(format!("a document was not there after {:?}: {document}", self.elapsed()));
        }
        value
    }

    fn note(&self, number: u32, operation: Operation, replaced: Option<u64>) {
        let mut registers = self.registers.lock().unwrap();
        let register = registers.entry(number).or_default();
        if let Some(old) = replaced {
            // What a write has replaced was there when it was made.
            register.operations.push(Operation { is_write: false, value: old, ..operation });
            if let Some(other) = register.replaced.insert(old, operation.value) {
                let by = operation.value;
                self.contradict(format!(
                    "register {number}: {old} was replaced by {other} and by {by}, so one is lost"
                ));
            }
        }
        register.operations.push(operation);
    }

    /// Writes a new value by a term that changes both fields, and notes what it has replaced.
    fn change(&self, client: &mut Client, number: u32, term: impl Fn(u64) -> Value) -> bool {
        let value = self.next_value.fetch_add(1, Ordering::Relaxed);
        let began = self.now();
        let (outcome, goes_on) = self.ask(client, &term(value));
        let mut operation = Operation { is_write: true, value, began, ended: self.now() };
        match outcome {
            Outcome::NotDone => {}
            Outcome::Unknown => {
                operation.ended = u64::MAX;
                self.note(number, operation, None);
            }
            Outcome::Done(result) if result["replaced"] == 1 => {
                let change = &result["changes"][0];
                if self.value_of(&change["new_val"]) != Some(value) {
                    self.contradict(format!("{value} was written, and {result} answered"));
                }
                self.note(number, operation, self.value_of(&change["old_val"]));
                if goes_on && value.is_multiple_of(2) {
                    return self.indexes.find(self, client, number, value);
                }
            }
            // The document was not what the write was to replace.
            Outcome::Done(result) if result["unchanged"] == 1 => {}
            // The write was refused for its document.
            Outcome::Done(result) if result["errors"] == 1 => {
                let reason = result["first_error"].as_str().unwrap_or_default();
                if !reason.starts_with("Cannot perform") {
                    self.contradict(format!("a write was answered {result}"));
                }
            }
            Outcome::Done(result) => self.contradict(format!("a write was answered {result}")),
        }
        goes_on
    }

    fn write(&self, client: &mut Client, number: u32) -> bool {
        self.change(
            client,
            number,
            |value| json!([53, [get(&register(number)), {"v": value, "w": value}], {"return_changes": true}]),
        )
    }

    /// Replaces a value that was read before, unless it is another one by then.
    fn compare_and_set(&self, client: &mut Client, number: u32) -> bool {
        let (outcome, goes_on) = self.ask(client, &get(&register(number)));
        let Outcome::Done(document) = outcome else { return goes_on };
        let Some(old) = self.value_of(&document) else { return goes_on };
        let is_same = json!([17, [row("v"), old]]);
        let both = |value: u64| json!([35, [[10, [1]], {"v": value, "w": value}]]);
        self.change(client, number, |value| {
            let branch = function(&json!([65, [is_same, both(value), [10, [1]]]]));
            json!([55, [get(&register(number)), branch], {"return_changes": true}])
        })
    }

    fn read(&self, client: &mut Client, number: u32, has_confirmed: bool) -> bool {
        let mode = if has_confirmed { "majority" } else { "single" };
        let began = self.now();
        let (outcome, goes_on) = self.ask(client, &json!([16, [[15, [NAME], {"read_mode": mode}], register(number)]]));
        if let Outcome::Done(document) = outcome
            && let Some(value) = self.value_of(&document)
        {
            self.note(number, Operation { is_write: false, value, began, ended: self.now() }, None);
        }
        goes_on
    }

    /// The term for a register.
    pub fn register(&self, number: u32) -> Value {
        get(&register(number))
    }

    /// Notes what a query has seen that began at that time.
    pub fn note_seen(&self, documents: &[Value], began: u64) {
        let ended = self.now();
        for document in documents {
            let number = document["id"].as_str().and_then(|id| id.strip_prefix("register")?.parse().ok());
            if let (Some(value), Some(number)) = (self.value_of(document), number) {
                self.note(number, Operation { is_write: false, value, began, ended }, None);
            }
        }
    }

    fn count(&self, client: &mut Client, counter: u32) -> bool {
        let more = function(&json!({"n": [24, [row("n"), 1]]}));
        let (outcome, goes_on) = self.ask(client, &json!([53, [get(&format!("counter{counter}")), more]]));
        let mut counts = self.counts.lock().unwrap();
        let (sure, perhaps) = counts.entry(counter).or_default();
        match outcome {
            Outcome::Done(result) if result["replaced"] == 1 => *sure += 1,
            Outcome::Unknown => *perhaps += 1,
            _ => {}
        }
        goes_on
    }

    /// Documents that nobody else writes; some are deleted again.
    fn insert_or_delete(&self, client: &mut Client, is_delete: bool) -> bool {
        let number = self.next_value.fetch_add(1, Ordering::Relaxed);
        let document = json!({"id": number, "v": number, "w": number});
        let (outcome, goes_on) = self.ask(client, &insert(NAME, &[document]));
        let is_there = matches!(outcome, Outcome::Done(result) if result["inserted"] == 1);
        if !is_there || !goes_on {
            return goes_on;
        }
        if !is_delete {
            self.there.lock().unwrap().insert(number);
            return true;
        }
        let (outcome, goes_on) = self.ask(client, &json!([54, [[16, [table(NAME), number]]]]));
        match outcome {
            Outcome::Done(result) if result["deleted"] == 1 => _ = self.gone.lock().unwrap().insert(number),
            Outcome::NotDone => _ = self.there.lock().unwrap().insert(number),
            _ => {}
        }
        goes_on
    }

    /// What is there in the end, and whether all that was seen can be.
    pub fn finish(&self, cluster: &Cluster) {
        let mut client = Client::to(cluster.reql_ports()[cluster.running()[0]]);
        for number in 0..REGISTERS {
            wait_for("a read after all faults", PATIENCE, || {
                let done = self.done.load(Ordering::Relaxed);
                self.read(&mut client, number, false).then_some(())?;
                (self.done.load(Ordering::Relaxed) > done).then_some(())
            });
        }
        let documents = rows(&mut client, &table(NAME));
        let documents = documents.as_array().unwrap();
        let numbers = |documents: &[Value]| -> Vec<u64> {
            let mut numbers: Vec<u64> = documents.iter().filter_map(|document| document["id"].as_u64()).collect();
            numbers.sort_unstable();
            numbers
        };
        let found = numbers(documents);
        let lost: Vec<_> =
            self.there.lock().unwrap().iter().filter(|id| found.binary_search(id).is_err()).copied().collect();
        let back: Vec<_> =
            self.gone.lock().unwrap().iter().filter(|id| found.binary_search(id).is_ok()).copied().collect();
        if !lost.is_empty() || !back.is_empty() {
            self.contradict(format!("inserted, and gone: {lost:?}; deleted, and there: {back:?}"));
        }
        for (counter, (sure, perhaps)) in self.counts.lock().unwrap().iter() {
            let get = get(&format!("counter{counter}"));
            let n = wait_for("a counter is read", PATIENCE, || client.ask(&get)["n"].as_u64());
            if !(*sure..=sure + perhaps).contains(&n) {
                self.contradict(format!("counter {counter} is {n} after {sure} updates and perhaps {perhaps}"));
            }
        }
        // The index has what the documents have, in its order, whether they are read by it or found by a key.
        let indexed = rows(&mut client, &json!([41, [table(NAME)], {"index": "v"}]));
        let mut by_value: Vec<&Value> = documents.iter().filter(|document| document.get("v").is_some()).collect();
        by_value.sort_by_key(|document| document["v"].as_u64());
        let values = |documents: &mut dyn Iterator<Item = &Value>| -> Vec<Value> {
            documents.map(|document| document["v"].clone()).collect()
        };
        let (expected, told) = (values(&mut by_value.iter().copied()), values(&mut indexed.as_array().unwrap().iter()));
        if expected != told {
            self.contradict(format!("the index has {} entries of {} documents", told.len(), expected.len()));
        }
        for document in by_value.iter().step_by(17) {
            let alike = rows(&mut client, &json!([78, [table(NAME), document["v"]], {"index": "v"}]));
            if !alike.as_array().unwrap().contains(document) {
                self.contradict(format!("{document} is not found by the index, but {alike}"));
            }
        }
        for (number, register) in self.registers.lock().unwrap().iter() {
            if let Err(error) = linearizability::check(&register.operations) {
                self.contradict(format!("register {number}: {error}"));
            }
        }
        self.batches.finish(self, documents);
        self.indexes.finish(self, &mut client, documents);
        self.accounts.finish(self, cluster);
        self.names.finish(self, &mut client);
        replicas::compare_all(cluster, TABLE);
        let mut contradictions = self.contradictions.lock().unwrap();
        contradictions.truncate(20);
        assert!(contradictions.is_empty(), "contradictions:\n{}", contradictions.join("\n"));
    }
}
