//! Banks: transactions that move amounts between accounts which they watch, and audits of all accounts at once.
//!
//! What is in an account is its amount and a number that is never used twice: on several nodes EXEC compares what is under a watched
//! key, so that an account whose amount has changed and changed back would look as if nobody had touched it.

use super::super::load::{Session, number_in};
use super::{Keys, Work};
use crate::cluster::checks::transfers::{self, Audit, Transfer};
use crate::resp_client::{Value, words};
use rand::Rng;
use std::collections::HashMap;
use std::sync::Mutex;

const ACCOUNTS: usize = 5;
const OPENING: i64 = 1_000;
const SECONDS: u64 = 10;

pub struct Accounts {
    keys: Keys,
    /// By the names of banks.
    books: Mutex<HashMap<String, Books>>,
}

type Books = (Vec<Transfer>, Vec<Audit>);

/// Accounts are opened when somebody first looks at them.
fn amount(value: &Value) -> i64 {
    let Value::Bulk(held) = value else { return OPENING };
    let amount =
        held.split(|byte| *byte == b':').next().and_then(|amount| std::str::from_utf8(amount).ok()?.parse().ok());
    amount.unwrap_or_else(|| panic!("{value}"))
}

impl Accounts {
    pub fn new(keys: Keys) -> Self {
        Self { keys, books: Mutex::default() }
    }

    fn account(&self, bank: &str, account: usize) -> String {
        self.keys.name(bank, account)
    }

    /// Where transfers are counted.
    fn counter(&self, bank: &str) -> String {
        self.keys.name(bank, "transfers")
    }

    /// Looks at some accounts at once, and returns what is in them.
    fn audit(&self, session: &mut Session, bank: &str, accounts: &[usize]) -> Option<Vec<i64>> {
        let list: String = accounts.iter().map(|account| format!(" {}", self.account(bank, *account))).collect();
        let answer = session.ask(&format!("MGET {}{list}", self.counter(bank)));
        let items = answer.items()?;
        let found: Vec<i64> = items[1..].iter().map(amount).collect();
        let mut all = vec![None; ACCOUNTS];
        accounts.iter().zip(&found).for_each(|(account, found)| all[*account] = Some(*found));
        let number = number_in(&items[0]).unwrap_or(0);
        let audit = Audit { number, accounts: all, began: answer.began, ended: answer.ended };
        self.books.lock().unwrap().entry(bank.to_string()).or_default().1.push(audit);
        Some(found)
    }

    fn transfer(&self, session: &mut Session, bank: &str, from: usize, to: usize) -> Option<()> {
        session.ask(&format!("WATCH {} {}", self.account(bank, from), self.account(bank, to))).value()?;
        let found = self.audit(session, bank, &[from, to])?;
        let amount = session.random.random_range(0..=found[0]);
        let changes = [(from, found[0], found[0] - amount), (to, found[1], found[1] + amount)];
        let mut commands = vec![words(&format!("INCR {}", self.counter(bank)))];
        for (account, _, after) in &changes {
            commands.push(words(&format!("SET {} {after}:{}", self.account(bank, *account), session.new_value())));
        }
        let answer = session.transact(&commands);
        // Nothing was done if somebody else was faster.
        if answer.is_refused() || answer.value() == Some(&Value::Null) {
            return Some(());
        }
        let number = answer.items().and_then(|items| number_in(&items[0]));
        let transfer = Transfer { number, changes, began: answer.began, ended: answer.ended };
        self.books.lock().unwrap().entry(bank.to_string()).or_default().0.push(transfer);
        Some(())
    }
}

impl Work for Accounts {
    fn step(&self, session: &mut Session) {
        let bank = format!("bank-{}", session.epoch(SECONDS));
        let (from, to) = (session.random.random_range(0..ACCOUNTS), session.random.random_range(1..ACCOUNTS));
        let is_done = if session.random.random_bool(0.3) {
            self.audit(session, &bank, &(0..ACCOUNTS).collect::<Vec<_>>()).map(|_| ())
        } else {
            self.transfer(session, &bank, from, (from + to) % ACCOUNTS)
        };
        // Keys may still be watched.
        session.is_broken |= is_done.is_none();
    }

    fn finish(&self, session: &mut Session) {
        let banks: Vec<String> = self.books.lock().unwrap().keys().cloned().collect();
        for bank in banks {
            self.audit(session, &bank, &(0..ACCOUNTS).collect::<Vec<_>>());
        }
    }

    fn check(&self) -> Result<(), String> {
        for (bank, (done, audits)) in self.books.lock().unwrap().iter() {
            transfers::check(OPENING, ACCOUNTS, done, audits).map_err(|error| format!("{bank}: {error}"))?;
        }
        Ok(())
    }

    fn keys(&self) -> Vec<String> {
        let banks = self.books.lock().unwrap();
        let keys_of = |bank: &String| {
            let accounts = (0..ACCOUNTS).map(|account| self.account(bank, account));
            accounts.chain([self.counter(bank)]).collect::<Vec<_>>()
        };
        banks.keys().flat_map(keys_of).collect()
    }
}
