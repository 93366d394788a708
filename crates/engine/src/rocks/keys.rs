//! The bytes of keys in a table's column family; the module above describes them.

use tessera_types::RecordKey;

const META: u8 = 0;
pub(super) const DATA: u8 = 1;
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
