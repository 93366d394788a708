//! The RocksDB engine: one instance per node, one column family per table, partitions by key prefix.
//!
//! RocksDB's own write-ahead log is off: the node's log holds every write until the memtable that holds it is flushed.
//! Each batch carries the partition's applied index, so what is on disk says from where the log must be applied again.
//!
//! Keys: byte 0x01, partition (u16 big-endian), then the ordered form of [`tessera_types::RecordKey`]. The first eleven
//! bytes (kind, partition, hash) are the bloom filters' prefix, so that "has this hash key any record?" is usually
//! answered without reading a block. Key 0x00, partition, 0x00 holds the applied index and the term of its entry (u64
//! little-endian each; the term is zero, or missing, if it is not known); 0x00, partition, 0x01 exists once the partition has held a sort key. 0x00, partition, 0x02 holds the partition's time, and a
//! time after which none of its records expires (u64 little-endian each); it exists once there was either. Records of spaces are
//! behind all others: byte 0x02, partition, the space's number (u32 big-endian), then the key.

mod conversion;
mod counting;
mod damage;
mod digest;
mod dropping;
mod expiry_filter;
mod keys;
mod level_table;
mod memtable;
mod options;
mod reads;
mod record_cache;
mod second_name;
mod spaces;
mod store;
mod table;
mod writes;

use crate::EngineError;
pub use store::RocksStore;
use tessera_types::EngineKind;

/// The engines that this build has.
pub const ENGINES: &[EngineKind] = &[EngineKind::Memory, EngineKind::Rocksdb];

impl From<rocksdb::Error> for EngineError {
    fn from(error: rocksdb::Error) -> Self {
        match error.kind() {
            rocksdb::ErrorKind::Corruption => Self::Corruption(error.into_string()),
            rocksdb::ErrorKind::Incomplete => Self::WouldWait,
            rocksdb::ErrorKind::IOError => Self::RocksdbIo(error.into_string()),
            _ => Self::Rocksdb(error.into_string()),
        }
    }
}
