use serde::Serialize;

/// Which share `part` is of `all`, 0 to 1. Of nothing it is all.
pub(crate) fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 1.0 } else { (part as f64 / all as f64).min(1.0) }
}

/// What an engine tells about one table on this node. Counts are since the node started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EngineStatistics {
    /// Records and documents, expired ones included until they are removed. RocksDB estimates it, and counts what the node keeps for itself.
    pub records: u64,
    /// Whether `records` is an estimate.
    pub records_are_estimated: bool,
    /// Hash keys; `None` where the engine does not count them.
    pub hash_keys: Option<u64>,
    /// Bytes of memory that records and their index take.
    pub memory_bytes: u64,
    /// Bytes of files on disk.
    pub disk_bytes: u64,
    /// Expired records that were removed since the node started.
    pub expired_removed: u64,
    /// Records of memory tables that were evicted since the node started.
    pub evicted: u64,
    /// Bytes that compactions would have to rewrite to bring all levels to their targets; RocksDB's estimate.
    pub pending_compaction_bytes: u64,
    /// The levels of a RocksDB table that have files.
    pub levels: Vec<LevelStatistics>,
}

/// What the node's RocksDB instance tells about all of its tables together: it does not count these for each table. Counts are
/// since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RocksStatistics {
    /// Blocks that reads found in the block cache.
    pub block_cache_hits: u64,
    /// Blocks that reads had to fetch from files.
    pub block_cache_misses: u64,
    /// Bytes that the block cache holds now.
    pub block_cache_bytes: u64,
    /// Reads that the record cache answered.
    pub record_cache_hits: u64,
    /// Reads that the record cache could not answer.
    pub record_cache_misses: u64,
    /// Bytes that the record cache holds now.
    pub record_cache_bytes: u64,
    /// Microseconds that writers were held back because flushes or compactions lagged.
    pub stall_micros: u64,
}

impl RocksStatistics {
    /// Share of what was looked for that a cache had, 0 to 1: hash keys in the record cache, then blocks in the block cache.
    /// `None` before the first.
    pub fn cache_hit_rate(&self) -> Option<f64> {
        let hits = self.record_cache_hits + self.block_cache_hits;
        let looks = hits + self.block_cache_misses;
        (looks > 0).then(|| hits as f64 / looks as f64)
    }
}

/// One level of a table's LSM tree, with the columns of RocksDB's own level table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LevelStatistics {
    /// `L0`, `L1`, ...
    pub level: String,
    /// Files in the level.
    pub files: u64,
    /// Bytes of these files.
    pub size_bytes: u64,
    /// How much the level exceeds its target; compaction begins above 1.
    pub score: f64,
    /// Gigabytes that compactions into the level have read.
    pub read_gigabytes: f64,
    /// Gigabytes that flushes and compactions have written to the level.
    pub write_gigabytes: f64,
    /// Bytes written to the level per byte moved into it.
    pub write_amplification: f64,
    /// Keys that went into compactions of the level.
    pub keys_in: u64,
    /// Keys that these compactions dropped, because they were overwritten, deleted or expired.
    pub keys_dropped: u64,
}
