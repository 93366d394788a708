//! A part of a transaction.

use crate::ledger::PartitionName;
use crate::table::Table;
use bytes::Bytes;
use std::sync::Arc;
use tessera_transaction::Access;
use tessera_types::Durability;

/// What a transaction does in one partition.
#[derive(Clone)]
pub struct TransactionPart {
    /// The table.
    pub table: Arc<Table>,
    /// The partition of the table.
    pub partition: u32,
    /// How durable the transaction is there; `None` if it is as durable as the table says.
    pub durability: Option<Durability>,
    /// The hash keys that the operation reads and writes. No other transaction uses them meanwhile.
    pub locks: Vec<(Bytes, Access)>,
    /// What the face's [`Evaluator`](crate::Evaluator) carries out.
    pub operation: Bytes,
}

impl TransactionPart {
    pub(super) fn name(&self) -> PartitionName {
        PartitionName { table: self.table.id, partition: self.partition }
    }
}
