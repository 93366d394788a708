//! What an [atomic](crate::together) query is to write, as long as it is evaluated.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::key;
use crate::scan::{Durability, TableInfo};
use crate::value::Value;

/// A document that is to take the place of another one; `null` stands for none.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// The table.
    pub table: TableInfo,
    /// The primary key.
    pub key: Value,
    /// What must be there.
    pub old: Value,
    /// What is there afterwards; the same, if the document was only looked at.
    pub new: Value,
}

/// What became of writes that were to take effect together.
#[derive(Debug)]
pub enum Together {
    /// They have taken effect.
    Done,
    /// None has, since these documents, by their places in the list, are others: here is what they are.
    Changed(Vec<(usize, Value)>),
}

/// The table's identifier and the bytes of the primary key.
pub(crate) type Name = (String, Vec<u8>);

/// What was gathered so far.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) documents: BTreeMap<Name, Replacement>,
    /// Those of which nobody has looked whether they are there.
    pub(crate) assumed: BTreeSet<Name>,
    /// What an earlier evaluation was told that documents are.
    pub(crate) found: BTreeMap<Name, Value>,
    pub(crate) durability: Option<Durability>,
    pub(crate) first_error: Option<String>,
}

impl Gathered {
    /// What a document is for the query by now, if that is known.
    pub(crate) fn known(&self, name: &Name) -> Option<&Value> {
        self.documents.get(name).map(|document| &document.new).or_else(|| self.found.get(name))
    }

    /// Notes what becomes of a document that the query has taken for `old`.
    pub(crate) fn note(&mut self, name: Name, table: &TableInfo, key: &Value, old: Value, new: Value) {
        match self.documents.entry(name) {
            Entry::Occupied(mut known) => known.get_mut().new = new,
            Entry::Vacant(unknown) => {
                unknown.insert(Replacement { table: table.clone(), key: key.clone(), old, new });
            }
        }
    }

    /// The strongest of all that was asked for.
    pub(crate) fn note_durability(&mut self, asked: Durability) {
        let strength = |durability| match durability {
            Durability::Soft => 0,
            Durability::Default => 1,
            Durability::Hard => 2,
        };
        self.durability = self.durability.into_iter().chain([asked]).max_by_key(|durability| strength(*durability));
    }
}

/// # Errors
/// If the value can be no primary key.
pub(crate) fn name_of(table: &TableInfo, key: &Value) -> Result<Name> {
    Ok((table.id.clone(), key::primary_key(key)?))
}
