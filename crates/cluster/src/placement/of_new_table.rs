//! Placing the replicas of a new table.

use super::loads::{Loads, WITNESSED};
use super::nodes::Nodes;
use crate::rules::{Rule, holds};
use crate::{NodeEntry, TableEntry};
use std::collections::{BTreeMap, BTreeSet};
use tessera_types::NodeId;

/// Chooses nodes for each partition of a new table, fewer than asked for if there are no more. The first node of each
/// partition should lead. `absent` nodes get no replicas as long as there are others.
pub(crate) fn of_new_table(
    nodes: &[&NodeEntry],
    tables: &[&TableEntry],
    partitions: u32,
    replicas: usize,
    absent: &BTreeSet<NodeId>,
) -> Vec<Nodes> {
    let mut loads = Loads::of(nodes, tables, absent);
    if loads.fit().next().is_none() {
        // A node that is being drained is better than one that is not alive.
        loads = Loads::of_nodes(nodes, tables, |node| !absent.contains(&node.id) && !node.is_expected);
    }
    if !holds(Rule::PlacedOnTheLiving) {
        loads = Loads::of(nodes, tables, &BTreeSet::new());
    }
    // How often one node leads with another one as follower. The followers take over if the leader's node is lost, so
    // they should not always be the same.
    let mut beside: BTreeMap<(NodeId, NodeId), usize> = BTreeMap::new();
    let mut place = |_| {
        let mut data_replicas = loads.least_loaded(replicas, &[]);
        let together = data_replicas.clone();
        let often = |leader: NodeId| together.iter().filter_map(|other| beside.get(&(leader, *other))).sum::<usize>();
        data_replicas.sort_by_key(|node| (loads.leaders(*node), often(*node), loads.replicas(*node), *node));
        let witness = if replicas == WITNESSED { loads.witness(&data_replicas, &[], None) } else { None };
        let nodes = Nodes { data_replicas, witness };
        loads.count(&nodes, 1);
        if let Some((leader, others)) = nodes.data_replicas.split_first() {
            others.iter().for_each(|other| *beside.entry((*leader, *other)).or_default() += 1);
        }
        nodes
    };
    (0..partitions).map(&mut place).collect()
}
