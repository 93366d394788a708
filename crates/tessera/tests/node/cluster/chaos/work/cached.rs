//! Records of a table that evicts, each used by one client at a time: a record may be gone, but what was deleted or overwritten, and
//! acknowledged, never comes back.

use super::super::load::{Answer, Session};
use super::Work;
use crate::resp_client::Value;
use rand::Rng;
use std::sync::Mutex;

/// So many are used at a time, which is more than there is memory for.
const MOST: usize = 20_000;
const BYTES: usize = 4_000;

#[derive(Default)]
pub struct Cached(Mutex<Vec<Record>>);

#[derive(Clone, Debug)]
struct Record {
    name: String,
    /// What was written last; `None` if it was deleted.
    latest: Option<u64>,
}

fn text_of(value: u64) -> String {
    format!("{value:0BYTES$}")
}

impl Record {
    fn judge(&self, session: &Session, answer: &Answer) {
        let seen = match answer.value() {
            None => return,
            Some(Value::Bulk(text)) => match String::from_utf8_lossy(text).parse().ok() {
                Some(value) => value,
                None => return session.contradict(format!("{self:?} is something that nobody wrote")),
            },
            // What was evicted may still be with a replica that leads later.
            Some(_) => return,
        };
        if self.latest != Some(seen) {
            session.contradict(format!("{self:?} is {seen}, which had gone"));
        }
    }

    fn set(&mut self, session: &mut Session) -> bool {
        let value = session.new_value();
        let is_done = session.ask(&format!("SET {} {}", self.name, text_of(value))).value().is_some();
        self.latest = Some(value);
        is_done
    }
}

impl Work for Cached {
    fn step(&self, session: &mut Session) {
        let at = session.random.random_range(0..MOST);
        let taken = {
            let mut free = self.0.lock().unwrap();
            // Full rounds at first, so that memory runs out soon.
            let begins_anew = free.len() < MOST / 2 && at.is_multiple_of(2) || free.is_empty();
            (!begins_anew).then(|| {
                let at = at % free.len();
                free.swap_remove(at)
            })
        };
        let Some(mut record) = taken else {
            for _ in 0..20 {
                let name = format!("cached-{}", session.new_value());
                let mut record = Record { name, latest: None };
                if record.set(session) {
                    self.0.lock().unwrap().push(record);
                }
            }
            return;
        };
        let is_known = match session.random.random_range(0..10) {
            0..6 => {
                let answer = session.ask(&format!("GET {}", record.name));
                record.judge(session, &answer);
                true
            }
            6..8 => record.set(session),
            _ => {
                let is_done = session.ask(&format!("DEL {}", record.name)).value().is_some();
                record.latest = None;
                is_done
            }
        };
        if is_known {
            self.0.lock().unwrap().push(record);
        }
    }

    fn finish(&self, session: &mut Session) {
        for record in self.0.lock().unwrap().iter() {
            let answer = session.ask(&format!("GET {}", record.name));
            record.judge(session, &answer);
        }
    }

    /// Wrong answers were told when they came.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Replicas of such a table need not agree.
    fn keys(&self) -> Vec<String> {
        Vec::new()
    }
}
