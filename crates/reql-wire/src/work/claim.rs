//! Claims to the keys of unique indexes, as work.

use super::fields::{put, put_option, take, take_option};
use bytes::{Buf as _, BufMut as _, Bytes};
use tessera_types::Space;

/// A key of a unique index goes from one document to another, in a transaction that also writes these.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimWork {
    /// The space of the index.
    pub(crate) space: Space,
    pub(crate) key: Bytes,
    /// The primary keys of the documents that give it up. While the index is built there may be several.
    pub(crate) leaving: Vec<Bytes>,
    /// The primary key of the document that is to have it.
    pub(crate) taking: Option<Bytes>,
}

/// A key of a unique index that another document has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taken {
    /// The space of the index.
    pub(crate) space: Space,
    pub(crate) key: Bytes,
    /// The primary key of the document.
    pub(crate) holder: Bytes,
}

impl ClaimWork {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32_le(self.space.0);
        put(out, &self.key);
        put_option(out, self.taking.as_ref());
        out.put_u32_le(u32::try_from(self.leaving.len()).expect("a query has fewer documents"));
        self.leaving.iter().for_each(|primary| put(out, primary));
    }

    pub(super) fn decode(input: &mut Bytes) -> Option<Self> {
        let (space, key) = (Space(input.try_get_u32_le().ok()?), take(input)?);
        let (taking, count) = (take_option(input)?, input.try_get_u32_le().ok()?);
        Some(Self { space, key, leaving: (0..count).map(|_| take(input)).collect::<Option<_>>()?, taking })
    }
}

impl Taken {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32_le(self.space.0);
        put(out, &self.key);
        put(out, &self.holder);
    }

    pub(super) fn decode(input: &mut Bytes) -> Option<Self> {
        Some(Self { space: Space(input.try_get_u32_le().ok()?), key: take(input)?, holder: take(input)? })
    }
}
