//! What this node knows of the lists of partitions, with their functions ready to be called.

use super::list::{IndexList, stamp_of};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tessera_document::{Document, EncodedValue, EntryChanges, IndexShape, SecondaryKey, Value, entry_key};
use tessera_reql::{Env, Error, ErrorKind, IndexDefinition, Lazy, Result};
use tessera_types::{Space, TableId};

/// Most lists and partitions that are remembered; then all are forgotten, and learned again.
const MOST: usize = 100_000;

/// A list that evaluates the functions in it.
#[derive(Default)]
pub(crate) struct Keeper {
    stamp: u64,
    indexes: Vec<KeptIndex>,
}

struct KeptIndex {
    space: Space,
    is_built: bool,
    definition: IndexDefinition,
}

/// What a write changes in the indexes of its partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NewEntries {
    /// The list that this was made for.
    pub(crate) stamp: u64,
    /// Keys of entries that go and that come.
    pub(crate) changes: Vec<(Space, EntryChanges)>,
}

/// What a write changes in the indexes, of its partition and of others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IndexChanges {
    pub(crate) entries: NewEntries,
    /// For each unique index the keys that the document gives up, and those that it takes.
    pub(crate) claims: Vec<(Space, EntryChanges)>,
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("A stored {what} is damaged."))
}

/// What an index has of a document.
#[derive(Default)]
pub(super) struct Indexed {
    /// The keys of entries.
    pub(super) entries: Vec<Vec<u8>>,
    /// The keys that no other document may have; none if the index is not unique.
    pub(super) unique_keys: Vec<Vec<u8>>,
}

/// What an index has of a document.
///
/// # Errors
/// If the query was stopped. A document for which the function fails is not in the index.
pub(super) fn indexed(env: &Env, definition: &IndexDefinition, document: &Lazy, primary: &[u8]) -> Result<Indexed> {
    let mut indexed = Indexed::default();
    if definition.geo {
        let keys = tessera_reql::cell_keys(env, definition, &document.to_value()?)?;
        indexed.entries = keys.iter().map(|key| entry_key(&SecondaryKey::of_cells(key), primary, None)).collect();
        return Ok(indexed);
    }
    if let Some(value) = definition.function.indexed(env, document)? {
        let value = Document::encode(&value);
        let shape = shape(definition);
        shape.entries(Some(value.value()), primary, &mut indexed.entries);
        if definition.unique {
            indexed.unique_keys = shape.unique_keys(Some(value.value()));
        }
    }
    Ok(indexed)
}

pub(crate) fn shape(definition: &IndexDefinition) -> IndexShape {
    if definition.multi { IndexShape::Multi } else { IndexShape::Single }
}

impl Keeper {
    fn of(list: &Bytes) -> Result<Self> {
        let indexes = IndexList::decode(list.clone()).ok_or_else(|| damaged("list of indexes"))?;
        let indexes = indexes.indexes().map(|index| {
            let definition = IndexDefinition::from_source(index.definition.to_vec().into(), String::new());
            let definition = definition.ok_or_else(|| damaged("index function"))?;
            Ok(KeptIndex { space: index.space, is_built: index.is_built, definition })
        });
        Ok(Self { stamp: stamp_of(list), indexes: indexes.collect::<Result<_>>()? })
    }

    /// What changes in the indexes if a document takes the place of another one; `null` is none.
    ///
    /// # Errors
    /// If the query was stopped.
    pub(crate) fn changes(&self, env: &Env, old: &Value, new: &Value, primary: &[u8]) -> Result<IndexChanges> {
        if self.indexes.is_empty() {
            let entries = NewEntries { stamp: self.stamp, ..NewEntries::default() };
            return Ok(IndexChanges { entries, claims: Vec::new() });
        }
        let env = env.without_options();
        let (mut changes, mut claims) = (Vec::new(), Vec::new());
        for index in &self.indexes {
            let of = |document: &Value| match document {
                Value::Null => Ok(Indexed::default()),
                document => indexed(&env, &index.definition, &document.clone().into(), primary),
            };
            let (old, new) = (of(old)?, of(new)?);
            // Also while the index is built: whoever builds claims what documents have by then.
            let claimed = EntryChanges::between(old.unique_keys, new.unique_keys);
            if !claimed.is_empty() {
                claims.push((index.space, claimed));
            }
            let (old, new) = (old.entries, new.entries);
            // While an index is built it need not have the entries of the old document.
            let change = match index.is_built {
                true => EntryChanges::between(old, new),
                false => EntryChanges { removed: EntryChanges::between(old, new.clone()).removed, added: new },
            };
            if !change.is_empty() {
                changes.push((index.space, change));
            }
        }
        Ok(IndexChanges { entries: NewEntries { stamp: self.stamp, changes }, claims })
    }
}

/// The value of a document to which an entry at `place` belongs; `None` if there is none, so that the entry is none of the document's.
pub(crate) fn value_at(
    env: &Env,
    definition: &IndexDefinition,
    document: &Value,
    place: Option<u32>,
) -> Result<Option<Value>> {
    let value = match definition.function.value_of(&env.without_options(), document) {
        Ok(value) => Document::encode(&value),
        Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
        Err(_) => return Ok(None),
    };
    let found = shape(definition).value_at(value.value(), place);
    found.map(EncodedValue::to_value).transpose().map_err(|_| damaged("document"))
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct ListCache(Mutex<Known>);

#[derive(Default)]
struct Known {
    keepers: HashMap<u64, Arc<Keeper>>,
    /// The stamp of each partition's list, and under [`ANY`] that of the table's partition of which something was last heard.
    stamps: HashMap<(TableId, u32), u64>,
}

const ANY: u32 = u32::MAX;

impl ListCache {
    /// What the partition keeps, as far as is known here: what it is told otherwise is to be [learned](Self::learn).
    pub(crate) fn keeper(&self, table: TableId, partition: u32) -> Arc<Keeper> {
        let known = self.0.lock();
        let stamp = known.stamps.get(&(table, partition)).or_else(|| known.stamps.get(&(table, ANY)));
        stamp.and_then(|stamp| known.keepers.get(stamp)).cloned().unwrap_or_default()
    }

    /// Takes note of a partition's list.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub(crate) fn learn(&self, table: TableId, partition: u32, list: &Bytes) -> Result<()> {
        let stamp = stamp_of(list);
        let mut known = self.0.lock();
        if known.stamps.len() >= MOST || known.keepers.len() >= MOST {
            *known = Known::default();
        }
        if let Entry::Vacant(unknown) = known.keepers.entry(stamp) {
            unknown.insert(Arc::new(Keeper::of(list)?));
        }
        known.stamps.insert((table, partition), stamp);
        known.stamps.insert((table, ANY), stamp);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_reql::Stop;

    /// A list with one index, of the field `n`.
    fn list(is_built: bool, is_unique: bool) -> Bytes {
        let name = Document::encode(&Value::from("n")).into_bytes();
        let length = u32::try_from(name.len()).unwrap().to_le_bytes();
        // Simple; then form 1 of a stored function, a field's name.
        let prefix = if is_unique { "$reql_unique_index_function$" } else { "$reql_index_function$" };
        let source = [prefix.as_bytes(), b"\0\x01\0", &length, &name].concat();
        let definition = source.into();
        let index = super::super::list::ListedIndex { space: Space(16), is_built, definition, hindrance: None };
        IndexList(vec![index]).encode().into()
    }

    fn document(n: i32, other: i32) -> Value {
        Value::object([("id", Value::from(1)), ("n", Value::from(n)), ("other", Value::from(other))]).unwrap()
    }

    #[test]
    fn a_write_relies_on_entries_only_of_an_index_that_is_built() {
        let env = Env::for_functions(Arc::new(Stop::default()), Value::Null);
        let changes = |is_built, old: &Value, new: &Value| {
            let made = Keeper::of(&list(is_built, false)).unwrap().changes(&env, old, new, b"primary").unwrap();
            assert_eq!(made.claims, []);
            let made = made.entries;
            assert_eq!(made.stamp, stamp_of(&list(is_built, false)));
            made.changes.into_iter().map(|(_, change)| (change.removed.len(), change.added.len())).collect::<Vec<_>>()
        };
        let (before, after) = (document(5, 1), document(5, 2));
        assert_eq!(changes(true, &before, &after), [], "the entry is there and stays");
        assert_eq!(changes(false, &before, &after), [(0, 1)], "the builder leaves out a document that has changed");
        for is_built in [true, false] {
            assert_eq!(changes(is_built, &before, &document(6, 1)), [(1, 1)]);
            assert_eq!(changes(is_built, &before, &Value::Null), [(1, 0)]);
            assert_eq!(changes(is_built, &Value::Null, &after), [(0, 1)]);
        }
    }

    #[test]
    fn a_write_claims_and_gives_up_the_keys_of_a_unique_index_that_it_changes() {
        let env = Env::for_functions(Arc::new(Stop::default()), Value::Null);
        let none = Value::Null;
        for is_built in [true, false] {
            let keeper = Keeper::of(&list(is_built, true)).unwrap();
            let claims = |old: &Value, new: &Value| {
                let claims = keeper.changes(&env, old, new, b"primary").unwrap().claims;
                claims.into_iter().map(|(_, change)| (change.removed.len(), change.added.len())).collect::<Vec<_>>()
            };
            let before = document(5, 1);
            assert_eq!(claims(&before, &document(5, 2)), [], "it keeps what it has");
            assert_eq!(claims(&before, &document(6, 1)), [(1, 1)]);
            assert_eq!(claims(&before, &none), [(1, 0)]);
            assert_eq!(claims(&none, &before), [(0, 1)]);
            let without = Value::object([("id", Value::from(1)), ("n", Value::Null)]).unwrap();
            assert_eq!(claims(&none, &without), [], "null is not indexed");
        }
    }
}
