//! Clients, and what they are told.

use super::tables::Table;
use super::waits::WellTimes;
use super::work::Work;
use crate::resp_client::{Client, Value, encode, words};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub type Command = Vec<Vec<u8>>;

/// How refusals begin that say: not done, and may be tried again when it has passed.
const PASSING: &[&str] = &["LOADING", "TRYAGAIN", "OOM", "MISCONF", "EXECABORT"];

/// How the refusal begins that a command rightly gets if one before it, which would have changed the kind of its key, was not
/// done.
const OTHER_KIND: &str = "WRONGTYPE";

/// What RENAME answers where there is nothing to rename. It was done then.
const NOTHING_THERE: &str = "ERR no such key";

/// Works that have their turn at one time.
const AT_A_TIME: usize = 2;

/// What all clients share.
pub struct Load {
    began: Instant,
    /// Host and port of each node.
    pub addresses: Mutex<Vec<(String, u16)>>,
    /// What is done, each in one table.
    pub works: Vec<(Table, Box<dyn Work>)>,
    /// In which works have their turns, for a second each.
    order: Vec<usize>,
    pub stop: AtomicBool,
    next_value: AtomicU64,
    pub done: AtomicU64,
    pub unknown: AtomicU64,
    pub refused: AtomicU64,
    pub refusals: Mutex<BTreeMap<String, u64>>,
    /// Answers that are wrong by themselves, with the names of their tables.
    pub contradictions: Mutex<Vec<(&'static str, String)>>,
    /// Where somebody keeps them.
    pub well: WellTimes,
}

impl Load {
    pub fn new(addresses: Vec<(String, u16)>, works: Vec<(Table, Box<dyn Work>)>, random: &mut StdRng) -> Self {
        let mut order: Vec<usize> = (0..works.len()).collect();
        order.shuffle(random);
        Self {
            began: Instant::now(),
            addresses: Mutex::new(addresses),
            works,
            order,
            stop: AtomicBool::new(false),
            next_value: AtomicU64::new(1),
            done: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refusals: Mutex::default(),
            contradictions: Mutex::default(),
            well: WellTimes::default(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// In nanoseconds. Zero is before everything.
    pub fn now(&self) -> u64 {
        1 + u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    /// Most clients are at the same few works at a time, one after the other, so that they get in each other's way.
    fn choose(&self, random: &mut StdRng) -> &(Table, Box<dyn Work>) {
        if random.random_bool(0.3) {
            return self.works.choose(random).expect("there are some");
        }
        let turn = self.began.elapsed().as_secs() as usize * AT_A_TIME + random.random_range(0..AT_A_TIME);
        &self.works[self.order[turn % self.order.len()]]
    }

    /// What clients do until they are stopped.
    pub fn client(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let address = self.addresses.lock().unwrap().choose(&mut random).unwrap().clone();
            let (table, work) = self.choose(&mut random);
            // Half of the clients trust leases, the others have reads confirmed.
            let reads = if seed.is_multiple_of(2) { "majority" } else { "single" };
            let Some(mut session) = Session::open(self, &address, *table, reads, random.random()) else {
                std::thread::park_timeout(Duration::from_millis(20));
                continue;
            };
            for _ in 0..random.random_range(1..60) {
                if session.is_broken || self.stop.load(Ordering::Relaxed) {
                    break;
                }
                work.step(&mut session);
            }
        }
    }
}

/// A connection to some node, with a table chosen.
pub struct Session<'a> {
    load: &'a Load,
    client: Client,
    pub table: Table,
    pub random: StdRng,
    /// It is of no more use.
    pub is_broken: bool,
}

/// What became of a command.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done(Value),
    /// It was not done, and will not be.
    Refused,
    /// It may have been done in whole, in part or not at all, or may be yet.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub began: u64,
    /// `u64::MAX` if it is not known what became of it.
    pub ended: u64,
    pub outcome: Outcome,
}

impl<'a> Session<'a> {
    pub fn open(load: &'a Load, address: &(String, u16), table: Table, reads: &str, seed: u64) -> Option<Self> {
        let mut client = Client::connect_to(&address.0, address.1).ok()?;
        for command in [format!("READS {reads}"), format!("TABLE {}", table.name)] {
            let Ok(Value::Simple(_)) = client.call(&words(&command)) else { return None };
        }
        Some(Self { load, client, table, random: StdRng::seed_from_u64(seed), is_broken: false })
    }

    pub fn well(&self) -> &WellTimes {
        &self.load.well
    }

    /// Values are never used twice.
    pub fn new_value(&self) -> u64 {
        self.load.next_value.fetch_add(1, Ordering::Relaxed)
    }

    /// Names change every so many seconds, so that what has to be explained together stays small.
    pub fn epoch(&self, seconds: u64) -> u64 {
        self.load.elapsed().as_secs() / seconds
    }

    /// Words are separated by single spaces.
    pub fn ask(&mut self, command: &str) -> Answer {
        self.ask_all(&[words(command)]).remove(0)
    }

    /// Sends all at once.
    pub fn ask_all(&mut self, commands: &[Command]) -> Vec<Answer> {
        let began = self.load.now();
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        self.is_broken |= self.client.send(&bytes).is_err();
        let mut were_done = true;
        let answers = commands.iter().map(|command| {
            let answer = self.read_answer(command, began, were_done);
            were_done &= answer.value().is_some();
            answer
        });
        answers.collect()
    }

    /// `were_done` says whether all commands were done that were sent together with this one and before it.
    fn read_answer(&mut self, command: &Command, began: u64, were_done: bool) -> Answer {
        let reply = if self.is_broken { None } else { self.client.read().ok() };
        self.is_broken |= reply.is_none();
        let outcome = match reply {
            None => Outcome::Unknown,
            Some(Value::Error(line)) if line.contains("outcome unknown") => Outcome::Unknown,
            Some(Value::Error(line)) if line == NOTHING_THERE => Outcome::Done(Value::Error(line)),
            Some(Value::Error(line)) => {
                self.refuse(command, line, were_done);
                Outcome::Refused
            }
            Some(value) => Outcome::Done(value),
        };
        let count = match outcome {
            Outcome::Unknown => &self.load.unknown,
            Outcome::Refused => &self.load.refused,
            Outcome::Done(_) => &self.load.done,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let ended = if matches!(outcome, Outcome::Unknown) { u64::MAX } else { self.load.now() };
        Answer { began, ended, outcome }
    }

    fn refuse(&self, command: &Command, line: String, were_done: bool) {
        let is_passing = PASSING.iter().any(|passing| line.starts_with(passing));
        let is_of_other_kind = !were_done && line.starts_with(OTHER_KIND);
        if !is_passing && !is_of_other_kind {
            let command: Vec<_> =
                command.iter().map(|word| String::from_utf8_lossy(&word[..word.len().min(40)])).collect();
            self.contradict(format!("{} was refused: {line}", command.join(" ")));
        }
        *self.load.refusals.lock().unwrap().entry(line).or_default() += 1;
    }

    /// Carries commands out as one.
    pub fn transact(&mut self, commands: &[Command]) -> Answer {
        let mut all = vec![words("MULTI")];
        all.extend_from_slice(commands);
        all.push(words("EXEC"));
        self.ask_all(&all).pop().expect("EXEC is answered")
    }

    /// Something was answered that cannot be.
    pub fn contradict(&self, text: String) {
        self.load.contradictions.lock().unwrap().push((self.table.name, text));
    }
}

impl Answer {
    /// The answer, if it was done.
    pub fn value(&self) -> Option<&Value> {
        match &self.outcome {
            Outcome::Done(value) => Some(value),
            Outcome::Refused | Outcome::Unknown => None,
        }
    }

    pub fn is_refused(&self) -> bool {
        matches!(self.outcome, Outcome::Refused)
    }

    pub fn integer(&self) -> Option<i64> {
        match self.value() {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    pub fn items(&self) -> Option<&[Value]> {
        match self.value() {
            Some(Value::Array(items)) => Some(items),
            _ => None,
        }
    }
}

/// A number that was stored as text; `None` if nothing is there.
pub fn number_in(value: &Value) -> Option<u64> {
    match value {
        Value::Null => None,
        Value::Bulk(bytes) => Some(
            std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value}")),
        ),
        Value::Integer(number) => Some(u64::try_from(*number).unwrap()),
        other => panic!("{other}"),
    }
}
