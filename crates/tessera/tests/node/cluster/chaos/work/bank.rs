//! A bank without a counter that all transfers would share: what is taken from some accounts is given to others, in one transaction,
//! which also leaves a receipt. Half of the transfers watch their accounts and read them before.
//!
//! Whoever sees all accounts at once sees that they hold nothing together. At the end the accounts hold what the receipts
//! say, there is a receipt of each transfer that was acknowledged, and none of one that was refused.
//!
//! It also measures for how long accounts could not be used while all nodes were well.

use super::super::load::{Answer, Command, Session};
use super::super::waits::Waits;
use super::{Keys, Work};
use crate::resp_client::{Value, words};
use rand::Rng;
use rand::seq::index::sample;
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const ACCOUNTS: usize = 16;
/// Amounts are so different that an account hardly ever has one again which it had before: on several nodes EXEC compares what is under
/// a watched key.
const MOST: i64 = 1_000_000_000;

/// Receipts that are read at once.
const PAGE: usize = 50;

/// How long an account may be of no use while all nodes are well, and every partition has a leader. A transaction that was tried before
/// may be left alone for three seconds of that when its coordinator has gone.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long something is tried in the end.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(5);

pub struct Bank {
    keys: Keys,
    books: Mutex<Books>,
    waits: Waits,
}

#[derive(Default)]
struct Books {
    transfers: Vec<Transfer>,
    /// Of acknowledged transfers and of those that were refused, by their numbers: which of them are there.
    receipts: BTreeSet<u64>,
    /// What is there in the end: the accounts, and receipts of transfers of unknown outcome.
    end: Option<(Vec<i64>, BTreeSet<u64>)>,
}

struct Transfer {
    number: u64,
    changes: Vec<(usize, i64)>,
    /// Whether it was done, if that is known.
    was_done: Option<bool>,
}

fn amount(value: &Value) -> i64 {
    match value {
        Value::Null => 0,
        Value::Integer(amount) => *amount,
        Value::Bulk(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).expect("it is an amount")
        }
        other => panic!("{other}"),
    }
}

/// A transfer is answered with what is then in its accounts, which is what was in them before, where that is known, and the change.
fn judge(session: &Session, reply: &Value, changes: &[(usize, i64)], before: Option<Vec<i64>>) {
    let amount = |item: &Value| if let Value::Integer(amount) = item { Some(*amount) } else { None };
    let found: Option<Vec<i64>> = match reply {
        Value::Array(items) if items.len() == changes.len() + 1 => items[..changes.len()].iter().map(amount).collect(),
        _ => None,
    };
    let Some(found) = found else {
        return session.contradict(format!("a transfer was answered {reply}, which is not whole"));
    };
    let after = |before: Vec<i64>| before.iter().zip(changes).map(|(before, (_, change))| before + change).collect();
    let expected: Vec<i64> = before.map_or_else(|| found.clone(), after);
    if found != expected {
        session.contradict(format!("a transfer that watched its accounts was to come to {expected:?}: {found:?}"));
    }
}

impl Bank {
    pub fn new(keys: Keys) -> Self {
        Self { keys, books: Mutex::default(), waits: Waits::default() }
    }

    fn account(&self, account: usize) -> String {
        self.keys.name("bank", format!("account{account}"))
    }

    fn receipt(&self, number: u64) -> String {
        self.keys.name("bank", format!("receipt{number}"))
    }

    /// Asks for something, and notes whether these accounts could be used.
    fn ask(&self, session: &mut Session, accounts: &[usize], ask: impl FnOnce(&mut Session) -> Answer) -> Answer {
        let asked = Instant::now();
        let answer = ask(session);
        let names = accounts.iter().map(|account| self.account(*account));
        self.waits.note(session, names, &answer, asked.elapsed());
        answer
    }

    fn audit(&self, session: &mut Session) {
        let accounts: Vec<usize> = (0..ACCOUNTS).collect();
        let names: Vec<String> = accounts.iter().map(|account| self.account(*account)).collect();
        let is_alone = session.random.random_bool(0.5);
        let answer = self.ask(session, &accounts, |session| match is_alone {
            true => session.ask(&format!("MGET {}", names.join(" "))),
            false => session.transact(&names.iter().map(|name| words(&format!("GET {name}"))).collect::<Vec<_>>()),
        });
        let Some(items) = answer.items() else { return };
        if items.iter().any(|item| matches!(item, Value::Error(_))) || items.iter().map(amount).sum::<i64>() != 0 {
            session.contradict(format!("the accounts of the bank were seen as {items:?}, which is not one instant"));
        }
    }

    /// A write that changes nothing.
    fn touch(&self, session: &mut Session) {
        let account = session.random.random_range(0..ACCOUNTS);
        let command = format!("INCRBY {} 0", self.account(account));
        self.ask(session, &[account], |session| session.ask(&command));
    }

    fn transfer(&self, session: &mut Session) {
        let count = session.random.random_range(2..=3);
        let accounts = sample(&mut session.random, ACCOUNTS, count).into_vec();
        let mut changes: Vec<(usize, i64)> =
            accounts[1..].iter().map(|account| (*account, session.random.random_range(1..=MOST))).collect();
        changes.push((accounts[0], -changes.iter().map(|(_, change)| change).sum::<i64>()));
        let is_watching = session.random.random_bool(0.5);
        let before = if is_watching { self.watch(session, &changes) } else { None };
        if is_watching && before.is_none() {
            // Keys may still be watched.
            session.is_broken = true;
            return;
        }
        let number = session.new_value();
        let mut commands: Vec<Command> = changes
            .iter()
            .map(|(account, change)| {
                let verb = if *change < 0 { "DECRBY" } else { "INCRBY" };
                words(&format!("{verb} {} {}", self.account(*account), change.abs()))
            })
            .collect();
        commands.push(words(&format!("SET {} {number}", self.receipt(number))));
        let answer = self.ask(session, &accounts, |session| session.transact(&commands));
        let was_done = match answer.value() {
            Some(Value::Null) if is_watching => Some(false),
            Some(reply) => {
                judge(session, reply, &changes, before);
                Some(true)
            }
            None if answer.is_refused() => Some(false),
            None => None,
        };
        self.books.lock().unwrap().transfers.push(Transfer { number, changes, was_done });
    }

    /// What is in accounts that are watched from before on.
    fn watch(&self, session: &mut Session, changes: &[(usize, i64)]) -> Option<Vec<i64>> {
        let names: String = changes.iter().map(|(account, _)| format!(" {}", self.account(*account))).collect();
        session.ask(&format!("WATCH{names}")).value()?;
        let answer = session.ask(&format!("MGET{names}"));
        Some(answer.items()?.iter().map(amount).collect())
    }

    /// Asks again as long as it is refused, and nothing else is wrong.
    fn insist(session: &mut Session, what: &str, mut ask: impl FnMut(&mut Session) -> Answer) -> Answer {
        let began = Instant::now();
        loop {
            let answer = ask(session);
            if !answer.is_refused() {
                return answer;
            }
            if began.elapsed() > PATIENCE {
                session.contradict(format!("{what}: not within {PATIENCE:?}"));
                return answer;
            }
            std::thread::park_timeout(STEP);
        }
    }

    /// Receipts of transfers whose outcome is known. The others may still appear.
    fn find_receipts(&self, session: &mut Session) {
        let books = self.books.lock().unwrap();
        let numbers: Vec<u64> =
            books.transfers.iter().filter(|one| one.was_done.is_some()).map(|one| one.number).collect();
        drop(books);
        for page in numbers.chunks(PAGE) {
            let names: String = page.iter().map(|number| format!(" {}", self.receipt(*number))).collect();
            let answer = Self::insist(session, "receipts are read", |session| session.ask(&format!("MGET{names}")));
            let Some(items) = answer.items() else { return };
            let found = page.iter().zip(items).filter(|(_, item)| **item != Value::Null).map(|(number, _)| *number);
            self.books.lock().unwrap().receipts.extend(found);
        }
    }
}

impl Work for Bank {
    fn step(&self, session: &mut Session) {
        match session.random.random_range(0..10) {
            0..4 => self.audit(session),
            4 => self.touch(session),
            _ => self.transfer(session),
        }
    }

    fn finish(&self, session: &mut Session) {
        for account in 0..ACCOUNTS {
            let command = format!("INCRBY {} 0", self.account(account));
            Self::insist(session, "every account can be used", |session| {
                self.ask(session, &[account], |session| session.ask(&command))
            });
        }
        self.find_receipts(session);
        // Those of unknown outcome must be seen together with the accounts.
        let books = self.books.lock().unwrap();
        let unknown: Vec<u64> =
            books.transfers.iter().filter(|one| one.was_done.is_none()).map(|one| one.number).collect();
        drop(books);
        let names = (0..ACCOUNTS).map(|account| self.account(account));
        let names = names.chain(unknown.iter().map(|number| self.receipt(*number)));
        let commands: Vec<Command> = names.map(|name| words(&format!("GET {name}"))).collect();
        let answer = Self::insist(session, "the books are closed", |session| session.transact(&commands));
        let Some(items) = answer.items() else { return };
        let (accounts, receipts) = items.split_at(ACCOUNTS);
        let found = unknown.iter().zip(receipts).filter(|(_, item)| **item != Value::Null).map(|(number, _)| *number);
        let end = (accounts.iter().map(amount).collect(), found.collect());
        self.books.lock().unwrap().end = Some(end);
    }

    fn check(&self) -> Result<(), String> {
        let books = self.books.lock().unwrap();
        let (accounts, late) = books.end.as_ref().ok_or("the bank could not be read at the end")?;
        let mut expected = vec![0; ACCOUNTS];
        let mut counts: HashMap<Option<bool>, u64> = HashMap::new();
        for Transfer { number, changes, was_done } in &books.transfers {
            let is_there = books.receipts.contains(number) || late.contains(number);
            if was_done.is_some_and(|was_done| was_done != is_there) {
                let told =
                    if is_there { "was refused, and has a receipt" } else { "was acknowledged, and has no receipt" };
                return Err(format!("transfer {number} of {changes:?} {told}"));
            }
            *counts.entry(*was_done).or_default() += 1;
            if is_there {
                changes.iter().for_each(|(account, change)| expected[*account] += change);
            }
        }
        eprintln!("transfers by whether they were done: {counts:?}; {}", self.waits);
        if *accounts != expected {
            return Err(format!(
                "by their receipts the accounts of the bank hold {expected:?}, and they hold {accounts:?}"
            ));
        }
        self.waits.check(LONGEST_WAIT)
    }

    /// Receipts are compared with all other records, and too many to be asked for one by one.
    fn keys(&self) -> Vec<String> {
        (0..ACCOUNTS).map(|account| self.account(account)).collect()
    }
}
