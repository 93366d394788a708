//! Transactions that append to lists and read them: strings of elements of one length, each of which is never appended twice.

use super::super::load::{Answer, Command, Session};
use super::{Keys, Work};
use crate::cluster::checks::serializability::{self, Operation, Outcome, Transaction};
use crate::resp_client::{Value, words};
use rand::Rng;
use rand::seq::index::sample;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Lists that are used at one time, for so many seconds.
const LISTS: u64 = 8;
const SECONDS: u64 = 3;
/// Of an element with the comma behind it.
const BYTES: usize = 8;
const MOST: usize = 4;
/// Lists that are read at once in the end.
const PAGE: usize = 8;

pub struct Lists {
    keys: Keys,
    history: Mutex<Vec<Transaction>>,
}

/// What was in a list, as it was answered.
fn elements(value: &Value) -> Result<Vec<u64>, String> {
    let bytes = match value {
        Value::Null => &[],
        Value::Bulk(bytes) => bytes.as_slice(),
        other => return Err(format!("a list was read as {other}")),
    };
    let number = |element: &[u8]| std::str::from_utf8(element).ok()?.strip_suffix(',')?.parse().ok();
    let elements: Option<Vec<u64>> = bytes.chunks(BYTES).map(number).collect();
    elements.ok_or_else(|| format!("{} is no list of elements", bytes.escape_ascii()))
}

/// What an operation is, now that it was answered.
fn answered(operation: &Operation, item: &Value) -> Result<Operation, String> {
    match (operation, item) {
        (Operation::Append { list, element, .. }, Value::Integer(length)) => {
            let place = usize::try_from(*length).ok().filter(|length| length.is_multiple_of(BYTES));
            let place = place.ok_or_else(|| format!("an element was appended up to {length}"))? / BYTES;
            Ok(Operation::Append { list: *list, element: *element, place: Some(place) })
        }
        (Operation::Append { .. }, other) => Err(format!("an append was answered {other}")),
        (Operation::Read { list, .. }, item) => Ok(Operation::Read { list: *list, elements: elements(item)? }),
    }
}

impl Lists {
    pub fn new(keys: Keys) -> Self {
        Self { keys, history: Mutex::default() }
    }

    fn key(&self, list: u64) -> String {
        self.keys.name(&format!("lists-{}", list / LISTS), format!("list{}", list % LISTS))
    }

    fn command(&self, operation: &Operation) -> Command {
        match operation {
            Operation::Append { list, element, .. } => {
                words(&format!("APPEND {} {element:0width$},", self.key(*list), width = BYTES - 1))
            }
            Operation::Read { list, .. } => words(&format!("GET {}", self.key(*list))),
        }
    }

    /// What was not answered has no reads, and was aborted if that is known.
    fn note(&self, session: &Session, planned: &[Operation], answer: &Answer, items: Option<&[Value]>) {
        if items.is_some_and(|items| items.len() != planned.len()) {
            return session.contradict(format!("{planned:?} was answered {items:?}"));
        }
        let done = items.map(|items| planned.iter().zip(items).map(|(one, item)| answered(one, item)).collect());
        let (operations, outcome) = match done {
            Some(Ok(operations)) => (operations, Outcome::Committed),
            Some(Err(error)) => return session.contradict(error),
            None => {
                let is_append = |one: &&Operation| matches!(one, Operation::Append { .. });
                let is_unknown = answer.value().is_none() && !answer.is_refused();
                let outcome = if is_unknown { Outcome::Unknown } else { Outcome::Aborted };
                (planned.iter().filter(is_append).cloned().collect(), outcome)
            }
        };
        let transaction = Transaction { operations, outcome, began: answer.began, ended: answer.ended };
        self.history.lock().unwrap().push(transaction);
    }

    fn run(&self, session: &mut Session, planned: &[Operation]) {
        let commands: Vec<Command> = planned.iter().map(|operation| self.command(operation)).collect();
        let are_reads = planned.iter().all(|operation| matches!(operation, Operation::Read { .. }));
        if let [command] = &commands[..]
            && session.random.random_bool(0.5)
        {
            let answer = session.ask_all(std::slice::from_ref(command)).remove(0);
            return self.note(session, planned, &answer, answer.value().map(std::slice::from_ref));
        }
        let answer = if are_reads && session.random.random_bool(0.5) {
            let keys: String =
                commands.iter().map(|command| format!(" {}", String::from_utf8_lossy(&command[1]))).collect();
            session.ask(&format!("MGET{keys}"))
        } else {
            session.transact(&commands)
        };
        if answer.value() == Some(&Value::Null) {
            session.contradict("EXEC was answered null, and nothing was watched".into());
        }
        self.note(session, planned, &answer, answer.items());
    }

    /// Watches and reads some of the lists of a transaction before it. If nobody changes them, these reads belong to it.
    fn run_watching(&self, session: &mut Session, planned: &[Operation]) {
        let mut lists: Vec<u64> =
            planned.iter().map(|(Operation::Append { list, .. } | Operation::Read { list, .. })| *list).collect();
        lists.dedup();
        lists.truncate(session.random.random_range(1..=MOST));
        let keys: String = lists.iter().map(|list| format!(" {}", self.key(*list))).collect();
        // Keys may still be watched if one of these is not answered.
        let watched = session.ask(&format!("WATCH{keys}"));
        let reads: Vec<Operation> =
            lists.iter().map(|list| Operation::Read { list: *list, elements: Vec::new() }).collect();
        let commands: Vec<Command> = reads.iter().map(|read| self.command(read)).collect();
        let answers = session.ask_all(&commands);
        for (read, answer) in reads.iter().zip(&answers) {
            self.note(session, std::slice::from_ref(read), answer, answer.value().map(std::slice::from_ref));
        }
        let found: Option<Vec<Value>> = answers.iter().map(|answer| answer.value().cloned()).collect();
        let Some(found) = found.filter(|_| watched.value().is_some()) else {
            session.is_broken = true;
            return;
        };
        let commands: Vec<Command> = planned.iter().map(|operation| self.command(operation)).collect();
        let mut answer = session.transact(&commands);
        answer.began = watched.began;
        let items = answer.items().map(|items| [&found[..], items].concat());
        self.note(session, &[&reads[..], planned].concat(), &answer, items.as_deref());
    }
}

impl Work for Lists {
    fn step(&self, session: &mut Session) {
        let first = session.epoch(SECONDS) * LISTS;
        let count = session.random.random_range(1..=MOST);
        let chosen = sample(&mut session.random, LISTS as usize, count).into_vec();
        let appends = [0.0, 0.5, 0.9][session.random.random_range(0..3)];
        let mut planned = Vec::new();
        for list in chosen {
            // A list may be read and appended to several times.
            for _ in 0..if session.random.random_bool(0.2) { 3 } else { 1 } {
                let list = first + list as u64;
                planned.push(if session.random.random_bool(appends) {
                    Operation::Append { list, element: session.new_value(), place: None }
                } else {
                    Operation::Read { list, elements: Vec::new() }
                });
            }
        }
        if session.random.random_bool(0.25) {
            self.run_watching(session, &planned);
        } else {
            self.run(session, &planned);
        }
    }

    fn finish(&self, session: &mut Session) {
        let lists: Vec<u64> =
            (0..=session.epoch(SECONDS)).flat_map(|epoch| epoch * LISTS..(epoch + 1) * LISTS).collect();
        for page in lists.chunks(PAGE) {
            let reads: Vec<Operation> =
                page.iter().map(|list| Operation::Read { list: *list, elements: Vec::new() }).collect();
            self.run(session, &reads);
        }
    }

    fn check(&self) -> Result<(), String> {
        let history = self.history.lock().unwrap();
        let mut counts = BTreeMap::new();
        history.iter().for_each(|one| *counts.entry(format!("{:?}", one.outcome)).or_insert(0) += 1);
        eprintln!("transactions on lists: {counts:?}");
        serializability::check(&history)
    }

    fn keys(&self) -> Vec<String> {
        let history = self.history.lock().unwrap();
        let operations = history.iter().flat_map(|transaction| &transaction.operations);
        let lists: BTreeSet<u64> =
            operations.map(|(Operation::Append { list, .. } | Operation::Read { list, .. })| *list).collect();
        lists.into_iter().map(|list| self.key(list)).collect()
    }
}
