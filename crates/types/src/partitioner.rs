//! How a key chooses its partition.

use crate::RecordKey;
use crc::{Crc, Table};
use serde::{Deserialize, Serialize};

/// Slots of the `redis-slots` partitioner, as in Redis Cluster.
pub const REDIS_SLOTS: u16 = 16_384;

/// CRC-16 as the Redis Cluster specification gives it: polynomial 0x1021, initial value zero.
const CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&crc::CRC_16_XMODEM);

/// How a hash key chooses a partition of its table. Fixed when the table is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Partitioner {
    /// CRC-64 of the hash key modulo the partition count, as in Apache Pegasus.
    #[default]
    Crc64,
    /// CRC-16 of the hash key, or of its `{tag}`, over 16,384 slots in contiguous ranges, as in Redis Cluster.
    RedisSlots,
}

impl Partitioner {
    /// The partition of `key` in a table of `partitions` partitions.
    pub fn partition_of(self, key: &RecordKey<'_>, partitions: u32) -> u32 {
        if partitions == 1 {
            return 0;
        }
        match self {
            // The remainder is below `partitions`, which is a u32.
            Self::Crc64 if partitions.is_power_of_two() => (key.hash() as u32) & (partitions - 1),
            Self::Crc64 => (key.hash() % u64::from(partitions)) as u32,
            Self::RedisSlots => u32::from(redis_slot(key.hash_key)) * partitions / u32::from(REDIS_SLOTS),
        }
    }

    /// The two partitions of a table of `partitions` that take the keys of one when there were half as many.
    pub fn children_of(self, parent: u32, partitions: u32) -> [u32; 2] {
        match self {
            Self::Crc64 => [parent, parent + partitions / 2],
            Self::RedisSlots => [2 * parent, 2 * parent + 1],
        }
    }
}

/// The Redis Cluster slot of a key.
pub fn redis_slot(key: &[u8]) -> u16 {
    CRC16.checksum(redis_tag(key)) % REDIS_SLOTS
}

/// The part of a key that Redis Cluster hashes: what stands between the first `{` and the next `}`, unless that is
/// empty, else the whole key.
pub fn redis_tag(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let inner = &key[open + 1..];
        inner.iter().position(|&byte| byte == b'}').map(|close| &inner[..close])
    });
    match tag {
        Some(tag) if !tag.is_empty() => tag,
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_the_redis_cluster_specification() {
        assert_eq!(CRC16.checksum(b"123456789"), 0x31c3);
        assert_eq!(redis_slot(b"foo"), 12182);
        assert_eq!(redis_slot(b"{user1000}.following"), redis_slot(b"{user1000}.followers"));
        assert_eq!(redis_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(redis_tag(b"foo{{bar}}zap"), b"{bar");
    }

    #[test]
    fn a_key_moves_to_a_child_of_its_partition() {
        for partitioner in [Partitioner::Crc64, Partitioner::RedisSlots] {
            for partitions in [1, 2, 3, 64, 100] {
                for number in 0..2_000u32 {
                    let key = number.to_string();
                    let key = RecordKey::new(key.as_bytes(), b"");
                    let parent = partitioner.partition_of(&key, partitions);
                    let child = partitioner.partition_of(&key, 2 * partitions);
                    assert!(partitioner.children_of(parent, 2 * partitions).contains(&child));
                }
            }
        }
    }

    #[test]
    fn every_partition_is_reachable_and_in_range() {
        for partitioner in [Partitioner::Crc64, Partitioner::RedisSlots] {
            for partitions in [1, 2, 3, 64, 100] {
                let mut seen = vec![false; partitions as usize];
                for number in 0..20_000u32 {
                    let key = number.to_string();
                    seen[partitioner.partition_of(&RecordKey::new(key.as_bytes(), b""), partitions) as usize] = true;
                }
                assert!(seen.iter().all(|&hit| hit), "{partitioner:?} over {partitions}");
            }
        }
    }
}
