//! What the bank's clients saw, and whether it can have been so.

use super::partition::Account;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Unknown,
    Committed(Duration),
    Aborted,
}

#[derive(Debug)]
struct Transfer {
    began: Duration,
    accounts: BTreeSet<u8>,
    outcome: Outcome,
}

/// All transfers, and how often all accounts were read.
#[derive(Debug, Default)]
pub(super) struct History {
    transfers: BTreeMap<u64, Transfer>,
    reads: u64,
    /// What the last read has seen, and when it ended.
    last: Option<(Duration, BTreeMap<u8, Account>)>,
}

impl History {
    pub(super) fn begin(&mut self, transfer: u64, accounts: impl IntoIterator<Item = u8>, now: Duration) {
        let accounts = accounts.into_iter().collect();
        self.transfers.insert(transfer, Transfer { began: now, accounts, outcome: Outcome::Unknown });
    }

    pub(super) fn commit(&mut self, transfer: u64, now: Duration) {
        self.transfers.get_mut(&transfer).expect("it has begun").outcome = Outcome::Committed(now);
    }

    pub(super) fn abort(&mut self, transfer: u64) {
        self.transfers.get_mut(&transfer).expect("it has begun").outcome = Outcome::Aborted;
    }

    fn count(&self, counts: impl Fn(&Outcome) -> bool) -> u64 {
        self.transfers.values().filter(|transfer| counts(&transfer.outcome)).count() as u64
    }

    pub(super) fn committed(&self) -> u64 {
        self.count(|outcome| matches!(outcome, Outcome::Committed(_)))
    }

    pub(super) fn aborted(&self) -> u64 {
        self.count(|outcome| *outcome == Outcome::Aborted)
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// Somebody has read all accounts, between two times.
    pub(super) fn read(&mut self, began: Duration, now: Duration, seen: BTreeMap<u8, Account>) -> Result<(), String> {
        self.reads += 1;
        self.check(began, &seen)?;
        let last = self.last.as_ref().filter(|(ended, _)| *ended < began);
        for (account, before) in last.into_iter().flat_map(|(_, accounts)| accounts) {
            if !seen[account].transfers.starts_with(&before.transfers) {
                return Err(format!("account {account} went back from {before:?} to {:?}", seen[account]));
            }
        }
        self.last = Some((now, seen));
        Ok(())
    }

    /// Whether the accounts can have been like this at one instant after `began`.
    pub(super) fn check(&self, began: Duration, seen: &BTreeMap<u8, Account>) -> Result<(), String> {
        let sum: i64 = seen.values().map(|account| account.balance).sum();
        if sum != 0 {
            return Err(format!("the accounts sum up to {sum}"));
        }
        for (number, transfer) in &self.transfers {
            let times = |account: &u8| seen[account].transfers.iter().filter(|seen| *seen == number).count();
            let times: BTreeSet<_> = transfer.accounts.iter().map(times).collect();
            let is_fine = match transfer.outcome {
                Outcome::Committed(at) if at < began => times == BTreeSet::from([1]),
                Outcome::Aborted => times == BTreeSet::from([0]),
                Outcome::Committed(_) | Outcome::Unknown => times.len() == 1 && times.iter().all(|times| *times <= 1),
            };
            if !is_fine {
                return Err(format!("transfer {number}, {transfer:?}, is in its accounts {times:?} times"));
            }
        }
        Ok(())
    }

    /// Whether there is an order of all transfers that explains the order in each account, and in which a transfer comes after
    /// those that were done before it began. A transfer reads all that it writes, so nothing else is to be explained.
    pub(super) fn check_order(&self, end: &BTreeMap<u8, Account>) -> Result<(), String> {
        let done: BTreeSet<u64> = end.values().flat_map(|account| account.transfers.iter().copied()).collect();
        let mut before: BTreeMap<u64, BTreeSet<u64>> = done.iter().map(|number| (*number, BTreeSet::new())).collect();
        for account in end.values() {
            for pair in account.transfers.windows(2) {
                before.entry(pair[1]).or_default().insert(pair[0]);
            }
        }
        for (number, earlier) in &mut before {
            let began = self.transfers[number].began;
            let was_done =
                |other: &&u64| matches!(self.transfers[*other].outcome, Outcome::Committed(at) if at < began);
            earlier.extend(done.iter().filter(was_done));
        }
        let mut placed = BTreeSet::new();
        while placed.len() < before.len() {
            let can_be_next =
                |(number, earlier): &(&u64, &BTreeSet<u64>)| !placed.contains(*number) && earlier.is_subset(&placed);
            let next: Vec<u64> = before.iter().filter(can_be_next).map(|(number, _)| *number).collect();
            if next.is_empty() {
                let left: Vec<_> = before.keys().filter(|number| !placed.contains(*number)).take(10).collect();
                return Err(format!("no order explains the transfers {left:?}"));
            }
            placed.extend(next);
        }
        Ok(())
    }
}
