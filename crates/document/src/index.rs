//! What an index holds of a document.
//!
//! The function of an index is evaluated elsewhere. Here its result becomes entries, and the entries of a document before and
//! after a write become what the write changes in the index.

use crate::{EncodedValue, SecondaryKey, View, entry_key, unique_key};

/// How an index makes entries out of what its function gives for a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexShape {
    /// One entry. An array is a compound key.
    Single,
    /// One entry for each element, if the function gives an array; an element that is there twice has two. Anything else
    /// is indexed as by a single one.
    Multi,
}

impl IndexShape {
    /// Appends the keys of the entries of a document with the primary key `primary`. `indexed` is what the function gave
    /// for it, `None` if it failed, which is no error: the document is not in the index then. Values that are no keys
    /// (null, objects, geometry, arrays that hold one of them) are left out.
    pub fn entries(self, indexed: Option<EncodedValue<'_>>, primary: &[u8], entries: &mut Vec<Vec<u8>>) {
        let Some(indexed) = indexed else { return };
        match (self, indexed.view()) {
            (Self::Multi, View::Array(values)) => {
                for (place, value) in (0..=u32::MAX).zip(values.iter()) {
                    entries.extend(SecondaryKey::of_entry(value).map(|key| entry_key(&key, primary, Some(place))).ok());
                }
            }
            _ => entries.extend(SecondaryKey::of_entry(indexed).map(|key| entry_key(&key, primary, None)).ok()),
        }
    }

    /// The keys that a document takes in a unique index, each of them once, in their order. `indexed` is as in [`Self::entries`].
    pub fn unique_keys(self, indexed: Option<EncodedValue<'_>>) -> Vec<Vec<u8>> {
        let Some(indexed) = indexed else { return Vec::new() };
        let mut keys: Vec<Vec<u8>> = match (self, indexed.view()) {
            (Self::Multi, View::Array(values)) => values.iter().filter_map(|value| unique_key(value).ok()).collect(),
            _ => unique_key(indexed).into_iter().collect(),
        };
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The value to which an entry belongs: `indexed`, or its element at the entry's `place`. Whoever met an entry whose
    /// key was cut compares this one.
    pub fn value_at(self, indexed: EncodedValue<'_>, place: Option<u32>) -> Option<EncodedValue<'_>> {
        match (self, indexed.view(), place) {
            (Self::Multi, View::Array(values), Some(place)) => values.get(usize::try_from(place).ok()?),
            (Self::Multi, View::Array(_), None) | (_, _, Some(_)) => None,
            (_, _, None) => Some(indexed),
        }
    }
}

/// What a write changes in an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryChanges {
    /// The keys of entries that the index no longer has.
    pub removed: Vec<Vec<u8>>,
    /// The keys of entries that the index has from now on.
    pub added: Vec<Vec<u8>>,
}

impl EntryChanges {
    /// The difference between the entries of a document before and after a write. Entries that stay are in neither list.
    pub fn between(mut old: Vec<Vec<u8>>, mut new: Vec<Vec<u8>>) -> Self {
        if old == new {
            return Self::default();
        }
        old.sort_unstable();
        new.sort_unstable();
        let missing = |from: &[Vec<u8>], key: &Vec<u8>| from.binary_search(key).is_err();
        let removed = old.iter().filter(|key| missing(&new, key)).cloned().collect();
        new.retain(|key| missing(&old, key));
        Self { removed, added: new }
    }

    /// Whether the index stays as it is.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }
}
