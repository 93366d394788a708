//! Which replicas this node holds. The catalog says which it is to hold; a replica begins blank, is written down before it
//! takes part in anything, and is forgotten before its node takes another one of the same partition. So a replica never
//! goes on with what an earlier one left behind.

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
use tessera_types::{ReplicaId, TableId};

/// The file of what is held.
pub(crate) struct Replicas {
    path: PathBuf,
    held: Mutex<Held>,
    /// Groups that a worker still has although their replica goes.
    leaving: Mutex<HashSet<GroupId>>,
}

#[derive(Default)]
struct Held {
    replicas: BTreeMap<u64, ReplicaId>,
    running: HashSet<GroupId>,
    /// Whether the file says something else.
    is_unsaved: bool,
}

impl Replicas {
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        let replicas = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        let held = Mutex::new(Held { replicas, ..Held::default() });
        Ok(Self { path: path.to_path_buf(), held, leaving: Mutex::default() })
    }

    fn save(&self, held: &mut Held) -> Result<(), EngineError> {
        if held.is_unsaved {
            tessera_cluster::save_json(&self.path, &held.replicas).map_err(EngineError::io(&self.path))?;
            held.is_unsaved = false;
        }
        Ok(())
    }

    /// The worker has let go of the group, and its records are gone.
    pub(crate) fn left(&self, group: GroupId) {
        self.leaving.lock().remove(&group);
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
                if let Entry::Vacant(place) = held.replicas.entry(group.0) {
                    if self.replicas.leaving.lock().contains(&group) {
                        continue;
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
            held.running.insert(group_of(table.id, partition));
            self.inbox_of(table.id, partition).start(self.group_start(&table, partition, due, placement));
        }
        outcome
    }

    fn group_start(&self, table: &Table, partition: u32, replica: ReplicaId, placement: &Placement) -> GroupStart {
        let id = group_of(table.id, partition);
        let is_founder = placement.founders.contains(&replica);
        let settings = GroupSettings {
            persistent: table.schema.is_persistent(),
            applied: table.engine.applied_index(partition),
            replica,
            founders: if is_founder { placement.founders.clone() } else { Vec::new() },
        };
        GroupStart { id, settings, recovered: self.recovered.lock().remove(&id).unwrap_or_default() }
    }

    fn leave(&self, held: &mut Held, group: GroupId, table: &Table, partition: u32) {
        held.is_unsaved |= held.replicas.remove(&group.0).is_some();
        table.partitions[partition as usize].is_serving.store(false, Ordering::Release);
        if held.running.remove(&group) {
            self.replicas.leaving.lock().insert(group);
            self.inbox_of(table.id, partition).remove(group);
        } else if self.recovered.lock().remove(&group).is_some() {
            self.log.submit(LogBatch { records: vec![LogRecord::Removed { group }], ..Default::default() });
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
