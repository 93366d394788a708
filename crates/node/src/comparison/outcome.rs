//! What a comparison comes to.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tessera_engine::Address;
use tessera_types::{ReplicaId, UnixMillis};

/// Whether replicas have the same records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonOutcome {
    /// All replicas were compared and have the same records.
    Equal,
    /// Nobody knows of a difference, but not all replicas were compared.
    NotComparable,
    /// At least one replica has other records than the majority.
    Differ,
}

/// What became of comparing a table's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The worst of its partitions'.
    pub outcome: ComparisonOutcome,
    /// The outcome of each partition.
    pub partitions: Vec<PartitionComparison>,
}

/// What became of comparing a partition's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionComparison {
    /// The number of the partition.
    pub partition: u32,
    /// Whether its replicas have the same records.
    pub outcome: ComparisonOutcome,
    /// Why not all could be compared.
    pub reason: Option<String>,
    /// The replicas that were compared to the end.
    pub replicas: Vec<ReplicaId>,
    /// What the leader's replica holds, as far as it was compared.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// The first ranges of keys in which replicas differ; the comparison ends after twenty.
    pub differences: Vec<Difference>,
    /// A replica that differs from what a majority agrees on, and what is done about it.
    pub mended: Option<String>,
    /// When the comparison ended.
    pub ended: UnixMillis,
    /// Whether another node should be asked: this one does not lead the partition, or not any more.
    pub leads_no_longer: bool,
}

/// A range of keys in which replicas differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Where it begins and ends, in words.
    pub from: String,
    /// Where the range ends, in words.
    pub to: String,
    /// What each replica has in the range.
    pub replicas: Vec<ReplicaDigest>,
}

/// What a replica has in a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaDigest {
    /// The replica.
    pub replica: ReplicaId,
    /// The number of its records in the range.
    pub records: u64,
    /// The digest of these records, in hexadecimal digits.
    pub digest: String,
}

impl PartitionComparison {
    pub(super) fn begun(partition: u32) -> Self {
        Self {
            partition,
            outcome: ComparisonOutcome::Equal,
            reason: None,
            replicas: Vec::new(),
            records: 0,
            bytes: 0,
            differences: Vec::new(),
            mended: None,
            ended: UnixMillis::now(),
            leads_no_longer: false,
        }
    }

    /// Not all could be compared.
    pub(super) fn lacks(mut self, reason: String) -> Self {
        self.outcome = self.outcome.max(ComparisonOutcome::NotComparable);
        self.reason.get_or_insert(reason);
        self
    }
}

/// A key in its ordered form, in words.
pub(super) fn describe(ordered: &Bytes) -> String {
    match Address::decode_ordered(ordered) {
        Some(Address::InSpace(space, key)) => format!("'{}' in space {}", key.escape_ascii(), space.0),
        Some(Address::Record(key)) if key.sort_key.is_empty() => format!("'{}'", key.hash_key.escape_ascii()),
        Some(Address::Record(key)) => format!("'{}' '{}'", key.hash_key.escape_ascii(), key.sort_key.escape_ascii()),
        None => "the beginning".into(),
    }
}
