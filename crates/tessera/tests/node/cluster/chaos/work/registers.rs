//! Registers: single writes and reads, and pipelines of them. They go on through the whole run.

use super::super::load::{Session, number_in};
use super::super::tables::Promise;
use super::Work;
use crate::cluster::linearizability::{self, Operation};
use crate::resp_client::words;
use rand::Rng;
use std::collections::HashMap;
use std::sync::Mutex;

const KEYS: u32 = 12;

pub struct Registers {
    /// Acknowledged writes may be lost as long as nobody has read them.
    loses_unread: bool,
    prefix: &'static str,
    histories: Mutex<HashMap<u32, History>>,
}

#[derive(Default)]
struct History {
    operations: Vec<Operation>,
    /// Values that were read after a write in the same pipeline, with when the pipeline began.
    after_own: Vec<(u64, u64)>,
}

impl Registers {
    pub fn new(promise: Promise) -> Self {
        Self { loses_unread: promise == Promise::UntilRead, prefix: "register", histories: Mutex::default() }
    }

    /// Others, of which nothing is lost since nothing happens to nodes.
    pub fn in_calm() -> Self {
        Self { loses_unread: false, prefix: "calm", histories: Mutex::default() }
    }

    /// Carries out a pipeline of writes of some registers and reads of others. A write's value is `None` for a read.
    fn run(&self, session: &mut Session, keys: &[(u32, Option<u64>)]) {
        let prefix = self.prefix;
        let commands: Vec<_> = keys
            .iter()
            .map(|(key, value)| match value {
                Some(value) => words(&format!("SET {prefix}{key} {value}")),
                None => words(&format!("GET {prefix}{key}")),
            })
            .collect();
        let answers = session.ask_all(&commands);
        let mut histories = self.histories.lock().unwrap();
        let mut written = Vec::new();
        for ((key, write), answer) in keys.iter().zip(answers) {
            let history = histories.entry(*key).or_default();
            let mut operation =
                Operation { is_write: write.is_some(), value: 0, began: answer.began, ended: answer.ended };
            match (write, answer.value()) {
                (Some(_), _) if answer.is_refused() => continue,
                (Some(value), reply) => {
                    operation.value = *value;
                    if reply.is_some() {
                        written.push(*key);
                    }
                    if self.loses_unread {
                        operation.ended = u64::MAX;
                    }
                }
                (None, None) => continue,
                (None, Some(value)) => {
                    operation.value = number_in(value).unwrap_or(0);
                    if written.contains(key) && !self.loses_unread {
                        history.after_own.push((operation.value, operation.began));
                    }
                }
            }
            history.operations.push(operation);
        }
    }
}

impl Work for Registers {
    fn step(&self, session: &mut Session) {
        let count = if session.random.random_bool(0.15) { session.random.random_range(2..20) } else { 1 };
        let keys: Vec<_> = (0..count)
            .map(|_| {
                let is_write = session.random.random_bool(0.5);
                (session.random.random_range(0..KEYS), is_write.then(|| session.new_value()))
            })
            .collect();
        self.run(session, &keys);
    }

    fn finish(&self, session: &mut Session) {
        self.run(session, &(0..KEYS).map(|key| (key, None)).collect::<Vec<_>>());
    }

    fn check(&self) -> Result<(), String> {
        for (key, history) in self.histories.lock().unwrap().iter() {
            let fail = |error: String| format!("{}{key}: {error}", self.prefix);
            linearizability::check(&history.operations).map_err(fail)?;
            let writes = history.operations.iter().filter(|operation| operation.is_write);
            let ends: HashMap<u64, u64> = writes.map(|write| (write.value, write.ended)).collect();
            for (value, began) in &history.after_own {
                if ends.get(value).is_none_or(|ended| ended < began) {
                    return Err(fail(format!(
                        "a pipeline that began at {began} wrote, then read {value}, which was there before"
                    )));
                }
            }
        }
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        (0..KEYS).map(|key| format!("{}{key}", self.prefix)).collect()
    }
}
