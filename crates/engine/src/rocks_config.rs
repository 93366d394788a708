use serde::{Deserialize, Serialize};

/// `[rocksdb]` in the config file. Names and defaults follow RocksDB's options as Apache Pegasus sets them, scaled
/// to a node that shares its machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RocksConfig {
    /// Bytes of uncompressed blocks kept in memory, for all tables together.
    pub block_cache_bytes: usize,
    /// For the records of hash keys that are read often, beside the block cache; 0 keeps none.
    pub record_cache_bytes: usize,
    /// Shards of the block cache as a power of two; -1 lets RocksDB choose.
    pub block_cache_shard_bits: i32,
    /// Bytes of an uncompressed data block in a file.
    pub block_bytes: usize,
    /// Bytes of a table's memtable before it is flushed.
    pub write_buffer_bytes: usize,
    /// Memtables of a table, the one being written included; all full means writes wait.
    pub max_write_buffers: i32,
    /// Bytes of the memtables of all tables together.
    pub total_write_buffer_bytes: usize,
    /// Background threads that flush memtables.
    pub max_background_flushes: i32,
    /// Background threads that compact files.
    pub max_background_compactions: i32,
    /// Threads that one compaction may be split over.
    pub max_subcompactions: u32,
    /// The number of levels, L0 included.
    pub levels: i32,
    /// Bytes of a file in L1.
    pub target_file_bytes: u64,
    /// How many times larger files are from one level to the next.
    pub target_file_multiplier: i32,
    /// Bytes of L1 from which it is compacted, unless the levels' sizes are dynamic.
    pub max_bytes_for_level_base: u64,
    /// How many times larger each level may be than the one above it.
    pub max_bytes_for_level_multiplier: f64,
    /// Whether RocksDB derives the levels' sizes from the last level instead of from L1.
    pub level_compaction_dynamic_level_bytes: bool,
    /// Files in L0 that start a compaction, slow writers down, and stop them.
    pub level0_compaction_trigger: i32,
    /// Files in L0 that slow writers down.
    pub level0_slowdown_trigger: i32,
    /// Files in L0 that stop writers.
    pub level0_stop_trigger: i32,
    /// One entry per level; the last one counts for the levels below.
    pub compression: Vec<Compression>,
    /// Bits of a Bloom filter for each key; 0 keeps no filters.
    pub bloom_bits_per_key: f64,
    /// Bytes per second that flushes and compactions may write together; 0 means no limit.
    pub rate_limit_bytes_per_second: i64,
    /// Lets RocksDB lower the rate while little is pending, down to a twentieth.
    pub rate_limit_auto_tune: bool,
    /// Files that RocksDB keeps open; -1 for all.
    pub max_open_files: i32,
    /// Whether reads bypass the page cache of the system.
    pub direct_reads: bool,
    /// Threads that read what no cache has, and so requests that may be with the disk at one time.
    pub read_threads: usize,
    /// Whether flushes and compactions bypass the page cache of the system.
    pub direct_io_for_flush_and_compaction: bool,
    /// Age in seconds at which files are compacted again although nothing forces it, which frees expired records; 0 never.
    pub periodic_compaction_seconds: u64,
}

/// How the blocks of a file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not compressed.
    None,
    /// LZ4: little CPU time, moderate compression.
    Lz4,
    /// Zstandard: more CPU time, more compression.
    Zstd,
}

impl Default for RocksConfig {
    fn default() -> Self {
        Self {
            block_cache_bytes: 768 << 20,
            record_cache_bytes: 256 << 20,
            block_cache_shard_bits: -1,
            block_bytes: 4 << 10,
            write_buffer_bytes: 64 << 20,
            max_write_buffers: 3,
            total_write_buffer_bytes: 512 << 20,
            max_background_flushes: 2,
            max_background_compactions: 4,
            max_subcompactions: 1,
            levels: 6,
            target_file_bytes: 64 << 20,
            target_file_multiplier: 1,
            max_bytes_for_level_base: 640 << 20,
            max_bytes_for_level_multiplier: 10.0,
            level_compaction_dynamic_level_bytes: false,
            level0_compaction_trigger: 4,
            level0_slowdown_trigger: 30,
            level0_stop_trigger: 60,
            compression: vec![Compression::None, Compression::None, Compression::Lz4],
            bloom_bits_per_key: 10.0,
            rate_limit_bytes_per_second: 0,
            rate_limit_auto_tune: false,
            max_open_files: 4096,
            direct_reads: false,
            read_threads: 32,
            direct_io_for_flush_and_compaction: false,
            periodic_compaction_seconds: 0,
        }
    }
}
