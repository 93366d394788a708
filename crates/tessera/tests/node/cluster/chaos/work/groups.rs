//! Things that always change together: keys of one partition or of several, and the fields of a hash. Whoever looks at all of them
//! sees one instant: all have the same value, or none is there.

use super::super::load::{Answer, Command, Session, number_in};
use super::{Keys, Work};
use crate::cluster::checks::models::{self, Call};
use crate::cluster::checks::records::{Held, Record};
use crate::resp_client::{Value, words};
use rand::Rng;
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

const GROUPS: u32 = 2;
const MEMBERS: [&str; 4] = ["a", "b", "c", "d"];
const SECONDS: u64 = 4;

pub struct Groups {
    /// `None` for fields of a hash.
    keys: Option<Keys>,
    histories: Mutex<HashMap<String, Vec<Call<Record>>>>,
}

impl Groups {
    /// All at once by MSET and the like, or in transactions.
    pub fn of_keys(keys: Keys) -> Self {
        Self { keys: Some(keys), histories: Mutex::default() }
    }

    pub fn of_fields() -> Self {
        Self { keys: None, histories: Mutex::default() }
    }

    /// What the members all are, as a list of them tells.
    fn held(&self, session: &Session, group: &str, values: &[Value]) -> Option<Held> {
        let held: BTreeSet<Held> = values.iter().map(number_in).collect();
        match (held.first(), held.len(), values.len()) {
            (Some(one), 1, 4) => Some(*one),
            _ => {
                session.contradict(format!("{group} was seen as {values:?}, which is not one instant"));
                None
            }
        }
    }

    /// How many members a command found, which is all or none.
    fn was_there(&self, session: &Session, group: &str, command: &str, answer: &Answer) -> Option<bool> {
        let count = answer.integer()?;
        if count != 0 && count != 4 {
            session.contradict(format!("{command} of {group} was answered {count}, which is not one instant"));
        }
        Some(count != 0)
    }

    fn step_of_keys(&self, session: &mut Session, keys: Keys, group: &str) {
        let keys = MEMBERS.map(|member| keys.name(group, member));
        let value = session.new_value();
        let pairs: String = keys.iter().map(|key| format!(" {key} {value}")).collect();
        let each = |verb: &str| -> Vec<Command> {
            let value = if verb == "SET" { format!(" {value}") } else { String::new() };
            keys.iter().map(|key| words(&format!("{verb} {key}{value}"))).collect()
        };
        let list = keys.join(" ");
        let (answer, call) = match session.random.random_range(0..12) {
            0..4 => {
                let answer = session.ask(&format!("MGET {list}"));
                let Some(held) = answer.items().and_then(|items| self.held(session, group, items)) else { return };
                (answer, Record::Get(held))
            }
            4 => {
                let answer = session.transact(&each("GET"));
                let Some(held) = answer.items().and_then(|items| self.held(session, group, items)) else { return };
                (answer, Record::Get(held))
            }
            5..7 => (session.ask(&format!("MSET{pairs}")), Record::Set(value)),
            7 => (session.transact(&each("SET")), Record::Set(value)),
            8 => {
                let answer = session.ask(&format!("MSETNX{pairs}"));
                let was_absent = answer.integer().map(|set| set == 1);
                (answer, Record::SetAbsent(value, was_absent))
            }
            9 => {
                let answer = session.ask(&format!("EXISTS {list}"));
                let was_there = self.was_there(session, group, "EXISTS", &answer);
                (answer, Record::Exists(was_there))
            }
            10 => {
                // One after the other, and yet at once.
                let answer = session.transact(&each("GETDEL"));
                let held = answer.items().and_then(|items| self.held(session, group, items));
                (answer, Record::Take(held))
            }
            _ => {
                let answer = session.ask(&format!("DEL {list}"));
                let was_there = self.was_there(session, group, "DEL", &answer);
                (answer, Record::Delete(was_there))
            }
        };
        self.note(group, &answer, call);
    }

    fn step_of_fields(&self, session: &mut Session, group: &str) {
        let value = session.new_value();
        let pairs: String = MEMBERS.iter().map(|field| format!(" {field} {value}")).collect();
        let list = MEMBERS.join(" ");
        let (answer, call) = match session.random.random_range(0..10) {
            0..3 => {
                let answer = session.ask(&format!("HGETALL {group}"));
                let Some(items) = answer.items() else { return };
                let values: Vec<Value> = items.iter().skip(1).step_by(2).cloned().collect();
                let values = if values.is_empty() { vec![Value::Null; MEMBERS.len()] } else { values };
                let Some(held) = self.held(session, group, &values) else { return };
                (answer, Record::Get(held))
            }
            3 => {
                let answer = session.ask(&format!("HMGET {group} {list}"));
                let Some(held) = answer.items().and_then(|items| self.held(session, group, items)) else { return };
                (answer, Record::Get(held))
            }
            4..7 => {
                let answer = session.ask(&format!("HSET {group}{pairs}"));
                // It tells how many fields are new.
                let call = match self.was_there(session, group, "HSET", &answer) {
                    Some(true) => Record::SetAbsent(value, Some(true)),
                    Some(false) => Record::SetPresent(value, Some(true)),
                    None => Record::Set(value),
                };
                (answer, call)
            }
            7 => {
                let answer = session.ask(&format!("HLEN {group}"));
                let was_there = self.was_there(session, group, "HLEN", &answer);
                (answer, Record::Exists(was_there))
            }
            8 => {
                let answer = session.ask(&format!("HDEL {group} {list}"));
                let was_there = self.was_there(session, group, "HDEL", &answer);
                (answer, Record::Delete(was_there))
            }
            _ => {
                let answer = session.ask(&format!("DEL {group}"));
                let was_there = answer.integer().map(|count| count == 1);
                (answer, Record::Delete(was_there))
            }
        };
        self.note(group, &answer, call);
    }

    fn note(&self, group: &str, answer: &Answer, call: Record) {
        let is_look = matches!(call, Record::Get(_) | Record::Exists(_));
        if answer.is_refused() || is_look && answer.value().is_none() {
            return;
        }
        let call = Call { call, began: answer.began, ended: answer.ended };
        self.histories.lock().unwrap().entry(group.to_string()).or_default().push(call);
    }

    fn look(&self, session: &mut Session, group: &str) {
        let command = match self.keys {
            None => format!("HMGET {group} {}", MEMBERS.join(" ")),
            Some(keys) => format!("MGET {}", MEMBERS.map(|member| keys.name(group, member)).join(" ")),
        };
        let answer = session.ask(&command);
        if let Some(held) = answer.items().and_then(|items| self.held(session, group, items)) {
            self.note(group, &answer, Record::Get(held));
        }
    }
}

impl Work for Groups {
    fn step(&self, session: &mut Session) {
        let kind = if self.keys.is_none() { "fields" } else { "group" };
        let group = format!("{kind}-{}-{}", session.epoch(SECONDS), session.random.random_range(0..GROUPS));
        match self.keys {
            None => self.step_of_fields(session, &group),
            Some(keys) => self.step_of_keys(session, keys, &group),
        }
    }

    fn finish(&self, session: &mut Session) {
        let groups: Vec<String> = self.histories.lock().unwrap().keys().cloned().collect();
        groups.iter().for_each(|group| self.look(session, group));
    }

    fn check(&self) -> Result<(), String> {
        for (group, calls) in self.histories.lock().unwrap().iter() {
            models::check(calls).map_err(|error| format!("{group}: {error}"))?;
        }
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        let histories = self.histories.lock().unwrap();
        let keys_of = |group: &String| -> Vec<String> {
            match self.keys {
                None => vec![group.clone()],
                Some(keys) => MEMBERS.iter().map(|member| keys.name(group, member)).collect(),
            }
        };
        histories.keys().flat_map(keys_of).collect()
    }
}
