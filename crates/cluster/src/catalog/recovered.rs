//! How the catalog goes on when nodes that made up a majority are gone for good, by an operator's word. What is decided, and why,
//! is in [`crate::recovery`].

use super::{Catalog, Placement};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tessera_types::{ClusterId, NodeId, ReplicaId, TableId, UnixMillis};

/// That somebody had the cluster go on without nodes that are lost, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryNote {
    pub at: UnixMillis,
    pub lost: Vec<NodeId>,
    /// The name that the cluster had before. Who still has it was not there.
    pub from: ClusterId,
    /// Partitions that went on with one replica, since most of the others were lost.
    pub alone: usize,
    /// How many of these may lack what was acknowledged.
    pub may_lack: usize,
    /// Partitions of which nothing was left.
    pub begun_anew: usize,
}

/// What becomes of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A majority of its replicas is left.
    Keeps,
    /// This replica is its only member from now on.
    Alone(ReplicaId),
    /// It begins anew on this node, empty.
    Anew(NodeId),
}

/// Incarnations that are left out, since the nodes that are lost may have heard of some that are not known here.
const UNKNOWN_INCARNATIONS: u32 = 1 << 16;

impl Placement {
    fn alone(&self, replica: ReplicaId) -> Self {
        Self { version: self.version + 1, ..Self::of_initial_members(vec![replica]) }
    }

    /// Wants nothing on nodes that are lost. Those that lead the group make that so.
    fn without(&mut self, lost: &BTreeSet<NodeId>) {
        let is_left = |replica: &ReplicaId| !lost.contains(&replica.node);
        let mut target: Vec<_> = self.target.iter().copied().filter(is_left).collect();
        if target.iter().all(|replica| replica.is_witness()) {
            target = self.current.iter().copied().filter(is_left).collect();
        }
        if target != self.target {
            self.set_target(target);
        }
        self.given_up.retain(is_left);
        self.amnesiac.retain(|it| is_left(&it.replica));
    }
}

impl Catalog {
    /// Forgets nodes that are lost, and has each partition go on as was decided, in the order of tables and partitions.
    /// `incarnation` is that of the catalog's replicas from now on.
    pub(crate) fn go_on_without(
        &mut self,
        lost: &BTreeSet<NodeId>,
        incarnation: u32,
        fates: &[(TableId, u32, Fate)],
        note: RecoveryNote,
    ) {
        self.nodes.retain(|node, _| !lost.contains(node));
        self.catalog_replicas = self.nodes.keys().map(|node| (*node, incarnation)).collect();
        self.next_incarnation += UNKNOWN_INCARNATIONS;
        for (table, partition, fate) in fates {
            let begins = match fate {
                Fate::Anew(node) => Some(self.new_replica(*node, false)),
                Fate::Keeps | Fate::Alone(_) => None,
            };
            let Ok(placement) = self.placement(*table, *partition) else { continue };
            match (fate, begins) {
                (Fate::Alone(replica), _) => *placement = placement.alone(*replica),
                (_, Some(replica)) => *placement = placement.alone(replica),
                _ => placement.without(lost),
            }
        }
        self.recoveries.push(note);
    }

    /// What operators had the cluster go on without, the latest last.
    pub fn recoveries(&self) -> &[RecoveryNote] {
        &self.recoveries
    }
}
