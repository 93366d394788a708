//! The list of indexes that a partition keeps, and how far those are that are not built.
//!
//! The list also says whether the partition keeps [changes](crate::feeds), as if that were an index of space
//! [`Space::CHANGES`] without a definition.
//!
//! Both are records of [`Space::INDEXES`]. The list stands under [`LIST_KEY`]: for each index, in the order of their spaces, `u32`
//! space, `u8` 1 if it is built, 0 if not, 2 if it cannot be, its definition after its `u32` length, and in the last case what hinders it after
//! its `u32` length. How far an index is stands under `to` and its space,
//! big-endian: the primary key of the last document that was looked at. That there may be claims to keys of an index in the partition is
//! noted under `claims` and its space.

use crate::work::{put, take};
use bytes::{Buf as _, BufMut as _, Bytes};
use tessera_types::{RecordKey, Space};

pub(crate) const LIST_KEY: &[u8] = b"list";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexList(pub(crate) Vec<ListedIndex>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedIndex {
    pub(crate) space: Space,
    /// Until then it may be read by nobody.
    pub(crate) is_built: bool,
    /// See `tessera_reql::IndexDefinition::source`.
    pub(crate) definition: Bytes,
    /// What hinders a unique index from being built: there are documents with one key.
    pub(crate) hindrance: Option<Bytes>,
}

/// A number that says which list it is; zero is the empty one.
pub(crate) fn stamp_of(list: &[u8]) -> u64 {
    if list.is_empty() { 0 } else { RecordKey::new(list, b"").hash() | 1 }
}

/// Where is kept how far an index is.
pub(super) fn progress_key(space: Space) -> Vec<u8> {
    [&b"to"[..], &space.0.to_be_bytes()].concat()
}

const CLAIMS_PREFIX: &[u8] = b"claims";

/// Where is noted that a partition may have claims to the keys of an index. These may have come before the partition's own list has the index,
/// or after it has it no longer.
pub(crate) fn claims_key(space: Space) -> Vec<u8> {
    [CLAIMS_PREFIX, &space.0.to_be_bytes()].concat()
}

/// The keys that [`claims_key`] gives.
pub(super) fn all_claims_keys() -> (Vec<u8>, Vec<u8>) {
    (claims_key(Space(0)), claims_key(Space(u32::MAX)))
}

/// The index of which a [key](claims_key) tells.
pub(super) fn claimed_index(key: &[u8]) -> Option<Space> {
    Some(Space(u32::from_be_bytes(key.strip_prefix(CLAIMS_PREFIX)?.try_into().ok()?)))
}

impl IndexList {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for index in &self.0 {
            out.put_u32_le(index.space.0);
            out.put_u8(if index.hindrance.is_some() { 2 } else { u8::from(index.is_built) });
            put(&mut out, &index.definition);
            index.hindrance.iter().for_each(|hindrance| put(&mut out, hindrance));
        }
        out
    }

    /// Reads a list; `None` if the bytes are none.
    pub(crate) fn decode(mut input: Bytes) -> Option<Self> {
        let mut list = Self::default();
        while !input.is_empty() {
            let space = Space(input.try_get_u32_le().ok()?);
            let state = input.try_get_u8().ok()?;
            let definition = take(&mut input)?;
            let hindrance = if state == 2 { Some(take(&mut input)?) } else { None };
            list.0.push(ListedIndex { space, is_built: state == 1, definition, hindrance });
        }
        Some(list)
    }

    pub(crate) fn get(&self, space: Space) -> Option<&ListedIndex> {
        self.0.iter().find(|index| index.space == space)
    }

    /// Adds an index that is not built.
    pub(super) fn begin(&mut self, space: Space, definition: Bytes) {
        if self.get(space).is_none() {
            self.0.push(ListedIndex { space, is_built: false, definition, hindrance: None });
            self.0.sort_by_key(|index| index.space);
        }
    }

    /// Notes whether the partition keeps [changes](crate::feeds), or no longer. It is no index, but what each write must know.
    pub(crate) fn set_logging(&mut self, is_logging: bool) {
        self.0.retain(|index| index.space != Space::CHANGES);
        if is_logging {
            let (space, definition) = (Space::CHANGES, Bytes::new());
            self.0.insert(0, ListedIndex { space, is_built: true, definition, hindrance: None });
        }
    }

    /// The indexes.
    pub(super) fn indexes(&self) -> impl Iterator<Item = &ListedIndex> {
        self.0.iter().filter(|index| index.space >= Space::FIRST_INDEX)
    }

    pub(super) fn finish(&mut self, space: Space) {
        for index in self.0.iter_mut().filter(|index| index.space == space) {
            (index.is_built, index.hindrance) = (true, None);
        }
    }

    /// Notes why an index cannot be built.
    pub(super) fn hinder(&mut self, space: Space, hindrance: &Bytes) {
        for index in self.0.iter_mut().filter(|index| index.space == space && !index.is_built) {
            index.hindrance = Some(hindrance.clone());
        }
    }

    pub(super) fn drop(&mut self, space: Space) {
        self.0.retain(|index| index.space != space);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_and_read() {
        let mut list = IndexList::default();
        assert_eq!((list.encode().len(), stamp_of(&list.encode())), (0, 0));
        list.begin(Space(18), Bytes::from_static(b"two"));
        list.begin(Space(16), Bytes::from_static(b"one"));
        let before = stamp_of(&list.encode());
        list.finish(Space(16));
        let bytes = list.encode();
        assert!(before != stamp_of(&bytes) && before != 0, "writers must learn that an index is built");
        assert_eq!(IndexList::decode(bytes.clone().into()), Some(list.clone()));
        assert_eq!(
            list.0.iter().map(|index| (index.space.0, index.is_built)).collect::<Vec<_>>(),
            [(16, true), (18, false)]
        );
        for length in 1..bytes.len() {
            let cut = IndexList::decode(Bytes::copy_from_slice(&bytes[..length]));
            assert!(cut.is_none_or(|cut| cut.0.len() == 1), "cut at {length}");
        }
        list.hinder(Space(18), &Bytes::from_static(b"two have one key"));
        list.hinder(Space(16), &Bytes::from_static(b"it is built"));
        assert_eq!(IndexList::decode(list.encode().into()), Some(list.clone()));
        let hindrance = |list: &IndexList, space| list.get(space).and_then(|index| index.hindrance.clone());
        assert_eq!(hindrance(&list, Space(18)).as_deref(), Some(&b"two have one key"[..]));
        assert_eq!(hindrance(&list, Space(16)), None);
        list.finish(Space(18));
        assert_eq!(hindrance(&list, Space(18)), None);
        assert_eq!(claimed_index(&claims_key(Space(18))), Some(Space(18)));
        let bytes = list.encode();
        list.set_logging(true);
        assert!(crate::feeds::is_logging(&list.encode()) && list.indexes().count() == 2);
        list.set_logging(false);
        assert!(!crate::feeds::is_logging(&list.encode()) && list.encode() == bytes);
        list.drop(Space(16));
        assert!(list.get(Space(16)).is_none() && list.get(Space(18)).is_some());
    }
}
