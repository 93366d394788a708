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
//! | 7 put in a space | u32 space, u32 key length, u32 value length, the two |
//! | 8 delete in a space | u32 space, u32 key length, key |
//! | 9 drop a space | u32 space: every record of it |
//!
//! The hash travels along so that followers and recovery do not compute it again.
//!
//! Before there were spaces, the record that ends a partition which was split was a put under a hash key longer than any other, of
//! 65,535 zeros. It still travels like that, so that nodes of the version before take it, and what they wrote is taken: it is read as the
//! put of [`SEAL`] in [`Space::SYSTEM`].

use crate::EngineError;
use bytes::{BufMut, BytesMut};
use tessera_types::{Expiry, Limits, RecordKey, Space, StoredValue, UnixMillis, ValueKind};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const CLEAR: u8 = 3;
const TIME: u8 = 4;
const DELETE_HASH_KEY: u8 = 5;
const MARK: u8 = 6;
const PUT_IN: u8 = 7;
const DELETE_IN: u8 = 8;
const DROP_SPACE: u8 = 9;

/// The key in [`Space::SYSTEM`] of the record that ends a partition.
pub const SEAL: &[u8] = b"seal";
/// The hash key under which the version before had that record.
pub(crate) static FORMER_SEAL: [u8; Limits::HASH_KEY_BYTES_CEILING + 1] = [0; Limits::HASH_KEY_BYTES_CEILING + 1];

/// One change to one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// `value` is an encoded [`StoredValue`].
    Put {
        /// The address of the record.
        key: RecordKey<'a>,
        /// The value as it is stored.
        value: &'a [u8],
    },
    /// Deletes one record.
    Delete {
        /// The address of the record.
        key: RecordKey<'a>,
    },
    /// Deletes every record under a hash key that is not empty, also those that only other replicas have.
    DeleteHashKey {
        /// An address with the hash key; its sort key is empty.
        key: RecordKey<'a>,
    },
    /// Deletes all records of the partition.
    Clear,
    /// What had expired by this time is gone for good.
    Time(UnixMillis),
    /// Changes nothing. What it says is the concern of whoever hands entries to engines.
    Mark {
        /// What the mark says.
        content: &'a [u8],
    },
    /// `value` is whatever its writer wants: it has no expiry, and no engine looks into it.
    PutIn {
        /// The ordered space.
        space: Space,
        /// The key in that space.
        key: &'a [u8],
        /// The bytes to keep.
        value: &'a [u8],
    },
    /// Deletes one entry of an ordered space.
    DeleteIn {
        /// The ordered space.
        space: Space,
        /// The key in that space.
        key: &'a [u8],
    },
    /// Deletes all entries of an ordered space.
    DropSpace {
        /// The ordered space.
        space: Space,
    },
}

/// Bytes of what stands before the keys of a delete, and of a put.
const DELETE_HEADER: usize = 15;
const PUT_HEADER: usize = DELETE_HEADER + 4;

/// What stands before the keys, made apart and appended in one piece: every write has one.
fn header<const N: usize>(kind: u8, key: &RecordKey<'_>) -> [u8; N] {
    let hash_key_len = u16::try_from(key.hash_key.len()).expect("hash keys are checked against the limit on entry");
    let sort_key_len = u32::try_from(key.sort_key.len()).expect("sort keys are checked against the limit on entry");
    let mut header = [0; N];
    header[0] = kind;
    header[1..9].copy_from_slice(&key.hash().to_le_bytes());
    header[9..11].copy_from_slice(&hash_key_len.to_le_bytes());
    header[11..DELETE_HEADER].copy_from_slice(&sort_key_len.to_le_bytes());
    header
}

fn put_keys(out: &mut BytesMut, key: &RecordKey<'_>) {
    out.put_slice(key.hash_key);
    // Most records have none.
    if !key.sort_key.is_empty() {
        out.put_slice(key.sort_key);
    }
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

    /// The address of the record, as it stands in `payload`.
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

/// Where the parts of a put or a delete in a space stand in the payload it was encoded to.
#[derive(Clone, Copy, Debug)]
pub struct SpaceLocation {
    /// Of the value, if there is one.
    start: usize,
    /// `None` for a delete.
    value_len: Option<usize>,
}

impl SpaceLocation {
    /// The value; `None` for a delete.
    pub fn value<'p>(&self, payload: &'p [u8]) -> Option<&'p [u8]> {
        self.value_len.map(|length| &payload[self.start..][..length])
    }
}

fn put_space_key(out: &mut BytesMut, kind: u8, space: Space, key: &[u8]) {
    out.put_u8(kind);
    out.put_u32_le(space.0);
    out.put_u32_le(u32::try_from(key.len()).expect("keys are checked against the limit on entry"));
}

/// Appends a [`Mutation::PutIn`], and returns where its value is.
pub fn encode_put_in(out: &mut BytesMut, space: Space, key: &[u8], value: &[u8]) -> SpaceLocation {
    if (space, key) == (Space::SYSTEM, SEAL) {
        let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: value };
        encode_put(out, &RecordKey::with_hash(0, &FORMER_SEAL, b""), &stored);
    } else {
        out.reserve(13 + key.len() + value.len());
        put_space_key(out, PUT_IN, space, key);
        out.put_u32_le(u32::try_from(value.len()).expect("values are checked against the limit on entry"));
        out.put_slice(key);
        out.put_slice(value);
    }
    SpaceLocation { start: out.len() - value.len(), value_len: Some(value.len()) }
}

/// Appends a [`Mutation::DeleteIn`].
pub fn encode_delete_in(out: &mut BytesMut, space: Space, key: &[u8]) -> SpaceLocation {
    put_space_key(out, DELETE_IN, space, key);
    out.put_slice(key);
    SpaceLocation { start: out.len(), value_len: None }
}

/// Appends a [`Mutation::DropSpace`].
pub fn encode_drop_space(out: &mut BytesMut, space: Space) {
    out.put_u8(DROP_SPACE);
    out.put_u32_le(space.0);
}

/// Appends a [`Mutation::Put`], and returns where its key and value are.
pub fn encode_put(out: &mut BytesMut, key: &RecordKey<'_>, value: &StoredValue<'_>) -> Location {
    let value_len = value.encoded_len();
    out.reserve(PUT_HEADER + key.hash_key.len() + key.sort_key.len() + value_len);
    let mut header = header::<PUT_HEADER>(PUT, key);
    let value_bytes = u32::try_from(value_len).expect("values are checked against the limit on entry");
    header[DELETE_HEADER..].copy_from_slice(&value_bytes.to_le_bytes());
    out.put_slice(&header);
    let start = out.len();
    put_keys(out, key);
    value.encode(out);
    Location::of(key, start, Some(value_len))
}

/// Appends a [`Mutation::Delete`], and returns where its key is.
pub fn encode_delete(out: &mut BytesMut, key: &RecordKey<'_>) -> Location {
    out.put_slice(&header::<DELETE_HEADER>(DELETE, key));
    let start = out.len();
    put_keys(out, key);
    Location::of(key, start, None)
}

/// `key` is that of the hash key's record under the empty sort key.
pub fn encode_delete_hash_key(out: &mut BytesMut, key: &RecordKey<'_>) {
    out.put_slice(&header::<DELETE_HEADER>(DELETE_HASH_KEY, key));
    out.put_slice(key.hash_key);
}

/// Appends a [`Mutation::Time`].
pub fn encode_time(out: &mut BytesMut, time: UnixMillis) {
    out.put_u8(TIME);
    out.put_u64_le(time.get());
}

/// Appends a [`Mutation::Clear`].
pub fn encode_clear(out: &mut BytesMut) {
    out.put_u8(CLEAR);
}

/// Appends a [`Mutation::Mark`].
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
    std::iter::from_fn(move || decode_next(&mut rest))
}

/// The mutation that the rest of a payload begins with, as [`decode`] gives it; `rest` is what is behind it then.
pub(crate) fn decode_next<'a>(rest: &mut &'a [u8]) -> Option<Result<Mutation<'a>, EngineError>> {
    if rest.is_empty() {
        return None;
    }
    Some(decode_one(rest).ok_or_else(|| {
        *rest = &[];
        EngineError::Corruption("a log entry's payload is not a sequence of mutations".into())
    }))
}

/// The put that the rest of a payload begins with, as it mostly does, and what is behind it. What is not recognised here,
/// [`decode_next`] reads: that makes one value of all kinds of mutations, which the processor has to write and read back before a put
/// can begin.
#[inline]
pub(crate) fn split_put(payload: &[u8]) -> Option<(RecordKey<'_>, &[u8], &[u8])> {
    let (header, rest) = payload.split_first_chunk::<PUT_HEADER>()?;
    let [PUT, h0, h1, h2, h3, h4, h5, h6, h7, k0, k1, s0, s1, s2, s3, v0, v1, v2, v3] = *header else { return None };
    let hash_key_len = usize::from(u16::from_le_bytes([k0, k1]));
    let [sort_key_len, value_len] =
        [[s0, s1, s2, s3], [v0, v1, v2, v3]].map(|bytes| u32::from_le_bytes(bytes) as usize);
    if hash_key_len == FORMER_SEAL.len() {
        return None;
    }
    let (hash_key, rest) = rest.split_at_checked(hash_key_len)?;
    let (sort_key, rest) = rest.split_at_checked(sort_key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    let hash = u64::from_le_bytes([h0, h1, h2, h3, h4, h5, h6, h7]);
    Some((RecordKey::with_hash(hash, hash_key, sort_key), value, rest))
}

/// Every write is decoded on every replica.
#[inline]
fn decode_one<'a>(rest: &mut &'a [u8]) -> Option<Mutation<'a>> {
    let kind = take::<1>(rest)?[0];
    if kind != PUT && kind != DELETE && kind != DELETE_HASH_KEY {
        return decode_rare(kind, rest);
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
        PUT if key.hash_key.len() == FORMER_SEAL.len() => {
            let value = StoredValue::decode(bytes(value_len)?)?.payload;
            Some(Mutation::PutIn { space: Space::SYSTEM, key: SEAL, value })
        }
        PUT => Some(Mutation::Put { key, value: bytes(value_len)? }),
        DELETE => Some(Mutation::Delete { key }),
        DELETE_HASH_KEY if !key.hash_key.is_empty() && key.sort_key.is_empty() => Some(Mutation::DeleteHashKey { key }),
        _ => None,
    }
}

/// A mutation that is not of one record or one hash key.
fn decode_rare<'a>(kind: u8, rest: &mut &'a [u8]) -> Option<Mutation<'a>> {
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
    if (PUT_IN..=DROP_SPACE).contains(&kind) { decode_in_space(kind, rest) } else { None }
}

fn decode_in_space<'a>(kind: u8, rest: &mut &'a [u8]) -> Option<Mutation<'a>> {
    let space = Space(u32::from_le_bytes(take(rest)?));
    if kind == DROP_SPACE {
        return Some(Mutation::DropSpace { space });
    }
    let key_len = u32::from_le_bytes(take(rest)?) as usize;
    let value_len = if kind == PUT_IN { u32::from_le_bytes(take(rest)?) as usize } else { 0 };
    let (key, tail) = rest.split_at_checked(key_len)?;
    let (value, tail) = tail.split_at_checked(value_len)?;
    *rest = tail;
    Some(if kind == PUT_IN { Mutation::PutIn { space, key, value } } else { Mutation::DeleteIn { space, key } })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_come_back_and_damage_is_reported_once() {
        let key = RecordKey::new(b"user", b"field");
        let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"value" };
        let mut payload = BytesMut::new();
        let put = encode_put(&mut payload, &key, &value);
        let delete = encode_delete(&mut payload, &key);
        assert_eq!((put.key(&payload), put.value(&payload)), (key, Some(&b"\0value"[..])));
        let one_put = &payload[..PUT_HEADER + "userfield\0value".len()];
        let decoded: Vec<_> = decode(one_put).map(Result::unwrap).collect();
        let (its_key, its_value, behind) = split_put(one_put).unwrap();
        assert!(behind.is_empty());
        assert_eq!(decoded, [Mutation::Put { key: its_key, value: its_value }]);
        assert_eq!((its_key, its_value), (key, &b"\0value"[..]));
        let (first_key, first_value, behind) = split_put(&payload).unwrap();
        assert_eq!((first_key, first_value, behind), (its_key, its_value, &payload[one_put.len()..]));
        for others in [&payload[..one_put.len() - 1], &payload[..PUT_HEADER], &payload[one_put.len()..], b""] {
            assert!(split_put(others).is_none());
        }
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

    #[test]
    fn mutations_of_spaces_come_back() {
        let mut payload = BytesMut::new();
        let put = encode_put_in(&mut payload, Space(7), b"key", b"value");
        let delete = encode_delete_in(&mut payload, Space(7), b"");
        encode_drop_space(&mut payload, Space(8));
        assert_eq!((put.value(&payload), delete.value(&payload)), (Some(&b"value"[..]), None));
        let decoded: Vec<_> = decode(&payload).map(Result::unwrap).collect();
        let put = Mutation::PutIn { space: Space(7), key: b"key", value: b"value" };
        let delete = Mutation::DeleteIn { space: Space(7), key: b"" };
        assert_eq!(decoded, [put, delete, Mutation::DropSpace { space: Space(8) }]);
        for length in 0..payload.len() {
            let whole = decode(&payload[..length]).take_while(Result::is_ok).count();
            assert!(whole < 3 && decode(&payload[..length]).count() <= 3, "cut at {length}");
        }
    }

    #[test]
    fn a_seal_travels_as_the_version_before_knows_it() {
        let mut payload = BytesMut::new();
        let seal = encode_put_in(&mut payload, Space::SYSTEM, SEAL, b"");
        assert_eq!(seal.value(&payload), Some(&b""[..]));
        let mut former = BytesMut::new();
        let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"" };
        encode_put(&mut former, &RecordKey::with_hash(0, &FORMER_SEAL, b""), &value);
        assert_eq!(payload, former);
        let decoded: Vec<_> = decode(&payload).map(Result::unwrap).collect();
        assert_eq!(decoded, [Mutation::PutIn { space: Space::SYSTEM, key: SEAL, value: b"" }]);
    }
}
