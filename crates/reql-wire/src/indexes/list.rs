//! The list of indexes that a partition keeps, and how far those are that are not built.
//!
//! The list also says whether the partition keeps [changes](crate::feeds), as if that were an index of space
//! [`Space::CHANGES`] without a definition.
//!
//! Both are records of [`Space::INDEXES`]. The list stands under [`LIST_KEY`]: for each index, in the order of their spaces, `u32`
//! space, `u8` whether it is built, and its definition after its `u32` length. How far an index is stands under `to` and its space,
//! big-endian: the primary key of the last document that was looked at.

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
}

/// A number that says which list it is; zero is the empty one.
pub(crate) fn stamp_of(list: &[u8]) -> u64 {
    if list.is_empty() { 0 } else { RecordKey::new(list, b"").hash() | 1 }
}

/// Where is kept how far an index is.
pub(super) fn progress_key(space: Space) -> Vec<u8> {
    [&b"to"[..], &space.0.to_be_bytes()].concat()
}

impl IndexList {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for index in &self.0 {
            out.put_u32_le(index.space.0);
            out.put_u8(u8::from(index.is_built));
            out.put_u32_le(u32::try_from(index.definition.len()).expect("definitions are short"));
            out.put_slice(&index.definition);
        }
        out
    }

    /// Reads a list; `None` if the bytes are none.
    pub(crate) fn decode(mut input: Bytes) -> Option<Self> {
        let mut list = Self::default();
        while !input.is_empty() {
            let space = Space(input.try_get_u32_le().ok()?);
            let is_built = input.try_get_u8().ok()? != 0;
            let length = input.try_get_u32_le().ok()? as usize;
            let definition = (length <= input.len()).then(|| input.split_to(length))?;
            list.0.push(ListedIndex { space, is_built, definition });
        }
        Some(list)
    }

    pub(crate) fn get(&self, space: Space) -> Option<&ListedIndex> {
        self.0.iter().find(|index| index.space == space)
    }

    /// Adds an index that is not built.
    pub(super) fn begin(&mut self, space: Space, definition: Bytes) {
        if self.get(space).is_none() {
            self.0.push(ListedIndex { space, is_built: false, definition });
            self.0.sort_by_key(|index| index.space);
        }
    }

    /// Notes whether the partition keeps [changes](crate::feeds), or no longer. It is no index, but what each write must know.
    pub(crate) fn set_logging(&mut self, is_logging: bool) {
        self.0.retain(|index| index.space != Space::CHANGES);
        if is_logging {
            self.0.insert(0, ListedIndex { space: Space::CHANGES, is_built: true, definition: Bytes::new() });
        }
    }

    /// The indexes.
    pub(super) fn indexes(&self) -> impl Iterator<Item = &ListedIndex> {
        self.0.iter().filter(|index| index.space >= Space::FIRST_INDEX)
    }

    pub(super) fn finish(&mut self, space: Space) {
        self.0.iter_mut().filter(|index| index.space == space).for_each(|index| index.is_built = true);
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
        list.set_logging(true);
        assert!(crate::feeds::is_logging(&list.encode()) && list.indexes().count() == 2);
        list.set_logging(false);
        assert!(!crate::feeds::is_logging(&list.encode()) && list.encode() == bytes);
        list.drop(Space(16));
        assert!(list.get(Space(16)).is_none() && list.get(Space(18)).is_some());
    }
}
