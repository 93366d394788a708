//! Which replicas this node holds. The catalog says which it is to hold; a replica begins blank, is written down before it
//! takes part in anything, and is forgotten before its node takes another one of the same partition. So a replica never
//! goes on with what an earlier one left behind.
//!
//! A replica whose votes are not all on disk when its process ends, or its machine, has forgotten some. It must not go on as
//! itself, and waits until the catalog has decided what [becomes of it](crate::lost).

mod held;

use crate::boot;
use crate::node_context::NodeContext;
use bytes::BytesMut;
use held::Held;
pub(crate) use held::{Aside, Replicas};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_cluster::{Catalog, Holding, Placement, Succession, succession};
use tessera_consensus::log::{LogBatch, LogRecord};
use tessera_consensus::{GroupId, GroupSettings, GroupStart};
use tessera_engine::mutation;
use tessera_engine::{Applied, EngineError};
use tessera_store::Table;
use tessera_store::hosting::{group_of, partition_of_group};
use tessera_types::{Durability, ReplicaId, TableId, TableSchema};

/// A replica that is to be here.
struct DueReplica<'a> {
    table: Arc<Table>,
    partition: u32,
    replica: ReplicaId,
    placement: &'a Placement,
}

impl NodeContext {
    /// Makes the replicas that this node holds those that the catalog wants here, as far as there is [room](Self::make_room)
    /// for them.
    pub(crate) fn reconcile_replicas(&self) -> Result<(), EngineError> {
        if self.holds_back.load(Ordering::Acquire) {
            return Ok(());
        }
        let settling = self.replicas.settling.lock();
        let catalog = self.view.catalog();
        let (mut starts, mut outcome) = (Vec::new(), Ok(()));
        for due in self.due_replicas(&catalog) {
            let group = group_of(due.table.id(), due.partition);
            match self.next_of(&due) {
                Ok(Succession::Start) => {}
                Ok(Succession::List) => {
                    let mut held = self.replicas.held.lock();
                    if held.clearing.contains(&group) {
                        continue;
                    }
                    held.replicas.insert(group.0, due.replica);
                    held.is_unsaved = true;
                }
                Ok(_) => continue,
                Err(error) => {
                    outcome = Err(error);
                    continue;
                }
            }
            starts.push(due);
        }
        // What is started from here on is listed on disk.
        self.replicas.save(&settling)?;
        for DueReplica { table, partition, replica, placement } in starts {
            let group = group_of(table.id(), partition);
            let settings = match group_settings(&table, partition, replica, placement) {
                Ok(settings) => settings,
                Err(error) => {
                    outcome = Err(error);
                    continue;
                }
            };
            {
                let mut held = self.replicas.held.lock();
                held.running.insert(group);
                held.earlier.remove(&group);
            }
            self.inbox_of(table.id(), partition).start(self.group_start(&table, partition, settings, placement));
        }
        outcome
    }

    /// Removes what earlier replicas have left where others are to begin. May take long; it holds no lock meanwhile. Nobody else
    /// calls this at the same time.
    pub(crate) fn make_room(&self) -> Result<(), EngineError> {
        if self.holds_back.load(Ordering::Acquire) {
            return Ok(());
        }
        let catalog;
        let all_due = {
            let _settling = self.replicas.settling.lock();
            // Not before: what a later catalog has begun would be let go of by an earlier one.
            catalog = self.view.catalog();
            self.due_replicas(&catalog)
        };
        let mut outcome = Ok(());
        for due in all_due {
            let group = group_of(due.table.id(), due.partition);
            {
                let mut held = self.replicas.held.lock();
                if held.replicas.contains_key(&group.0) {
                    continue; // a replica that has begun meanwhile is never cleared
                }
                if self.registry.any(due.table.id()).is_none() {
                    continue; // the table is gone, and its files may be
                }
                held.clearing.insert(group);
            }
            let cleared = self.make_room_for(&due);
            self.replicas.held.lock().clearing.remove(&group);
            outcome = outcome.and(cleared);
        }
        outcome
    }

    fn make_room_for(&self, due: &DueReplica<'_>) -> Result<(), EngineError> {
        let DueReplica { table, partition, .. } = due;
        if self.next_of(due)? == Succession::ForgetLog {
            self.log.wait_synced().map_err(|error| EngineError::LogNotSynced(error.to_string()))?;
            self.replicas.forgotten.lock().remove(&group_of(table.id(), *partition));
        }
        if self.next_of(due)? == Succession::Clear {
            make_blank(table, *partition)?;
            table.engine().make_durable(*partition, &|| Ok(()))?;
        }
        Ok(())
    }

    /// The next step towards a replica that is to be here and does not run.
    fn next_of(&self, due: &DueReplica<'_>) -> Result<Succession, EngineError> {
        let group = group_of(due.table.id(), due.partition);
        let listed = self.replicas.held.lock().replicas.get(&group.0).copied();
        let holding = Holding { listed, runs: false, is_leaving: self.replicas.is_leaving(group) };
        let has_records = || self.is_blank(due).map(|is_blank| !is_blank);
        succession(Some(due.replica), holding, || self.must_be_forgotten(group), has_records)
    }

    /// Whether the log may still have on disk what an earlier replica left there. It is told to forget it.
    fn must_be_forgotten(&self, group: GroupId) -> bool {
        // That an earlier one left may have got lost on the way to the disk.
        self.forget_recovered(group);
        self.replicas.forgotten.lock().contains(&group)
    }

    /// The replicas that are to be here and do not run yet. Lets go of those that are here and are not to be; who calls it is
    /// settling replicas.
    fn due_replicas<'a>(&self, catalog: &'a Catalog) -> Vec<DueReplica<'a>> {
        let mut all_due = Vec::new();
        // Nobody waits for another replica of a table that is gone, as one that was split is.
        let is_there = |group| partition_of_group(group).is_some_and(|(table, _)| catalog.get(table).is_some());
        self.replicas.held.lock().shunned.retain(|group, _| is_there(GroupId(*group)));
        for entry in catalog.tables() {
            let Some(table) = self.registry.any(entry.id) else { continue };
            for (partition, placement) in (0..).zip(&entry.placement) {
                let group = group_of(entry.id, partition);
                let due = placement.on(self.identity.node);
                let mut held = self.replicas.held.lock();
                if held.replicas.get(&group.0).is_some_and(|here| Some(*here) != due) {
                    self.leave(&mut held, group, &table, partition);
                }
                if held.shunned.get(&group.0).is_some_and(|shunned| Some(*shunned) != due) {
                    held.shunned.remove(&group.0);
                }
                let Some(replica) = due.filter(|_| !held.running.contains(&group)) else { continue };
                // One that has forgotten waits until the catalog has another one in its place, or lets it go on.
                let is_earlier = held.earlier.contains(&group) || held.shunned.contains_key(&group.0);
                let may_have_lost_votes = is_earlier && self.may_have_lost_votes(&entry.schema, placement);
                if !may_have_lost_votes || placement.is_readmitted(replica) {
                    all_due.push(DueReplica { table: table.clone(), partition, replica, placement });
                }
            }
        }
        all_due
    }

    /// Whether nothing is left of an earlier replica. What is gone from memory may come back after a crash.
    fn is_blank(&self, due: &DueReplica<'_>) -> Result<bool, EngineError> {
        let engine = &due.table.engine();
        Ok(engine.applied_index(due.partition) == 0 && engine.durable_index(due.partition)? == 0)
    }

    /// Whether a replica that was here before this process began may have forgotten what it voted. One that is alone voted
    /// for itself, but may lack what it had acknowledged, if the directory is older than what the node had.
    pub(crate) fn may_have_lost_votes(&self, schema: &TableSchema, placement: &Placement) -> bool {
        let is_alone = placement.current.len() == 1 && placement.current == placement.target;
        let may_have_lost_votes = match schema.durability {
            Durability::None => true,
            Durability::Soft => self.has_lost_tail,
            Durability::Hard => false,
        };
        self.is_overtaken || !is_alone && may_have_lost_votes
    }

    /// Replicas that are from before this process began, and were not started since.
    pub(crate) fn earlier_replicas(&self) -> Vec<(GroupId, ReplicaId)> {
        let held = self.replicas.held.lock();
        let earlier = held.earlier.iter().filter_map(|group| Some((*group, *held.replicas.get(&group.0)?)));
        earlier.chain(held.shunned.iter().map(|(group, replica)| (GroupId(*group), *replica))).collect()
    }

    /// Counts what the catalog wants here as known to others, and forgotten here, whether it is held or not.
    pub(crate) fn shun_all(&self, catalog: &Catalog) {
        let mut held = self.replicas.held.lock();
        for entry in catalog.tables() {
            for (partition, placement) in (0..).zip(&entry.placement) {
                let group = group_of(entry.id, partition);
                let Some(due) = placement.on(self.identity.node) else { continue };
                if held.replicas.get(&group.0) != Some(&due) {
                    held.shunned.insert(group.0, due);
                }
            }
        }
    }

    /// Writes down that no replica is left that may have forgotten, once that is so.
    pub(crate) fn note_renewed(&self) {
        let is_done = || self.earlier_replicas().is_empty() && !self.holds_back.load(Ordering::Acquire);
        if self.owes_renewal.load(Ordering::Relaxed) && is_done() {
            match boot::renewed(&self.directory.boot()) {
                Ok(()) => self.owes_renewal.store(false, Ordering::Relaxed),
                Err(error) => tracing::warn!(%error, "that replicas are renewed is not written down; trying again"),
            }
        }
    }

    /// Lets the log forget what it holds of a group that was not started.
    pub(crate) fn forget_recovered(&self, group: GroupId) {
        if self.recovered.lock().remove(&group).is_some() {
            self.replicas.forgotten.lock().insert(group);
            self.log.submit(LogBatch { records: vec![LogRecord::Removed { group }], ..Default::default() });
        }
    }

    fn group_start(&self, table: &Table, partition: u32, settings: GroupSettings, placement: &Placement) -> GroupStart {
        let id = group_of(table.id(), partition);
        let has_records = placement.initial_members.contains(&settings.replica) || settings.applied > 0;
        let state = table.partition(partition);
        let recovered = self.recovered.lock().remove(&id).unwrap_or_default();
        // Of a log that lost its tail, what is known to be committed may be more than what is there.
        let known = recovered.entries.back().map_or(settings.applied, |last| recovered.state.commit.min(last.index));
        state.start_replica(known, has_records && !settings.replica.is_witness());
        GroupStart { id, settings, recovered }
    }

    fn leave(&self, held: &mut Held, group: GroupId, table: &Table, partition: u32) {
        held.is_unsaved |= held.replicas.remove(&group.0).is_some();
        held.earlier.remove(&group);
        self.replicas.aside.lock().remove(&group);
        let state = table.partition(partition);
        state.withdraw();
        if held.running.remove(&group) {
            self.replicas.leaving.lock().insert(group);
            self.inbox_of(table.id(), partition).remove(group);
        } else {
            self.forget_recovered(group);
        }
    }

    /// Lets go of all replicas of a table that is purged.
    pub(crate) fn leave_table(&self, id: TableId, table: &Arc<Table>) -> Result<(), EngineError> {
        let settling = self.replicas.settling.lock();
        for partition in 0..table.schema().partitions {
            self.leave(&mut self.replicas.held.lock(), group_of(id, partition), table, partition);
        }
        self.replicas.save(&settling)
    }
}

/// How a replica is to be kept, with how far its records are.
pub(crate) fn group_settings(
    table: &Table,
    partition: u32,
    replica: ReplicaId,
    placement: &Placement,
) -> Result<GroupSettings, EngineError> {
    let is_founder = placement.initial_members.contains(&replica);
    let is_alone = placement.current == [replica] && placement.target == [replica];
    let initial_members = match table.schema().durability {
        // It does not remember that it is alone, if it was not from the beginning.
        Durability::None if is_alone => vec![replica],
        _ if is_founder => placement.initial_members.clone(),
        _ => Vec::new(),
    };
    Ok(GroupSettings {
        persistent: table.schema().is_persistent(),
        synced: table.schema().durability == Durability::Hard,
        applied: table.engine().applied_index(partition),
        applied_term: table.engine().applied_term(partition)?,
        replica,
        initial_members,
    })
}

/// Removes all records of a partition, and that any were ever applied.
pub(crate) fn make_blank(table: &Table, partition: u32) -> Result<(), EngineError> {
    let mut payload = BytesMut::new();
    mutation::encode_clear(&mut payload);
    table.engine().write(&[Applied { partition, index: 0, term: 0, payloads: &[payload.freeze()] }])
}

#[cfg(test)]
mod tests;
