//! What the settings are in RocksDB's options.

use super::expiry_filter::{ExpiryFilterFactory, TableExpiries};
use super::memtable;
use crate::rocks_config::{Compression, RocksConfig};
use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, DBCompressionType, Options, SliceTransform, statistics::StatsLevel,
};
use std::sync::Arc;
use tessera_types::UsageScenario;

/// More files than level 0 ever has.
const NO_LIMIT: i32 = 1_000_000_000;

/// How a table is compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Compacting {
    #[default]
    Normally,
    /// Not by itself, since it would meet a damaged file.
    Stopped,
    /// It was stopped, and level 0 has too many files for writers.
    CatchingUp,
}

impl Compression {
    fn for_rocksdb(self) -> DBCompressionType {
        match self {
            Self::None => DBCompressionType::None,
            Self::Lz4 => DBCompressionType::Lz4,
            Self::Zstd => DBCompressionType::Zstd,
        }
    }
}

impl RocksConfig {
    /// Options of the instance, on top of others.
    pub(super) fn database_options(&self, mut options: Options) -> Options {
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_max_background_jobs(self.max_background_flushes + self.max_background_compactions);
        options.set_max_subcompactions(self.max_subcompactions);
        options.set_max_open_files(self.max_open_files);
        options.set_use_direct_reads(self.direct_reads);
        options.set_use_direct_io_for_flush_and_compaction(self.direct_io_for_flush_and_compaction);
        options.set_keep_log_file_num(4);
        options.set_max_log_file_size(16 << 20);
        // One writer per table and node already merges what is queued; RocksDB's own queueing would add a lock.
        options.set_allow_concurrent_memtable_write(true);
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        if self.rate_limit_bytes_per_second > 0 {
            let (refill_micros, fairness) = (100_000, 10);
            if self.rate_limit_auto_tune {
                options.set_auto_tuned_ratelimiter(self.rate_limit_bytes_per_second, refill_micros, fairness);
            } else {
                options.set_ratelimiter(self.rate_limit_bytes_per_second, refill_micros, fairness);
            }
        }
        options
    }

    /// Options of a table's column family, whose compactions go by `expiries`.
    pub(super) fn table_options(
        &self,
        cache: &rocksdb::Cache,
        prefix_len: usize,
        expiries: &Arc<TableExpiries>,
    ) -> Result<Options, rocksdb::Error> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(cache);
        blocks.set_block_size(self.block_bytes);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_unpartitioned_pinning_tier(BlockBasedTablePinningTier::All);
        blocks.set_whole_key_filtering(true);
        blocks.set_format_version(5);
        if self.bloom_bits_per_key > 0.0 {
            blocks.set_bloom_filter(self.bloom_bits_per_key, false);
        }

        let mut options = memtable::options()?;
        options.set_block_based_table_factory(&blocks);
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(prefix_len));
        options.set_memtable_prefix_bloom_ratio(0.1);
        options.set_memtable_whole_key_filtering(true);
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_max_write_buffer_number(self.max_write_buffers);
        options.set_num_levels(self.levels);
        options.set_target_file_size_base(self.target_file_bytes);
        options.set_target_file_size_multiplier(self.target_file_multiplier);
        options.set_max_bytes_for_level_base(self.max_bytes_for_level_base);
        options.set_max_bytes_for_level_multiplier(self.max_bytes_for_level_multiplier);
        options.set_level_compaction_dynamic_level_bytes(self.level_compaction_dynamic_level_bytes);
        options.set_level_zero_file_num_compaction_trigger(self.level0_compaction_trigger);
        options.set_level_zero_slowdown_writes_trigger(self.level0_slowdown_trigger);
        options.set_level_zero_stop_writes_trigger(self.level0_stop_trigger);
        options.set_periodic_compaction_seconds(self.periodic_compaction_seconds);
        let last = self.compression.last().copied().unwrap_or(Compression::None);
        let levels = usize::try_from(self.levels).unwrap_or(0);
        let per_level: Vec<_> =
            (0..levels).map(|level| self.compression.get(level).copied().unwrap_or(last).for_rocksdb()).collect();
        options.set_compression_per_level(&per_level);
        options.set_compaction_filter_factory(ExpiryFilterFactory(expiries.clone()));
        Ok(options)
    }

    /// The options that tell a usage scenario from another, in RocksDB's text form. What Apache Pegasus changes for
    /// the scenario of the same name. How the table is compacted comes on top of that.
    pub(super) fn compaction_options(
        &self,
        scenario: UsageScenario,
        compacting: Compacting,
    ) -> Vec<(&'static str, String)> {
        let (buffer, trigger, slowdown, stop, automatic) = match scenario {
            UsageScenario::Normal => (
                self.write_buffer_bytes,
                self.level0_compaction_trigger,
                self.level0_slowdown_trigger,
                self.level0_stop_trigger,
                true,
            ),
            UsageScenario::PreferWrite => (
                self.write_buffer_bytes,
                self.level0_compaction_trigger.max(10),
                self.level0_slowdown_trigger.max(60),
                self.level0_stop_trigger.max(120),
                true,
            ),
            UsageScenario::BulkLoad => (self.write_buffer_bytes * 4, NO_LIMIT, NO_LIMIT, NO_LIMIT, false),
        };
        let automatic = automatic && compacting != Compacting::Stopped;
        let (slowdown, stop) = match compacting {
            Compacting::Normally => (slowdown, stop),
            Compacting::Stopped | Compacting::CatchingUp => (NO_LIMIT, NO_LIMIT),
        };
        vec![
            ("write_buffer_size", buffer.to_string()),
            ("level0_file_num_compaction_trigger", trigger.to_string()),
            ("level0_slowdown_writes_trigger", slowdown.to_string()),
            ("level0_stop_writes_trigger", stop.to_string()),
            ("disable_auto_compactions", (!automatic).to_string()),
        ]
    }
}
