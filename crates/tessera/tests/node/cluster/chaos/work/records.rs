//! Records that are set, set if absent or present, exchanged, taken, deleted and counted, one by one and several at once that are
//! in different partitions. What concerns several is not one instant, so each key has a history of its own.

use super::super::load::{Answer, Session, number_in};
use super::Work;
use crate::cluster::checks::models::{self, Call};
use crate::cluster::checks::records::Record;
use crate::resp_client::{Value, words};
use rand::Rng;
use rand::seq::IndexedRandom;
use std::collections::HashMap;
use std::sync::Mutex;

const KEYS: u32 = 6;
const SECONDS: u64 = 4;

#[derive(Default)]
pub struct Records(Mutex<HashMap<String, Vec<Call<Record>>>>);

/// Nobody knows whether it was done. Of several, some may have been.
fn is_open(answer: &Answer) -> bool {
    answer.value().is_none()
}

impl Records {
    fn note(&self, key: &str, answer: &Answer, call: Record) {
        let ended = if is_open(answer) { u64::MAX } else { answer.ended };
        // Of a read that was not answered nothing follows.
        if is_open(answer) && matches!(call, Record::Get(_) | Record::Exists(_)) {
            return;
        }
        let call = Call { call, began: answer.began, ended };
        self.0.lock().unwrap().entry(key.to_string()).or_default().push(call);
    }

    fn one(&self, session: &mut Session, key: &str) {
        let value = session.new_value();
        let kind = session.random.random_range(0..10);
        let command = match kind {
            0..3 => format!("GET {key}"),
            3 => format!("SET {key} {value}"),
            4 => format!("SETNX {key} {value}"),
            5 => format!("SET {key} {value} XX"),
            6 => format!("GETSET {key} {value}"),
            7 => format!("GETDEL {key}"),
            8 => format!("EXISTS {key}"),
            _ => format!("DEL {key}"),
        };
        let answer = session.ask(&command);
        if answer.is_refused() {
            return;
        }
        let was_there = answer.integer().map(|number| number == 1);
        let held = answer.value().map(number_in_reply);
        let call = match kind {
            0..3 => Record::Get(held.unwrap_or_default()),
            3 => Record::Set(value),
            4 => Record::SetAbsent(value, was_there),
            5 => Record::SetPresent(value, answer.value().map(|reply| *reply != Value::Null)),
            6 => Record::Exchange(value, held),
            7 => Record::Take(held),
            8 => Record::Exists(was_there),
            _ => Record::Delete(was_there),
        };
        self.note(key, &answer, call);
    }

    fn several(&self, session: &mut Session, keys: &[String]) {
        let list = keys.join(" ");
        let first = session.new_value();
        let values: Vec<u64> = std::iter::once(first).chain(keys.iter().skip(1).map(|_| session.new_value())).collect();
        let kind = session.random.random_range(0..8);
        let command = match kind {
            0..2 => format!("MGET {list}"),
            2..4 => {
                let pairs = keys.iter().zip(&values).map(|(key, value)| format!(" {key} {value}"));
                format!("MSET{}", pairs.collect::<String>())
            }
            4 => format!("EXISTS {list}"),
            5 => format!("TOUCH {list}"),
            6 => format!("UNLINK {list}"),
            _ => format!("DEL {list}"),
        };
        let answer = session.ask(&command);
        // If all were there, or none, that is known of each.
        let was_there = answer.integer().and_then(|count| {
            if !(0..=keys.len() as i64).contains(&count) {
                session.contradict(format!("{command} was answered {count}"));
            }
            (count == 0).then_some(false).or((count == keys.len() as i64).then_some(true))
        });
        for (at, key) in keys.iter().enumerate() {
            let call = match kind {
                0..2 => Record::Get(answer.items().and_then(|items| number_in(&items[at]))),
                2..4 => Record::Set(values[at]),
                4 | 5 => Record::Exists(was_there),
                _ => Record::Delete(was_there),
            };
            self.note(key, &answer, call);
        }
    }
}

fn number_in_reply(value: &Value) -> Option<u64> {
    match value {
        Value::Simple(_) => None,
        other => number_in(other),
    }
}

impl Work for Records {
    fn step(&self, session: &mut Session) {
        let epoch = session.epoch(SECONDS);
        let names: Vec<String> = (0..KEYS).map(|key| format!("record-{epoch}-{key}")).collect();
        if session.random.random_bool(0.5) {
            let key = names.choose(&mut session.random).unwrap();
            self.one(session, key);
        } else {
            let count = session.random.random_range(2..=4);
            let keys: Vec<String> = names.choose_multiple(&mut session.random, count).cloned().collect();
            self.several(session, &keys);
        }
    }

    fn finish(&self, session: &mut Session) {
        for keys in self.keys().chunks(50) {
            let commands: Vec<_> = keys.iter().map(|key| words(&format!("GET {key}"))).collect();
            for (key, answer) in keys.iter().zip(session.ask_all(&commands)) {
                if let Some(value) = answer.value() {
                    self.note(key, &answer, Record::Get(number_in(value)));
                }
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        for (key, calls) in self.0.lock().unwrap().iter() {
            models::check(calls).map_err(|error| format!("{key}: {error}"))?;
        }
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}
