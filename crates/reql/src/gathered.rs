//! What an [atomic](crate::together) query is to write, as long as it is evaluated.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::key;
use crate::scan::{Durability, Lifetime, TableInfo};
use crate::value::{Value, ValueExt as _};

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
    /// How long it is there.
    pub lifetime: Lifetime,
}

impl Replacement {
    /// Whether nothing changes.
    pub fn only_looks(&self) -> bool {
        self.old == self.new && self.lifetime == Lifetime::Kept
    }
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

/// The most that a query may gather, in bytes of encoded documents, as they were and as they become.
const MOST_BYTES: usize = 64 << 20;
/// What a document takes besides.
const BYTES_OF_ONE: usize = 256;

/// What was gathered so far.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) documents: BTreeMap<Name, Replacement>,
    /// What they take.
    bytes: usize,
    /// Those of which nobody has looked whether they are there.
    pub(crate) assumed: BTreeSet<Name>,
    /// What an earlier evaluation was told that documents are.
    pub(crate) found: BTreeMap<Name, Value>,
    pub(crate) durability: Option<Durability>,
    pub(crate) first_error: Option<String>,
}

impl Gathered {
    /// Nothing yet, where an earlier evaluation was told that documents are what was `found`.
    pub(crate) fn with(found: BTreeMap<Name, Value>) -> Self {
        Self { found, ..Self::default() }
    }

    /// What a document is for the query by now, if that is known.
    pub(crate) fn known(&self, name: &Name) -> Option<&Value> {
        self.documents.get(name).map(|document| &document.new).or_else(|| self.found.get(name))
    }

    /// Notes what becomes of a document that the query has taken for `old`.
    ///
    /// # Errors
    /// If that is more than a query may gather.
    pub(crate) fn note(&mut self, name: Name, table: &TableInfo, key: &Value, old: Value, new: Value) -> Result<()> {
        self.bytes += new.encoded_len();
        match self.documents.entry(name) {
            Entry::Occupied(mut known) => {
                self.bytes -= known.get().new.encoded_len();
                known.get_mut().new = new;
            }
            Entry::Vacant(unknown) => {
                self.bytes += old.encoded_len() + BYTES_OF_ONE;
                let (table, key, lifetime) = (table.clone(), key.clone(), Lifetime::Kept);
                unknown.insert(Replacement { table, key, old, new, lifetime });
            }
        }
        if self.bytes <= MOST_BYTES {
            return Ok(());
        }
        let message = format!(
            "Nothing was written, since the query is atomic: its documents, as they were and as they become, have more than {MOST_BYTES} \
             bytes, where each counts {BYTES_OF_ONE} bytes besides."
        );
        Err(Error::limit(message))
    }

    /// Notes how long a document that was gathered is to be there. `was_there` says whether there was one before this write of the query.
    pub(crate) fn note_lifetime(&mut self, name: &Name, was_there: bool, lifetime: Lifetime) {
        let Some(document) = self.documents.get_mut(name) else { return };
        document.lifetime = match lifetime {
            _ if document.new.is_null() => Lifetime::Kept,
            Lifetime::Kept if was_there => return,
            Lifetime::Kept if document.old.is_null() => Lifetime::Kept,
            // The query has deleted the document, and makes another one.
            Lifetime::Kept => Lifetime::Fresh,
            asked => asked,
        };
    }

    /// Whether nothing that was gathered is to be another document.
    pub(crate) fn only_reads(&self) -> bool {
        self.documents.values().all(Replacement::only_looks)
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
