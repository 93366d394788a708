//! What a table is: a namespace of records with an engine, partitions and settings.

use crate::{Acks, Admission, Durability, EngineKind, Model, Partitioner, Rule, UnixMillis, UsageScenario, WhenFull};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What clients and operators call a table by besides its name: 0 is the table `default`, others count up in the order of
/// creation and are never reused. It stays when the table is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableNumber(pub u32);

impl fmt::Display for TableNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Names the partitions of a table, their groups and files, and is never reused. A table that is split gets other ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub u32);

impl fmt::Display for TableId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// What is fixed when a table is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    /// The storage engine.
    pub engine: EngineKind,
    /// The number of partitions; a split doubles it.
    pub partitions: u32,
    /// How the partition is found from the hash.
    #[serde(default)]
    pub partitioner: Partitioner,
    /// Whether the table holds records or documents.
    #[serde(default)]
    pub model: Model,
    /// The field that a document is found by, on tables of documents; `id` if nothing else was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_key: Option<String>,
    /// What is promised for a write that does not ask for something else.
    pub durability: Durability,
    /// Copies of each partition that there are to be, on as many nodes.
    #[serde(default = "one")]
    pub replicas: u8,
}

fn one() -> u8 {
    1
}

impl TableSchema {
    /// Most replicas of a partition.
    pub const REPLICAS_CEILING: u8 = 7;

    /// The replicas a table gets when no number is given, or as many as there are nodes.
    pub const DEFAULT_REPLICAS: u8 = 3;

    /// The partitions a table gets when no number is given.
    pub const DEFAULT_PARTITIONS: u32 = 16;

    /// The durability a table gets when none is asked for: what the engine is chosen for.
    pub fn default_durability(engine: EngineKind) -> Durability {
        match engine {
            EngineKind::Memory => Durability::None,
            EngineKind::Rocksdb => Durability::Hard,
        }
    }

    /// The field that a document is found by.
    pub fn primary_key(&self) -> &str {
        self.primary_key.as_deref().unwrap_or("id")
    }

    /// Whether the table's log and state are on disk.
    pub fn is_persistent(&self) -> bool {
        self.durability != Durability::None
    }
}

/// How long changes are kept for changefeeds: until one of these is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FeedRetention {
    /// Seconds since the change. As long after the last feed the table stops to keep changes.
    pub feed_retention_seconds: u64,
    /// Bytes of the changes of all partitions together; each may keep an even share.
    pub feed_retention_bytes: u64,
}

impl Default for FeedRetention {
    fn default() -> Self {
        Self { feed_retention_seconds: 3_600, feed_retention_bytes: 1 << 30 }
    }
}

/// What may be altered while the table is in use, and when the table was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableSettings {
    /// Seconds after which a record written without an expiry of its own ends; 0 means never.
    pub default_ttl_seconds: u64,
    /// Memory tables only.
    pub when_full: WhenFull,
    /// RocksDB tables only.
    pub usage_scenario: UsageScenario,
    /// Who must have a write before it is acknowledged.
    pub acks: Acks,
    /// How long changes are kept for changefeeds, of a table of documents that has some.
    #[serde(flatten)]
    pub feed_retention: FeedRetention,
    /// Tables of documents only: the function through which writes go, in the form that the ReQL face understands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_hook: Option<String>,
    /// RocksDB tables only: every node that runs then compacts the table at this time, and at these minutes of each day, in
    /// UTC.
    pub compact_at: Option<UnixMillis>,
    /// Minutes since midnight, in UTC.
    pub compact_daily: Vec<u16>,
    /// Applied by the partitions' leaders when the table is compacted, on every engine.
    pub rules: Vec<Rule>,
    /// Rate limits and denials.
    #[serde(flatten)]
    pub admission: Admission,
    /// What operators of Apache Pegasus set beyond these, by its names.
    pub app_envs: BTreeMap<String, String>,
    /// When the table was created, which no change of settings changes; `None` for a table of a version that did not note it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<UnixMillis>,
}

impl TableSettings {
    /// The app env by which operators of Apache Pegasus turn off that a table is compacted at the times that it has for that.
    pub const COMPACTION_DISABLED: &str = "manual_compact.disabled";

    /// These settings, of a table that was created at another time.
    #[must_use]
    pub fn of_table_created_at(&self, created_at: Option<UnixMillis>) -> Self {
        Self { created_at, ..self.clone() }
    }

    /// Whether nodes do not compact the table by themselves.
    pub fn is_compaction_disabled(&self) -> bool {
        self.app_envs.get(Self::COMPACTION_DISABLED).is_some_and(|value| value == "true")
    }
}

/// Why a table name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("a table name has 1 to 128 letters, digits, '_', '-' or '.', and does not begin with a digit")]
pub struct TableNameError;

/// Names go into URLs, file names of exports and the Redis protocol, so they are plain. They do not begin with a digit,
/// because a command that takes a table accepts its number too.
///
/// # Errors
/// [`TableNameError`] with the rule.
pub fn check_table_name(name: &str) -> Result<(), TableNameError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let fits = (1..=128).contains(&name.len()) && name.bytes().all(plain);
    if fits && !name.as_bytes()[0].is_ascii_digit() { Ok(()) } else { Err(TableNameError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names() {
        for good in ["default", "_x", "user-table.v2", &"a".repeat(128)] {
            assert_eq!(check_table_name(good), Ok(()), "{good}");
        }
        for bad in ["", "1st", "a b", "a/b", "täble", &"a".repeat(129)] {
            assert_eq!(check_table_name(bad), Err(TableNameError), "{bad}");
        }
    }
}
