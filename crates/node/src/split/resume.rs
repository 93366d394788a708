//! Partitions of a table that was truncated serve again once it is recalled. Who was elected since finds that their seals are void;
//! who led them before has to be told.

use crate::node_context::NodeContext;
use std::sync::Arc;
use tessera_cluster::TableState;
use tessera_consensus::GroupId;
use tessera_engine::mutation::SEAL;
use tessera_store::hosting::group_of;
use tessera_store::{Operation, Transaction, Verdict, WriteOptions};
use tessera_types::{RequestError, Space};

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
                    let resume: Arc<dyn Operation> = Arc::new(Resume::new(context, group_of(table.id(), partition)));
                    context.store.write(&table, WriteOptions::default(), &resume, [partition]);
                }
                Err(error) => {
                    tracing::warn!(table = %table.name(), partition, %error, "a partition of a recalled table cannot be read");
                }
            }
        }
    }
}

/// Reopens a partition. Made by its loop, which alone knows whether the replica still leads, and what is on its way.
///
/// The ledger is as its leader has evaluated it, with entries that are not applied yet: what the engine has may be less.
pub(super) struct Resume {
    context: Arc<NodeContext>,
    group: GroupId,
}

impl Resume {
    pub(super) fn new(context: &Arc<NodeContext>, group: GroupId) -> Self {
        Self { context: context.clone(), group }
    }
}

impl Operation for Resume {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let (table, state) = (transaction.table(), transaction.partition_state());
        // It was told before, or elected since.
        if state.is_serving() {
            return Verdict::Abandon;
        }
        // A seal that counts may be on its way. What cannot be read is looked at again.
        let Ok(sealed) = transaction.get_in_unchecked(Space::SYSTEM, SEAL) else { return Verdict::Abandon };
        let is_sealed = sealed.is_some_and(|record| table.seal().is_in(&record));
        // Where the ledger could not be read when the replica began to lead, nothing may be served.
        if !is_sealed && state.ledger().is_restored() {
            // A replica that is about to go has stopped serving for another reason.
            self.context.replicas.if_held(self.group, || {
                state.change_capture().unseal();
                state.serve();
            });
        }
        Verdict::Abandon
    }

    fn seals_or_reopens(&self) -> bool {
        true
    }

    fn answer(&self, _part: usize, _outcome: Result<(), RequestError>) {}
}
