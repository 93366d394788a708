//! What a log entry carries: the result of a write, as puts and deletes.
//!
//! An entry's payload is a sequence of mutations, each one byte of kind and then, lengths little-endian:
//!
//! | kind | bytes |
//! |---|---|
//! | 1 put | u64 hash, u16 hash key length, u32 sort key length, u32 stored value length, the three |
//! | 2 delete | u64 hash, u16 hash key length, u32 sort key length, the two |
//! | 3 clear | (nothing): every record of the partition, and its time |
//! | 4 time | u64 milliseconds since the Unix epoch: the partition's time, unless that is later already |
//! | 5 delete hash key | as a delete: every record of the hash key, whose sort key here is empty |
//! | 6 mark | u32 length, content: changes nothing, and says something to whoever applies the entry |
//!
//! The hash travels along so that followers and recovery do not compute it again.

use crate::EngineError;
use bytes::{BufMut, BytesMut};
use tessera_types::{RecordKey, StoredValue, UnixMillis};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const CLEAR: u8 = 3;
const TIME: u8 = 4;
const DELETE_HASH_KEY: u8 = 5;
const MARK: u8 = 6;

/// One change to one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// `value` is an encoded [`StoredValue`].
    Put {
        key: RecordKey<'a>,
        value: &'a [u8],
    },
    Delete {
        key: RecordKey<'a>,
    },
    /// Deletes every record under a hash key that is not empty, also those that only other replicas have.
    DeleteHashKey {
        key: RecordKey<'a>,
    },
    Clear,
    /// What had expired by this time is gone for good.
    Time(UnixMillis),
    /// Changes nothing. What it says is the concern of whoever hands entries to engines.
    Mark {
        content: &'a [u8],
    },
}

fn put_key(out: &mut BytesMut, kind: u8, key: &RecordKey<'_>) {
    out.put_u8(kind);
    out.put_u64_le(key.hash());
    out.put_u16_le(u16::try_from(key.hash_key.len()).expect("hash keys are checked against the limit on entry"));
    out.put_u32_le(u32::try_from(key.sort_key.len()).expect("sort keys are checked against the limit on entry"));
}

/// Where the parts of a put or a delete stand in the payload it was encoded to, so that they can be read from there.
#[derive(Clone, Copy, Debug)]
pub struct Location {
    hash: u64,
    /// Of the hash key; sort key and stored value follow.
    start: usize,
    hash_key_len: usize,
    sort_key_len: usize,
    /// `None` for a delete.
    value_len: Option<usize>,
}

impl Location {
    fn of(key: &RecordKey<'_>, start: usize, value_len: Option<usize>) -> Self {
        let (hash_key_len, sort_key_len) = (key.hash_key.len(), key.sort_key.len());
        Self { hash: key.hash(), start, hash_key_len, sort_key_len, value_len }
    }

    /// Hash of the hash key.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn key<'p>(&self, payload: &'p [u8]) -> RecordKey<'p> {
        let (hash_key, sort_key) =
            payload[self.start..][..self.hash_key_len + self.sort_key_len].split_at(self.hash_key_len);
        RecordKey::with_hash(self.hash, hash_key, sort_key)
    }

    /// The encoded [`StoredValue`]; `None` for a delete.
    pub fn value<'p>(&self, payload: &'p [u8]) -> Option<&'p [u8]> {
        let length = self.value_len?;
        Some(&payload[self.start + self.hash_key_len + self.sort_key_len..][..length])
    }
}

pub fn encode_put(out: &mut BytesMut, key: &RecordKey<'_>, value: &StoredValue<'_>) -> Location {
    let value_len = value.encoded_len();
    out.reserve(19 + key.hash_key.len() + key.sort_key.len() + value_len);
    put_key(out, PUT, key);
    out.put_u32_le(u32::try_from(value_len).expect("values are checked against the limit on entry"));
    let start = out.len();
    out.put_slice(key.hash_key);
    out.put_slice(key.sort_key);
    value.encode(out);
    Location::of(key, start, Some(value_len))
}

pub fn encode_delete(out: &mut BytesMut, key: &RecordKey<'_>) -> Location {
    put_key(out, DELETE, key);
    let start = out.len();
    out.put_slice(key.hash_key);
    out.put_slice(key.sort_key);
    Location::of(key, start, None)
}

/// `key` is that of the hash key's record under the empty sort key.
pub fn encode_delete_hash_key(out: &mut BytesMut, key: &RecordKey<'_>) {
    put_key(out, DELETE_HASH_KEY, key);
    out.put_slice(key.hash_key);
}

pub fn encode_time(out: &mut BytesMut, time: UnixMillis) {
    out.put_u8(TIME);
    out.put_u64_le(time.get());
}

pub fn encode_clear(out: &mut BytesMut) {
    out.put_u8(CLEAR);
}

pub fn encode_mark(out: &mut BytesMut, content: &[u8]) {
    out.put_u8(MARK);
    out.put_u32_le(u32::try_from(content.len()).expect("a mark is short"));
    out.put_slice(content);
}

/// The content of the mark that an entry begins with, if it does.
pub fn leading_mark(payload: &[u8]) -> Option<&[u8]> {
    if payload.first() != Some(&MARK) {
        return None;
    }
    match decode(payload).next() {
        Some(Ok(Mutation::Mark { content })) => Some(content),
        _ => None,
    }
}

/// Reads a payload back, mutation by mutation. The log has verified the bytes' checksum, so damage here means a
/// defect or a later format; it is reported once, then the iteration ends.
pub fn decode(payload: &[u8]) -> impl Iterator<Item = Result<Mutation<'_>, EngineError>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        Some(decode_one(&mut rest).ok_or_else(|| {
            rest = &[];
            EngineError::Corruption("a log entry's payload is not a sequence of mutations".into())
        }))
    })
}

fn decode_one<'a>(rest: &mut &'a [u8]) -> Option<Mutation<'a>> {
    let kind = take::<1>(rest)?[0];
    if kind == CLEAR {
        return Some(Mutation::Clear);
    }
    if kind == TIME {
        return Some(Mutation::Time(UnixMillis::new(u64::from_le_bytes(take(rest)?))));
    }
    if kind == MARK {
        let length = u32::from_le_bytes(take(rest)?) as usize;
        let (content, tail) = rest.split_at_checked(length)?;
        *rest = tail;
        return Some(Mutation::Mark { content });
    }
    let hash = u64::from_le_bytes(take(rest)?);
    let hash_key_len = u16::from_le_bytes(take(rest)?) as usize;
    let sort_key_len = u32::from_le_bytes(take(rest)?) as usize;
    let value_len = if kind == PUT { u32::from_le_bytes(take(rest)?) as usize } else { 0 };
    let mut bytes = |length: usize| {
        let (head, tail) = rest.split_at_checked(length)?;
        *rest = tail;
        Some(head)
    };
    let key = RecordKey::with_hash(hash, bytes(hash_key_len)?, bytes(sort_key_len)?);
    match kind {
        PUT => Some(Mutation::Put { key, value: bytes(value_len)? }),
        DELETE => Some(Mutation::Delete { key }),
        DELETE_HASH_KEY if !key.hash_key.is_empty() && key.sort_key.is_empty() => Some(Mutation::DeleteHashKey { key }),
        _ => None,
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::Expiry;

    #[test]
    fn payloads_come_back_and_damage_is_reported_once() {
        let key = RecordKey::new(b"user", b"field");
        let value = StoredValue { expiry: Expiry::NEVER, is_field: false, payload: b"value" };
        let mut payload = BytesMut::new();
        let put = encode_put(&mut payload, &key, &value);
        let delete = encode_delete(&mut payload, &key);
        assert_eq!((put.key(&payload), put.value(&payload)), (key, Some(&b"\0value"[..])));
        assert_eq!((delete.key(&payload), delete.value(&payload)), (key, None));
        let whole = RecordKey::new(b"user", b"");
        encode_delete_hash_key(&mut payload, &whole);
        let time = UnixMillis::new(1_700_000_000_000);
        encode_time(&mut payload, time);
        encode_clear(&mut payload);
        let decoded: Vec<_> = decode(&payload).map(Result::unwrap).collect();
        let put = Mutation::Put { key, value: b"\0value" };
        let rest = [Mutation::DeleteHashKey { key: whole }, Mutation::Time(time), Mutation::Clear];
        assert_eq!(decoded, [&[put, Mutation::Delete { key }], &rest[..]].concat());
        assert_eq!(leading_mark(&payload), None);

        payload.truncate(payload.len() - 5);
        let decoded: Vec<_> = decode(&payload).collect();
        assert_eq!(decoded.len(), 4);
        assert!(decoded[2].is_ok() && decoded[3].is_err());
    }

    #[test]
    fn a_mark_is_found_at_the_beginning_of_an_entry() {
        let key = RecordKey::new(b"user", b"field");
        let mut payload = BytesMut::new();
        encode_mark(&mut payload, b"look");
        encode_delete(&mut payload, &key);
        assert_eq!(leading_mark(&payload), Some(&b"look"[..]));
        let decoded: Vec<_> = decode(&payload).map(Result::unwrap).collect();
        assert_eq!(decoded, [Mutation::Mark { content: b"look" }, Mutation::Delete { key }]);
        assert_eq!((leading_mark(b""), leading_mark(&payload[..7])), (None, None));
    }
}
