//! All that is under a key, as bytes that travel between nodes, and its digest.
//!
//! A record is `u32` length and bytes of the sort key, `u8` kind, `u8` flags (1: expiry of the key, 2: expiry of the record), `u64`
//! for each of these, `u32` length and bytes of the value. Integers are little-endian.

use bytes::{Buf, BufMut, Bytes};
use sha2::{Digest, Sha256};
use tessera_store::Record;
use tessera_types::{Expiry, UnixMillis, ValueKind};

/// Records of one key, by sort key.
pub(crate) type StoredRecords = Vec<(Bytes, Record)>;

/// SHA-256 of all that is under a key, in hexadecimal digits.
pub(crate) fn digest_of(records: &StoredRecords) -> String {
    let mut hash = Sha256::new();
    for (sort_key, record) in records {
        let millis = |time: Option<UnixMillis>| time.map_or(0, UnixMillis::get).to_le_bytes();
        for part in [&sort_key[..], &[record.kind.number()], &record.value] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(millis(record.expiry.key));
        hash.update(millis(record.expiry.record));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn encode(records: &StoredRecords) -> Vec<u8> {
    let mut out = Vec::new();
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.put_u32_le(u32::try_from(bytes.len()).expect("a record is shorter than 4 GiB"));
        out.put_slice(bytes);
    };
    for (sort_key, record) in records {
        put(&mut out, sort_key);
        out.put_u8(record.kind.number());
        let Expiry { key, record: own } = record.expiry;
        out.put_u8(u8::from(key.is_some()) | u8::from(own.is_some()) << 1);
        [key, own].into_iter().flatten().for_each(|time| out.put_u64_le(time.get()));
        put(&mut out, &record.value);
    }
    out
}

/// `None` if these are no records.
pub(crate) fn decode(mut from: Bytes) -> Option<StoredRecords> {
    let mut records = Vec::new();
    while !from.is_empty() {
        let sort_key = bytes(&mut from)?;
        let kind = match from.try_get_u8().ok()? {
            kind if kind == ValueKind::Plain.number() => ValueKind::Plain,
            kind if kind == ValueKind::UnnamedField.number() => ValueKind::UnnamedField,
            _ => return None,
        };
        let flags = from.try_get_u8().ok()?;
        let mut time = |flag: u8| match flags & flag {
            0 => Some(None),
            _ => Some(Some(UnixMillis::new(from.try_get_u64_le().ok()?))),
        };
        let expiry = Expiry { key: time(1)?, record: time(2)? };
        records.push((sort_key, Record { expiry, kind, value: bytes(&mut from)? }));
    }
    Some(records)
}

fn bytes(from: &mut Bytes) -> Option<Bytes> {
    let length = from.try_get_u32_le().ok()? as usize;
    (length <= from.len()).then(|| from.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_what_is_cut_off_does_not() {
        let record = |value, kind, expiry| Record { expiry, kind, value: Bytes::from_static(value) };
        let (now, later) = (Some(UnixMillis::new(5)), Some(UnixMillis::new(1 << 40)));
        let records = vec![
            (Bytes::new(), record(b"field", ValueKind::UnnamedField, Expiry::NEVER)),
            (Bytes::from_static(b"a"), record(b"", ValueKind::Plain, Expiry { key: now, record: None })),
            (Bytes::from_static(b"b"), record(b"2", ValueKind::Plain, Expiry { key: now, record: later })),
        ];
        let encoded = Bytes::from(encode(&records));
        assert_eq!(decode(encoded.clone()), Some(records.clone()));
        assert_eq!(decode(Bytes::new()), Some(Vec::new()));
        let ends: Vec<usize> = (1..=records.len()).map(|count| encode(&records[..count].to_vec()).len()).collect();
        for length in (1..encoded.len()).filter(|length| !ends.contains(length)) {
            assert_eq!(decode(encoded.slice(..length)), None, "cut at {length}");
        }
        assert_ne!(digest_of(&records), digest_of(&records[..2].to_vec()));
    }
}
