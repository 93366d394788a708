//! Rows of tokens, each appended once.

use super::super::load::Session;
use super::Work;
use crate::cluster::checks::appending::{self, Append, Sight};
use crate::resp_client::Value;
use rand::Rng;
use std::collections::HashMap;
use std::sync::Mutex;

const KEYS: u32 = 2;
const SECONDS: u64 = 6;
/// Of a token.
const BYTES: usize = 10;

#[derive(Default)]
pub struct Appends(Mutex<HashMap<String, Row>>);

type Row = (Vec<Append>, Vec<Sight>);

impl Appends {
    fn look(&self, session: &mut Session, key: &str) {
        let answer = session.ask(&format!("GET {key}"));
        let bytes = match answer.value() {
            None => return,
            Some(Value::Bulk(bytes)) => bytes.as_slice(),
            Some(_) => &[],
        };
        let number = |token: &[u8]| std::str::from_utf8(token).ok()?.strip_suffix(';')?.parse().ok();
        let Some(tokens) = bytes.chunks(BYTES).map(number).collect() else {
            return session.contradict(format!("{key} is no row of tokens: {}", bytes.escape_ascii()));
        };
        let sight = Sight { tokens, began: answer.began, ended: answer.ended };
        self.0.lock().unwrap().entry(key.to_string()).or_default().1.push(sight);
    }
}

impl Work for Appends {
    fn step(&self, session: &mut Session) {
        let key = format!("row-{}-{}", session.epoch(SECONDS), session.random.random_range(0..KEYS));
        if session.random.random_bool(0.4) {
            return self.look(session, &key);
        }
        let token = session.new_value();
        let answer = session.ask(&format!("APPEND {key} {token:0width$};", width = BYTES - 1));
        if answer.is_refused() {
            return;
        }
        let place = answer.integer().map(|length| length as u64 / BYTES as u64);
        let append = Append { token, place, began: answer.began, ended: answer.ended };
        self.0.lock().unwrap().entry(key).or_default().0.push(append);
    }

    fn finish(&self, session: &mut Session) {
        self.keys().iter().for_each(|key| self.look(session, key));
    }

    fn check(&self) -> Result<(), String> {
        for (key, (appends, sights)) in self.0.lock().unwrap().iter() {
            appending::check(appends, sights).map_err(|error| format!("{key}: {error}"))?;
        }
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}
