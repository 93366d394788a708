//! The writes of one transaction: nearly always one, sometimes thousands.

use std::collections::BTreeMap;
use std::ops::Bound;
use tessera_engine::mutation::Location;
use tessera_types::RecordKey;

/// Where the last write of each key stands in the payload, which is passed along to every call.
#[derive(Default)]
pub(crate) enum ChangeSet {
    #[default]
    Empty,
    /// Spares the map of the common case.
    One(Location),
    /// By key in its ordered form.
    Many(BTreeMap<Vec<u8>, Location>),
}

fn ordered(key: &RecordKey<'_>) -> Vec<u8> {
    let mut ordered = Vec::new();
    key.encode_ordered(&mut ordered);
    ordered
}

impl ChangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::Empty;
    }

    pub(crate) fn get(&self, key: &RecordKey<'_>, payload: &[u8]) -> Option<&Location> {
        match self {
            Self::Empty => None,
            Self::One(location) => (location.key(payload) == *key).then_some(location),
            Self::Many(changes) => changes.get(&ordered(key)),
        }
    }

    pub(crate) fn insert(&mut self, location: Location, payload: &[u8]) {
        let key = location.key(payload);
        match self {
            Self::Empty => *self = Self::One(location),
            Self::One(first) if first.key(payload) == key => *first = location,
            Self::One(first) => {
                *self = Self::Many([*first, location].map(|each| (ordered(&each.key(payload)), each)).into());
            }
            Self::Many(changes) => _ = changes.insert(ordered(&key), location),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Location> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(location) => (Some(location), None),
            Self::Many(changes) => (None, Some(changes.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Changes of records of `key`'s hash key.
    pub(crate) fn of_hash_key(&self, key: &RecordKey<'_>, payload: &[u8]) -> impl Iterator<Item = &Location> {
        let from = ordered(&RecordKey::with_hash(key.hash(), key.hash_key, b""));
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(location) => (Some(location), None),
            Self::Many(changes) => (None, Some(changes.range((Bound::Included(from), Bound::Unbounded)))),
        };
        one.into_iter()
            .chain(many.into_iter().flatten().map(|(_, location)| location))
            .take_while(move |location| location.hash() == key.hash() && location.key(payload).hash_key == key.hash_key)
    }
}
