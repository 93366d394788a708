//! Secondary keys.

use super::KeyError;
use super::write::{Purpose, Writer};
use crate::EncodedValue;

/// A longer secondary key is cut to so many bytes. (RethinkDB's are cut to 110 to 238, by the length of the primary key.)
pub const MAX_SECONDARY_KEY_BYTES: usize = 239;

/// The bytes under which an index finds a value, perhaps cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondaryKey {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl SecondaryKey {
    /// The key of an index entry.
    ///
    /// # Errors
    /// [`KeyError`], if the value is not indexed: null, objects, geometry, and arrays with one of them or an extremum.
    pub fn of_entry(value: EncodedValue<'_>) -> Result<Self, KeyError> {
        Self::new(value, Purpose::Entry)
    }

    /// The key to look for, which may be or contain `MINVAL` and `MAXVAL`.
    ///
    /// # Errors
    /// [`KeyError`], if no entry can have the value.
    pub fn of_search(value: EncodedValue<'_>) -> Result<Self, KeyError> {
        Self::new(value, Purpose::Search)
    }

    /// The key of an entry of a geospatial index, which is known already.
    ///
    /// # Panics
    /// If it is longer than [`MAX_SECONDARY_KEY_BYTES`].
    pub fn of_cells(bytes: &[u8]) -> Self {
        assert!(bytes.len() <= MAX_SECONDARY_KEY_BYTES, "a document has few cells");
        Self { bytes: bytes.to_vec(), is_cut: false }
    }

    fn new(value: EncodedValue<'_>, purpose: Purpose) -> Result<Self, KeyError> {
        let mut bytes = Vec::with_capacity(value.as_bytes().len() + 8);
        // One more than there may be, to see whether there would be more.
        Writer::new(&mut bytes, purpose, MAX_SECONDARY_KEY_BYTES + 1).key(value)?;
        let is_cut = bytes.len() > MAX_SECONDARY_KEY_BYTES;
        bytes.truncate(MAX_SECONDARY_KEY_BYTES);
        Ok(Self { bytes, is_cut })
    }

    /// The key as it is in the index, maybe cut.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether other values may have the same key.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}
