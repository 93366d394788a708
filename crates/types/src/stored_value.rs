//! The bytes of a record: a header with its expiry, then the payload.

use crate::UnixMillis;
use bytes::BufMut;

const KEY_EXPIRY: u8 = 1;
const RECORD_EXPIRY: u8 = 2;
/// The bits above these flags are the number of the kind.
const KIND_SHIFT: u32 = 2;

/// What a record's value is, where the keys do not say it.
///
/// The numbers are part of the disk format. A version that meets a number which it does not know refuses the record, so a
/// new kind may be written only once every node of the cluster knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueKind {
    /// Under the empty sort key a string, under another one the field of that name.
    #[default]
    Plain = 0,
    /// Under the *empty* sort key, the field of a hash that has an empty name, and no string.
    UnnamedField = 1,
}

impl ValueKind {
    /// The number that stands in the bytes of a record.
    pub fn number(self) -> u8 {
        self as u8
    }

    fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            1 => Some(Self::UnnamedField),
            _ => None,
        }
    }
}

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
    /// No expiry at all.
    pub const NEVER: Self = Self { key: None, record: None };

    /// The expiry of a whole hash key; none if `time` is `None`.
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

/// A record's value as engines store it: one byte of two flags and the number of the [kind](ValueKind), the expiry times
/// that the flags announce (eight bytes each, little-endian, milliseconds since the Unix epoch), then the payload. Engines
/// do not look into the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValue<'a> {
    /// When the value expires.
    pub expiry: Expiry,
    /// What the payload is.
    pub kind: ValueKind,
    /// The value itself, which engines do not read.
    pub payload: &'a [u8],
}

impl<'a> StoredValue<'a> {
    /// The number of bytes that [`encode`](Self::encode) writes.
    pub fn encoded_len(&self) -> usize {
        1 + 8 * usize::from(self.expiry.key.is_some())
            + 8 * usize::from(self.expiry.record.is_some())
            + self.payload.len()
    }

    /// Appends the encoded value to `out`.
    pub fn encode(&self, out: &mut impl BufMut) {
        let Expiry { key, record } = self.expiry;
        let flag = |present: bool, bit: u8| if present { bit } else { 0 };
        out.put_u8(
            flag(key.is_some(), KEY_EXPIRY) | flag(record.is_some(), RECORD_EXPIRY) | self.kind.number() << KIND_SHIFT,
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
            return Some(Self { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: rest });
        }
        let kind = ValueKind::of_number(flags >> KIND_SHIFT)?;
        let mut time = |bit: u8| -> Option<Option<UnixMillis>> {
            if flags & bit == 0 {
                return Some(None);
            }
            let (millis, tail) = rest.split_first_chunk::<8>()?;
            rest = tail;
            Some(Some(UnixMillis::new(u64::from_le_bytes(*millis))))
        };
        let expiry = Expiry { key: time(KEY_EXPIRY)?, record: time(RECORD_EXPIRY)? };
        Some(Self { expiry, kind, payload: rest })
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
                for kind in [ValueKind::Plain, ValueKind::UnnamedField] {
                    let value = StoredValue { expiry: Expiry { key, record }, kind, payload: b"payload" };
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
    }

    #[test]
    fn kinds_are_where_the_field_flag_was_and_unknown_ones_are_refused() {
        // What versions before this one wrote: flag 4 for a field with an empty name, with and without expiry times.
        let plain = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"v" };
        let field = StoredValue { kind: ValueKind::UnnamedField, ..plain };
        assert_eq!((StoredValue::decode(b"\0v"), StoredValue::decode(b"\x04v")), (Some(plain), Some(field)));
        let expiring = [&[6u8][..], &9u64.to_le_bytes(), b"v"].concat();
        let record = Some(UnixMillis::new(9));
        assert_eq!(StoredValue::decode(&expiring), Some(StoredValue { expiry: Expiry { key: None, record }, ..field }));
        for number in 2..64u8 {
            assert_eq!(StoredValue::decode(&[number << KIND_SHIFT, 1]), None, "kind {number}");
        }
    }

    #[test]
    fn the_earlier_time_ends_a_record() {
        let value = StoredValue {
            expiry: Expiry { key: Some(UnixMillis::new(10)), record: Some(UnixMillis::new(20)) },
            kind: ValueKind::Plain,
            payload: b"",
        };
        assert!(value.is_live(UnixMillis::new(9)));
        assert!(!value.is_live(UnixMillis::new(10)));
    }
}
