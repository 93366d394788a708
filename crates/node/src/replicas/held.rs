//! The list of replicas that a node holds, and the file of it.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use tessera_consensus::{GroupId, Inconsistent};
use tessera_engine::EngineError;
use tessera_types::ReplicaId;

/// The file of what is held.
pub(crate) struct Replicas {
    path: PathBuf,
    /// Locked while the set of replicas is changed and written to disk. A worker's loop never takes this lock.
    pub(crate) settling: Mutex<()>,
    /// Held for a moment only: loops look at it.
    pub(super) held: Mutex<Held>,
    /// Groups that a worker still has although their replica goes.
    pub(super) leaving: Mutex<HashSet<GroupId>>,
    /// Groups whose replica here cannot go on, and why.
    pub(super) aside: Mutex<BTreeMap<GroupId, Aside>>,
    /// Groups that the log was told to forget, and may not have on disk yet.
    pub(super) forgotten: Mutex<HashSet<GroupId>>,
}

/// Why a replica is set aside.
#[derive(Clone)]
pub(crate) struct Aside {
    pub(crate) reason: String,
    /// Whether it lacks what it had acknowledged, however durable that was.
    pub(crate) lacks_acknowledged: bool,
}

#[derive(Default)]
pub(super) struct Held {
    pub(super) replicas: BTreeMap<u64, ReplicaId>,
    /// Those of `replicas` that are from before this process began, and were not started since.
    pub(super) earlier: HashSet<GroupId>,
    pub(super) running: HashSet<GroupId>,
    /// Groups of which room is being made: nobody begins a replica of theirs meanwhile.
    pub(super) clearing: HashSet<GroupId>,
    /// Those that the catalog wants here and that are not held, although others may have heard of them before.
    pub(super) shunned: BTreeMap<u64, ReplicaId>,
    /// Whether the file says something else.
    pub(super) is_unsaved: bool,
}

impl Replicas {
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        let replicas: BTreeMap<u64, ReplicaId> = tessera_cluster::load_json(path)?.unwrap_or_default();
        let earlier = replicas.keys().map(|group| GroupId(*group)).collect();
        let held = Mutex::new(Held { replicas, earlier, ..Held::default() });
        let (leaving, aside, forgotten) = Default::default();
        Ok(Self { path: path.to_path_buf(), settling: Mutex::default(), held, leaving, aside, forgotten })
    }

    /// Writes down which replicas there are, if that has changed. Nobody else changes it meanwhile.
    pub(super) fn save(&self, _settling: &MutexGuard<'_, ()>) -> Result<(), EngineError> {
        let replicas = {
            let held = self.held.lock();
            if !held.is_unsaved {
                return Ok(());
            }
            held.replicas.clone()
        };
        tessera_cluster::save_json(&self.path, &replicas).map_err(EngineError::io(&self.path))?;
        self.held.lock().is_unsaved = false;
        Ok(())
    }

    /// Does something if a replica of this group is here, and does not begin to go meanwhile.
    pub(crate) fn if_held(&self, group: GroupId, act: impl FnOnce()) {
        let held = self.held.lock();
        if held.replicas.contains_key(&group.0) {
            act();
        }
    }

    /// Whether this node holds a replica of the group.
    pub(crate) fn is_held(&self, group: GroupId) -> bool {
        self.held.lock().replicas.contains_key(&group.0)
    }

    /// The replica of the group that this node holds, if it has records.
    pub(crate) fn with_records(&self, group: GroupId) -> Option<ReplicaId> {
        self.held.lock().replicas.get(&group.0).copied().filter(|replica| !replica.is_witness())
    }

    /// Whether the worker still has the group although its replica goes.
    pub(crate) fn is_leaving(&self, group: GroupId) -> bool {
        self.leaving.lock().contains(&group)
    }

    /// Whether somebody here may still write records of the group: the worker, or who makes room for another replica.
    pub(crate) fn is_written(&self, group: GroupId) -> bool {
        self.is_leaving(group) || self.held.lock().clearing.contains(&group)
    }

    /// The worker has let go of the group, and its records are gone.
    pub(crate) fn left(&self, group: GroupId) {
        self.forgotten.lock().insert(group);
        self.leaving.lock().remove(&group);
    }

    /// The replica here cannot go on, for that reason.
    pub(crate) fn set_aside(&self, group: GroupId, reason: &Inconsistent) {
        let lacks_acknowledged = matches!(reason, Inconsistent::Forgotten { .. });
        self.aside.lock().insert(group, Aside { reason: reason.to_string(), lacks_acknowledged });
    }

    pub(crate) fn is_aside(&self, group: GroupId) -> bool {
        self.aside.lock().contains_key(&group)
    }

    /// Another replica takes the place of the one that could not go on.
    pub(crate) fn is_replaced(&self, group: GroupId) {
        self.aside.lock().remove(&group);
    }

    /// Replicas here that cannot go on, and why. The catalog's own may be among them, which has no number.
    pub(crate) fn all_aside(&self) -> Vec<(GroupId, Option<ReplicaId>, Aside)> {
        let (held, aside) = (self.held.lock(), self.aside.lock());
        aside.iter().map(|(group, aside)| (*group, held.replicas.get(&group.0).copied(), aside.clone())).collect()
    }

    /// Has a group count as one whose room is being made, or no longer.
    #[cfg(test)]
    pub(crate) fn set_clearing(&self, group: GroupId, is_clearing: bool) {
        let clearing = &mut self.held.lock().clearing;
        _ = if is_clearing { clearing.insert(group) } else { clearing.remove(&group) };
    }

    /// How many replicas this node holds.
    pub(crate) fn held(&self) -> usize {
        self.held.lock().replicas.len()
    }
}
