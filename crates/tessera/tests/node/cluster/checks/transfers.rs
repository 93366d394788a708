//! Transactions between the accounts of a bank: each moves an amount from one account to another and counts itself.
//!
//! The count gives them an order, which must agree with time and lack nothing that was acknowledged ([`counting`]). In that
//! order each must have found what the one before it left, and so must whoever looks at all accounts at once; the sum is
//! always the same. Where a transaction is not known, what is in the accounts is not either, until somebody sees it.

use super::counting::{self, Count};

#[derive(Clone, Debug)]
pub struct Transfer {
    /// How many transfers there were with it, as it was answered; `None` if it was not.
    pub number: Option<u64>,
    /// The two accounts, with what was in them before and after.
    pub changes: [(usize, i64, i64); 2],
    pub began: u64,
    pub ended: u64,
}

/// What somebody saw at once. Accounts that were not looked at are `None`.
#[derive(Clone, Debug)]
pub struct Audit {
    pub number: u64,
    pub accounts: Vec<Option<i64>>,
    pub began: u64,
    pub ended: u64,
}

/// # Errors
/// What contradicts itself.
pub fn check(opening: i64, accounts: usize, transfers: &[Transfer], audits: &[Audit]) -> Result<(), String> {
    let count = |is_increment, value, began, ended| Count { is_increment, value, began, ended };
    let done = transfers.iter().map(|one| count(true, one.number, one.began, one.ended));
    let seen = audits.iter().map(|one| count(false, Some(one.number), one.began, one.ended));
    counting::check(&done.chain(seen).collect::<Vec<_>>())?;
    let is_wrong = |audit: &&Audit| {
        let sum: Option<i64> = audit.accounts.iter().copied().sum();
        sum.is_some_and(|sum| sum != opening * accounts as i64)
    };
    if let Some(first) = audits.iter().find(is_wrong) {
        let (wrong, last) = (audits.iter().filter(is_wrong).count(), audits.last());
        let near = |one: &&Transfer| one.number.is_some_and(|number| number.abs_diff(first.number) < 4);
        let transfers: Vec<_> = transfers.iter().filter(near).collect();
        return Err(format!(
            "{first:?} has a wrong sum, and so have {wrong} in all; the last was {last:?}; transfers near it were {transfers:?}"
        ));
    }
    follow(opening, accounts, transfers, audits)
}

enum Event<'a> {
    Transfer(&'a Transfer),
    Audit(&'a Audit),
}

/// Goes through everything in the order of its numbers.
fn follow(opening: i64, accounts: usize, transfers: &[Transfer], audits: &[Audit]) -> Result<(), String> {
    let done = transfers.iter().filter_map(|one| Some((one.number?, false, Event::Transfer(one))));
    let seen = audits.iter().map(|one| (one.number, true, Event::Audit(one)));
    let mut events: Vec<_> = done.chain(seen).collect();
    events.sort_by_key(|(number, is_audit, _)| (*number, *is_audit));
    // What is in the accounts, where that is known.
    let mut held: Vec<Option<i64>> = vec![Some(opening); accounts];
    let mut last = 0;
    for (number, is_audit, event) in events {
        // One that nobody knows of was in between.
        if number > last + u64::from(!is_audit) {
            held.fill(None);
        }
        last = number;
        match event {
            Event::Transfer(transfer) => {
                for (account, before, after) in transfer.changes {
                    find(&mut held, account, before).map_err(|error| format!("{transfer:?}: {error}"))?;
                    held[account] = Some(after);
                }
            }
            Event::Audit(audit) => {
                for (account, found) in audit.accounts.iter().enumerate() {
                    let found = found.map_or(Ok(()), |found| find(&mut held, account, found));
                    found.map_err(|error| format!("{audit:?}: {error}"))?;
                }
            }
        }
    }
    Ok(())
}

fn find(held: &mut [Option<i64>], account: usize, found: i64) -> Result<(), String> {
    match held[account].replace(found) {
        Some(there) if there != found => Err(format!("account {account} had {there}, and {found} was found in it")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = u64::MAX;

    fn transfer(number: u64, from: (usize, i64), to: (usize, i64), amount: i64, began: u64) -> Transfer {
        let changes = [(from.0, from.1, from.1 - amount), (to.0, to.1, to.1 + amount)];
        let ended = if number == 0 { NEVER } else { began + 1 };
        Transfer { number: (number != 0).then_some(number), changes, began, ended }
    }

    fn audit(number: u64, accounts: &[i64], began: u64) -> Audit {
        Audit { number, accounts: accounts.iter().copied().map(Some).collect(), began, ended: began + 1 }
    }

    fn outcome(transfers: &[Transfer], audits: &[Audit]) -> Result<(), String> {
        check(100, 3, transfers, audits)
    }

    #[test]
    fn books_that_can_have_been_are_accepted() {
        let one = transfer(1, (0, 100), (1, 100), 30, 1);
        let two = transfer(2, (1, 130), (2, 100), 50, 3);
        let seen = [audit(0, &[100, 100, 100], 1), audit(1, &[70, 130, 100], 1), audit(2, &[70, 80, 150], 5)];
        outcome(&[one.clone(), two], &seen).unwrap();
        // The second one is not known, and took effect.
        let unknown = transfer(0, (1, 130), (2, 100), 50, 3);
        let three = transfer(3, (2, 150), (0, 70), 1, 5);
        outcome(&[one.clone(), unknown.clone(), three], &[audit(3, &[71, 80, 149], 7)]).unwrap();
        outcome(&[one, unknown], &[audit(1, &[70, 130, 100], 7)]).unwrap();
    }

    #[test]
    fn books_that_cannot_have_been_are_refused() {
        let one = transfer(1, (0, 100), (1, 100), 30, 1);
        let two = transfer(2, (1, 130), (2, 100), 50, 3);
        let refused = |transfers: &[&Transfer], audits: &[Audit]| {
            let transfers: Vec<_> = transfers.iter().copied().cloned().collect();
            outcome(&transfers, audits).unwrap_err()
        };
        // Half of one; a lost one; one that is there before its time; one that did not see what it watched.
        refused(&[&one], &[audit(1, &[70, 100, 100], 5)]);
        refused(&[&one], &[audit(0, &[100, 100, 100], 5)]);
        refused(&[&one], &[audit(1, &[60, 140, 100], 5)]);
        refused(&[&one, &transfer(2, (1, 100), (2, 100), 50, 3)], &[]);
        refused(&[&one, &two], &[audit(1, &[70, 80, 150], 4)]);
        // Done twice, or both with one number.
        refused(&[&one], &[audit(2, &[40, 160, 100], 5)]);
        refused(&[&one, &transfer(1, (1, 100), (2, 100), 50, 3)], &[]);
        // The sum.
        refused(&[&transfer(0, (1, 100), (2, 100), 50, 1)], &[audit(1, &[100, 50, 140], 3)]);
    }
}
