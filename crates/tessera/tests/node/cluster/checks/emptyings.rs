//! Transactions that put receipts into tables which are emptied again and again, each at one instant.
//!
//! A table has *lives*: when it is emptied, the next one begins, and what the one before held is kept. So at the end it is known of each
//! receipt in which life of which table it is. From there on everything else follows: a transaction is in one life of all of its tables or in none,
//! that life was there while the transaction was under way, there is an order in which all tables were emptied between
//! transactions, and whoever has looked at receipts at one instant has seen those of the lives that were there.
//!
//! Each receipt counts itself in a counter of each of its tables, which is gone with the life that it is in. So in each life counters are what the
//! receipts say.

use std::collections::BTreeMap;

pub const TABLES: usize = 2;
pub const COUNTERS: usize = 4;

/// A transaction.
#[derive(Clone, Debug)]
pub struct Receipt {
    pub number: u64,
    /// Into which tables it was to be put.
    pub tables: [bool; TABLES],
    pub counter: usize,
    /// Whether it was, if that is known.
    pub was_done: Option<bool>,
    pub began: u64,
    /// `u64::MAX` if that is not known.
    pub ended: u64,
}

/// When a table was emptied, at some instant between these times.
#[derive(Clone, Copy, Debug)]
pub struct Emptying {
    pub began: u64,
    pub ended: u64,
}

/// What a table held in the end, or what it held when it was emptied.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// Their numbers, and in which counter they have counted themselves.
    pub receipts: BTreeMap<u64, usize>,
    pub counters: [u64; COUNTERS],
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    /// They stand in the order in which they happened.
    pub emptyings: Vec<Emptying>,
    /// One more than emptyings.
    pub lives: Vec<Life>,
}

/// Whether a receipt was there in tables that somebody has looked at, at one instant.
#[derive(Clone, Debug)]
pub struct Observation {
    pub number: u64,
    pub found: [bool; TABLES],
    pub began: u64,
    pub ended: u64,
}

/// # Errors
/// What contradicts itself.
pub fn check(tables: &[Table; TABLES], receipts: &[Receipt], looks: &[Observation]) -> Result<(), String> {
    let mut lives_of: BTreeMap<u64, [Option<usize>; TABLES]> =
        receipts.iter().map(|receipt| (receipt.number, [None; TABLES])).collect();
    for (at, table) in tables.iter().enumerate() {
        if table.lives.len() != table.emptyings.len() + 1 {
            return Err(format!("table {at} has {} lives after {:?}", table.lives.len(), table.emptyings));
        }
        for (life, held) in table.lives.iter().enumerate() {
            count(held).map_err(|error| format!("life {life} of table {at}: {error}"))?;
            for number in held.receipts.keys() {
                let Some(of_receipt) = lives_of.get_mut(number) else {
                    return Err(format!("life {life} of table {at} has receipt {number}, which nobody has written"));
                };
                if let Some(before) = of_receipt[at].replace(life) {
                    return Err(format!("receipt {number} is in the lives {before} and {life} of table {at}"));
                }
            }
        }
    }
    for receipt in receipts {
        let lives = lives_of[&receipt.number];
        judge(tables, receipt, lives).map_err(|error| format!("{receipt:?} is in the lives {lives:?}: {error}"))?;
    }
    follow(&lives_of)?;
    let of_numbers: BTreeMap<u64, &Receipt> = receipts.iter().map(|receipt| (receipt.number, receipt)).collect();
    for look in looks {
        let receipt = of_numbers.get(&look.number).ok_or_else(|| format!("{look:?} is at nothing"))?;
        let lives = lives_of[&look.number];
        see(tables, receipt, lives, look)
            .map_err(|error| format!("{look:?} at {receipt:?}, which is in the lives {lives:?}: {error}"))?;
    }
    Ok(())
}

/// Whether the counters of a life are what its receipts say.
fn count(life: &Life) -> Result<(), String> {
    let mut expected = [0; COUNTERS];
    life.receipts.values().for_each(|counter| expected[*counter] += 1);
    match life.counters == expected {
        true => Ok(()),
        false => Err(format!("its counters are {:?}, and by its receipts {expected:?}", life.counters)),
    }
}

/// Whether a transaction can have come to be in these lives.
fn judge(tables: &[Table; TABLES], receipt: &Receipt, lives: [Option<usize>; TABLES]) -> Result<(), String> {
    let is_there = lives.iter().any(Option::is_some);
    match receipt.was_done {
        Some(true) if !is_there => return Err("it was acknowledged, and is gone".into()),
        Some(false) if is_there => return Err("it was refused".into()),
        _ => {}
    }
    for (at, life) in lives.into_iter().enumerate() {
        let table = &tables[at];
        if life.is_some() != (is_there && receipt.tables[at]) {
            return Err(format!("table {at} has not the part of it that it should"));
        }
        let Some(life) = life else { continue };
        let counter = table.lives[life].receipts[&receipt.number];
        if counter != receipt.counter {
            return Err(format!("in table {at} it has counted itself in counter {counter}"));
        }
        if begin(table, life) > receipt.ended {
            return Err(format!("that life of table {at} began later: {:?}", table.emptyings));
        }
        if end(table, life) < receipt.began {
            return Err(format!("that life of table {at} was over: {:?}", table.emptyings));
        }
    }
    Ok(())
}

/// The first instant at which a life may have been there.
fn begin(table: &Table, life: usize) -> u64 {
    life.checked_sub(1).map_or(0, |before| table.emptyings[before].began)
}

/// The last one.
fn end(table: &Table, life: usize) -> u64 {
    table.emptyings.get(life).map_or(u64::MAX, |emptying| emptying.ended)
}

/// Whether the tables can have been emptied one after the other: the transaction that is in an earlier life of one of them took effect first, so it
/// is in no later life of another one.
fn follow(lives_of: &BTreeMap<u64, [Option<usize>; TABLES]>) -> Result<(), String> {
    let whole = |(number, lives): (&u64, &[Option<usize>; TABLES])| Some(((lives[0]?, lives[1]?), *number));
    let pairs: BTreeMap<(usize, usize), u64> = lives_of.iter().filter_map(whole).collect();
    let pairs: Vec<_> = pairs.into_iter().collect();
    match pairs.windows(2).find(|pair| pair[0].0.1 > pair[1].0.1) {
        Some(pair) => {
            Err(format!("the receipts {} and {} are in lives without an order: {pair:?}", pair[0].1, pair[1].1))
        }
        None => Ok(()),
    }
}

/// Whether a look can have found this.
fn see(
    tables: &[Table; TABLES],
    receipt: &Receipt,
    lives: [Option<usize>; TABLES],
    look: &Observation,
) -> Result<(), String> {
    let is_seen = look.found.contains(&true);
    if is_seen && look.ended < receipt.began {
        return Err("it had not begun".into());
    }
    let had_taken_effect = is_seen || receipt.was_done == Some(true) && receipt.ended < look.began;
    for (at, table) in tables.iter().enumerate() {
        let told = |what: &str| Err(format!("{what}, of table {at} with {:?}", table.emptyings));
        match (look.found[at], lives[at]) {
            (true, None) => return told("it was never there"),
            (true, Some(life)) if end(table, life) < look.began => return told("that life was over"),
            (true, Some(life)) if begin(table, life) > look.ended => return told("that life had not begun"),
            (false, Some(life)) if had_taken_effect && life + 1 == table.lives.len() => {
                return told("that life has no end");
            }
            (false, Some(life)) if had_taken_effect && begin(table, life + 1) > look.ended => {
                return told("that life was not over");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = u64::MAX;
    const BOTH: [bool; TABLES] = [true, true];

    fn receipt(number: u64, was_done: Option<bool>, began: u64, ended: u64) -> Receipt {
        Receipt { number, tables: BOTH, counter: 1, was_done, began, ended }
    }

    fn life(receipts: &[u64]) -> Life {
        let counters = [0, receipts.len() as u64, 0, 0];
        Life { receipts: receipts.iter().map(|number| (*number, 1)).collect(), counters }
    }

    fn table(emptyings: &[(u64, u64)], lives: &[&[u64]]) -> Table {
        let emptyings = emptyings.iter().map(|(began, ended)| Emptying { began: *began, ended: *ended });
        Table { emptyings: emptyings.collect(), lives: lives.iter().map(|numbers| life(numbers)).collect() }
    }

    fn look(number: u64, found: [bool; TABLES], began: u64) -> Observation {
        Observation { number, found, began, ended: began + 1 }
    }

    /// The first table is emptied between 10 and 12, the other one between 20 and 22.
    fn tables(first: [&[u64]; 2], second: [&[u64]; 2]) -> [Table; TABLES] {
        [table(&[(10, 12)], &first), table(&[(20, 22)], &second)]
    }

    #[test]
    fn what_can_have_been_is_accepted() {
        let receipts = [
            receipt(1, Some(true), 1, 2),
            receipt(2, Some(true), 9, 11),
            receipt(3, Some(true), 9, 13),
            receipt(4, Some(false), 9, 13),
            // They were done, late or in time, or were not.
            receipt(5, None, 3, NEVER),
            receipt(6, None, 3, NEVER),
            receipt(7, None, 3, NEVER),
            Receipt { tables: [false, true], ..receipt(8, Some(true), 23, 24) },
        ];
        let tables = tables([&[1, 2, 5], &[3, 6]], [&[1, 2, 3, 5], &[6, 8]]);
        let looks = [
            look(1, BOTH, 3),
            look(1, [false, true], 11),
            look(1, [false, true], 13),
            look(1, [false, false], 23),
            look(3, [false, false], 9),
            look(3, BOTH, 14),
            look(5, [false, false], 9),
            look(7, [false, false], 9),
            look(8, [false, true], 25),
        ];
        check(&tables, &receipts, &looks).unwrap();
    }

    #[test]
    fn what_cannot_have_been_is_refused() {
        let done = [receipt(1, Some(true), 1, 2), receipt(2, Some(true), 13, 14)];
        let refused = |tables: &[Table; TABLES], receipts: &[Receipt], looks: &[Observation], reason: &str| {
            let error = check(tables, receipts, looks).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        let right = || tables([&[1], &[2]], [&[1, 2], &[]]);
        check(&right(), &done, &[]).unwrap();
        // A lost one, a half one, one that is there twice, one that nobody wrote, and one that was refused.
        refused(&tables([&[1], &[]], [&[1], &[]]), &done, &[], "is gone");
        refused(&tables([&[1], &[2]], [&[1], &[]]), &done, &[], "not the part");
        refused(&tables([&[1], &[1, 2]], [&[1, 2], &[]]), &done, &[], "lives 0 and 1");
        refused(&tables([&[1, 3], &[2]], [&[1, 2], &[]]), &done, &[], "nobody");
        refused(&right(), &[done[0].clone(), receipt(2, Some(false), 13, 14)], &[], "refused");
        refused(
            &right(),
            &[done[0].clone(), Receipt { tables: [true, false], ..done[1].clone() }],
            &[],
            "not the part",
        );
        // Into a life that was over, or had not begun.
        refused(&tables([&[1, 2], &[]], [&[1, 2], &[]]), &done, &[], "was over");
        refused(&tables([&[], &[1, 2]], [&[1, 2], &[]]), &done, &[], "began later");
        // Counted twice, or not.
        let mut wrong = right();
        wrong[1].lives[0].counters[1] = 3;
        refused(&wrong, &done, &[], "counters");
        let other = Receipt { counter: 2, ..done[1].clone() };
        refused(&right(), &[done[0].clone(), other], &[], "in counter 1");
        // What one recalls is not all of it.
        let mut wrong = right();
        wrong[1].lives.pop();
        refused(&wrong, &done, &[], "has 1 lives");
        // Looks: half of one; one after its end; one that is there again; one before it began; what never was.
        refused(&right(), &done, &[look(1, [true, false], 3)], "life was not over");
        refused(&right(), &done, &[look(1, [false, false], 3)], "life was not over");
        refused(&right(), &done, &[look(1, BOTH, 14)], "was over");
        refused(&right(), &[done[0].clone(), receipt(2, Some(true), 3, 14)], &[look(2, BOTH, 3)], "life had not begun");
        refused(&right(), &done, &[look(1, [false, true], 25)], "was over");
        refused(&right(), &done, &[look(2, [false, false], 25)], "has no end");
        refused(&right(), &[done[0].clone(), receipt(2, Some(true), 17, 18)], &[look(2, BOTH, 14)], "it had not begun");
        let unknown = [done[0].clone(), done[1].clone(), receipt(3, None, 1, NEVER)];
        refused(&right(), &unknown, &[look(3, BOTH, 5)], "never there");
        // Each table is emptied between them, in another order.
        let long = [receipt(1, Some(true), 1, 30), receipt(2, Some(true), 1, 30)];
        refused(&tables([&[1], &[2]], [&[2], &[1]]), &long, &[], "without an order");
    }
}
