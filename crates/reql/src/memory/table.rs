//! One table in memory: documents and indexes as ordered maps of encoded keys.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tessera_document::{Document, unique_key};

use super::subscribers::Subscribers;
use crate::env::Env;
use crate::error::Result;
use crate::index;
use crate::key;
use crate::lazy::Lazy;
use crate::scan::{IndexDefinition, Order, Page, Position, Scan, TableInfo, TableOptions};
use crate::value::{Value, ValueExt as _};
use crate::write_hook::WriteHook;

/// An entry of an index: the key that the index has for a document, the document's primary key, and which of several
/// keys of one document it is.
pub type Entry = (Vec<u8>, Vec<u8>, u32);

pub struct Index {
    pub definition: IndexDefinition,
    entries: BTreeSet<Entry>,
    /// Why a unique index is not built.
    pub hindrance: Option<String>,
}

pub struct TableData {
    pub info: TableInfo,
    pub options: TableOptions,
    pub write_hook: Option<Arc<WriteHook>>,
    pub documents: BTreeMap<Vec<u8>, Value>,
    pub indexes: BTreeMap<String, Index>,
    pub subscribers: Subscribers,
}

impl TableData {
    pub fn new(info: TableInfo, options: TableOptions) -> Self {
        Self {
            info,
            options,
            write_hook: None,
            documents: BTreeMap::new(),
            indexes: BTreeMap::new(),
            subscribers: Subscribers::default(),
        }
    }

    pub fn build_index(&mut self, env: &Env, name: &str, definition: IndexDefinition) {
        let mut entries = BTreeSet::new();
        for (primary, document) in &self.documents {
            for (encoded, tag) in entries_of(env, &definition, document) {
                entries.insert((encoded, primary.clone(), tag));
            }
        }
        let hindrance = self.duplicate(env, &definition, self.documents.iter()).map(|(key, one, other)| {
            let text = |value: &Value| value.print().unwrap_or_default();
            format!(
                "the documents with primary keys `{}` and `{}` both have the key `{}`.",
                text(&one),
                text(&other),
                text(&key)
            )
        });
        self.indexes.insert(name.into(), Index { definition, entries, hindrance });
    }

    /// Whether documents, `null` standing for none, may take the places of those with their primary keys, all at once: not if there were two with
    /// a key of a unique index then.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_unique(&self, env: &Env, changed: &BTreeMap<Vec<u8>, Value>) -> Result<()> {
        for (name, index) in self.indexes.iter().filter(|(_, index)| index.definition.unique) {
            let stay = self.documents.iter().filter(|(key, _)| !changed.contains_key(*key));
            let come = changed.iter().filter(|(_, document)| !document.is_null());
            if let Some((key, holder, _)) = self.duplicate(env, &index.definition, stay.chain(come)) {
                return Err(self.info.duplicate_key(name, Some(&key), &holder));
            }
        }
        Ok(())
    }

    /// Stores a document in the place of another one, `null` standing for none.
    pub fn store(&mut self, env: &Env, primary: Vec<u8>, old: &Value, new: &Value) {
        for index in self.indexes.values_mut() {
            if !matches!(old, Value::Null) {
                for (encoded, tag) in entries_of(env, &index.definition, old) {
                    index.entries.remove(&(encoded, primary.clone(), tag));
                }
            }
            if !matches!(new, Value::Null) {
                for (encoded, tag) in entries_of(env, &index.definition, new) {
                    index.entries.insert((encoded, primary.clone(), tag));
                }
            }
        }
        self.subscribers.tell(&primary, old, new);
        if matches!(new, Value::Null) {
            self.documents.remove(&primary);
        } else {
            self.documents.insert(primary, new.clone());
        }
    }

    /// A key of a unique index that two of these documents have, and their primary keys.
    fn duplicate<'a>(
        &self,
        env: &Env,
        definition: &IndexDefinition,
        documents: impl Iterator<Item = (&'a Vec<u8>, &'a Value)>,
    ) -> Option<(Value, Value, Value)> {
        let mut holders: BTreeMap<Vec<u8>, (&Vec<u8>, &Value)> = BTreeMap::new();
        for (primary, document) in documents.filter(|_| definition.unique) {
            for key in index::keys(env, definition, document) {
                let Ok(unique) = unique_key(Document::encode(&key).value()) else { continue };
                let earlier = holders.insert(unique, (primary, document));
                if let Some((_, holder)) = earlier.filter(|(holder, _)| *holder != primary) {
                    let value = |of: &Value| of.get_field(&self.info.primary_key).unwrap_or(Value::Null);
                    return Some((key, value(holder), value(document)));
                }
            }
        }
        None
    }

    pub fn page(&self, scan: &Scan) -> Result<Page> {
        // A single key must be one that a document may have; the ends of a range need not.
        let is_point = matches!(
            (&scan.range.lower, &scan.range.upper),
            (Bound::Included(lower), Bound::Included(upper)) if lower == upper
        );
        let encode = |bound: &Bound<Value>| -> Result<Bound<Vec<u8>>> {
            let encode = |value: &Value| match value {
                Value::MinVal | Value::MaxVal => key::secondary_key(value),
                other if scan.index.is_none() && is_point => key::primary_key(other),
                other if scan.index.is_none() => key::primary_bound(other),
                other => key::secondary_key(other),
            };
            Ok(match bound {
                Bound::Unbounded => Bound::Unbounded,
                Bound::Included(value) => Bound::Included(encode(value)?),
                Bound::Excluded(value) => Bound::Excluded(encode(value)?),
            })
        };
        let (lower, upper) = (encode(&scan.range.lower)?, encode(&scan.range.upper)?);
        let is_inside = |encoded: &Vec<u8>| {
            let after = match &lower {
                Bound::Unbounded => true,
                Bound::Included(bound) => encoded >= bound,
                Bound::Excluded(bound) => encoded > bound,
            };
            let before = match &upper {
                Bound::Unbounded => true,
                Bound::Included(bound) => encoded <= bound,
                Bound::Excluded(bound) => encoded < bound,
            };
            after && before
        };
        let limit = scan.limit.max(1);
        let descending = scan.order == Order::Descending;
        let (mut rows, mut last) = (Vec::new(), None);
        let mut take = |entry: Entry, row: &Value| {
            rows.push(Lazy::Value(row.clone()));
            let is_full = rows.len() == limit;
            if is_full {
                last = Some(position(&entry));
            }
            is_full
        };
        match &scan.index {
            None => {
                let start = scan.after.as_ref().map(entry_at);
                let is_left = |primary: &Vec<u8>| match &start {
                    None => true,
                    Some((_, at, _)) => {
                        if descending {
                            primary < at
                        } else {
                            primary > at
                        }
                    }
                };
                let documents = self.documents.iter().filter(|(key, _)| is_left(key) && is_inside(key));
                let each = |(primary, row): (&Vec<u8>, &Value)| take((Vec::new(), primary.clone(), 0), row);
                if descending {
                    documents.rev().any(each)
                } else {
                    documents.into_iter().any(each)
                };
            }
            Some(name) => {
                let index = self.indexes.get(&**name).ok_or_else(|| self.info.index_not_found(name))?;
                if index.definition.geo && scan.cells.is_none() {
                    return Err(self.info.geospatial_index(name));
                }
                let start = scan.after.as_ref().map(entry_at);
                let is_left = |entry: &Entry| match &start {
                    None => true,
                    Some(at) => {
                        if descending {
                            entry < at
                        } else {
                            entry > at
                        }
                    }
                };
                let entries = index.entries.iter().filter(|entry| {
                    is_left(entry)
                        && scan.cells.as_ref().map_or_else(|| is_inside(&entry.0), |cells| cells.finds_by(&entry.0))
                });
                let each = |entry: &Entry| self.documents.get(&entry.1).is_some_and(|row| take(entry.clone(), row));
                if descending {
                    entries.rev().any(each)
                } else {
                    entries.into_iter().any(each)
                };
            }
        }
        Ok(Page { rows, next: last })
    }
}

fn entries_of(env: &Env, definition: &IndexDefinition, document: &Value) -> Vec<(Vec<u8>, u32)> {
    if !definition.geo {
        return index::entries(env, definition, document);
    }
    // Only a query that is stopped fails here, and then it is not asked what it has written.
    let keys = index::cell_keys(env, definition, document).unwrap_or_default();
    keys.into_iter().map(|key| (key, 0)).collect()
}

fn position((encoded, primary, tag): &Entry) -> Position {
    let mut bytes = (encoded.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(encoded);
    bytes.extend_from_slice(&tag.to_be_bytes());
    bytes.extend_from_slice(primary);
    Position(bytes)
}

/// The entry that a position stands for. Positions come from here only; one that is damaged is taken for the beginning.
pub fn entry_at(Position(bytes): &Position) -> Entry {
    let decode = || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (encoded, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let (tag, primary) = rest.split_first_chunk::<4>()?;
        Some((encoded.to_vec(), primary.to_vec(), u32::from_be_bytes(*tag)))
    };
    decode().unwrap_or_default()
}
