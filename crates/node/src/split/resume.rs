//! Partitions of a table that was truncated serve again once it is recalled. Who was elected since finds that their seals are void;
//! who led them before has to be told.

use crate::node_context::NodeContext;
use std::sync::Arc;
use tessera_cluster::TableState;
use tessera_consensus::GroupId;
use tessera_store::hosting::group_of;
use tessera_store::{Operation, Transaction, Verdict, WriteOptions};
use tessera_types::RequestError;

/// Has the partitions that this node leads of recalled tables serve again.
pub(crate) fn resume_recalled(context: &Arc<NodeContext>) {
    let catalog = context.view.catalog();
    // A table that is being truncated again may be about to be sealed.
    let may_have_ended = catalog
        .tables()
        .filter(|entry| entry.truncations > 0 && entry.state == TableState::Active && entry.split.is_none());
    for table in may_have_ended.filter_map(|entry| context.registry.any(entry.id)) {
        for (partition, state) in (0..).zip(table.partitions()) {
            if !state.is_leading() || state.is_serving() {
                continue;
            }
            match table.is_sealed(partition) {
                // It was truncated again meanwhile.
                Ok(true) => {}
                Ok(false) => {
                    state.change_capture().unseal();
                    let group = group_of(table.id(), partition);
                    let resume: Arc<dyn Operation> = Arc::new(Resume { context: context.clone(), group });
                    context.store.write(&table, WriteOptions::default(), &resume, [partition]);
                }
                Err(error) => {
                    tracing::warn!(table = %table.name(), partition, %error, "a partition of a recalled table cannot be read");
                }
            }
        }
    }
}

/// Made by the partition's loop, which alone knows whether the replica still leads.
struct Resume {
    context: Arc<NodeContext>,
    group: GroupId,
}

impl Operation for Resume {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let (table, partition) = (transaction.table(), transaction.partition());
        let state = transaction.partition_state();
        match state.ledger().restore(table.engine(), partition) {
            // A replica that is about to go has stopped serving for another reason.
            Ok(()) => self.context.replicas.if_held(self.group, || state.serve()),
            Err(error) => {
                tracing::error!(table = %table.name(), partition, %error, "a partition that cannot be read serves nothing");
            }
        }
        Verdict::Abandon
    }

    fn answer(&self, _part: usize, _outcome: Result<(), RequestError>) {}
}
