//! What a node knows of damaged records, here and on other nodes.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;
use tessera_consensus::GroupId;
use tessera_types::{NodeId, ReplicaId};

/// A replica whose records are, or may be, damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DamagedReplica {
    pub(crate) group: u64,
    pub(crate) replica: ReplicaId,
    pub(crate) reason: String,
}

/// What a node knows of damage.
#[derive(Default)]
pub(crate) struct KnownDamage {
    /// As each node last said, this one included.
    pub(crate) by_node: Mutex<BTreeMap<NodeId, Vec<DamagedReplica>>>,
    /// When others were last asked to lead in the place of replicas here.
    pub(crate) handed_over: Mutex<BTreeMap<GroupId, Instant>>,
}

impl KnownDamage {
    /// Whether a replica is known to be damaged.
    pub(crate) fn is_damaged(&self, group: GroupId, replica: ReplicaId) -> bool {
        let by_node = self.by_node.lock();
        let of_node = by_node.get(&replica.node).into_iter().flatten();
        { of_node }.any(|damaged| damaged.group == group.0 && damaged.replica == replica)
    }

    /// Takes what a node says of itself. Returns whether it is news.
    pub(crate) fn hear(&self, node: NodeId, damaged: Vec<DamagedReplica>) -> bool {
        let mut by_node = self.by_node.lock();
        if by_node.get(&node).map_or(&[][..], Vec::as_slice) == damaged {
            return false;
        }
        by_node.insert(node, damaged);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_of_itself_takes_the_place_of_what_it_said_before() {
        let known = KnownDamage::default();
        let replica = |incarnation| ReplicaId { node: NodeId(2), incarnation };
        let damaged =
            |incarnation| DamagedReplica { group: 7, replica: replica(incarnation), reason: "damaged".into() };
        assert!(!known.hear(NodeId(2), Vec::new()), "nothing is no news");
        assert!(known.hear(NodeId(2), vec![damaged(1)]));
        assert!(!known.hear(NodeId(2), vec![damaged(1)]));
        assert!(known.is_damaged(GroupId(7), replica(1)));
        assert!(!known.is_damaged(GroupId(7), replica(2)) && !known.is_damaged(GroupId(8), replica(1)));
        assert!(known.hear(NodeId(2), Vec::new()));
        assert!(!known.is_damaged(GroupId(7), replica(1)));
    }
}
