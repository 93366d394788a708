//! A part of a transaction.

use crate::ledger::PartitionName;
use crate::table::Table;
use bytes::Bytes;
use std::cmp::Reverse;
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

    /// Puts a part before the others whose partition keeps what it writes for as long as any of them: the decision must last as long as
    /// what was acknowledged because of it. Else the order stays.
    pub(super) fn hardest_first(parts: &mut [Self]) {
        parts.sort_by_key(|part| Reverse(part.durability.unwrap_or(part.table.schema.durability)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_table::TestTable;
    use tessera_types::EngineKind;

    /// The decision about a write that was to survive power cuts was once made in a table that forgets it in one.
    #[test]
    fn the_most_durable_of_the_partitions_decides() {
        let (none, soft) = (TestTable::open(EngineKind::Memory), TestTable::open(EngineKind::Rocksdb));
        let order = |parts: &[(&TestTable, Option<Durability>)]| {
            let part = |(at, (table, durability)): (usize, &(&TestTable, _))| TransactionPart {
                table: table.shared(),
                partition: u32::try_from(at).unwrap(),
                durability: *durability,
                locks: Vec::new(),
                operation: Bytes::new(),
            };
            let mut parts: Vec<_> = parts.iter().enumerate().map(part).collect();
            TransactionPart::hardest_first(&mut parts);
            parts.iter().map(|part| part.partition).collect::<Vec<_>>()
        };
        assert_eq!(order(&[(&none, None), (&soft, None)]), [1, 0]);
        assert_eq!(order(&[(&soft, None), (&none, None), (&soft, Some(Durability::Hard))]), [2, 0, 1]);
        assert_eq!(order(&[(&soft, None), (&soft, None), (&soft, None)]), [0, 1, 2], "the face's first one stays so");
    }
}
