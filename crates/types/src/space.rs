//! The ordered spaces of a partition, and which partition a record of one belongs to.

use crate::{Partitioner, RecordKey};
use std::borrow::Cow;

/// A partition has its key-value records, ordered by hash, and beside them some ordered spaces: maps of bytes to bytes in the order of
/// the keys' bytes. A space is known by its number and exists as long as it has records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(pub u32);

impl Space {
    /// What the node itself keeps about a partition.
    pub const SYSTEM: Self = Self(0);
    /// Documents by their encoded primary keys.
    pub const DOCUMENTS: Self = Self(1);
    /// What has changed in documents, for changefeeds: by the number of the change in eight bytes, and the primary key.
    pub const CHANGES: Self = Self(2);
    /// Which indexes the partition's writes keep, and how far they are built.
    pub const INDEXES: Self = Self(3);
    /// When documents end: by the time in milliseconds since 1970, in eight bytes, and the primary key.
    pub const ENDS: Self = Self(4);
    /// The first number that an index may have; those before it are reserved.
    pub const FIRST_INDEX: Self = Self(16);
    /// Added to the number of an index's space: the space of the claims to its unique keys.
    const CLAIMS: u32 = 1 << 31;
    /// Begins the names under which transactions lock claims. No primary key begins with it, so that none is locked with them.
    const LOCKED_CLAIM: u8 = 0xFF;
    /// The longest key of any space, in bytes. A log entry and RocksDB would take longer ones.
    pub const KEY_BYTES_CEILING: usize = 1 << 20;

    /// The space of the claims to the keys of a unique index: under each key, in the partition that the hash of the key gives, the primary
    /// key of the document that has it.
    pub const fn claims(self) -> Self {
        Self(self.0 | Self::CLAIMS)
    }

    /// Whether it is the space of claims of some index.
    pub const fn is_claims(self) -> bool {
        self.0 & Self::CLAIMS != 0
    }

    /// The name under which transactions lock a record of the space; `None` if its records are not locked.
    pub fn lock_key(self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::DOCUMENTS => Some(Cow::Borrowed(key)),
            claims if claims.is_claims() => {
                Some(Cow::Owned([&[Self::LOCKED_CLAIM][..], &claims.0.to_be_bytes(), key].concat()))
            }
            _ => None,
        }
    }

    /// The part of a record's key that says to which partition it belongs: of a document its primary key, of a claim all of it, and of a
    /// change, an end and an index entry that of its document. An entry's key is the secondary key, the primary key, with flag 2 four bytes of place, a byte with the length of the secondary
    /// key, and a byte of flags. `None` if the record is about the partition that it is in, and belongs to no other; also for an
    /// index entry that is none.
    pub fn placing_key(self, key: &[u8]) -> Option<&[u8]> {
        const HAS_PLACE: u8 = 2;
        match self {
            Self::DOCUMENTS => Some(key),
            claims if claims.is_claims() => Some(key),
            Self::CHANGES | Self::ENDS => key.get(8..),
            index if index >= Self::FIRST_INDEX => {
                let (rest, [secondary, flags]) = key.split_last_chunk::<2>()?;
                let place = if flags & HAS_PLACE != 0 { 4 } else { 0 };
                rest.get(usize::from(*secondary)..rest.len().checked_sub(place)?)
            }
            _ => None,
        }
    }

    /// The partition of a record in a table with this many partitions; `None` if the record stays in its partition.
    pub fn partition_of(self, key: &[u8], partitioner: Partitioner, partitions: u32) -> Option<u32> {
        let placed = self.placing_key(key)?;
        Some(partitioner.partition_of(&RecordKey::new(placed, b""), partitions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_entry_is_where_its_document_is() {
        let index = Space(Space::FIRST_INDEX.0 + 3);
        for number in 0..1_000u32 {
            let primary = number.to_string().into_bytes();
            let entry = [b"secondary".as_slice(), &primary, &[9, 0]].concat();
            let of_many = [b"secondary".as_slice(), &primary, &[0, 0, 0, 1, 9, 3]].concat();
            for partitioner in [Partitioner::Crc64, Partitioner::RedisSlots] {
                let of_document = Space::DOCUMENTS.partition_of(&primary, partitioner, 48);
                for entry in [&entry, &of_many] {
                    assert_eq!(index.partition_of(entry, partitioner, 48), of_document);
                }
                assert!(of_document.is_some_and(|partition| partition < 48));
            }
        }
        assert_eq!(index.placing_key(b"abc\x09\0"), None, "the length is that of something else");
        assert_eq!((index.placing_key(b"9"), index.placing_key(b"a\0\x02")), (None, None));
        assert_eq!(Space::SYSTEM.placing_key(b"key"), None);
        assert_eq!(
            (Space::CHANGES.placing_key(b"12345678key"), Space::CHANGES.placing_key(b"short")),
            (Some(&b"key"[..]), None)
        );
    }

    #[test]
    fn a_claim_is_where_its_key_is_and_is_locked_under_a_name_of_its_own() {
        let index = Space(Space::FIRST_INDEX.0 + 3);
        let claims = index.claims();
        assert!(claims.is_claims() && !index.is_claims() && claims != Space(Space::FIRST_INDEX.0 + 4).claims());
        assert_eq!(claims.placing_key(b"key"), Some(&b"key"[..]));
        assert_eq!(Space::DOCUMENTS.lock_key(b"key").as_deref(), Some(&b"key"[..]));
        assert_eq!(claims.lock_key(b"key").as_deref(), Some(&b"\xff\x80\0\0\x13key"[..]));
        assert_eq!((index.lock_key(b"key"), Space::INDEXES.lock_key(b"key")), (None, None));
    }
}
