//! Storage engines: where the records of a table's partitions on this node live.
//!
//! An engine stores what the log tells it to and remembers, per partition, up to which log index it has done so. It
//! knows nothing of other nodes, of protocols or of who may see what; expired records are hidden by readers and removed
//! by engines in their own time. This is the only crate that names rocksdb.
//!
//! Read first: the trait [`Engine`], then [`mutation`] (what a log entry carries), then one of [`memory`] and [`rocks`].

#![warn(missing_docs)]
#![allow(unsafe_code)] // Records are laid out by hand, and RocksDB is called by its C interface.

mod digest;
mod engine;
mod error;
mod expiries;
pub mod memory;
pub mod mutation;
mod page;
mod read_tier;
pub mod rocks;
mod statistics;

pub use digest::{Address, Digest, Slice, SliceDigest};
pub use engine::{Applied, Damaged, Engine, KeyRange, Order, SortKeyRange, Visit};
pub use error::EngineError;
pub use memory::{MemoryBudget, MemoryConfig, MemoryEngine};
pub use page::{Page, PageLimit, Position, SpacePage};
pub use read_tier::from_caches;
pub use rocks::{RocksConfig, RocksEngine, RocksStore};
pub use statistics::{EngineStatistics, LevelStatistics, RocksStatistics};
