//! Counters: INCR, check-and-set under WATCH, and counters in the fields of a hash that are read all at once.

use super::super::load::{Answer, Session, number_in};
use super::Work;
use crate::cluster::checks::counting::{self, Count};
use crate::resp_client::{Value, words};
use rand::Rng;
use std::collections::HashMap;
use std::sync::Mutex;

const KEYS: u32 = 3;
const FIELDS: [&str; 3] = ["a", "b", "c"];
const SECONDS: u64 = 10;

/// By key, and by key and field.
#[derive(Default)]
pub struct Counters(Mutex<HashMap<(String, &'static str), Vec<Count>>>);

impl Counters {
    fn note(&self, key: &str, field: &'static str, answer: &Answer, is_increment: bool, value: Option<u64>) {
        // Of what was not done, or a read that was not answered, nothing follows.
        if answer.is_refused() || !is_increment && value.is_none() {
            return;
        }
        let count = Count { is_increment, value, began: answer.began, ended: answer.ended };
        self.0.lock().unwrap().entry((key.to_string(), field)).or_default().push(count);
    }

    fn read(&self, session: &mut Session, key: &str) -> Option<u64> {
        let answer = session.ask(&format!("GET {key}"));
        let value = answer.value().map(|value| number_in(value).unwrap_or(0));
        self.note(key, "", &answer, false, value);
        value
    }

    /// Counts only if nobody has meanwhile.
    fn check_and_set(&self, session: &mut Session, key: &str) {
        if session.ask(&format!("WATCH {key}")).value().is_none() {
            session.is_broken = true;
            return;
        }
        let Some(value) = self.read(session, key) else {
            session.is_broken = true;
            return;
        };
        let answer = session.transact(&[words(&format!("SET {key} {}", value + 1))]);
        if answer.value() != Some(&Value::Null) {
            self.note(key, "", &answer, true, answer.items().map(|_| value + 1));
        }
    }

    fn read_fields(&self, session: &mut Session, key: &str) {
        let answer = session.ask(&format!("HGETALL {key}"));
        let Some(items) = answer.items() else { return };
        for field in FIELDS {
            let name = Value::Bulk(field.into());
            let pair = items.chunks(2).find(|pair| pair[0] == name);
            self.note(key, field, &answer, false, Some(pair.and_then(|pair| number_in(&pair[1])).unwrap_or(0)));
        }
    }
}

impl Work for Counters {
    fn step(&self, session: &mut Session) {
        let name = format!("{}-{}", session.epoch(SECONDS), session.random.random_range(0..KEYS));
        let (key, hash) = (format!("counter-{name}"), format!("counters-{name}"));
        match session.random.random_range(0..10) {
            0..3 => {
                let answer = session.ask(&format!("INCR {key}"));
                self.note(&key, "", &answer, true, answer.value().and_then(number_in));
            }
            3..5 => _ = self.read(session, &key),
            5..7 => self.check_and_set(session, &key),
            7..9 => {
                let field = FIELDS[session.random.random_range(0..FIELDS.len())];
                let answer = session.ask(&format!("HINCRBY {hash} {field} 1"));
                self.note(&hash, field, &answer, true, answer.value().and_then(number_in));
            }
            _ => self.read_fields(session, &hash),
        }
    }

    fn finish(&self, session: &mut Session) {
        for key in self.keys() {
            if key.starts_with("counters") {
                self.read_fields(session, &key);
            } else {
                self.read(session, &key);
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        for ((key, field), counts) in self.0.lock().unwrap().iter() {
            counting::check(counts).map_err(|error| format!("{key} {field}: {error}"))?;
        }
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.0.lock().unwrap().keys().map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}
