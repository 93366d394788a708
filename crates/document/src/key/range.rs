//! Which keys lie between two values.

use super::primary::primary_bound;
use super::{EntryKey, KeyError, SecondaryKey};
use crate::EncodedValue;
use std::ops::Bound;

/// Keys from `start` on, up to but without `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be in the range.
    pub start: Vec<u8>,
    /// `None`: to the last key.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Whether a key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }
}

/// The least key that is greater than all that begin with `prefix`.
fn after(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

/// The primary keys between two values.
///
/// # Errors
/// [`KeyError`], if a bound is no primary key.
pub fn primary_range(left: Bound<EncodedValue<'_>>, right: Bound<EncodedValue<'_>>) -> Result<KeyRange, KeyError> {
    let start = match left {
        Bound::Unbounded => Vec::new(),
        Bound::Included(value) => primary_bound(value)?,
        Bound::Excluded(value) => after(primary_bound(value)?).unwrap_or_default(),
    };
    let end = match right {
        Bound::Unbounded => None,
        Bound::Included(value) => after(primary_bound(value)?),
        Bound::Excluded(value) => Some(primary_bound(value)?),
    };
    Ok(KeyRange { start, end })
}

/// The index entries between two values, as far as their keys can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondaryRange {
    /// The keys that entries in the range may have.
    pub keys: KeyRange,
    /// The keys of the bounds, if they were cut: an entry with one of them may lie on either side.
    cut_left: Option<Vec<u8>>,
    cut_right: Option<Vec<u8>>,
}

impl SecondaryRange {
    /// Whether there may be doubtful entries in it.
    pub fn has_doubts(&self) -> bool {
        self.cut_left.is_some() || self.cut_right.is_some()
    }

    /// Whether the entry, which lies in `keys`, may belong to a value outside of the bounds, so that the document decides.
    pub fn is_doubtful(&self, entry: &EntryKey<'_>) -> bool {
        let is_bound = |cut: &Option<Vec<u8>>| cut.as_deref() == Some(entry.secondary);
        entry.is_cut && (is_bound(&self.cut_left) || is_bound(&self.cut_right))
    }
}

/// The index entries between two values. Those of a single value are between it and itself, both included.
///
/// # Errors
/// [`KeyError`], if a bound is no secondary key.
pub fn secondary_range(
    left: Bound<EncodedValue<'_>>,
    right: Bound<EncodedValue<'_>>,
) -> Result<SecondaryRange, KeyError> {
    let (mut cut_left, mut cut_right) = (None, None);
    let start = match left {
        Bound::Unbounded => Vec::new(),
        Bound::Included(value) | Bound::Excluded(value) => {
            let key = SecondaryKey::of_search(value)?;
            let bytes = key.bytes().to_vec();
            if key.is_cut() {
                cut_left = Some(bytes.clone());
                bytes
            } else if matches!(left, Bound::Included(_)) {
                bytes
            } else {
                after(bytes).unwrap_or_default()
            }
        }
    };
    let end = match right {
        Bound::Unbounded => None,
        Bound::Included(value) | Bound::Excluded(value) => {
            let key = SecondaryKey::of_search(value)?;
            let bytes = key.bytes().to_vec();
            if key.is_cut() {
                cut_right = Some(bytes.clone());
                after(bytes)
            } else if matches!(right, Bound::Included(_)) {
                after(bytes)
            } else {
                Some(bytes)
            }
        }
    };
    Ok(SecondaryRange { keys: KeyRange { start, end }, cut_left, cut_right })
}
