//! The choices a table offers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a table's records live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// In memory, in a hash index.
    Memory,
    /// On disk, in the node's RocksDB instance.
    Rocksdb,
}

/// When a write is acknowledged. Ordered: a later one promises more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Applied in memory; nothing is written to disk. Only on memory tables, for the whole table.
    None,
    /// Applied; on disk within the node's `soft_sync_interval_ms`.
    Soft,
    /// Applied and fsynced.
    Hard,
}

/// Whose word a write waits for, besides its durability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Acks {
    /// A majority of the replicas has it: it stays when a leader is lost.
    #[default]
    Majority,
    /// The leader has it: it may be lost with the leader.
    Single,
}

/// How sure a read is to see what was acknowledged before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadMode {
    /// The partition's leader answers under a lease: linearizable as long as clocks run about equally fast.
    #[default]
    Single,
    /// A majority of the replicas confirms the leader for each read: linearizable whatever clocks do.
    Majority,
    /// Any replica answers, from what it has: the one on the node that is asked, if there is one.
    Outdated,
}

/// What records are to their users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Records by hash key and sort key: for Redis and Pegasus clients.
    #[default]
    Kv,
    /// Documents by primary key: for ReQL clients.
    Document,
}

/// What a memory table does when the node's memory for records is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Refuse writes that need more memory.
    #[default]
    Refuse,
    /// Evict records that have not been read lately. For caches: a record may be gone at any time.
    Evict,
}

/// What a RocksDB table is tuned for, in Apache Pegasus' words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageScenario {
    /// Defaults for reads and writes alike.
    #[default]
    Normal,
    /// Larger write buffers and later compactions: more writes, slower reads.
    PreferWrite,
    /// No automatic compaction at all, for an initial load; compact before going back to normal.
    BulkLoad,
}

/// Gives a setting its text form: what the CLI, the config file and JSON use.
macro_rules! text_form {
    ($type:ident, $what:literal, $($variant:ident = $text:literal),+) => {
        impl $type {
            /// Every value, in the order in which help texts list them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for it in commands, settings and the admin API.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|value| value.as_str()).collect();
                    format!(concat!("unknown ", $what, " '{}'; known: {}"), text, known.join(", "))
                })
            }
        }
    };
}

use crate::Partitioner;
text_form!(EngineKind, "engine", Memory = "memory", Rocksdb = "rocksdb");
text_form!(Durability, "durability", Hard = "hard", Soft = "soft", None = "none");
text_form!(Acks, "acks", Majority = "majority", Single = "single");
text_form!(ReadMode, "read mode", Single = "single", Majority = "majority", Outdated = "outdated");
text_form!(Model, "model", Kv = "kv", Document = "document");
text_form!(WhenFull, "full policy", Refuse = "refuse", Evict = "evict");
text_form!(UsageScenario, "usage scenario", Normal = "normal", PreferWrite = "prefer_write", BulkLoad = "bulk_load");
text_form!(Partitioner, "partitioner", Crc64 = "crc64", RedisSlots = "redis-slots");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_forms_agree() {
        fn check<T: Copy + fmt::Display + FromStr + PartialEq + fmt::Debug + Serialize>(all: &[T]) {
            for &value in all {
                assert_eq!(value.to_string().parse::<T>().ok(), Some(value));
                assert_eq!(serde_json::to_string(&value).unwrap(), format!("\"{value}\""));
            }
        }
        check(EngineKind::ALL);
        check(Durability::ALL);
        check(Model::ALL);
        check(Acks::ALL);
        check(ReadMode::ALL);
        check(WhenFull::ALL);
        check(UsageScenario::ALL);
        check(Partitioner::ALL);
    }
}
