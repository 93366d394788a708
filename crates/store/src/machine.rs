//! The state machine of a worker's partitions: from operations to log entries to records.

use crate::overlay::Overlay;
use crate::table::{Table, partition_of_group};
use crate::transaction::Transaction;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_consensus::{Committed, Evaluated, Failure, GroupId, StateMachine};
use tessera_engine::Applied;
use tessera_engine::mutation::{self, Mutation};
use tessera_types::{Durability, RequestError, UnixMillis};

/// A write as a face sends it: evaluated by the partition's owner, answered when it is as durable as asked.
pub trait Operation: Send {
    /// Reads and writes. What it finds it keeps for [`answer`](Self::answer). Runs on the partition's loop, so it must
    /// be quick.
    fn evaluate(&mut self, transaction: &mut Transaction<'_>) -> Verdict;

    /// Called once: with `Ok` when what was evaluated holds, else with the reason why it was never evaluated, or is not
    /// known to hold.
    fn answer(self: Box<Self>, outcome: Result<(), RequestError>);
}

/// What is to become of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Commit,
    /// Nothing is written.
    Abandon,
}

/// An operation on its way to a partition.
pub(crate) struct WriteCommand {
    pub(crate) table: Arc<Table>,
    pub(crate) partition: u32,
    pub(crate) sync: bool,
    pub(crate) operation: Box<dyn Operation>,
}

/// Evaluates and applies for all partitions of one worker.
pub(crate) struct PartitionsMachine {
    /// The time of this pass.
    now: UnixMillis,
    partitions: HashMap<GroupId, HostedPartition, ahash::RandomState>,
    /// Told whenever a group begins to serve.
    opened: Arc<tokio::sync::Notify>,
    registry: Arc<crate::node::Registry>,
}

struct HostedPartition {
    table: Arc<Table>,
    partition: u32,
    overlay: Overlay,
}

impl PartitionsMachine {
    pub(crate) fn new(registry: Arc<crate::node::Registry>, opened: Arc<tokio::sync::Notify>) -> Self {
        Self { now: UnixMillis::now(), partitions: HashMap::default(), opened, registry }
    }
}

impl StateMachine for PartitionsMachine {
    type Command = WriteCommand;
    type Ticket = Box<dyn Operation>;

    fn begin_pass(&mut self) {
        self.now = UnixMillis::now();
    }

    fn evaluate(
        &mut self,
        group: GroupId,
        command: WriteCommand,
        payload: &mut Vec<u8>,
    ) -> Evaluated<Box<dyn Operation>> {
        let WriteCommand { table, partition, sync, mut operation } = command;
        let hosted = self.partitions.entry(group).or_insert_with(|| HostedPartition {
            table: table.clone(),
            partition,
            overlay: Overlay::default(),
        });
        let mut transaction = Transaction::new(&table, partition, self.now, &hosted.overlay);
        let verdict = operation.evaluate(&mut transaction);
        let changes = transaction.into_changes();
        if verdict == Verdict::Abandon || changes.is_empty() {
            return Evaluated::NoChange { ticket: operation };
        }
        let watched = &table.partitions[partition as usize].watched;
        if !watched.is_empty() {
            if changes.clears() {
                watched.touch_all();
            }
            changes.hash_keys().for_each(|hash_key| watched.touch(hash_key));
        }
        changes.commit(payload, &mut hosted.overlay);
        Evaluated::Replicate { ticket: operation, sync }
    }

    fn proposed(&mut self, group: GroupId, index: u64) {
        if let Some(hosted) = self.partitions.get_mut(&group) {
            hosted.overlay.proposed(index);
        }
    }

    fn apply(&mut self, committed: &[Committed]) -> Result<(), String> {
        // All entries of a pass that concern one table go to its engine in one call.
        let mut by_table: Vec<(Arc<Table>, Vec<Applied<'_>>)> = Vec::new();
        for Committed { group, index, payloads } in committed {
            let Some((table, partition)) = self.hosted(*group) else { continue };
            if table.engine.applied_index(partition) >= *index {
                continue; // a part of a pass that failed later on
            }
            let applied = Applied { partition, index: *index, payloads };
            match by_table.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &table)) {
                Some((_, entries)) => entries.push(applied),
                None => by_table.push((table, vec![applied])),
            }
        }
        for (table, entries) in &by_table {
            // Odd while the engine writes: see `Partition::version`.
            let bump = |applied: &Applied<'_>| {
                table.partitions[applied.partition as usize].version.fetch_add(1, Ordering::AcqRel);
            };
            entries.iter().for_each(bump);
            let outcome = table.engine.write(entries);
            entries.iter().for_each(bump);
            outcome.map_err(|error| error.to_string())?;
            for applied in entries {
                touch_watched(table, applied.partition, applied.payloads);
            }
        }
        for Committed { group, index, .. } in committed {
            if let Some(hosted) = self.partitions.get_mut(group) {
                hosted.overlay.applied(*index);
            }
        }
        Ok(())
    }

    fn answer(&mut self, ticket: Box<dyn Operation>, outcome: Result<(), Failure>) {
        ticket.answer(outcome.map_err(request_error));
    }

    fn refuse(&mut self, command: WriteCommand, failure: Failure) {
        command.operation.answer(Err(request_error(failure)));
    }

    fn removed(&mut self, group: GroupId) {
        self.partitions.remove(&group);
    }

    fn serving(&mut self, group: GroupId) {
        if let Some((table, partition)) = self.hosted(group) {
            table.partitions[partition as usize].is_serving.store(true, Ordering::Release);
            self.opened.notify_waiters();
        }
    }
}

impl PartitionsMachine {
    fn hosted(&self, group: GroupId) -> Option<(Arc<Table>, u32)> {
        if let Some(hosted) = self.partitions.get(&group) {
            return Some((hosted.table.clone(), hosted.partition));
        }
        let (table, partition) = partition_of_group(group)?;
        Some((self.registry.any(table)?, partition))
    }
}

fn touch_watched(table: &Table, partition: u32, payloads: &[Bytes]) {
    let watched = &table.partitions[partition as usize].watched;
    if watched.is_empty() {
        return;
    }
    for mutation in payloads.iter().flat_map(|payload| mutation::decode(payload)) {
        match mutation {
            Ok(Mutation::Put { key, .. } | Mutation::Delete { key }) => watched.touch(key.hash_key),
            Ok(Mutation::Clear) => watched.touch_all(),
            Err(_) => {} // the engine has refused such a payload already
        }
    }
}

/// Whether a write waits for an fsync, or why it cannot have what it asks for.
pub(crate) fn sync_for(table: &Table, asked: Option<Durability>) -> Result<bool, RequestError> {
    let durability = asked.unwrap_or(table.schema.durability);
    if !table.schema.is_persistent() && durability != Durability::None {
        return Err(RequestError::DurabilityUnavailable(durability));
    }
    Ok(durability == Durability::Hard)
}

fn request_error(failure: Failure) -> RequestError {
    match failure {
        Failure::NotServing => RequestError::NotReady,
        Failure::DiskFull => RequestError::DiskFull,
        Failure::DiskFailed(error) => RequestError::DiskFailed(error),
        Failure::ShuttingDown => RequestError::ShuttingDown,
        Failure::Interrupted => RequestError::Interrupted,
    }
}
