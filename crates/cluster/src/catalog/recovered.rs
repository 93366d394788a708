//! How the catalog continues without nodes that are gone for good, when an operator has decided so. [`crate::recovery`]
//! makes the decisions and explains them.

use super::{Catalog, Placement};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tessera_types::{ClusterId, NodeId, ReplicaId, TableId, UnixMillis};

/// A recovery: without which nodes an operator let the cluster continue, and the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryNote {
    /// When the recovery was decided.
    pub at: UnixMillis,
    /// The nodes that were given up.
    pub lost: Vec<NodeId>,
    /// The name that the cluster had before. A node that still has this name did not take part in the recovery.
    pub from: ClusterId,
    /// The number of partitions that continued with one replica, because most of the others were lost.
    pub alone: usize,
    /// How many of these may lack acknowledged writes.
    pub may_lack: usize,
    /// The number of partitions of which no records were left.
    pub begun_anew: usize,
}

/// The outcome for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A majority of its replicas remains.
    Keeps,
    /// This replica is its only member from now on.
    Alone(ReplicaId),
    /// It starts again on this node, empty.
    Anew(NodeId),
}

/// How many incarnations are skipped, because the lost nodes may have heard of some that are not known here.
const UNKNOWN_INCARNATIONS: u32 = 1 << 16;

impl Placement {
    fn alone(&self, replica: ReplicaId) -> Self {
        Self { version: self.version + 1, ..Self::of_initial_members(vec![replica]) }
    }

    /// Removes lost nodes from the target members; the group's leader then changes its members accordingly.
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
    /// Removes the lost nodes, and applies the decision for each partition, in the order of tables and partitions. The
    /// catalog's replicas have `incarnation` from now on.
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

    /// The recoveries that operators decided, the latest last.
    pub fn recoveries(&self) -> &[RecoveryNote] {
        &self.recoveries
    }
}
