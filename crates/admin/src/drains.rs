//! Drains of nodes that do not go on.

use serde::Serialize;
use std::collections::BTreeSet;
use tessera_cluster::{Catalog, NodeEntry, Placement};
use tessera_types::NodeId;

/// A drain that waits for nodes that are silent: they could take replicas, or they have others of the same partitions. Where no other node
/// could take a replica, were it there, the replica is given up without another in its place, as soon as those that are left are enough.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StuckDrain {
    /// How many replicas stay on the node.
    replicas: usize,
    /// How many of these are to be given up without another in their place.
    given_up: usize,
    /// The nodes for which they wait.
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
        let mut found = Self { replicas: 0, given_up: 0, waits_for: BTreeSet::new() };
        for placement in catalog.tables().flat_map(|table| &table.placement) {
            // A witness gives way to a replica.
            let has_room = |node: &&NodeId| placement.on(**node).is_none_or(|replica| replica.is_witness());
            let is_here = placement.current.iter().any(|replica| replica.node == drained.id);
            if !is_here {
                continue;
            }
            if placement.is_moving() {
                let needed = needed_to_leave(placement, drained.id, &is_silent);
                found.replicas += usize::from(!needed.is_empty());
                found.given_up += usize::from(!needed.is_empty());
                found.waits_for.extend(needed);
            } else if !live.iter().any(|node| has_room(&node)) {
                found.replicas += usize::from(silent.iter().any(|node| has_room(&node)));
                found.waits_for.extend(silent.iter().filter(has_room));
            }
        }
        (found.replicas > 0).then_some(found)
    }

    /// Tells operators what the drain waits for, and what they can do.
    pub(crate) fn describe(&self, drained: NodeId) -> String {
        let nodes: Vec<_> = self.waits_for.iter().map(|node| format!("node {node}")).collect();
        if self.given_up > 0 {
            let nodes = nodes.join(" and ");
            return format!(
                "node {drained} is being drained, and its replicas of {} partitions stay as long as too few others are there without \
                 {nodes}: start {nodes} again, or let another node join if one is lost, or end the wait with `tessera node drain \
                 {drained} --undo`",
                self.replicas
            );
        }
        format!(
            "node {drained} is being drained, and of the nodes that could take its replicas of {} partitions none is there: start {} \
             again, or drain it as well (`tessera node drain`) if it is lost, or end the wait with `tessera node drain {drained} --undo`",
            self.replicas,
            nodes.join(" or ")
        )
    }
}

/// The silent nodes without which a replica that only leaves has to stay. A move that brings another replica in its place goes on without
/// them, or is soon given up.
fn needed_to_leave(placement: &Placement, drained: NodeId, is_silent: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
    let only_leaves = placement.target.iter().all(|replica| placement.current.contains(replica));
    if !only_leaves || placement.target.iter().any(|replica| replica.node == drained) {
        return Vec::new();
    }
    placement.target.iter().map(|replica| replica.node).filter(|node| is_silent(*node)).collect()
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
        assert_eq!(stuck(&catalog, &[2, 3]), Some(StuckDrain { replicas, given_up: 0, waits_for }));
        apply(&mut catalog, CatalogCommand::RemoveNode { node: NodeId(3) });
        let stuck = stuck(&catalog, &[2]).unwrap();
        assert_eq!((stuck.replicas, stuck.waits_for.len()), (replicas, 1));
        assert!(stuck.describe(NodeId(1)).contains("start node 2 again"));
    }

    /// Where no node could take the replicas, their removal counts as a move, and `status` once said nothing of what it waits for.
    #[test]
    fn a_drain_that_cannot_do_without_silent_nodes_is_stuck() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Memory);
        let apply = |catalog: &mut Catalog, command| catalog.apply(&command, &Limits::default()).unwrap();
        for id in [2, 3, 4] {
            apply(&mut catalog, CatalogCommand::AddNode { site: Site::default(), token: None });
            apply(&mut catalog, CatalogCommand::Arrived { node: NodeId(id), has_vote: true });
        }
        let table = TableId(0);
        let place = |catalog: &mut Catalog, nodes: &[u32]| {
            let nodes = nodes.iter().map(|node| NodeId(*node)).collect();
            apply(catalog, CatalogCommand::Place { table, partition: 0, nodes, witness: None });
        };
        place(&mut catalog, &[1, 2, 3]);
        let placement = catalog.get(table).unwrap().placement[0].clone();
        apply(&mut catalog, CatalogCommand::moved(table, 0, &placement));
        apply(&mut catalog, CatalogCommand::Drain { node: NodeId(3), is_draining: true });
        let stuck = |catalog: &Catalog, silent: &[u32]| {
            StuckDrain::of(catalog, catalog.node(NodeId(3)).unwrap(), |node| silent.contains(&node.0))
        };
        place(&mut catalog, &[1, 2]);
        let waits_for = BTreeSet::from([NodeId(2)]);
        let expected = StuckDrain { replicas: 1, given_up: 1, waits_for };
        assert_eq!(stuck(&catalog, &[2]), Some(expected));
        assert_eq!(stuck(&catalog, &[4]), None, "it is not needed");
        let words = stuck(&catalog, &[2]).unwrap().describe(NodeId(3));
        assert!(words.contains("without node 2: start node 2 again") && words.contains("drain 3 --undo"), "{words}");
        place(&mut catalog, &[1, 2, 4]);
        assert_eq!(stuck(&catalog, &[2]), None, "another one takes its place meanwhile");
        place(&mut catalog, &[1, 2, 3]);
        assert_eq!(stuck(&catalog, &[2]), None, "it stays");
    }
}
