//! An encoded value with its bytes.

use super::{Damage, EncodedValue};
use crate::Value;
use bytes::Bytes;
use std::fmt;

/// An encoded value that owns its bytes, or shares them: cloning copies none. Equality, order and hash are those of
/// [`EncodedValue`].
#[derive(Clone)]
pub struct Document(Bytes);

impl Document {
    /// Encodes a value.
    pub fn encode(value: &Value) -> Self {
        let mut out = Vec::new();
        value.encode(&mut out);
        Self(out.into())
    }

    /// Looks at every byte; see [`EncodedValue::check`].
    ///
    /// # Errors
    /// [`Damage`].
    pub fn check(bytes: Bytes) -> Result<Self, Damage> {
        EncodedValue::check(&bytes)?;
        Ok(Self(bytes))
    }

    /// `bytes` are one encoded value, by whoever keeps them; see [`EncodedValue::trusted`].
    pub fn trusted(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The encoded value, to be read in place.
    pub fn value(&self) -> EncodedValue<'_> {
        EncodedValue(&self.0)
    }

    /// A field of an object, sharing the bytes.
    pub fn get_field(&self, key: &str) -> Option<Self> {
        self.value().get_field(key).map(|value| Self(self.0.slice_ref(value.0)))
    }

    /// The encoding.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The encoding, without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value().to_json() {
            Ok(json) => formatter.write_str(&json),
            Err(_) => fmt::Debug::fmt(&self.value(), formatter),
        }
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl Eq for Document {}

impl PartialOrd for Document {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Document {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.value().cmp(&other.value())
    }
}

impl std::hash::Hash for Document {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.value().hash(state);
    }
}
