//! The key of an index entry: the secondary key, the primary key, and where one ends and the other begins.
//!
//! | bytes | |
//! |---|---|
//! | at most 239 | secondary key |
//! | | primary key |
//! | 4, big-endian | place of the value among those of the document; in a multi index only |
//! | 1 | length of the secondary key |
//! | 1 | flags: 1, the secondary key is cut; 2, there is a place |
//!
//! Entries are ordered by value, then by primary key, then by place. What follows the primary key decides between
//! entries of one document only.

use super::SecondaryKey;
use crate::Damage;

const IS_CUT: u8 = 1;
const HAS_PLACE: u8 = 2;

/// The key of the entry of a document with the primary key `primary`. `place` is that of the value among several, in a
/// multi index.
pub fn entry_key(secondary: &SecondaryKey, primary: &[u8], place: Option<u32>) -> Vec<u8> {
    let mut key = Vec::with_capacity(secondary.bytes().len() + primary.len() + 6);
    key.extend_from_slice(secondary.bytes());
    key.extend_from_slice(primary);
    if let Some(place) = place {
        key.extend_from_slice(&place.to_be_bytes());
    }
    key.push(u8::try_from(secondary.bytes().len()).expect("a secondary key is cut to less"));
    key.push(if secondary.is_cut() { IS_CUT } else { 0 } | if place.is_some() { HAS_PLACE } else { 0 });
    key
}

/// The parts of the key of an index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKey<'a> {
    /// The secondary key, maybe cut to its limit.
    pub secondary: &'a [u8],
    /// The primary key of the document.
    pub primary: &'a [u8],
    /// Place of the value among those of the document, in a multi index.
    pub place: Option<u32>,
    /// Whether other values may have the same secondary key, so that the document decides.
    pub is_cut: bool,
}

impl<'a> EntryKey<'a> {
    /// # Errors
    /// [`Damage`], if the bytes are no key of an entry.
    pub fn decode(key: &'a [u8]) -> Result<Self, Damage> {
        let damage = Damage("it is not the key of an index entry");
        let (keys, &[length, flags]) = key.split_last_chunk::<2>().ok_or(damage)?;
        let (secondary, rest) = keys.split_at_checked(length.into()).ok_or(damage)?;
        let (primary, place) = match flags & !IS_CUT {
            0 => (rest, None),
            HAS_PLACE => {
                let (primary, place) = rest.split_last_chunk::<4>().ok_or(damage)?;
                (primary, Some(u32::from_be_bytes(*place)))
            }
            _ => return Err(damage),
        };
        Ok(Self { secondary, primary, place, is_cut: flags & IS_CUT != 0 })
    }
}
