//! Keys that only one client uses, and only one after the other: every answer is known beforehand, whichever partitions the keys
//! are in. After an answer that leaves something open the client goes on with other keys.

use super::super::load::{Command, Session};
use super::Work;
use crate::resp_client::{Value, words};
use rand::Rng;
use rand::seq::IndexedRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

const KEYS: u32 = 8;

/// Sets of keys that nobody uses just now.
#[derive(Default)]
pub struct Owned {
    free: Mutex<Vec<Keys>>,
    /// Of sets that are given up.
    old: Mutex<Vec<String>>,
}

#[derive(Clone, Debug)]
enum Thing {
    Text(String),
    Fields(BTreeMap<String, String>),
}

/// What must be there.
#[derive(Clone, Debug, Default)]
struct Keys {
    number: u64,
    there: BTreeMap<String, Thing>,
}

impl Keys {
    fn name(&self, key: u32) -> String {
        format!("owned-{}-{key}", self.number)
    }

    /// A command, and what it must be answered if it is done after all before it.
    fn next(&mut self, random: &mut impl Rng, value: u64) -> (Command, Value) {
        let names: Vec<String> = (0..KEYS).map(|key| self.name(key)).collect();
        let count = random.random_range(2..=4);
        let several: Vec<&String> = names.choose_multiple(random, count).collect();
        let list = several.iter().map(|name| format!(" {name}")).collect::<String>();
        let one = names.choose(random).unwrap().clone();
        let found = several.iter().filter(|name| self.there.contains_key(**name)).count() as i64;
        let ok = Value::Simple("OK".into());
        let text = |there: Option<&Thing>| match there {
            Some(Thing::Text(text)) => Value::Bulk(text.clone().into_bytes()),
            _ => Value::Null,
        };
        let (command, answer) = match random.random_range(0..13) {
            0..2 => {
                let pairs: String = several.iter().map(|name| format!(" {name} {value}")).collect();
                for name in several {
                    self.there.insert(name.clone(), Thing::Text(value.to_string()));
                }
                (format!("MSET{pairs}"), ok)
            }
            2..4 => {
                let values = several.iter().map(|name| text(self.there.get(*name))).collect();
                (format!("MGET{list}"), Value::Array(values))
            }
            4 => {
                several.iter().for_each(|name| _ = self.there.remove(*name));
                (format!("DEL{list}"), Value::Integer(found))
            }
            5 => {
                several.iter().for_each(|name| _ = self.there.remove(*name));
                (format!("UNLINK{list}"), Value::Integer(found))
            }
            6 => (format!("EXISTS{list}"), Value::Integer(found)),
            7 => (format!("TOUCH{list}"), Value::Integer(found)),
            8 => {
                // A string in place of whatever was there.
                self.there.insert(one.clone(), Thing::Text(value.to_string()));
                (format!("SET {one} {value}"), ok)
            }
            9 => self.append(one, value),
            10 => self.set_field(one, value, random.random_range(0..4)),
            11 => match self.there.get(&one) {
                Some(Thing::Fields(fields)) => {
                    let pairs = fields.iter().flat_map(|(field, value)| [field.clone(), value.clone()]);
                    (format!("HGETALL {one}"), Value::Array(pairs.map(|text| Value::Bulk(text.into())).collect()))
                }
                there => (format!("MGET {one}"), Value::Array(vec![text(there)])),
            },
            _ => {
                let kind = match self.there.get(&one) {
                    None => "none",
                    Some(Thing::Text(_)) => "string",
                    Some(Thing::Fields(_)) => "hash",
                };
                (format!("TYPE {one}"), Value::Simple(kind.into()))
            }
        };
        (words(&command), answer)
    }

    fn append(&mut self, name: String, value: u64) -> (String, Value) {
        match self.there.entry(name.clone()).or_insert_with(|| Thing::Text(String::new())) {
            Thing::Text(text) => {
                *text += &value.to_string();
                (format!("APPEND {name} {value}"), Value::Integer(text.len() as i64))
            }
            Thing::Fields(fields) => (format!("HLEN {name}"), Value::Integer(fields.len() as i64)),
        }
    }

    fn set_field(&mut self, name: String, value: u64, field: u32) -> (String, Value) {
        match self.there.entry(name.clone()).or_insert_with(|| Thing::Fields(BTreeMap::new())) {
            Thing::Fields(fields) => {
                let is_new = fields.insert(format!("f{field}"), value.to_string()).is_none();
                (format!("HSET {name} f{field} {value}"), Value::Integer(i64::from(is_new)))
            }
            Thing::Text(text) => (format!("STRLEN {name}"), Value::Integer(text.len() as i64)),
        }
    }
}

impl Owned {
    fn give_up(&self, keys: &Keys) {
        self.old.lock().unwrap().extend((0..KEYS).map(|key| keys.name(key)));
    }

    fn look(&self, session: &mut Session, keys: &Keys) {
        let commands: Vec<Command> = (0..KEYS).map(|key| words(&format!("TYPE {}", keys.name(key)))).collect();
        for (key, answer) in session.ask_all(&commands).into_iter().enumerate() {
            let name = keys.name(key as u32);
            let Some(Value::Simple(kind)) = answer.value() else { continue };
            let (read, must_be) = match keys.there.get(&name) {
                None => ("GET", None),
                Some(Thing::Text(text)) => ("GET", Some(Value::Bulk(text.clone().into()))),
                Some(Thing::Fields(fields)) => {
                    let texts = fields.iter().flat_map(|(field, value)| [field.clone(), value.clone()]);
                    ("HGETALL", Some(Value::Array(texts.map(|text| Value::Bulk(text.into())).collect())))
                }
            };
            let is_there = kind != "none";
            let answer = session.ask(&format!("{read} {name}"));
            if is_there != must_be.is_some() || is_there && answer.value() != must_be.as_ref() {
                session.contradict(format!("in the end {name} is {kind} {answer:?} instead of {must_be:?}"));
            }
        }
    }
}

impl Work for Owned {
    fn step(&self, session: &mut Session) {
        let free = self.free.lock().unwrap().pop();
        let mut keys = free.unwrap_or_else(|| Keys { number: session.new_value(), ..Keys::default() });
        let count = if session.random.random_bool(0.3) { session.random.random_range(2..12) } else { 1 };
        let mut expected = Vec::new();
        for _ in 0..count {
            let value = session.new_value();
            expected.push(keys.next(&mut session.random, value));
        }
        let commands: Vec<Command> = expected.iter().map(|(command, _)| command.clone()).collect();
        let answers = session.ask_all(&commands);
        for ((command, must_be), answer) in expected.iter().zip(&answers) {
            match answer.value() {
                // What comes after one that was not done was made for another state.
                None => return self.give_up(&keys),
                Some(value) if value == must_be => {}
                Some(value) => {
                    let command: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word)).collect();
                    session.contradict(format!("{} was answered {value} instead of {must_be}", command.join(" ")));
                    return self.give_up(&keys);
                }
            }
        }
        self.free.lock().unwrap().push(keys);
    }

    fn finish(&self, session: &mut Session) {
        let free = self.free.lock().unwrap().clone();
        free.iter().for_each(|keys| self.look(session, keys));
    }

    /// Wrong answers were told when they came.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        let free = self.free.lock().unwrap();
        let of_free = free.iter().flat_map(|keys| (0..KEYS).map(|key| keys.name(key)));
        let keys: BTreeSet<String> = of_free.chain(self.old.lock().unwrap().iter().cloned()).collect();
        keys.into_iter().collect()
    }
}
