//! The writes of one transaction: nearly always one, sometimes thousands.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The last write of each key, by ordered key; `None` deletes.
#[derive(Default)]
pub(crate) enum ChangeSet {
    #[default]
    Empty,
    /// Spares the map of the common case.
    One(Bytes, Option<Bytes>),
    Many(BTreeMap<Bytes, Option<Bytes>>),
}

impl ChangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::Empty;
    }

    pub(crate) fn get(&self, ordered: &Bytes) -> Option<&Option<Bytes>> {
        match self {
            Self::Empty => None,
            Self::One(key, stored) => (key == ordered).then_some(stored),
            Self::Many(changes) => changes.get(ordered),
        }
    }

    pub(crate) fn insert(&mut self, ordered: Bytes, stored: Option<Bytes>) {
        *self = match std::mem::take(self) {
            Self::Empty => Self::One(ordered, stored),
            Self::One(key, _) if key == ordered => Self::One(ordered, stored),
            Self::One(key, first) => Self::Many(BTreeMap::from([(key, first), (ordered, stored)])),
            Self::Many(mut changes) => {
                changes.insert(ordered, stored);
                Self::Many(changes)
            }
        };
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(key, stored) => (Some((key, stored)), None),
            Self::Many(changes) => (None, Some(changes)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(crate) fn with_prefix<'a>(&'a self, prefix: &'a Bytes) -> impl Iterator<Item = (&'a Bytes, &'a Option<Bytes>)> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(key, stored) => (Some((key, stored)), None),
            Self::Many(changes) => (None, Some(changes.range::<Bytes, _>((Bound::Included(prefix), Bound::Unbounded)))),
        };
        one.into_iter()
            .chain(many.into_iter().flatten())
            .skip_while(|(key, _)| !key.starts_with(prefix))
            .take_while(|(key, _)| key.starts_with(prefix))
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(key, stored) => (Some((key, stored)), None),
            Self::Many(changes) => (None, Some(changes)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}
