//! What every face calls: records read and written with durability, deadlines and atomicity inside one partition, by
//! table. The store does not know how a request came in.
//!
//! Read first: [`Store`], then [`Transaction`] (how a write is evaluated), then [`machine`] (how it becomes state).

mod addresses;
mod admission;
mod boot;
mod catalog_aside;
mod catalog_changes;
mod catalog_follower;
mod change_set;
mod clear;
mod clock;
mod cold_commands;
mod compaction_state;
mod compactions;
mod comparison;
mod config;
mod data_directory;
mod disk_readers;
mod driver;
mod generation;
mod host;
mod hot_key_search;
mod hot_keys;
mod identity;
mod known_leader;
mod lease;
mod lost;
mod machine;
mod maintenance;
mod meter;
mod operation;
mod ordered_keys;
mod outflow;
mod overlay;
mod overtaken;
mod peers;
mod presence;
mod recovery;
mod removed;
mod replicas;
mod router;
mod rules;
mod slow_writes;
mod snapshot;
mod space_writes;
mod split;
mod statistics;
mod store;
mod table;
#[cfg(test)]
mod test_node;
mod threads;
mod traffic;
mod transaction;
mod watch;

pub use admission::Admissions;
pub use catalog_changes::AlterError;
pub use compaction_state::CompactionState;
pub use comparison::{Comparison, ComparisonOutcome, Difference, PartitionComparison, ReplicaDigest};
pub use config::StoreConfig;
pub use data_directory::DataDirectoryError;
pub use hot_key_search::LONGEST as LONGEST_COUNT;
pub use hot_keys::{HotKey, HotKeysFound};
pub use meter::{CAPACITY_UNIT_BYTES, Counts};
pub use operation::{Operation, Verdict, WriteOptions};
pub use peers::Face;
pub use recovery::{RecoverError, StoppedNode};
pub use router::{Envelope, Outcomes, PATIENCE, Part, PartOutcome, READ_TRIES, Route};
pub use rules::RulesApplied;
pub use snapshot::Progress;
pub use statistics::{StoreStatistics, TableStatistics};
pub use store::{OpenError, Store, StoreWorker};
pub use table::{KEYS_AT_ONCE, Leader, Partition, Table};
pub use tessera_cluster::{
    Catalog, CatalogCommand, CatalogError, Changed, CopyState, IndexEntry, Indexes, Lack, NodeEntry, Outcome,
    Placement, RecoveredPartition, Recovery, RecoveryError, RecoveryNote, Site, Split, Survey, TableEntry, TableState,
    load_json, save_json,
};
pub use tessera_consensus::LogStatus;
pub use tessera_engine::{
    EngineError, EngineStatistics, KeyRange, MemoryConfig, Order, PageLimit, Position, RocksConfig, RocksStatistics,
    SortKeyRange, Visit, from_caches,
};
pub use tessera_transport::Secret;
pub use threads::runtime;
pub use traffic::{PartitionTraffic, hot_partitions};
pub use transaction::{Record, SpaceScan, Transaction};
pub use watch::Watch;
