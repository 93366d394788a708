//! Registers of a hundred kilobytes to a megabyte, with all of what was written.

use super::super::load::Session;
use super::Work;
use crate::cluster::linearizability::{self, Operation};
use crate::resp_client::Value;
use rand::Rng;
use std::collections::HashMap;
use std::sync::Mutex;

const KEYS: u32 = 5;

#[derive(Default)]
pub struct Large(Mutex<HashMap<u32, Vec<Operation>>>);

/// What a register holds: its number, and as much after it as follows from that.
fn text_of(value: u64) -> Vec<u8> {
    let bytes = 100_000 + usize::try_from(value * 7_919 % 900_000).unwrap();
    let mut text = format!("{value}:").into_bytes();
    // Not to be compressed, and different wherever one looks.
    let mut state = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.extend_from_slice(&state.to_le_bytes());
    }
    text
}

fn number_of(text: &[u8]) -> Option<u64> {
    let digits = text.split(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Large {
    fn note(&self, key: u32, operation: Operation) {
        self.0.lock().unwrap().entry(key).or_default().push(operation);
    }

    fn look(&self, session: &mut Session, keys: &[u32]) {
        let commands: Vec<_> =
            keys.iter().map(|key| vec![b"GET".to_vec(), format!("large{key}").into_bytes()]).collect();
        for (key, answer) in keys.iter().zip(session.ask_all(&commands)) {
            let value = match answer.value() {
                None => continue,
                Some(Value::Bulk(text)) => match number_of(text).filter(|value| text_of(*value) == *text) {
                    Some(value) => value,
                    None => {
                        session.contradict(format!("large{key} has {} bytes that nobody wrote", text.len()));
                        continue;
                    }
                },
                Some(_) => 0,
            };
            self.note(*key, Operation { is_write: false, value, began: answer.began, ended: answer.ended });
        }
    }
}

impl Work for Large {
    fn step(&self, session: &mut Session) {
        let key = session.random.random_range(0..KEYS);
        if session.random.random_bool(0.6) {
            let count = if session.random.random_bool(0.1) { 10 } else { 1 };
            return self.look(session, &vec![key; count]);
        }
        let value = session.new_value();
        let command = vec![b"SET".to_vec(), format!("large{key}").into_bytes(), text_of(value)];
        let answer = session.ask_all(&[command]).remove(0);
        if !answer.is_refused() {
            self.note(key, Operation { is_write: true, value, began: answer.began, ended: answer.ended });
        }
    }

    fn finish(&self, session: &mut Session) {
        self.look(session, &(0..KEYS).collect::<Vec<_>>());
    }

    fn check(&self) -> Result<(), String> {
        for (key, operations) in self.0.lock().unwrap().iter() {
            linearizability::check(operations).map_err(|error| format!("large{key}: {error}"))?;
        }
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        (0..KEYS).map(|key| format!("large{key}")).collect()
    }
}
