use serde::{Deserialize, Serialize};

/// What a request may ask for. Every limit is answered with an error that names it; all are configurable under
/// `[limits]` in the config file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Longest hash key, bytes; at most [`Self::HASH_KEY_BYTES_CEILING`].
    pub hash_key_bytes: usize,
    /// Longest sort key, bytes.
    pub sort_key_bytes: usize,
    /// Largest value, bytes.
    pub value_bytes: usize,
    /// Largest set of changes that one request may make in one partition, bytes of keys and values.
    pub write_bytes: usize,
    /// Most records that one request may write or delete one by one in one partition, which does nothing else meanwhile.
    pub write_records: usize,
    /// Most tables on the cluster, dropped ones that can still be recalled included.
    pub tables: usize,
    /// Most partitions of one table; at most [`Self::PARTITIONS_CEILING`].
    pub partitions_per_table: u32,
}

impl Limits {
    /// The length of a hash key is stored in 16 bits, and Pegasus clients refuse 65,535.
    pub const HASH_KEY_BYTES_CEILING: usize = 65_534;
    /// The number of a partition is stored in 16 bits.
    pub const PARTITIONS_CEILING: u32 = 65_536;
    /// Values and writes travel in one log entry, whose length is stored in 32 bits.
    pub const WRITE_BYTES_CEILING: usize = 1 << 30;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hash_key_bytes: Self::HASH_KEY_BYTES_CEILING,
            sort_key_bytes: 1 << 20,
            value_bytes: 16 << 20,
            write_bytes: 64 << 20,
            write_records: 50_000,
            tables: 1_024,
            partitions_per_table: 4_096,
        }
    }
}
