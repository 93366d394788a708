//! What clients do, and how it is judged.

mod accounts;
mod appends;
mod bank;
mod cached;
mod counters;
mod groups;
mod large;
mod lists;
mod lives;
mod owned;
mod places;
mod records;
mod registers;

use super::load::Session;
use super::tables::{LARGE, Promise, Table, Trust};

pub use registers::Registers;
use std::fmt::Display;

/// One kind of operations on the keys of one table. All clients share it.
pub trait Work: Send + Sync {
    /// Some commands, and a note of what they were answered.
    fn step(&self, session: &mut Session);

    /// Reads everything once more, after all faults.
    fn finish(&self, session: &mut Session);

    /// # Errors
    /// What contradicts itself.
    fn check(&self) -> Result<(), String>;

    /// Every key that may be there, or may have been.
    fn keys(&self) -> Vec<String>;
}

/// Where keys lie that are used together.
#[derive(Clone, Copy)]
pub enum Keys {
    /// In one partition, by a tag in their names.
    Together,
    /// In whatever partitions.
    Anywhere,
}

impl Keys {
    /// The name of one of the keys of a group.
    pub fn name(self, group: &str, member: impl Display) -> String {
        match self {
            Self::Together => format!("{{{group}}}{member}"),
            Self::Anywhere => format!("{group}:{member}"),
        }
    }
}

/// Transactions over several partitions, where a table promises something of them.
pub fn transactions(table: Table, trust: Trust) -> Vec<Box<dyn Work>> {
    if !matches!(table.promise, Promise::Everything | Promise::Service) || table.name == LARGE {
        return all_of(table, trust);
    }
    let keys = Keys::Anywhere;
    vec![
        Box::new(bank::Bank::new(keys)),
        Box::new(lists::Lists::new(keys)),
        Box::new(groups::Groups::of_keys(keys)),
        Box::new(places::Places::new(keys)),
        Box::new(accounts::Accounts::new(keys)),
    ]
}

/// Everything that can be judged by what a table promises.
pub fn all_of(table: Table, trust: Trust) -> Vec<Box<dyn Work>> {
    match table.promise {
        Promise::UntilRead => vec![Box::new(Registers::new(table.promise))],
        Promise::Cache => vec![Box::new(cached::Cached::default())],
        _ if table.name == LARGE => vec![Box::new(large::Large::default())],
        Promise::Everything | Promise::Service => {
            let mut works: Vec<Box<dyn Work>> = vec![
                Box::new(Registers::new(table.promise)),
                Box::new(records::Records::default()),
                Box::new(groups::Groups::of_fields()),
                Box::new(counters::Counters::default()),
                Box::new(appends::Appends::default()),
                Box::new(owned::Owned::default()),
                Box::new(lives::Lives::new(trust)),
            ];
            if table.has_tags() {
                works.push(Box::new(groups::Groups::of_keys(Keys::Together)));
                works.push(Box::new(accounts::Accounts::new(Keys::Together)));
            }
            works
        }
    }
}
