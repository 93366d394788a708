//! Documents as they stand in their space.

use crate::UnixMillis;

/// Begins what is stored of a document that ends; no document begins with it.
const ENDS: u8 = 0x40;

/// What stands under a primary key: the document, and when it ends, if it does. One that does not end is stored as it is; else it stands behind a byte 0x40
/// and eight bytes, big-endian: milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredDocument<'a> {
    /// From this time on there is no document.
    pub ends: Option<UnixMillis>,
    /// The document.
    pub document: &'a [u8],
}

impl<'a> StoredDocument<'a> {
    /// Reads what is stored.
    pub fn decode(stored: &'a [u8]) -> Self {
        let parts = stored.strip_prefix(&[ENDS]).and_then(|rest| rest.split_first_chunk::<8>());
        match parts {
            Some((ends, document)) => Self { ends: Some(UnixMillis::new(u64::from_be_bytes(*ends))), document },
            None => Self { ends: None, document: stored },
        }
    }

    /// What is to be stored.
    pub fn encode(&self) -> Vec<u8> {
        match self.ends {
            Some(ends) => [&[ENDS][..], &ends.get().to_be_bytes(), self.document].concat(),
            None => self.document.to_vec(),
        }
    }

    /// Whether the document is there at a time.
    pub fn is_live(&self, now: UnixMillis) -> bool {
        self.ends.is_none_or(|ends| ends > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_stored_and_read() {
        let endless = StoredDocument { ends: None, document: b"\x10document" };
        assert_eq!(endless.encode(), endless.document);
        assert_eq!(StoredDocument::decode(&endless.encode()), endless);
        let ending = StoredDocument { ends: Some(UnixMillis::new(77)), ..endless };
        assert_eq!(StoredDocument::decode(&ending.encode()), ending);
        assert!(ending.is_live(UnixMillis::new(76)) && !ending.is_live(UnixMillis::new(77)));
        assert!(endless.is_live(UnixMillis::new(u64::MAX)));
    }
}
