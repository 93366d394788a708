//! The writes of one transaction: nearly always one, sometimes thousands.

use crate::ordered_keys;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use tessera_engine::mutation::Location;
use tessera_engine::{Order, SortKeyRange};
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

    /// Forgets all changes of records under `key`'s hash key.
    pub(crate) fn forget_hash_key(&mut self, key: &RecordKey<'_>, payload: &[u8]) {
        match self {
            Self::Empty => {}
            Self::One(location) if location.key(payload).hash_key != key.hash_key => {}
            Self::One(_) => self.clear(),
            Self::Many(changes) => ordered_keys::remove_hash_key(changes, key),
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

    /// Changes of records of `key`'s hash key in a range of sort keys, in order: sort key and stored value, `None` for deletions.
    pub(crate) fn of_hash_key<'a>(
        &'a self,
        key: &RecordKey<'_>,
        range: SortKeyRange<'a>,
        order: Order,
        payload: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let is_asked_for = |changed: &RecordKey<'_>| {
            changed.hash() == key.hash()
                && changed.hash_key == key.hash_key
                && RangeBounds::<[u8]>::contains(&range, changed.sort_key)
        };
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(location) => {
                (Some(location.key(payload)).filter(is_asked_for).map(|key| (key.sort_key, location)), None)
            }
            Self::Many(changes) => (None, Some(ordered_keys::of_hash_key(changes, key, range, order))),
        };
        let changes = one.into_iter().chain(many.into_iter().flatten());
        changes.map(|(sort_key, location)| (sort_key, location.value(payload)))
    }
}
