//! Keys that are renamed to each other and copied, set and deleted alone or in transactions, and seen together.

use super::super::load::{Answer, Session, number_in};
use super::{Keys, Work};
use crate::cluster::checks::models::{self, Call};
use crate::cluster::checks::places::{Change, PLACES};
use crate::cluster::checks::records::Held;
use crate::resp_client::{Value, words};
use rand::Rng;
use rand::seq::index::sample;
use std::collections::BTreeMap;
use std::sync::Mutex;

const SECONDS: u64 = 3;

pub struct Places {
    keys: Keys,
    /// By the names of groups.
    histories: Mutex<BTreeMap<String, Vec<Call<Change>>>>,
}

impl Places {
    pub fn new(keys: Keys) -> Self {
        Self { keys, histories: Mutex::default() }
    }

    fn names(&self, group: &str) -> [String; PLACES] {
        std::array::from_fn(|place| self.keys.name(group, place))
    }

    fn look(&self, session: &mut Session, group: &str) {
        let answer = session.ask(&format!("MGET {}", self.names(group).join(" ")));
        let seen: Option<Vec<Held>> = answer.items().map(|items| items.iter().map(number_in).collect());
        if let Some(seen) = seen.and_then(|seen| seen.try_into().ok()) {
            self.note(group, &answer, Change::See(seen));
        }
    }

    fn note(&self, group: &str, answer: &Answer, call: Change) {
        if answer.is_refused() {
            return;
        }
        let call = Call { call, began: answer.began, ended: answer.ended };
        self.histories.lock().unwrap().entry(group.to_string()).or_default().push(call);
    }

    fn change(&self, session: &mut Session, group: &str) {
        let names = self.names(group);
        let chosen = sample(&mut session.random, PLACES, 2).into_vec();
        let (from, to) = (chosen[0], chosen[1]);
        let value = session.new_value();
        let kind = session.random.random_range(0..10);
        let (one, other) = (&names[from], &names[to]);
        let command = match kind {
            0 => format!("MSET {one} {value} {other} {value}"),
            1 => format!("MSETNX {one} {value} {other} {value}"),
            2..5 => format!("RENAME {one} {other}"),
            5 => format!("RENAMENX {one} {other}"),
            6 => format!("COPY {one} {other} REPLACE"),
            7 => format!("COPY {one} {other}"),
            8 => format!("DEL {one} {other}"),
            _ => format!("SET {one} {value}"),
        };
        let answer = match session.random.random_bool(0.5) {
            true => session.ask(&command),
            false => session.transact(&[words(&command)]),
        };
        let reply = match answer.value() {
            Some(Value::Array(items)) => items.first().cloned(),
            reply => reply.cloned(),
        };
        // It says whether something was there only where nothing was.
        let was_there = reply.as_ref().map(|reply| !matches!(reply, Value::Error(_)));
        let number =
            reply.as_ref().and_then(|reply| if let Value::Integer(number) = reply { Some(*number) } else { None });
        let is_one = number.map(|number| number == 1);
        if let Some(Value::Error(line)) = &reply
            && !line.contains("no such key")
        {
            return session.contradict(format!("{command} in a transaction was refused: {line}"));
        }
        let call = match kind {
            0 => Change::Set(vec![(from, value), (to, value)]),
            1 => Change::SetAbsent(vec![(from, value), (to, value)], is_one),
            2..5 => Change::Move(from, to, was_there),
            5 => Change::MoveAbsent(from, to, was_there.map(|was_there| (was_there, is_one == Some(true)))),
            6 => Change::Copy(from, to, is_one),
            7 => Change::CopyAbsent(from, to, is_one),
            8 => Change::Delete(vec![from, to], number.and_then(|number| usize::try_from(number).ok())),
            _ => Change::Set(vec![(from, value)]),
        };
        self.note(group, &answer, call);
    }
}

impl Work for Places {
    fn step(&self, session: &mut Session) {
        let group = format!("places-{}", session.epoch(SECONDS));
        if session.random.random_bool(0.4) {
            self.look(session, &group);
        } else {
            self.change(session, &group);
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
        self.histories.lock().unwrap().keys().flat_map(|group| self.names(group)).collect()
    }
}
