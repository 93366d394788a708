//! The bytes of keys in a table's column family; the module above describes them.

use crate::KeyRange;
use crate::mutation::FORMER_SEAL;
use std::ops::Bound;
use tessera_types::{RecordKey, Space, successor};

const META: u8 = 0;
pub(super) const DATA: u8 = 1;
const SPACES: u8 = 2;
/// Kind, partition and hash.
pub(super) const PREFIX_LEN: usize = 11;
const PARTITION_LEN: usize = 3;

fn partition_number(partition: u32) -> [u8; 2] {
    u16::try_from(partition).expect("the partition count is limited to 65,536").to_be_bytes()
}

pub(super) fn applied_index_key(partition: u32) -> [u8; 4] {
    let [high, low] = partition_number(partition);
    [META, high, low, 0]
}

pub(super) fn sort_keys_flag_key(partition: u32) -> [u8; 4] {
    let [high, low] = partition_number(partition);
    [META, high, low, 1]
}

pub(super) fn expiries_key(partition: u32) -> [u8; 4] {
    let [high, low] = partition_number(partition);
    [META, high, low, 2]
}

/// The partition of a record's stored key; `None` for keys of other kinds.
pub(super) fn partition_of_record(stored: &[u8]) -> Option<usize> {
    match stored {
        [DATA, high, low, ..] => Some(usize::from(u16::from_be_bytes([*high, *low]))),
        _ => None,
    }
}

pub(super) fn write_record_key(out: &mut Vec<u8>, partition: u32, key: &RecordKey<'_>) {
    out.clear();
    out.push(DATA);
    out.extend_from_slice(&partition_number(partition));
    key.encode_ordered(out);
}

/// The record of a stored key of `partition`, `None` for keys of other partitions and kinds.
pub(super) fn read_record_key(partition: u32, stored: &[u8]) -> Option<RecordKey<'_>> {
    let (kind_and_partition, ordered) = stored.split_at_checked(PARTITION_LEN)?;
    let [high, low] = partition_number(partition);
    (kind_and_partition == [DATA, high, low]).then(|| RecordKey::decode_ordered(ordered))?
}

/// Where the partition's records at and after hash `from` begin.
pub(super) fn hash_position(partition: u32, from: u64) -> [u8; PREFIX_LEN] {
    let mut position = [DATA; PREFIX_LEN];
    position[1..PARTITION_LEN].copy_from_slice(&partition_number(partition));
    position[PARTITION_LEN..].copy_from_slice(&from.to_be_bytes());
    position
}

/// Where the partition's records at and after a key in its ordered form begin.
pub(super) fn slice_position(partition: u32, ordered: &[u8]) -> Vec<u8> {
    [&hash_position(partition, 0)[..PARTITION_LEN], ordered].concat()
}

/// Where the partition's records end.
pub(super) fn partition_end(partition: u32) -> Vec<u8> {
    match u16::try_from(partition + 1) {
        Ok(_) => hash_position(partition + 1, 0)[..PARTITION_LEN].to_vec(),
        Err(_) => vec![DATA + 1],
    }
}

/// Where the records of the partition's spaces begin.
pub(super) fn spaces_begin(partition: u32) -> Vec<u8> {
    let [high, low] = partition_number(partition);
    vec![SPACES, high, low]
}

/// Where the records of the partition's spaces end.
pub(super) fn spaces_end(partition: u32) -> Vec<u8> {
    successor(&spaces_begin(partition))
}

pub(super) fn space_key(partition: u32, space: Space, key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    write_space_key(&mut stored, partition, space, key);
    stored
}

pub(super) fn write_space_key(out: &mut Vec<u8>, partition: u32, space: Space, key: &[u8]) {
    let [high, low] = partition_number(partition);
    out.clear();
    out.reserve(PARTITION_LEN + size_of::<Space>() + key.len());
    out.extend_from_slice(&[SPACES, high, low]);
    out.extend_from_slice(&space.0.to_be_bytes());
    out.extend_from_slice(key);
}

/// From where and up to where the stored keys of a range of a space lie.
pub(super) fn space_range(partition: u32, space: Space, (from, to): KeyRange<'_>) -> [Vec<u8>; 2] {
    let behind = |key: &[u8]| [&space_key(partition, space, key)[..], &[0]].concat();
    let lower = match from {
        Bound::Unbounded => space_key(partition, space, b""),
        Bound::Included(key) => space_key(partition, space, key),
        Bound::Excluded(key) => behind(key),
    };
    let upper = match to {
        Bound::Unbounded => successor(&space_key(partition, space, b"")),
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => space_key(partition, space, key),
    };
    [lower, upper]
}

/// The space and the key of a stored key in the partition's spaces.
pub(super) fn read_space_key(partition: u32, stored: &[u8]) -> Option<(Space, &[u8])> {
    let rest = stored.strip_prefix(&spaces_begin(partition)[..])?;
    let (space, key) = rest.split_first_chunk::<4>()?;
    Some((Space(u32::from_be_bytes(*space)), key))
}

/// The stored key that the record had which ends a partition, in format 5.
pub(super) fn former_seal(partition: u32) -> Vec<u8> {
    let mut stored = Vec::new();
    write_record_key(&mut stored, partition, &RecordKey::with_hash(0, &FORMER_SEAL, b""));
    stored
}

/// The first partition from this one on that has a key of its own, if `stored` is the first key at or behind
/// [its applied index](applied_index_key).
pub(super) fn partition_of_meta(stored: &[u8]) -> Option<u32> {
    match stored {
        [META, high, low, ..] => Some(u32::from(u16::from_be_bytes([*high, *low]))),
        _ => None,
    }
}
