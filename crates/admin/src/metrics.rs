//! What Prometheus scrapes. Values are gathered when asked for, so that serving costs nothing for them.

use crate::scrape::Scrape;
use crate::server::ExtraMetrics;
use tessera_consensus::LogStatus;
use tessera_engine::PageLimit;
use tessera_node::Node;
use tessera_store::StoreStatistics;
use tessera_types::EngineKind;

/// A table that has no more is counted for each scrape, if its engine only estimates how many records there are.
pub(crate) const COUNTED: PageLimit = PageLimit { records: 10_000, bytes: 16 << 20 };

pub(crate) fn render(node: &Node, statistics: &StoreStatistics, extra: &ExtraMetrics) -> String {
    let mut scrape = Scrape::default();
    let rocksdb = &statistics.rocksdb;
    let plain: &[(&str, &str, f64)] = &[
        ("tessera_memory_used_bytes", "Memory of records of memory tables", statistics.memory_used_bytes as f64),
        ("tessera_memory_limit_bytes", "Memory that records may take", statistics.memory_limit_bytes as f64),
        ("tessera_elections_won_total", "Partitions that this node began to lead", node.elections_won() as f64),
        ("tessera_log_blocks_total", "Blocks written to the log", statistics.log.blocks as f64),
        ("tessera_log_written_bytes_total", "Bytes written to the log", statistics.log.bytes as f64),
        ("tessera_log_syncs_total", "Fsyncs of the log", statistics.log.syncs as f64),
        ("tessera_log_sync_seconds_total", "Time spent in fsyncs of the log", statistics.log.sync_time.as_secs_f64()),
        (
            "tessera_log_staged_batches_total",
            "Batches that counted before the log had them",
            statistics.log.staged as f64,
        ),
        ("tessera_log_segments", "Segment files of the log", statistics.log.segments as f64),
        ("tessera_log_disk_bytes", "Disk space of the log's segments", statistics.log.disk_bytes as f64),
        (
            "tessera_log_healthy",
            "1 while the log takes writes",
            f64::from(u8::from(node.store().log_status() == LogStatus::Ok)),
        ),
        ("tessera_block_cache_hits_total", "Blocks found in the cache", rocksdb.block_cache_hits as f64),
        ("tessera_block_cache_misses_total", "Blocks not found in the cache", rocksdb.block_cache_misses as f64),
        ("tessera_record_cache_hits_total", "Hash keys found in the record cache", rocksdb.record_cache_hits as f64),
        (
            "tessera_record_cache_misses_total",
            "Hash keys not found in the record cache",
            rocksdb.record_cache_misses as f64,
        ),
        ("tessera_record_cache_bytes", "What the record cache holds", rocksdb.record_cache_bytes as f64),
        ("tessera_disk_reads_total", "Reads that waited for the disk", statistics.disk_reads as f64),
        ("tessera_rocksdb_stall_seconds_total", "Time that writers were held back", rocksdb.stall_micros as f64 / 1e6),
    ];
    for (name, help, value) in plain {
        scrape.set(name, help, &[], *value);
    }
    for table in &statistics.tables {
        let engine = &table.engine;
        let labels = [("table", table.name.as_str()), ("engine", table.schema.engine.as_str())];
        let values: &[(&str, &str, f64)] = &[
            ("tessera_table_partitions", "Partitions of the table", f64::from(table.schema.partitions)),
            ("tessera_table_serving_partitions", "Partitions that serve", f64::from(table.serving_partitions)),
            ("tessera_table_reads_total", "Requests that read", table.counts.reads as f64),
            ("tessera_table_writes_total", "Writes received", table.counts.writes as f64),
            ("tessera_table_read_units_total", "Capacity units read", table.counts.read_units as f64),
            ("tessera_table_write_units_total", "Capacity units written", table.counts.write_units as f64),
            (
                "tessera_table_records",
                "Records; on RocksDB an estimate, unless there are at most 10,000 and the caches have them",
                engine.records as f64,
            ),
            ("tessera_table_memory_bytes", "Memory of records or memtables", engine.memory_bytes as f64),
            ("tessera_table_disk_bytes", "Bytes of files", engine.disk_bytes as f64),
            (
                "tessera_table_pending_compaction_bytes",
                "Bytes that wait for compaction",
                engine.pending_compaction_bytes as f64,
            ),
        ];
        for (name, help, value) in values {
            scrape.set(name, help, &labels, *value);
        }
        // RocksDB removes expired records when it compacts, and counts none.
        if table.schema.engine == EngineKind::Memory {
            let expired = engine.expired_removed as f64;
            scrape.set("tessera_table_expired_total", "Expired records of memory tables removed", &labels, expired);
            scrape.set("tessera_table_evicted_total", "Records evicted", &labels, engine.evicted as f64);
        }
        if let Some(lag) = table.lag {
            scrape.set(
                "tessera_replica_lag_seconds",
                "How far the replica here is behind that is furthest behind",
                &labels,
                lag.as_secs_f64(),
            );
        }
        for level in &engine.levels {
            let labels = [labels[0], ("level", level.level.as_str())];
            scrape.set("tessera_table_level_files", "Files of a level", &labels, level.files as f64);
            scrape.set("tessera_table_level_bytes", "Bytes of a level", &labels, level.size_bytes as f64);
            scrape.set(
                "tessera_table_level_write_amplification",
                "Bytes written to a level for each byte that came to it",
                &labels,
                level.write_amplification,
            );
        }
    }
    crate::cluster::measure(node, &mut scrape);
    crate::comparison::measure(node, &mut scrape);
    crate::transactions::measure(statistics.transactions, &mut scrape);
    crate::requests::measure(node, &mut scrape);
    crate::process::measure(&mut scrape);
    extra(&mut scrape);
    scrape.text()
}
