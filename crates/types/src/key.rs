//! A record's address and the hash that orders and places it.

use bytes::{BufMut, Bytes};
use crc::{Crc, Table};

/// CRC-64 as Apache Pegasus computes it for partitioning: reflected polynomial 0x9a6c9329ac4bc9b5, initial value and
/// final xor all ones. The catalogue of CRC parameters calls it CRC-64/NVME.
const CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&crc::CRC_64_NVME);

/// The hash of a hash key: places records in partitions (`crc64` partitioner) and orders hash keys in every engine.
///
/// As in Pegasus, the sort key stands in when the hash key is empty.
pub fn hash_of(hash_key: &[u8], sort_key: &[u8]) -> u64 {
    CRC64.checksum(if hash_key.is_empty() { sort_key } else { hash_key })
}

/// The address of one record, borrowed, with the hash computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKey<'a> {
    hash: u64,
    /// The key that chooses the partition.
    pub hash_key: &'a [u8],
    /// The key that orders the records of one hash key; empty for a Redis string.
    pub sort_key: &'a [u8],
}

impl<'a> RecordKey<'a> {
    /// Hashes the key.
    pub fn new(hash_key: &'a [u8], sort_key: &'a [u8]) -> Self {
        Self { hash: hash_of(hash_key, sort_key), hash_key, sort_key }
    }

    /// For callers that know [`hash_of`] the key already; it is not checked.
    pub fn with_hash(hash: u64, hash_key: &'a [u8], sort_key: &'a [u8]) -> Self {
        Self { hash, hash_key, sort_key }
    }

    /// The hash that chooses the partition.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The bytes that order records inside a partition: hash, length of the hash key, hash key, sort key, integers
    /// big-endian. Records of a hash key are adjacent and ordered by sort key; hash keys follow each other by hash, so a
    /// position in a scan is a number and a range of hashes is a range of keys.
    pub fn encode_ordered(&self, out: &mut impl BufMut) {
        out.put_u64(self.hash);
        out.put_u16(u16::try_from(self.hash_key.len()).expect("hash keys are checked against the limit on entry"));
        out.put_slice(self.hash_key);
        out.put_slice(self.sort_key);
    }

    /// Reads what [`Self::encode_ordered`] wrote; `None` if the bytes are not such a key.
    pub fn decode_ordered(bytes: &'a [u8]) -> Option<Self> {
        let (hash, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (hash_key, sort_key) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        Some(Self { hash: u64::from_be_bytes(*hash), hash_key, sort_key })
    }

    /// The address as bytes that sort like addresses in an engine: by hash, then by hash key, then by sort key.
    pub fn to_ordered_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(10 + self.hash_key.len() + self.sort_key.len());
        self.encode_ordered(&mut out);
        out.into()
    }
}

/// The least key above all that begin with `prefix`, in the order of bytes; empty if nothing is above them.
pub fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc64_matches_the_catalogue_check_value() {
        // CRC-64/NVME over "123456789", from the catalogue of parametrised CRC algorithms.
        assert_eq!(hash_of(b"123456789", b""), 0xae8b14860a799888);
    }

    #[test]
    fn an_empty_hash_key_hashes_by_sort_key() {
        assert_eq!(hash_of(b"", b"document"), hash_of(b"document", b"anything"));
    }

    #[test]
    fn ordered_keys_come_back() {
        let key = RecordKey::new(b"user", b"field");
        let bytes = key.to_ordered_bytes();
        assert_eq!(RecordKey::decode_ordered(&bytes), Some(key));
        assert_eq!(RecordKey::decode_ordered(&bytes[..9]), None);
        assert_eq!(RecordKey::decode_ordered(&bytes[..12]), None);
    }
}
