//! The secondary indexes that a table of documents should have. How far an index is built is known to the partitions
//! themselves.

use super::CatalogError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tessera_types::Space;

/// The largest number of indexes of a table. Each write looks at all of them.
const MOST: usize = 128;
/// The longest definition, in bytes of its text.
const DEFINITION_BYTES: usize = 1 << 20;

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indexes {
    /// How many indexes were ever made: no index gets the number of an earlier one, whose entries may still exist in
    /// some partition.
    #[serde(default)]
    made: u32,
    #[serde(default)]
    by_name: BTreeMap<String, IndexEntry>,
}

/// A secondary index of a table of documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// The space of each partition that has the index.
    pub space: u32,
    /// What the index holds of a document, in the form of the code that evaluates it.
    pub definition: String,
    /// Whether no two documents may have the same key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unique: bool,
}

impl Indexes {
    /// Whether the table never had an index.
    pub fn is_unused(&self) -> bool {
        self.made == 0
    }

    /// The index of this name.
    pub fn get(&self, name: &str) -> Option<&IndexEntry> {
        self.by_name.get(name)
    }

    /// All indexes with their names, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &IndexEntry)> {
        self.by_name.iter().map(|(name, index)| (name.as_str(), index))
    }

    /// Whether there is a unique index.
    pub fn has_unique(&self) -> bool {
        self.by_name.values().any(|index| index.is_unique)
    }

    /// Whether the index with this space is known to have been dropped. An index that this copy of the catalog does not
    /// know yet is not.
    pub fn is_dropped(&self, space: Space) -> bool {
        space.0 < Space::FIRST_INDEX.0 + self.made && !self.by_name.values().any(|index| index.space == space.0)
    }

    pub(super) fn create(&mut self, name: &str, definition: &str, is_unique: bool) -> Result<(), CatalogError> {
        if self.by_name.contains_key(name) {
            return Err(CatalogError::IndexExists(name.into()));
        }
        if self.by_name.len() >= MOST || definition.len() > DEFINITION_BYTES {
            return Err(CatalogError::TooManyIndexes { most: MOST, bytes: DEFINITION_BYTES });
        }
        let space = Space::FIRST_INDEX.0 + self.made;
        self.made += 1;
        self.by_name.insert(name.into(), IndexEntry { space, definition: definition.into(), is_unique });
        Ok(())
    }

    pub(super) fn drop(&mut self, name: &str) -> Result<(), CatalogError> {
        self.by_name.remove(name).map(|_| ()).ok_or_else(|| CatalogError::NoSuchIndex(name.into()))
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, overwrites: bool) -> Result<(), CatalogError> {
        if !self.by_name.contains_key(from) {
            return Err(CatalogError::NoSuchIndex(from.into()));
        }
        if from != to && !overwrites && self.by_name.contains_key(to) {
            return Err(CatalogError::IndexExists(to.into()));
        }
        if let Some(index) = self.by_name.remove(from) {
            self.by_name.insert(to.into(), index);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_index_gets_the_space_of_another_one() {
        let mut indexes = Indexes::default();
        assert!(indexes.is_unused());
        indexes.create("a", "1", false).unwrap();
        indexes.create("b", "2", false).unwrap();
        assert_eq!(indexes.create("a", "3", false), Err(CatalogError::IndexExists("a".into())));
        indexes.drop("a").unwrap();
        assert_eq!(indexes.drop("a"), Err(CatalogError::NoSuchIndex("a".into())));
        indexes.create("a", "4", false).unwrap();
        let spaces: Vec<_> = indexes.iter().map(|(name, index)| (name.to_string(), index.space)).collect();
        assert_eq!(spaces, [("a".to_string(), 18), ("b".to_string(), 17)]);
        let dropped: Vec<u32> = (16..20).filter(|space| indexes.is_dropped(Space(*space))).collect();
        assert_eq!(dropped, [16], "what is not known of yet was not dropped");
    }

    #[test]
    fn renaming_takes_a_name_only_if_asked_to() {
        let mut indexes = Indexes::default();
        indexes.create("a", "1", false).unwrap();
        indexes.create("b", "2", false).unwrap();
        assert_eq!(indexes.rename("a", "b", false), Err(CatalogError::IndexExists("b".into())));
        assert_eq!(indexes.rename("c", "b", true), Err(CatalogError::NoSuchIndex("c".into())));
        indexes.rename("a", "a", false).unwrap();
        indexes.rename("a", "b", true).unwrap();
        assert_eq!(indexes.iter().map(|(name, index)| (name, index.space)).collect::<Vec<_>>(), [("b", 16)]);
        assert!(indexes.is_dropped(Space(17)));
    }
}
