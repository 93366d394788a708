//! What transactions over partitions are about.

use bytes::Bytes;
use tessera_transaction::Data;
use tessera_types::{NodeId, TableId};

/// Transactions over the partitions of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnTables;

/// A partition of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionName {
    /// The table.
    pub table: TableId,
    /// The number of the partition.
    pub partition: u32,
}

/// What a face asks of a partition, in its own words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaceOperation {
    /// The number of the face's [service](crate::Store::serve_face), whose [`Evaluator`](crate::Evaluator) understands it.
    pub service: u8,
    /// What is to be evaluated.
    pub operation: Bytes,
}

/// What an intent keeps until its transaction is decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntendedWrites {
    /// [Mutations](tessera_engine::mutation), as log entries carry them.
    Mutations(Bytes),
    /// The operation itself: its face [carries it out](crate::Evaluator::carry_out) when the intent is resolved.
    Operation(FaceOperation),
}

/// Tells whether what was read of a partition has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The node that led the partition, and the number of its start.
    pub node: NodeId,
    /// See `node`.
    pub start: u64,
    /// How often the replica there had stopped answering reads.
    pub interruptions: u64,
    /// The [version](crate::Table::version) of the partition.
    pub version: u64,
    /// When the first of the records ends that were read, in milliseconds since 1970.
    pub ends: u64,
}

impl Data for OnTables {
    type Partition = PartitionName;
    /// A hash key.
    type Key = Bytes;
    type Operation = FaceOperation;
    type Writes = IntendedWrites;
    type Reply = Bytes;
    type Stamp = Stamp;
}
