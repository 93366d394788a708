//! The bytes of a record: a header with its expiry, then the payload.

use crate::UnixMillis;
use bytes::BufMut;

const KEY_EXPIRY: u8 = 1;
const RECORD_EXPIRY: u8 = 2;
const FIELD: u8 = 4;

/// When a record ends. Two times, because a Redis hash may expire as a whole (`EXPIRE key`) and by field (`HEXPIRE`);
/// the earlier one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    /// Shared by all records of the hash key: every live record of a hash key carries the same one.
    pub key: Option<UnixMillis>,
    /// This record's own.
    pub record: Option<UnixMillis>,
}

impl Expiry {
    pub const NEVER: Self = Self { key: None, record: None };

    pub fn at_key(time: Option<UnixMillis>) -> Self {
        Self { key: time, record: None }
    }

    /// The earlier of the two times.
    pub fn earliest(self) -> Option<UnixMillis> {
        match (self.key, self.record) {
            (Some(key), Some(record)) => Some(key.min(record)),
            (one, other) => one.or(other),
        }
    }
}

/// A record's value as engines store it: one byte of flags, the expiry times that the flags announce (eight bytes
/// each, little-endian, milliseconds since the Unix epoch), then the payload. Engines read the expiry, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValue<'a> {
    pub expiry: Expiry,
    /// Set on a record under the *empty* sort key that is a hash field with an empty name rather than a string.
    pub is_field: bool,
    pub payload: &'a [u8],
}

impl<'a> StoredValue<'a> {
    pub fn encoded_len(&self) -> usize {
        1 + 8 * usize::from(self.expiry.key.is_some())
            + 8 * usize::from(self.expiry.record.is_some())
            + self.payload.len()
    }

    pub fn encode(&self, out: &mut impl BufMut) {
        let Expiry { key, record } = self.expiry;
        let flag = |present: bool, bit: u8| if present { bit } else { 0 };
        out.put_u8(
            flag(key.is_some(), KEY_EXPIRY) | flag(record.is_some(), RECORD_EXPIRY) | flag(self.is_field, FIELD),
        );
        for time in [key, record].into_iter().flatten() {
            out.put_u64_le(time.get());
        }
        out.put_slice(self.payload);
    }

    /// `None` if the bytes are no stored value: a damaged record, or one of a later format.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&flags, mut rest) = bytes.split_first()?;
        if flags == 0 {
            return Some(Self { expiry: Expiry::NEVER, is_field: false, payload: rest });
        }
        if flags & !(KEY_EXPIRY | RECORD_EXPIRY | FIELD) != 0 {
            return None;
        }
        let mut time = |bit: u8| -> Option<Option<UnixMillis>> {
            if flags & bit == 0 {
                return Some(None);
            }
            let (millis, tail) = rest.split_first_chunk::<8>()?;
            rest = tail;
            Some(Some(UnixMillis::new(u64::from_le_bytes(*millis))))
        };
        let expiry = Expiry { key: time(KEY_EXPIRY)?, record: time(RECORD_EXPIRY)? };
        Some(Self { expiry, is_field: flags & FIELD != 0, payload: rest })
    }

    /// Whether a reader at `now` still sees the record.
    #[inline]
    pub fn is_live(&self, now: UnixMillis) -> bool {
        self.expiry.earliest().is_none_or(|end| end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_flags_comes_back() {
        let times = [None, Some(UnixMillis::new(1)), Some(UnixMillis::new(u64::MAX))];
        for key in times {
            for record in times {
                for is_field in [false, true] {
                    let value = StoredValue { expiry: Expiry { key, record }, is_field, payload: b"payload" };
                    let mut bytes = Vec::new();
                    value.encode(&mut bytes);
                    assert_eq!(bytes.len(), value.encoded_len());
                    assert_eq!(StoredValue::decode(&bytes), Some(value));
                }
            }
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
        assert_eq!(StoredValue::decode(&[]), None);
        assert_eq!(StoredValue::decode(&[KEY_EXPIRY, 1, 2, 3]), None);
        assert_eq!(StoredValue::decode(&[0x80, 1]), None);
    }

    #[test]
    fn the_earlier_time_ends_a_record() {
        let value = StoredValue {
            expiry: Expiry { key: Some(UnixMillis::new(10)), record: Some(UnixMillis::new(20)) },
            is_field: false,
            payload: b"",
        };
        assert!(value.is_live(UnixMillis::new(9)));
        assert!(!value.is_live(UnixMillis::new(10)));
    }
}
