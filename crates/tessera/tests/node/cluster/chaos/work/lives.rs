//! Keys with a time to live, each used by one client at a time: those with long to live are there, whatever happens to clocks; those
//! that were deleted stay so; those with short to live go, where clocks are right.

use super::super::load::Session;
use super::super::tables::Trust;
use super::Work;
use crate::resp_client::{Value, words};
use rand::Rng;
use std::sync::Mutex;

/// More than a run takes, and less than a clock may be off.
const HOUR_SECONDS: u64 = 3_600;
/// More than all clocks together are ever set ahead.
const YEARS_SECONDS: u64 = 1_000 * 86_400;
const SHORT_MILLIS: u64 = 1_500;
/// How much later than they should short ones may go: writes may have been under way for a while.
const SLACK_NANOS: u64 = 20_000_000_000;
/// So many are used at a time.
const MOST: usize = 300;

pub struct Lives {
    long_seconds: u64,
    /// By whose clock short ones go is known.
    has_short: bool,
    free: Mutex<Vec<Life>>,
    used: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Long,
    Deleted,
    /// It goes within a time that began then.
    Short(u64),
}

#[derive(Clone, Debug)]
struct Life {
    name: String,
    value: u64,
    state: State,
}

impl Life {
    /// Looks whether it is as it must be.
    fn look(&self, session: &mut Session) {
        let answer = session.ask(&format!("GET {}", self.name));
        let must_be = match self.state {
            State::Long => Some(self.value),
            State::Deleted => None,
            State::Short(since) if answer.began > since + SHORT_MILLIS * 1_000_000 + SLACK_NANOS => None,
            State::Short(_) => return,
        };
        let is = match answer.value() {
            None => return,
            Some(Value::Bulk(bytes)) => String::from_utf8_lossy(bytes).parse().ok(),
            Some(_) => None,
        };
        if is != must_be {
            session.contradict(format!("{} is {:?} instead of {self:?}", self.name, answer.value()));
        }
    }
}

impl Lives {
    pub fn new(trust: Trust) -> Self {
        let has_short = trust == Trust::MostClocks;
        let long_seconds = if has_short { HOUR_SECONDS } else { YEARS_SECONDS };
        Self { long_seconds, has_short, free: Mutex::default(), used: Mutex::default() }
    }

    /// A new one; `None` if it is not known whether it came to be.
    fn begin(&self, session: &mut Session) -> Option<Life> {
        let value = session.new_value();
        let name = format!("life-{value}");
        self.used.lock().unwrap().push(name.clone());
        let long = self.long_seconds;
        let end = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + long;
        let kind = session.random.random_range(if self.has_short { 0..5 } else { 2..5 });
        let commands = match kind {
            0 => vec![format!("SET {name} {value} PX {SHORT_MILLIS}")],
            1 => vec![format!("SET {name} {value}"), format!("PEXPIRE {name} {SHORT_MILLIS}")],
            2 => vec![format!("SET {name} {value} EX {long}")],
            3 => vec![format!("SET {name} {value}"), format!("EXPIREAT {name} {end}")],
            // Given up before it ends.
            _ => vec![format!("SET {name} {value} EX {long}"), format!("PERSIST {name}")],
        };
        let commands: Vec<_> = commands.iter().map(|command| words(command)).collect();
        let answers = session.ask_all(&commands);
        let is_done = answers.iter().all(|answer| answer.value().is_some());
        let state = if kind < 2 { State::Short(answers[0].began) } else { State::Long };
        is_done.then_some(Life { name, value, state })
    }
}

impl Work for Lives {
    fn step(&self, session: &mut Session) {
        let at = session.random.random_range(0..MOST);
        let free = {
            let mut free = self.free.lock().unwrap();
            (at < free.len()).then(|| free.swap_remove(at))
        };
        let Some(mut life) = free else {
            if let Some(life) = self.begin(session) {
                self.free.lock().unwrap().push(life);
            }
            return;
        };
        life.look(session);
        if life.state == State::Long && session.random.random_bool(0.2) {
            let answer = session.ask(&format!("DEL {}", life.name));
            match answer.integer() {
                Some(1) => life.state = State::Deleted,
                Some(count) => session.contradict(format!("DEL of {life:?} was answered {count}")),
                None => return,
            }
        }
        self.free.lock().unwrap().push(life);
    }

    fn finish(&self, session: &mut Session) {
        let lives = self.free.lock().unwrap().clone();
        lives.iter().for_each(|life| life.look(session));
    }

    /// Wrong answers were told when they came.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        self.used.lock().unwrap().clone()
    }
}
