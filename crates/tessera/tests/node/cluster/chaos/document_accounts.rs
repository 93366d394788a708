//! Accounts that are documents of two tables, and atomic queries that move amounts between them.
//!
//! Each transfer takes from one account, gives to another one, and inserts a receipt, in one atomic query. Whoever looks at all accounts at
//! one instant must find what was there at first. At the end each account has what the receipts say, and no acknowledged transfer is without
//! one.

use super::documents::{Documents, NAME, Outcome};
use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, insert, table};
use crate::server::wait_for;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The table that has every other account, and the receipts.
const OTHER: &str = "accounts";
const ACCOUNTS: u64 = 12;
const AT_FIRST: u64 = 1_000;

#[derive(Default)]
pub struct Accounts {
    next: AtomicU64,
    /// Transfers that were acknowledged, or refused.
    done: Mutex<BTreeSet<String>>,
    refused: Mutex<BTreeSet<String>>,
    audits: AtomicU64,
}

fn account(number: u64) -> Value {
    let name = if number.is_multiple_of(2) { NAME } else { OTHER };
    json!([16, [table(name), format!("account{number}")]])
}

/// Adds to what an account has.
fn add(number: u64, amount: i64) -> Value {
    let sum = json!([24, [[170, [[10, [1]], "has"]], amount]]);
    json!([53, [account(number), [69, [[2, [1]], {"has": sum}]]]])
}

fn atomically(terms: &[Value]) -> Value {
    json!([2, terms, {"atomic": true}])
}

fn amounts() -> Value {
    let has = |number| json!([170, [account(number), "has"]]);
    atomically(&(0..ACCOUNTS).map(has).collect::<Vec<_>>())
}

fn sum(amounts: &Value) -> Option<i64> {
    amounts.as_array()?.iter().map(Value::as_i64).sum()
}

impl Accounts {
    /// Makes the other table and the accounts.
    pub fn new(client: &mut Client) -> Self {
        let create = json!([60, [OTHER], {"shards": 3, "replicas": 3, "durability": "hard"}]);
        assert_eq!(client.ask(&create)["tables_created"], 1);
        client.ask(&json!([177, [table(OTHER)]]));
        assert_eq!(client.ask(&json!([75, [table(OTHER), "has"]]))["created"], 1);
        for (name, parity) in [(NAME, 0), (OTHER, 1)] {
            let numbers = (0..ACCOUNTS).filter(|number| number % 2 == parity);
            let all: Vec<_> =
                numbers.map(|number| json!({"id": format!("account{number}"), "has": AT_FIRST})).collect();
            assert_eq!(client.ask(&insert(name, &all))["inserted"], all.len());
        }
        Self::default()
    }

    /// Does one thing. `false` if the connection has ended.
    pub fn step(&self, documents: &Documents, client: &mut Client, random: &mut StdRng) -> bool {
        match random.random_range(0..10) {
            0..7 => self.transfer(documents, client, random),
            _ => self.audit(documents, client),
        }
    }

    fn transfer(&self, documents: &Documents, client: &mut Client, random: &mut StdRng) -> bool {
        let (from, to) = (random.random_range(0..ACCOUNTS), random.random_range(0..ACCOUNTS));
        let amount = random.random_range(1..9_i64);
        let name = format!("receipt{}", self.next.fetch_add(1, Ordering::Relaxed));
        let receipt = json!({"id": name, "from": from, "to": to, "amount": amount});
        let mut writes = vec![add(from, -amount), insert(OTHER, &[receipt]), add(to, amount)];
        let is_wrong = random.random_bool(0.1);
        if is_wrong {
            // There is such a document, so nothing may come of the query.
            writes.push(insert(OTHER, &[json!({"id": "account1"})]));
        }
        let (outcome, goes_on) = documents.ask(client, &atomically(&writes));
        match outcome {
            Outcome::Done(answer) if is_wrong => {
                documents.contradict(format!("a transfer with a wrong write was answered {answer}"));
            }
            Outcome::Done(answer) => {
                let is_done = answer[0]["replaced"] == 1 && answer[1]["inserted"] == 1 && answer[2]["replaced"] == 1;
                if !is_done {
                    documents.contradict(format!("a transfer was answered {answer}"));
                }
                self.done.lock().unwrap().insert(name);
            }
            Outcome::NotDone => _ = self.refused.lock().unwrap().insert(name),
            Outcome::Unknown => {}
        }
        goes_on
    }

    /// Looks at all accounts at one instant.
    fn audit(&self, documents: &Documents, client: &mut Client) -> bool {
        let (outcome, goes_on) = documents.ask(client, &amounts());
        if let Outcome::Done(amounts) = outcome {
            if sum(&amounts) != Some((ACCOUNTS * AT_FIRST).cast_signed()) {
                documents.contradict(format!("the accounts had {amounts} at one instant"));
            }
            self.audits.fetch_add(1, Ordering::Relaxed);
        }
        goes_on
    }

    /// What is there in the end.
    pub fn finish(&self, documents: &Documents, cluster: &Cluster) {
        let mut client = Client::to(cluster.reql_ports()[cluster.running()[0]]);
        let has = wait_for("the accounts are read", PATIENCE, || {
            let amounts = client.ask(&amounts());
            amounts.is_array().then_some(amounts)
        });
        let receipts = client.ask(&json!([39, [table(OTHER), [69, [[2, [1]], [32, [[10, [1]], "from"]]]]]]));
        let mut expected: Vec<i64> = vec![AT_FIRST.cast_signed(); usize::try_from(ACCOUNTS).unwrap()];
        let mut found = BTreeSet::new();
        for receipt in receipts.as_array().unwrap() {
            let number = |field: &str| usize::try_from(receipt[field].as_u64().unwrap()).unwrap();
            let amount = receipt["amount"].as_i64().unwrap();
            expected[number("from")] -= amount;
            expected[number("to")] += amount;
            found.insert(receipt["id"].as_str().unwrap().to_string());
        }
        if has != json!(expected) {
            documents.contradict(format!("the accounts have {has}, and by the receipts {expected:?}"));
        }
        let done = self.done.lock().unwrap();
        let lost: Vec<_> = done.difference(&found).collect();
        let undone = self.refused.lock().unwrap();
        let back: Vec<_> = undone.intersection(&found).collect();
        if !lost.is_empty() || !back.is_empty() {
            documents.contradict(format!("transfers without receipts: {lost:?}; refused, with receipts: {back:?}"));
        }
        // The index has each account where its amount says.
        let indexed = client.ask(&json!([41, [table(OTHER)], {"index": "has"}]));
        let of_index: BTreeMap<&str, &Value> =
            indexed.as_array().unwrap().iter().map(|row| (row["id"].as_str().unwrap(), &row["has"])).collect();
        let odd = (1..ACCOUNTS).step_by(2);
        let of_documents: BTreeMap<String, i64> =
            odd.map(|number| (format!("account{number}"), expected[usize::try_from(number).unwrap()])).collect();
        let agree = of_index.len() == of_documents.len()
            && of_documents.iter().all(|(id, has)| of_index.get(&**id).and_then(|found| found.as_i64()) == Some(*has));
        if !agree {
            documents.contradict(format!("the index has {of_index:?}, and the documents {of_documents:?}"));
        }
        let audits = self.audits.load(Ordering::Relaxed);
        println!("{} transfers, {} refused, {audits} audits", done.len(), undone.len());
    }
}
