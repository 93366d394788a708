//! How many replicas, leaders and witnesses nodes have.

use super::nodes::Nodes;
use crate::rules::{Rule, holds};
use crate::{NodeEntry, TableEntry};
use std::collections::{BTreeMap, BTreeSet};
use tessera_types::NodeId;

/// How many replicas, leaders and witnesses a node has, or should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    replicas: usize,
    leaders: usize,
    witnesses: usize,
}

/// Tables with this many replicas get a witness: with two votes, losing one would stop writes.
pub(super) const WITNESSED: usize = 2;

/// The load of the nodes that may take replicas. Each table should be spread evenly, and so should all tables together.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    table: BTreeMap<NodeId, Load>,
    all: BTreeMap<NodeId, Load>,
    /// The zones of the nodes that are in one.
    zones: BTreeMap<NodeId, String>,
}

/// Whether a node may hold replicas, whether it is alive now or not.
pub(super) fn may_hold(node: &NodeEntry) -> bool {
    !node.is_draining && (!node.is_expected || !holds(Rule::PlacedOnTheLiving))
}

fn count(loads: &mut BTreeMap<NodeId, Load>, nodes: &Nodes, change: isize) {
    for (at, node) in nodes.data_replicas.iter().enumerate() {
        if let Some(load) = loads.get_mut(node) {
            load.replicas = load.replicas.saturating_add_signed(change);
            load.leaders = load.leaders.saturating_add_signed(if at == 0 { change } else { 0 });
        }
    }
    if let Some(load) = nodes.witness.and_then(|node| loads.get_mut(&node)) {
        load.witnesses = load.witnesses.saturating_add_signed(change);
    }
}

impl Loads {
    /// Counts the load of all tables together; [`Self::turn_to`] adds that of one table. `unfit` nodes get no replicas.
    pub(super) fn of(nodes: &[&NodeEntry], tables: &[&TableEntry], unfit: &BTreeSet<NodeId>) -> Self {
        Self::of_nodes(nodes, tables, |node| !unfit.contains(&node.id) && may_hold(node))
    }

    /// Does the same as [`Self::of`], with the nodes for which `is_fit` is true.
    pub(super) fn of_nodes(nodes: &[&NodeEntry], tables: &[&TableEntry], is_fit: impl Fn(&NodeEntry) -> bool) -> Self {
        let fit = nodes.iter().filter(|node| is_fit(node));
        let table: BTreeMap<_, _> = fit.map(|node| (node.id, Load::default())).collect();
        let mut all = table.clone();
        for placement in tables.iter().flat_map(|table| &table.placement) {
            count(&mut all, &Nodes::of(placement), 1);
        }
        let in_zone = nodes.iter().filter(|node| !node.site.zone.is_empty());
        let zones = in_zone.map(|node| (node.id, node.site.zone.clone())).collect();
        Self { table, all, zones }
    }

    /// Recomputes the per-table load for `table`.
    pub(super) fn turn_to(&mut self, table: &TableEntry) {
        self.table.values_mut().for_each(|load| *load = Load::default());
        for placement in &table.placement {
            count(&mut self.table, &Nodes::of(placement), 1);
        }
    }

    pub(super) fn count(&mut self, nodes: &Nodes, change: isize) {
        count(&mut self.table, nodes, change);
        count(&mut self.all, nodes, change);
    }

    /// The nodes that may take replicas.
    pub(super) fn fit(&self) -> impl Iterator<Item = NodeId> {
        self.table.keys().copied()
    }

    pub(super) fn is_fit(&self, node: NodeId) -> bool {
        self.table.contains_key(&node)
    }

    /// The load of a node: of the table, and of all tables.
    fn load(&self, node: NodeId) -> (Load, Load) {
        let of = |loads: &BTreeMap<NodeId, Load>| loads.get(&node).copied().unwrap_or_default();
        (of(&self.table), of(&self.all))
    }

    pub(super) fn replicas(&self, node: NodeId) -> (usize, usize) {
        let (table, all) = self.load(node);
        (table.replicas, all.replicas)
    }

    pub(super) fn leaders(&self, node: NodeId) -> (usize, usize) {
        let (table, all) = self.load(node);
        (table.leaders, all.leaders)
    }

    pub(super) fn witnesses(&self, node: NodeId) -> (usize, usize) {
        let (table, all) = self.load(node);
        (table.witnesses, all.witnesses)
    }

    /// The node for a witness of these data replicas, not one of `taken`. The present node stays if it is good enough.
    pub(super) fn witness(&self, data_replicas: &[NodeId], taken: &[NodeId], before: Option<NodeId>) -> Option<NodeId> {
        if data_replicas.len() != WITNESSED {
            return None;
        }
        let spare = self.table.keys().copied().filter(|node| !data_replicas.contains(node) && !taken.contains(node));
        let key =
            |node: &NodeId| (self.is_near(*node, data_replicas), self.witnesses(*node), self.replicas(*node), *node);
        let best = spare.min_by_key(key);
        let is_good = |before: &NodeId| {
            best.is_none_or(|best| {
                self.table.contains_key(before)
                    && self.is_near(*before, data_replicas) == self.is_near(best, data_replicas)
                    && !is_uneven(self.witnesses(*before), self.witnesses(best))
            })
        };
        before.filter(|before| !data_replicas.contains(before)).filter(is_good).or(best)
    }

    /// Chooses `count` nodes in addition to `others`: first nodes in other zones, then those with the fewest replicas,
    /// then those with the fewest leaders.
    pub(super) fn least_loaded(&self, count: usize, others: &[NodeId]) -> Vec<NodeId> {
        let mut chosen = others.to_vec();
        for _ in 0..count {
            let spare = self.table.keys().copied().filter(|node| !chosen.contains(node));
            let key = |node: &NodeId| (self.is_near(*node, &chosen), self.replicas(*node), self.leaders(*node), *node);
            let Some(next) = spare.min_by_key(key) else { break };
            chosen.push(next);
        }
        chosen.split_off(others.len())
    }

    /// Whether a node is in the same zone as one of `others`.
    pub(super) fn is_near(&self, node: NodeId, others: &[NodeId]) -> bool {
        let zone = self.zones.get(&node);
        zone.is_some() && others.iter().any(|other| *other != node && self.zones.get(other) == zone)
    }
}

/// Whether a replica or leader should move from the node that has `most` to the node that has `least`, each counted in
/// the table and in all tables: if that makes the table more even, or makes all tables more even without making this
/// one less so.
pub(super) fn is_uneven(most: (usize, usize), least: (usize, usize)) -> bool {
    most.0 >= least.0 + 2 || (most.0 > least.0 && most.1 >= least.1 + 2)
}
