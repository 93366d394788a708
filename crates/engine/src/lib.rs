//! Storage engines: where the records of a table's partitions on this node live.
//!
//! An engine stores what the log tells it to and remembers, per partition, up to which log index it has done so. It
//! knows nothing of other nodes, of protocols or of who may see what; expired records are hidden by readers and removed
//! by engines in their own time. This is the only crate that names rocksdb, and it can be built without: the feature `rocksdb`
//! chooses between the module [`rocks`] and `no_rocks.rs`, which has the same surface and no tables.
//!
//! Read first: the trait [`Engine`], then [`mutation`] (what a log entry carries), then one of [`memory`] and [`rocks`].

#![warn(missing_docs)]
#![allow(unsafe_code)] // Records are laid out by hand, and RocksDB is called by its C interface.
#![cfg_attr(
    not(feature = "rocksdb"),
    allow(dead_code, reason = "some of what both engines share serves RocksDB alone")
)]

mod digest;
mod engine;
mod error;
mod expiries;
pub mod memory;
pub mod mutation;
mod page;
mod read_tier;
#[cfg_attr(not(feature = "rocksdb"), path = "no_rocks.rs")]
mod rocks;
mod rocks_config;
mod statistics;

pub use digest::{Address, Digest, Slice, SliceDigest};
pub use engine::{Applied, Damaged, Engine, KeyRange, Order, SortKeyRange, Visit};
pub use error::EngineError;
pub use memory::{MemoryBudget, MemoryConfig, MemoryEngine};
pub use page::{Page, PageLimit, Position, SpacePage};
pub use read_tier::from_caches;
pub use rocks::{ENGINES, RocksStore};
pub use rocks_config::{Compression, RocksConfig};
pub use statistics::{EngineStatistics, LevelStatistics, RocksStatistics};

use tessera_types::EngineKind;

/// The engine a table gets when none is given: RocksDB, if this build has it.
pub const DEFAULT_ENGINE: EngineKind = ENGINES[ENGINES.len() - 1];
