//! Which replicas this node holds. The catalog says which it is to hold; a replica begins blank, is written down before it
//! takes part in anything, and is forgotten before its node takes another one of the same partition. So a replica never
//! goes on with what an earlier one left behind.
//!
//! A replica whose votes are not all on disk when its process ends, or its machine, has forgotten some. It must not go on as
//! itself, and waits until the catalog has decided what [becomes of it](crate::lost).

use crate::boot;
use crate::host::Host;
use crate::table::{Table, group_of};
use bytes::BytesMut;
use parking_lot::Mutex;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_cluster::Placement;
use tessera_consensus::log::{LogBatch, LogRecord};
use tessera_consensus::{GroupId, GroupSettings, GroupStart};
use tessera_engine::mutation;
use tessera_engine::{Applied, EngineError};
use tessera_types::{Durability, ReplicaId, TableId, TableSchema};

/// The file of what is held.
pub(crate) struct Replicas {
    path: PathBuf,
    held: Mutex<Held>,
    /// Groups that a worker still has although their replica goes.
    leaving: Mutex<HashSet<GroupId>>,
    /// Groups whose replica here cannot go on, and why.
    aside: Mutex<BTreeMap<GroupId, String>>,
    /// Groups that the log was told to forget, and may not have on disk yet.
    forgotten: Mutex<HashSet<GroupId>>,
}

#[derive(Default)]
struct Held {
    replicas: BTreeMap<u64, ReplicaId>,
    /// Those of `replicas` that are from before this process began, and were not started since.
    earlier: HashSet<GroupId>,
    running: HashSet<GroupId>,
    /// Whether the file says something else.
    is_unsaved: bool,
}

impl Replicas {
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        let replicas: BTreeMap<u64, ReplicaId> = tessera_cluster::load_json(path)?.unwrap_or_default();
        let earlier = replicas.keys().map(|group| GroupId(*group)).collect();
        let held = Mutex::new(Held { replicas, earlier, ..Held::default() });
        let (leaving, aside, forgotten) = Default::default();
        Ok(Self { path: path.to_path_buf(), held, leaving, aside, forgotten })
    }

    fn save(&self, held: &mut Held) -> Result<(), EngineError> {
        if held.is_unsaved {
            tessera_cluster::save_json(&self.path, &held.replicas).map_err(EngineError::io(&self.path))?;
            held.is_unsaved = false;
        }
        Ok(())
    }

    /// Whether this node holds a replica of the group.
    pub(crate) fn is_held(&self, group: GroupId) -> bool {
        self.held.lock().replicas.contains_key(&group.0)
    }

    /// Whether the worker still has the group although its replica goes.
    pub(crate) fn is_leaving(&self, group: GroupId) -> bool {
        self.leaving.lock().contains(&group)
    }

    /// The worker has let go of the group, and its records are gone.
    pub(crate) fn left(&self, group: GroupId) {
        self.forgotten.lock().insert(group);
        self.leaving.lock().remove(&group);
    }

    /// The replica here cannot go on, for that reason.
    pub(crate) fn set_aside(&self, group: GroupId, reason: &str) {
        self.aside.lock().insert(group, reason.into());
    }

    /// Replicas here that cannot go on, and why. The catalog's own may be among them, which has no number.
    pub(crate) fn all_aside(&self) -> Vec<(GroupId, Option<ReplicaId>, String)> {
        let (held, aside) = (self.held.lock(), self.aside.lock());
        aside.iter().map(|(group, reason)| (*group, held.replicas.get(&group.0).copied(), reason.clone())).collect()
    }
}

impl Host {
    /// Makes the replicas that this node holds those that the catalog wants here. What takes long, such as making a
    /// partition blank, is left for later unless `may_wait`.
    pub(crate) fn settle_replicas(&self, may_wait: bool) -> Result<(), EngineError> {
        let mut guard = self.replicas.held.lock();
        let held = &mut *guard;
        let catalog = self.catalog.load_full();
        let (mut starts, mut outcome) = (Vec::new(), Ok(()));
        for entry in catalog.tables() {
            let Some(table) = self.registry.any(entry.id) else { continue };
            for (partition, placement) in (0..).zip(&entry.placement) {
                let group = group_of(entry.id, partition);
                let due = placement.on(self.identity.node);
                if held.replicas.get(&group.0).is_some_and(|here| Some(*here) != due) {
                    self.leave(held, group, &table, partition);
                }
                let Some(due) = due.filter(|_| !held.running.contains(&group)) else { continue };
                let has_forgotten = held.earlier.contains(&group) && self.has_forgotten(&entry.schema, placement);
                if has_forgotten && !placement.goes_on(due) {
                    continue; // until the catalog has another one in its place, or lets it go on
                }
                if let Entry::Vacant(place) = held.replicas.entry(group.0) {
                    if self.replicas.is_leaving(group) {
                        continue;
                    }
                    // That an earlier one left may have got lost on the way to the disk.
                    self.forget_recovered(group);
                    // After a power cut this one must not find in the log what that one had. What is being waited for may be
                    // more than the disk's time, so it waits for a round that may.
                    if self.replicas.forgotten.lock().contains(&group) {
                        if !may_wait {
                            continue;
                        }
                        if let Err(error) = self.log.wait_synced() {
                            outcome = Err(EngineError::LogNotSynced(error.to_string()));
                            continue;
                        }
                        self.replicas.forgotten.lock().remove(&group);
                    }
                    // What an earlier replica left may be gone from memory and come back after a crash.
                    if table.engine.applied_index(partition) > 0 || table.engine.durable_index(partition)? > 0 {
                        if !may_wait {
                            continue;
                        }
                        let blank = make_blank(&table, partition)
                            .and_then(|()| table.engine.make_durable(partition, &|| Ok(())));
                        if let Err(error) = blank {
                            outcome = Err(error);
                            continue;
                        }
                    }
                    place.insert(due);
                    held.is_unsaved = true;
                }
                starts.push((table.clone(), partition, due, placement));
            }
        }
        self.replicas.save(held)?;
        for (table, partition, due, placement) in starts {
            let group = group_of(table.id, partition);
            held.running.insert(group);
            held.earlier.remove(&group);
            self.inbox_of(table.id, partition).start(self.group_start(&table, partition, due, placement));
        }
        outcome
    }

    /// Whether a replica that was here before this process began may have forgotten what it voted. One that is alone voted
    /// for itself.
    pub(crate) fn has_forgotten(&self, schema: &TableSchema, placement: &Placement) -> bool {
        let is_alone = placement.members.len() == 1 && placement.members == placement.wanted;
        !is_alone
            && match schema.durability {
                Durability::None => true,
                Durability::Soft => self.has_lost_tail,
                Durability::Hard => false,
            }
    }

    /// Replicas that are from before this process began, and were not started since.
    pub(crate) fn earlier_replicas(&self) -> Vec<(GroupId, ReplicaId)> {
        let held = self.replicas.held.lock();
        held.earlier.iter().filter_map(|group| Some((*group, *held.replicas.get(&group.0)?))).collect()
    }

    /// Writes down that no replica is left that may have forgotten, once that is so.
    pub(crate) fn note_renewed(&self) {
        if self.owes_renewal.load(Ordering::Relaxed) && self.replicas.held.lock().earlier.is_empty() {
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

    fn group_start(&self, table: &Table, partition: u32, replica: ReplicaId, placement: &Placement) -> GroupStart {
        let id = group_of(table.id, partition);
        let is_founder = placement.founders.contains(&replica);
        let is_alone = placement.members == [replica] && placement.wanted == [replica];
        let founders = match table.schema.durability {
            // It does not remember that it is alone, if it was not from the beginning.
            Durability::None if is_alone => vec![replica],
            _ if is_founder => placement.founders.clone(),
            _ => Vec::new(),
        };
        let settings = GroupSettings {
            persistent: table.schema.is_persistent(),
            synced: table.schema.durability == Durability::Hard,
            applied: table.engine.applied_index(partition),
            replica,
            founders,
        };
        let has_records = is_founder || settings.applied > 0;
        let state = &table.partitions[partition as usize];
        state.is_readable.store(has_records && !replica.is_witness(), Ordering::Release);
        GroupStart { id, settings, recovered: self.recovered.lock().remove(&id).unwrap_or_default() }
    }

    fn leave(&self, held: &mut Held, group: GroupId, table: &Table, partition: u32) {
        held.is_unsaved |= held.replicas.remove(&group.0).is_some();
        held.earlier.remove(&group);
        self.replicas.aside.lock().remove(&group);
        let state = &table.partitions[partition as usize];
        state.is_serving.store(false, Ordering::Release);
        state.is_readable.store(false, Ordering::Release);
        if held.running.remove(&group) {
            self.replicas.leaving.lock().insert(group);
            self.inbox_of(table.id, partition).remove(group);
        } else {
            self.forget_recovered(group);
        }
    }

    /// Lets go of all replicas of a table that is purged.
    pub(crate) fn leave_table(&self, id: TableId, table: &Arc<Table>) -> Result<(), EngineError> {
        let mut held = self.replicas.held.lock();
        (0..table.schema.partitions)
            .for_each(|partition| self.leave(&mut held, group_of(id, partition), table, partition));
        self.replicas.save(&mut held)
    }

    /// Replicas held.
    pub(crate) fn replicas_held(&self) -> usize {
        self.replicas.held.lock().replicas.len()
    }
}

/// Removes all records of a partition, and that any were ever applied.
pub(crate) fn make_blank(table: &Table, partition: u32) -> Result<(), EngineError> {
    let mut payload = BytesMut::new();
    mutation::encode_clear(&mut payload);
    table.engine.write(&[Applied { partition, index: 0, payloads: &[payload.freeze()] }])
}

#[cfg(test)]
mod tests;
