//! Partitions that this node leads and that serve nothing are looked at again.
//!
//! Those of a table that was truncated serve again once it is recalled. Who was elected since finds that their seals are void; who led them
//! before has to be told. And a partition that could not be read when this node was elected may be readable by now.

use crate::node_context::NodeContext;
use std::sync::Arc;
use tessera_cluster::TableState;
use tessera_consensus::GroupId;
use tessera_engine::mutation::SEAL;
use tessera_store::hosting::{PartitionLedger, group_of};
use tessera_store::{Operation, Transaction, Verdict, WriteOptions};
use tessera_types::{RequestError, Space};

/// Has the partitions that this node leads serve again, where nothing hinders it any more.
pub(crate) fn resume_stopped(context: &Arc<NodeContext>) {
    let catalog = context.view.catalog();
    for entry in catalog.tables() {
        let Some(table) = context.registry.any(entry.id) else { continue };
        // A table that is being truncated again may be about to be sealed.
        let is_recalled = entry.truncations > 0 && entry.state == TableState::Active && entry.split.is_none();
        for (partition, state) in (0..).zip(table.partitions()) {
            if !state.is_leading() || state.is_serving() || (!is_recalled && state.ledger().is_restored()) {
                continue;
            }
            // The loop reads the ledger from the caches only.
            let is_restored = state.ledger().is_restored();
            let warmed = if is_restored { Ok(()) } else { PartitionLedger::warm(table.engine(), partition) };
            match warmed.and_then(|()| table.is_sealed(partition)) {
                // It was truncated again meanwhile.
                Ok(true) => {}
                Ok(false) => {
                    let resume: Arc<dyn Operation> = Arc::new(Resume::new(context, group_of(table.id(), partition)));
                    context.store.write(&table, WriteOptions::default(), &resume, [partition]);
                }
                Err(error) => {
                    // It was told when the replica began to lead.
                    tracing::debug!(table = %table.name(), partition, %error, "a partition that serves nothing cannot be read");
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
        // Where the ledger could not be read when the replica began to lead, nothing was taken since that it would have to have.
        let is_restored =
            || state.ledger().is_restored() || state.ledger().restore(table.engine(), transaction.partition()).is_ok();
        if !is_sealed && is_restored() {
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

    fn only_reads(&self, _part: usize) -> bool {
        true
    }

    fn answer(&self, _part: usize, _outcome: Result<(), RequestError>) {}
}
