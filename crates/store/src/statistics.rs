//! What the store tells about itself.

use crate::coordination::TransactionCounts;
use crate::face_meter::FaceStatistics;
use crate::meter::Counts;
use crate::store::Store;
use crate::table::Table;
use std::time::Duration;
use tessera_cluster::Split;
use tessera_consensus::log::LogStatistics;
use tessera_engine::{EngineStatistics, RocksStatistics};
use tessera_types::{EngineKind, TableNumber, TableSchema, TableSettings};

/// Counts and sizes of the node's store.
#[derive(Clone, Debug)]
pub struct StoreStatistics {
    /// Counts of the log.
    pub log: LogStatistics,
    /// Bytes that memory tables take, and may take.
    pub memory_used_bytes: u64,
    /// The limit of `memory.limit_bytes`, or half the machine's memory.
    pub memory_limit_bytes: u64,
    /// Reads that waited for the disk, or parts of them.
    pub disk_reads: u64,
    /// Transactions over partitions.
    pub transactions: TransactionCounts,
    /// Counters of the node's RocksDB instance, which all tables on RocksDB share.
    pub rocksdb: RocksStatistics,
    /// The active tables, by number.
    pub tables: Vec<TableStatistics>,
}

/// Counts and sizes of one table.
#[derive(Clone, Debug)]
pub struct TableStatistics {
    /// The number by which clients name the table.
    pub number: TableNumber,
    /// The name of the table.
    pub name: String,
    /// What was fixed when the table was created.
    pub schema: TableSchema,
    /// The settings that are in force.
    pub settings: TableSettings,
    /// How far it is with being split, if it is.
    pub split: Option<Split>,
    /// Those that have a leader, here or on another node.
    pub serving_partitions: u32,
    /// Since the node started.
    pub counts: Counts,
    /// How far the replica here that is furthest behind may be; `None` if there is none, or none has heard of a leader.
    pub lag: Option<Duration>,
    /// Counts and sizes of the engine's records here.
    pub engine: EngineStatistics,
    /// What the table's RocksDB instance tells, which all tables on RocksDB share; `None` for a memory table.
    pub rocksdb: Option<RocksStatistics>,
}

/// What the engine tells at once: on RocksDB an estimate of the number of records, unless it is known that there is none. Nothing is counted:
/// threads ask for it that serve many connections. [`Table::count_few_of`] counts.
fn engine_statistics(table: &Table) -> EngineStatistics {
    let mut statistics = table.engine.statistics();
    if statistics.records_are_estimated && table.is_known_to_be_empty_here() {
        (statistics.records, statistics.records_are_estimated) = (0, false);
    }
    statistics
}

impl Store {
    /// What clients have asked each face. Of tables, those that are active count.
    pub fn face_statistics(&self) -> Vec<FaceStatistics> {
        self.face_meters().statistics(&self.tables())
    }

    /// The limit of `memory.limit_bytes`, or half the machine's memory.
    pub fn memory_limit_bytes(&self) -> u64 {
        self.parts().memory.limit_bytes()
    }

    /// Counts and sizes of everything that is stored here, which takes no time that grows with the number of records.
    pub fn statistics(&self) -> StoreStatistics {
        let tables = self.registry().tables();
        let parts = self.parts();
        let catalog = self.catalog();
        let rocksdb = parts.rocks.statistics();
        StoreStatistics {
            log: parts.log.statistics(),
            memory_used_bytes: parts.memory.used_bytes(),
            memory_limit_bytes: parts.memory.limit_bytes(),
            disk_reads: parts.disk_readers.made(),
            transactions: self.coordination().counts(),
            rocksdb,
            tables: tables
                .active()
                .map(|table| {
                    let led = |partition: &u32| self.live_leader(table, *partition).is_some();
                    let serving = (0..table.schema.partitions).filter(led).count();
                    TableStatistics {
                        number: table.number(),
                        name: table.name.load().to_string(),
                        schema: catalog
                            .get(table.id)
                            .map_or_else(|| table.schema.clone(), |entry| entry.schema.clone()),
                        split: catalog.get(table.id).and_then(|entry| entry.split.clone()),
                        settings: (*table.settings.load_full()).clone(),
                        serving_partitions: u32::try_from(serving).unwrap_or(u32::MAX),
                        counts: table.partitions.iter().map(|state| state.meter.counts()).sum(),
                        lag: (0..table.schema.partitions).filter_map(|partition| table.lag(partition)).max(),
                        engine: engine_statistics(table),
                        rocksdb: (table.schema.engine == EngineKind::Rocksdb).then_some(rocksdb),
                    }
                })
                .collect(),
        }
    }
}
