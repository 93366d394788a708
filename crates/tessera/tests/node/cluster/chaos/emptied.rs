//! Transactions over two tables of different durability, both of which are truncated, dropped and recalled meanwhile
//! ([`Emptier`](super::emptier::Emptier)).
//!
//! A transaction is an atomic query of ReQL. It inserts a receipt into each of its tables, and adds one to a counter there, which others
//! use too. Whoever looks at a receipt does so in both tables at one instant. At the end all that was truncated is recalled, and everything is
//! judged by where the receipts are found ([`emptyings`]). It is also measured for how long documents could not be used while all nodes were
//! well.

use super::tables::{Promise, Table};
use super::waits::{Waits, WellTimes};
use crate::cluster::checks::emptyings::{COUNTERS, Life, Observation, Receipt, TABLES};
use crate::reql::{Client, PATIENCE, insert, table};
use crate::server::wait_for;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How the tables are made. They are in the database `test`.
pub const OF_EMPTIED: [Table; TABLES] = [
    Table {
        name: "test.hard",
        options: "--model document --engine rocksdb --durability hard --replicas 3",
        promise: Promise::Everything,
    },
    Table {
        name: "test.soft",
        options: "--model document --engine memory --durability soft --replicas 2",
        promise: Promise::Everything,
    },
];

/// What clients call them.
pub const NAMES: [&str; TABLES] = ["hard", "soft"];

/// How long a document may be of no use while all nodes are well, and every partition has a leader. That a table is dropped is an answer.
/// A transaction that was tried before may be left alone for three seconds of that when its coordinator has gone.
pub const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// So many of the latest receipts are looked at more than others.
const LATEST: u64 = 60;

/// So many of the first receipts are looked at all the time, to see for how long a document cannot be read. Others are looked at too seldom
/// to tell: one that could not be read once might not be asked for again for long.
const WATCHED: u64 = 8;

/// Errors after which nothing was done, and after which it is not known.
const NOT_DONE: i64 = 4_100_000;
const UNKNOWN: i64 = 4_200_000;

enum Outcome {
    Done(Value),
    /// Nothing was done, since a table is not there.
    NoTable,
    NotDone,
    /// It is not known what was done. The connection may have ended.
    Unknown,
}

/// What all clients share.
pub struct Emptied {
    began: Instant,
    next: AtomicU64,
    /// Tells clients to stop, and before that those who empty tables.
    pub stop: AtomicBool,
    pub is_calm: AtomicBool,
    pub done: AtomicU64,
    pub unknown: AtomicU64,
    pub refused: AtomicU64,
    pub refusals: Mutex<BTreeMap<String, u64>>,
    pub receipts: Mutex<Vec<Receipt>>,
    pub looks: Mutex<Vec<Observation>>,
    pub contradictions: Mutex<Vec<String>>,
    pub well: WellTimes,
    pub waits: Waits,
}

/// Most receipts are put into both tables.
fn tables_of(number: u64) -> [bool; TABLES] {
    match number % 10 {
        0 => [true, false],
        1 => [false, true],
        _ => [true, true],
    }
}

fn counter_of(number: u64) -> usize {
    usize::try_from(number % COUNTERS as u64).unwrap()
}

fn counter(number: usize) -> String {
    format!("counter{number}")
}

fn atomically(terms: &[Value]) -> Value {
    json!([2, terms, {"atomic": true}])
}

/// Adds one to a counter, which may not be there.
fn add_one(name: &str, number: usize) -> Value {
    let (row, id) = (json!([10, [1]]), counter(number));
    let more = json!([35, [row, {"n": [24, [[170, [row, "n"]], 1]]}]]);
    let first = json!({"id": id, "n": 1});
    let changed = json!([65, [[17, [row, null]], first, more]]);
    json!([55, [[16, [table(name), id]], [69, [[2, [1]], changed]]]])
}

impl Emptied {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            is_calm: AtomicBool::new(false),
            done: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refusals: Mutex::default(),
            receipts: Mutex::default(),
            looks: Mutex::default(),
            contradictions: Mutex::default(),
            well: WellTimes::default(),
            waits: Waits::default(),
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
    pub fn client(&self, addresses: &[(String, u16)], seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let (host, port) = addresses.choose(&mut random).unwrap();
            let Some(mut client) = Client::try_to_host(host, *port) else {
                std::thread::park_timeout(Duration::from_millis(20));
                continue;
            };
            for _ in 0..random.random_range(1..60) {
                let goes_on = match random.random_range(0..10) {
                    0..6 => self.transact(&mut client, random.random()),
                    _ => self.look(&mut client, &mut random),
                };
                if !goes_on || self.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }

    /// Sends a query. `false` if the connection has ended.
    fn ask(&self, client: &mut Client, term: &Value) -> (Outcome, bool) {
        let Some(answer) = client.try_ask(term) else {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            return (Outcome::Unknown, false);
        };
        let reason = || answer["r"][0].as_str().unwrap_or_default().to_string();
        let (count, outcome) = match (answer["t"].as_i64(), answer["e"].as_i64()) {
            (None, _) => (&self.done, Outcome::Done(answer)),
            (_, Some(UNKNOWN)) => (&self.unknown, Outcome::Unknown),
            (_, Some(NOT_DONE)) => {
                let (reason, is_missing) = (reason(), reason().ends_with("does not exist."));
                *self.refusals.lock().unwrap().entry(reason).or_default() += 1;
                (&self.refused, if is_missing { Outcome::NoTable } else { Outcome::NotDone })
            }
            _ => {
                self.contradict(format!("{term} was answered {answer}"));
                (&self.refused, Outcome::NotDone)
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        (outcome, true)
    }

    /// Notes whether documents could be used.
    fn note(&self, documents: impl Iterator<Item = String>, outcome: &Outcome, began: u64) {
        let is_answer = matches!(outcome, Outcome::Done(_) | Outcome::NoTable);
        self.waits.note_use(&self.well, documents, began, self.now(), is_answer);
    }

    /// Puts a receipt into its tables, in one order or in the other.
    fn transact(&self, client: &mut Client, is_turned: bool) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (tables, counter) = (tables_of(number), counter_of(number));
        let mut of_tables: Vec<[Value; 2]> = NAMES
            .iter()
            .zip(tables)
            .filter(|(_, is_meant)| *is_meant)
            .map(|(name, _)| [insert(name, &[json!({"id": number, "counter": counter})]), add_one(name, counter)])
            .collect();
        if is_turned {
            of_tables.reverse();
        }
        let began = self.now();
        let (outcome, goes_on) = self.ask(client, &atomically(&of_tables.concat()));
        let names = NAMES.iter().zip(tables).filter(|(_, is_meant)| *is_meant);
        self.note(names.map(|(name, _)| format!("{name} counter{counter}")), &outcome, began);
        let (was_done, ended) = match outcome {
            Outcome::Done(answer) => {
                let is_one = |change: &Value| {
                    change["inserted"].as_u64().unwrap_or(0) + change["replaced"].as_u64().unwrap_or(0) == 1
                };
                let changes = answer.as_array().map_or(&[][..], Vec::as_slice);
                if changes.len() != 2 * of_tables.len() || !changes.iter().all(is_one) {
                    self.contradict(format!("receipt {number} was answered {answer}"));
                }
                (Some(true), self.now())
            }
            Outcome::NoTable | Outcome::NotDone => (Some(false), self.now()),
            Outcome::Unknown => (None, u64::MAX),
        };
        self.receipts.lock().unwrap().push(Receipt { number, tables, counter, was_done, began, ended });
        goes_on
    }

    /// Looks for a receipt in both tables at one instant.
    fn look(&self, client: &mut Client, random: &mut StdRng) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        let of = match random.random_range(0..10) {
            0..2 => 0..WATCHED.min(next),
            2..4 => 0..next,
            _ => next.saturating_sub(LATEST)..next,
        };
        if of.is_empty() {
            return true;
        }
        let number = random.random_range(of);
        let began = self.now();
        let (outcome, goes_on) = self.ask(client, &atomically(&NAMES.map(|name| json!([16, [table(name), number]]))));
        if number < WATCHED {
            self.note(NAMES.iter().map(|name| format!("{name} {number}")), &outcome, began);
        }
        if let Outcome::Done(found) = outcome {
            let is_found = |at: usize| found[at]["id"] == number;
            if (0..TABLES).any(|at| !is_found(at) && !found[at].is_null()) {
                self.contradict(format!("receipt {number} was seen as {found}"));
            }
            let look = Observation { number, found: std::array::from_fn(is_found), began, ended: self.now() };
            self.looks.lock().unwrap().push(look);
        }
        goes_on
    }
}

/// Everything that a table has, which nobody writes any more.
pub fn read(client: &mut Client, name: &str) -> Life {
    let documents = wait_for("the table is read", PATIENCE, || {
        let documents = client.ask(&table(name));
        documents.is_array().then_some(documents)
    });
    let mut life = Life::default();
    for document in documents.as_array().unwrap() {
        match document["id"].as_u64() {
            Some(number) => {
                let counter = document["counter"].as_u64().and_then(|counter| usize::try_from(counter).ok());
                assert!(life.receipts.insert(number, counter.expect("it has one")).is_none());
            }
            None => {
                let id = document["id"].as_str().unwrap_or_default();
                let at = (0..COUNTERS).find(|at| counter(*at) == id).unwrap_or_else(|| panic!("{document}"));
                life.counters[at] = document["n"].as_u64().expect("it is a number");
            }
        }
    }
    life
}
