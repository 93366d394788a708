//! Drains of nodes that do not go on.

use serde::Serialize;
use std::collections::BTreeSet;
use tessera_cluster::{Catalog, NodeEntry};
use tessera_types::NodeId;

/// A drain that waits for nodes that are silent. If no other node could take the replicas, were it there, they are given up without
/// another in their place, and nothing waits.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StuckDrain {
    /// How many replicas stay on the node.
    replicas: usize,
    /// The nodes that could take them.
    waits_for: BTreeSet<NodeId>,
}

impl StuckDrain {
    pub(crate) fn of(catalog: &Catalog, drained: &NodeEntry, is_silent: impl Fn(NodeId) -> bool) -> Option<Self> {
        if !drained.is_draining {
            return None;
        }
        let may_take = |node: &&NodeEntry| !node.is_draining && !node.is_expected;
        let (silent, live): (BTreeSet<_>, BTreeSet<_>) =
            catalog.nodes().filter(may_take).map(|node| node.id).partition(|node| is_silent(*node));
        let mut found = Self { replicas: 0, waits_for: BTreeSet::new() };
        for placement in catalog.tables().flat_map(|table| &table.placement) {
            let has_room = |node: &&NodeId| placement.on(**node).is_none();
            let is_here = placement.current.iter().any(|replica| replica.node == drained.id);
            if !is_here || placement.is_moving() || live.iter().any(|node| has_room(&node)) {
                continue;
            }
            found.replicas += usize::from(silent.iter().any(|node| has_room(&node)));
            found.waits_for.extend(silent.iter().filter(has_room));
        }
        (found.replicas > 0).then_some(found)
    }

    /// Tells operators what the drain waits for, and what they can do.
    pub(crate) fn describe(&self, drained: NodeId) -> String {
        let nodes: Vec<_> = self.waits_for.iter().map(|node| format!("node {node}")).collect();
        format!(
            "node {drained} is being drained, and of the nodes that could take its replicas of {} partitions none is there: start {} \
             again, or drain it as well (`tessera node drain`) if it is lost, or end the wait with `tessera node drain {drained} --undo`",
            self.replicas,
            nodes.join(" or ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_cluster::{CatalogCommand, Site};
    use tessera_types::{EngineKind, Limits, TableId};

    /// Such a drain once waited for ever, and `status` said that there was no issue.
    #[test]
    fn a_drain_that_waits_for_silent_nodes_is_stuck() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Memory);
        let apply = |catalog: &mut Catalog, command| catalog.apply(&command, &Limits::default()).unwrap();
        for id in [2, 3] {
            apply(&mut catalog, CatalogCommand::AddNode { site: Site::default(), token: None });
            apply(&mut catalog, CatalogCommand::Arrived { node: NodeId(id), has_vote: true });
        }
        let replicas = catalog.get(TableId(0)).unwrap().placement.len();
        let stuck = |catalog: &Catalog, silent: &[u32]| {
            StuckDrain::of(catalog, catalog.node(NodeId(1)).unwrap(), |node| silent.contains(&node.0))
        };
        assert_eq!(stuck(&catalog, &[2, 3]), None, "nobody drains it");
        apply(&mut catalog, CatalogCommand::Drain { node: NodeId(1), is_draining: true });
        assert_eq!(stuck(&catalog, &[]), None);
        assert_eq!(stuck(&catalog, &[3]), None, "the other one takes them");
        let waits_for = BTreeSet::from([NodeId(2), NodeId(3)]);
        assert_eq!(stuck(&catalog, &[2, 3]), Some(StuckDrain { replicas, waits_for }));
        apply(&mut catalog, CatalogCommand::RemoveNode { node: NodeId(3) });
        let stuck = stuck(&catalog, &[2]).unwrap();
        assert_eq!((stuck.replicas, stuck.waits_for.len()), (replicas, 1));
        assert!(stuck.describe(NodeId(1)).contains("start node 2 again"));
    }
}
