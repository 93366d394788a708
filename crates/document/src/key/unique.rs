//! Keys of unique indexes.

use super::write::{Purpose, Writer};
use super::{KeyError, MAX_SECONDARY_KEY_BYTES};
use crate::EncodedValue;
use sha2::{Digest as _, Sha256};

/// Bytes of a longer key that stand before its digest: with the digest they are one more than a key has that is not cut, so that no key is
/// taken for another one.
const SHOWN_BYTES: usize = MAX_SECONDARY_KEY_BYTES + 1 - 32;

/// The bytes under which a unique index finds the only document that has a value. Other than a [secondary key](super::SecondaryKey) they
/// are of the whole value: what is too long is its first 208 bytes and the SHA-256 of all.
///
/// # Errors
/// [`KeyError`], if the value is not indexed. A long array of which only what is cut off cannot be a key is indexed, but not unique.
pub fn unique_key(value: EncodedValue<'_>) -> Result<Vec<u8>, KeyError> {
    let mut key = Vec::new();
    Writer::new(&mut key, Purpose::Entry, usize::MAX).key(value)?;
    if key.len() > MAX_SECONDARY_KEY_BYTES {
        let digest = Sha256::digest(&key);
        key.truncate(SHOWN_BYTES);
        key.extend_from_slice(&digest);
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Document, SecondaryKey, Value};

    fn key(value: Value) -> Vec<u8> {
        unique_key(Document::encode(&value).value()).unwrap()
    }

    #[test]
    fn keys_that_are_cut_differ_where_their_values_do() {
        let text = |length: usize, last: &str| Value::from(format!("{}{last}", "x".repeat(length)));
        let cut = |value: &Value| SecondaryKey::of_entry(Document::encode(value).value()).unwrap();
        for length in [237, 238, 240, 10_000] {
            let (one, other) = (text(length, "a"), text(length, "b"));
            assert_ne!(key(one.clone()), key(other.clone()));
            assert_eq!(key(one.clone()), key(one.clone()));
            assert!(length < 238 || cut(&one) == cut(&other), "these are the ones that are cut");
        }
        let short = key(Value::from("abc"));
        assert_eq!(short, cut(&Value::from("abc")).bytes());
        assert_eq!(key(text(10_000, "a")).len(), MAX_SECONDARY_KEY_BYTES + 1);
        let compound = |last: &str| Value::array(vec![text(500, ""), Value::from(last)]).unwrap();
        assert_ne!(key(compound("a")), key(compound("b")));
    }

    #[test]
    fn null_is_no_key() {
        assert!(unique_key(Document::encode(&Value::Null).value()).is_err());
        let with_null = Value::array(vec![Value::from(1), Value::Null]).unwrap();
        assert!(unique_key(Document::encode(&with_null).value()).is_err());
    }
}
