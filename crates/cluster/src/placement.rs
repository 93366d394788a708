//! Which nodes a partition's replicas go to. Pure functions of the catalog: the same on every node.

mod weights;

use crate::{Catalog, CatalogCommand, Placement, TableEntry};
use std::collections::{BTreeMap, BTreeSet};
use tessera_types::{NodeId, ReplicaId, TableId};
pub use weights::{Weight, Weights, next_trade};

/// Replicas and leaders that a node has, or is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    replicas: usize,
    leaders: usize,
    witnesses: usize,
}

/// Where a partition's replicas go; the first keeper is to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) keepers: Vec<NodeId>,
    pub(crate) witness: Option<NodeId>,
}

/// So many replicas have a witness: with two votes the loss of one would stop writes.
const WITNESSED: usize = 2;

/// The load of nodes that may take replicas: each table is to be spread evenly, and all together.
#[derive(Clone, Debug)]
struct Loads {
    table: BTreeMap<NodeId, Load>,
    all: BTreeMap<NodeId, Load>,
    /// Of nodes that are in one.
    zones: BTreeMap<NodeId, String>,
}

fn count(loads: &mut BTreeMap<NodeId, Load>, nodes: &Nodes, change: isize) {
    for (at, node) in nodes.keepers.iter().enumerate() {
        if let Some(load) = loads.get_mut(node) {
            load.replicas = load.replicas.saturating_add_signed(change);
            load.leaders = load.leaders.saturating_add_signed(if at == 0 { change } else { 0 });
        }
    }
    if let Some(load) = nodes.witness.and_then(|node| loads.get_mut(&node)) {
        load.witnesses = load.witnesses.saturating_add_signed(change);
    }
}

impl Nodes {
    fn of(placement: &Placement) -> Self {
        let (witnesses, keepers): (Vec<ReplicaId>, Vec<ReplicaId>) =
            placement.wanted.iter().partition(|replica| replica.is_witness());
        Self {
            keepers: keepers.into_iter().map(|replica| replica.node).collect(),
            witness: witnesses.first().map(|replica| replica.node),
        }
    }
}

impl Loads {
    /// Of all tables, and of none yet.
    fn of(catalog: &Catalog, unfit: &BTreeSet<NodeId>) -> Self {
        let fit = |node: &NodeId| !unfit.contains(node) && catalog.node(*node).is_some_and(|node| !node.is_draining);
        let table: BTreeMap<_, _> =
            catalog.nodes().map(|node| node.id).filter(fit).map(|id| (id, Load::default())).collect();
        let mut all = table.clone();
        for placement in catalog.tables().flat_map(|table| &table.placement) {
            count(&mut all, &Nodes::of(placement), 1);
        }
        let in_zone = catalog.nodes().filter(|node| !node.site.zone.is_empty());
        let zones = in_zone.map(|node| (node.id, node.site.zone.clone())).collect();
        Self { table, all, zones }
    }

    /// From now on for this table.
    fn turn_to(&mut self, table: &TableEntry) {
        self.table.values_mut().for_each(|load| *load = Load::default());
        for placement in &table.placement {
            count(&mut self.table, &Nodes::of(placement), 1);
        }
    }

    fn count(&mut self, nodes: &Nodes, change: isize) {
        count(&mut self.table, nodes, change);
        count(&mut self.all, nodes, change);
    }

    /// Of a node: in the table, and in all.
    fn load(&self, node: NodeId) -> (Load, Load) {
        let of = |loads: &BTreeMap<NodeId, Load>| loads.get(&node).copied().unwrap_or_default();
        (of(&self.table), of(&self.all))
    }

    fn replicas(&self, node: NodeId) -> (usize, usize) {
        let (table, all) = self.load(node);
        (table.replicas, all.replicas)
    }

    fn leaders(&self, node: NodeId) -> (usize, usize) {
        let (table, all) = self.load(node);
        (table.leaders, all.leaders)
    }

    fn witnesses(&self, node: NodeId) -> (usize, usize) {
        let (table, all) = self.load(node);
        (table.witnesses, all.witnesses)
    }

    /// The node for a witness beside these replicas, not one of `taken`. What is there stays if it is good enough.
    fn witness(&self, keepers: &[NodeId], taken: &[NodeId], before: Option<NodeId>) -> Option<NodeId> {
        if keepers.len() != WITNESSED {
            return None;
        }
        let spare = self.table.keys().copied().filter(|node| !keepers.contains(node) && !taken.contains(node));
        let key = |node: &NodeId| (self.is_near(*node, keepers), self.witnesses(*node), self.replicas(*node), *node);
        let best = spare.min_by_key(key);
        let is_good = |before: &NodeId| {
            best.is_none_or(|best| {
                self.table.contains_key(before)
                    && self.is_near(*before, keepers) == self.is_near(best, keepers)
                    && !is_uneven(self.witnesses(*before), self.witnesses(best))
            })
        };
        before.filter(|before| !keepers.contains(before)).filter(is_good).or(best)
    }

    /// Nodes to join `others`: in zones of their own if there are some, then those with the fewest replicas, then those
    /// that lead least.
    fn least_loaded(&self, count: usize, others: &[NodeId]) -> Vec<NodeId> {
        let mut chosen = others.to_vec();
        for _ in 0..count {
            let spare = self.table.keys().copied().filter(|node| !chosen.contains(node));
            let key = |node: &NodeId| (self.is_near(*node, &chosen), self.replicas(*node), self.leaders(*node), *node);
            let Some(next) = spare.min_by_key(key) else { break };
            chosen.push(next);
        }
        chosen.split_off(others.len())
    }

    /// Whether a node is in a zone with one of `others`.
    fn is_near(&self, node: NodeId, others: &[NodeId]) -> bool {
        let zone = self.zones.get(&node);
        zone.is_some() && others.iter().any(|other| *other != node && self.zones.get(other) == zone)
    }
}

/// Whether something should go from one who has `most` to one who has `least`, each in the table and in all: if that makes
/// the table more even, or else all without making the table less so.
fn is_uneven(most: (usize, usize), least: (usize, usize)) -> bool {
    most.0 >= least.0 + 2 || (most.0 > least.0 && most.1 >= least.1 + 2)
}

/// Nodes for each partition of a new table; fewer than asked for if there are no more. The first of each is to lead.
pub(crate) fn of_new_table(catalog: &Catalog, partitions: u32, replicas: usize) -> Vec<Nodes> {
    let mut loads = Loads::of(catalog, &BTreeSet::new());
    // How often one node leads with another one beside it: those take over if it is lost, so they are not to be always the same.
    let mut beside: BTreeMap<(NodeId, NodeId), usize> = BTreeMap::new();
    let mut place = |_| {
        let mut keepers = loads.least_loaded(replicas, &[]);
        let together = keepers.clone();
        let often = |leader: NodeId| together.iter().filter_map(|other| beside.get(&(leader, *other))).sum::<usize>();
        keepers.sort_by_key(|node| (loads.leaders(*node), often(*node), loads.replicas(*node), *node));
        let witness = if replicas == WITNESSED { loads.witness(&keepers, &[], None) } else { None };
        let nodes = Nodes { keepers, witness };
        loads.count(&nodes, 1);
        if let Some((leader, others)) = nodes.keepers.split_first() {
            others.iter().for_each(|other| *beside.entry((*leader, *other)).or_default() += 1);
        }
        nodes
    };
    (0..partitions).map(&mut place).collect()
}

/// What to do next so that every partition has its replicas, on nodes that live and stay, evenly spread. `silent` nodes
/// are taken for lost. Returns at most `count` steps; each concerns another partition, none one that is still moving.
pub fn next_moves(catalog: &Catalog, silent: &BTreeSet<NodeId>, count: usize) -> Vec<CatalogCommand> {
    let mut loads = Loads::of(catalog, silent);
    let mut moves = Vec::new();
    for table in catalog.tables().filter(|table| !table.is_dropped()) {
        let replicas = usize::from(table.schema.replicas);
        loads.turn_to(table);
        for (partition, placement) in (0..).zip(&table.placement) {
            if moves.len() == count {
                return moves;
            }
            if !placement.is_moving()
                && let Some(nodes) = better(&mut loads, silent, catalog, placement, replicas)
            {
                moves.push(place(table.id, partition, nodes));
            }
        }
    }
    moves
}

fn place(table: TableId, partition: u32, Nodes { keepers, witness }: Nodes) -> CatalogCommand {
    CatalogCommand::Place { table, partition, nodes: keepers, witness }
}

/// Another node for a replica of one partition whose node is taken for lost, if there is one.
pub fn replacement(catalog: &Catalog, table: TableId, partition: u32, lost: NodeId) -> Option<CatalogCommand> {
    let silent = BTreeSet::from([lost]);
    let mut loads = Loads::of(catalog, &silent);
    let entry = catalog.get(table)?;
    loads.turn_to(entry);
    let placement = entry.placement.get(partition as usize).filter(|placement| !placement.is_moving())?;
    let nodes = better(&mut loads, &silent, catalog, placement, usize::from(entry.schema.replicas))?;
    Some(place(table, partition, nodes))
}

/// Better nodes for a partition, if there are some; the loads are then as if it had moved.
fn better(
    loads: &mut Loads,
    silent: &BTreeSet<NodeId>,
    catalog: &Catalog,
    placement: &Placement,
    replicas: usize,
) -> Option<Nodes> {
    let before = Nodes::of(placement);
    let nodes = if before.witness.is_some() && replicas != WITNESSED {
        // It goes first: its node may be needed.
        Nodes { witness: None, ..before.clone() }
    } else {
        // A witness and a replica do not follow one another on a node at one step.
        let keepers = keepers(loads, silent, catalog, &before, replicas);
        let is_drained = |node: &NodeId| catalog.node(*node).is_none_or(|node| node.is_draining);
        let witness = before.witness.filter(|node| !is_drained(node));
        let witness = if replicas == WITNESSED { loads.witness(&keepers, &before.keepers, witness) } else { None };
        Nodes { keepers, witness }
    };
    if nodes == before {
        return None;
    }
    loads.count(&before, -1);
    loads.count(&nodes, 1);
    Some(nodes)
}

fn keepers(
    loads: &Loads,
    silent: &BTreeSet<NodeId>,
    catalog: &Catalog,
    before: &Nodes,
    replicas: usize,
) -> Vec<NodeId> {
    let mut nodes = before.keepers.clone();
    let spares = |count: usize, nodes: &[NodeId]| {
        let others: Vec<_> = nodes.iter().chain(&before.witness).copied().collect();
        loads.least_loaded(count, &others)
    };
    let is_lost = |node: &NodeId| silent.contains(node) || catalog.node(*node).is_none_or(|node| node.is_draining);
    // A replica that cannot be replaced is better than none, unless its node is to be emptied and others remain.
    while let Some(lost) = nodes.iter().position(is_lost) {
        match spares(1, &nodes).first() {
            Some(spare) => nodes[lost] = *spare,
            None if nodes.len() > 1 && !silent.contains(&nodes[lost]) => _ = nodes.remove(lost),
            None => break,
        }
    }
    if nodes.len() < replicas {
        nodes.extend(spares(replicas - nodes.len(), &nodes));
    }
    while nodes.len() > replicas
        && let Some(most) = (0..nodes.len()).max_by_key(|at| loads.replicas(nodes[*at]))
    {
        nodes.remove(most);
    }
    if nodes == before.keepers {
        rebalance(loads, &mut nodes, before.witness);
    }
    nodes
}

/// Moves one replica, or else the leader, from who has most to who has least.
fn rebalance(loads: &Loads, nodes: &mut [NodeId], witness: Option<NodeId>) {
    // The one that shares a zone goes first; among equals, the one whose node has most.
    let worst = nodes.iter().copied().max_by_key(|node| (loads.is_near(*node, nodes), loads.replicas(*node)));
    if let Some(worst) = worst {
        let others: Vec<NodeId> = nodes.iter().copied().filter(|node| *node != worst).collect();
        let spare = loads.least_loaded(3, &others).into_iter().find(|spare| *spare != worst && Some(*spare) != witness);
        let gets_apart = |spare: NodeId| loads.is_near(worst, nodes) && !loads.is_near(spare, &others);
        let stays_apart = |spare: NodeId| loads.is_near(worst, nodes) || !loads.is_near(spare, &others);
        let is_better = |spare: &NodeId| {
            gets_apart(*spare) || (stays_apart(*spare) && is_uneven(loads.replicas(worst), loads.replicas(*spare)))
        };
        if let Some(spare) = spare.filter(is_better) {
            nodes.iter_mut().filter(|node| **node == worst).for_each(|node| *node = spare);
            return;
        }
    }
    let Some(least) = (0..nodes.len()).min_by_key(|at| (loads.leaders(nodes[*at]), *at)) else { return };
    if is_uneven(loads.leaders(nodes[0]), loads.leaders(nodes[least])) {
        nodes.swap(0, least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Site;
    use tessera_types::{Durability, EngineKind, Limits, Model, Partitioner, TableSchema, TableSettings};

    pub(super) fn cluster(nodes: u32) -> Catalog {
        let mut catalog = Catalog::of_new_cluster(Site::default());
        (1..nodes).for_each(|_| apply(&mut catalog, CatalogCommand::AddNode { site: Site::default() }));
        catalog
    }

    pub(super) fn apply(catalog: &mut Catalog, command: CatalogCommand) {
        catalog.apply(&command, &Limits::default()).unwrap();
    }

    pub(super) fn create(catalog: &mut Catalog, partitions: u32, replicas: u8) {
        let schema = TableSchema {
            engine: EngineKind::Rocksdb,
            partitions,
            partitioner: Partitioner::Crc64,
            model: Model::Kv,
            durability: Durability::Hard,
            replicas,
        };
        let settings = TableSettings::default();
        apply(catalog, CatalogCommand::Create { name: format!("t{partitions}"), schema, settings });
    }

    /// Moves until nothing is left to do; every move is taken for done at once. Returns how many there were.
    pub(super) fn settle(catalog: &mut Catalog, silent: &BTreeSet<NodeId>) -> usize {
        let mut moved = 0;
        loop {
            let moves = next_moves(catalog, silent, 3);
            if moves.is_empty() {
                return moved;
            }
            moved += moves.len();
            assert!(moved < 2_000, "no end: {moves:?}");
            for command in moves {
                let CatalogCommand::Place { table, partition, .. } = command else { panic!("{command:?}") };
                apply(catalog, command);
                let members = catalog.get(table).unwrap().placement[partition as usize].wanted.clone();
                apply(catalog, CatalogCommand::Moved { table, partition, members });
            }
        }
    }

    pub(super) fn check(catalog: &Catalog, silent: &BTreeSet<NodeId>) {
        let mut loads = Loads::of(catalog, silent);
        let spread = |loads: &BTreeMap<NodeId, Load>, of: fn(&Load) -> usize| {
            let all: Vec<_> = loads.values().map(of).collect();
            all.iter().max().unwrap() - all.iter().min().unwrap()
        };
        // A replica and a witness cannot change places, so with few nodes these stay a little less even.
        let slack = if loads.all.values().any(|load| load.witnesses > 0) { 4 } else { 0 };
        assert!(spread(&loads.all, |load| load.replicas) <= 2 + slack, "{loads:?}");
        for table in catalog.tables() {
            loads.turn_to(table);
            assert!(spread(&loads.table, |load| load.replicas) <= 1 + slack, "{loads:?}");
            assert!(spread(&loads.table, |load| load.leaders) <= 2, "{loads:?}");
            assert!(spread(&loads.table, |load| load.witnesses) <= 2 + slack, "{loads:?}");
        }
        for table in catalog.tables() {
            for placement in &table.placement {
                let nodes: BTreeSet<_> = placement.wanted.iter().map(|replica| replica.node).collect();
                assert_eq!(nodes.len(), placement.wanted.len(), "two replicas on a node");
                let votes = if table.schema.replicas == 2 { 3 } else { usize::from(table.schema.replicas) };
                assert_eq!(nodes.len(), votes.min(loads.all.len()), "{placement:?}");
                assert!(nodes.iter().all(|node| loads.all.contains_key(node)), "{placement:?}");
            }
        }
    }

    #[test]
    fn replicas_spread_follow_nodes_and_flee_lost_ones() {
        let none = BTreeSet::new();
        for (nodes, replicas) in [(1, 3), (2, 2), (3, 1), (3, 2), (3, 3), (5, 2), (5, 3), (7, 5)] {
            let mut catalog = cluster(nodes);
            create(&mut catalog, 64, replicas);
            settle(&mut catalog, &none);
            check(&catalog, &none);
            apply(&mut catalog, CatalogCommand::AddNode { site: Site::default() });
            settle(&mut catalog, &none);
            check(&catalog, &none);
            let silent = BTreeSet::from([NodeId(1)]);
            settle(&mut catalog, &silent);
            if nodes >= u32::from(replicas).max(3) {
                check(&catalog, &silent);
                assert_eq!(catalog.replicas_on(NodeId(1)), 0);
            }
            apply(&mut catalog, CatalogCommand::Drain { node: NodeId(1), is_draining: true });
            settle(&mut catalog, &none);
            assert_eq!(catalog.replicas_on(NodeId(1)), 0, "{nodes} nodes, {replicas} replicas");
            apply(&mut catalog, CatalogCommand::RemoveNode { node: NodeId(1) });
        }
    }

    #[test]
    fn who_takes_over_from_a_node_differs() {
        let mut catalog = cluster(3);
        create(&mut catalog, 24, 2);
        let placement = &catalog.by_name("t24").unwrap().placement;
        let led_by_first = placement.iter().map(Nodes::of).filter(|nodes| nodes.keepers[0] == NodeId(1));
        let heirs: Vec<NodeId> = led_by_first.map(|nodes| nodes.keepers[1]).collect();
        let second = heirs.iter().filter(|heir| **heir == NodeId(2)).count();
        assert!(heirs.len() == 8 && second == 4, "{heirs:?}");
    }

    #[test]
    fn replicas_keep_to_different_zones() {
        let none = BTreeSet::new();
        let mut catalog = cluster(6);
        create(&mut catalog, 32, 3);
        settle(&mut catalog, &none);
        for node in 1..=6 {
            let site = Site { zone: ["a", "b", "c"][node as usize % 3].into(), ..Site::default() };
            apply(&mut catalog, CatalogCommand::SetSite { node: NodeId(node), site });
        }
        settle(&mut catalog, &none);
        check(&catalog, &none);
        let zone = |replica: &tessera_types::ReplicaId| catalog.node(replica.node).unwrap().site.zone.clone();
        for placement in catalog.tables().flat_map(|table| &table.placement) {
            let zones: BTreeSet<_> = placement.wanted.iter().map(zone).collect();
            assert_eq!(zones.len(), placement.wanted.len(), "{placement:?}");
        }
        // A zone that is lost leaves two; what must be near is better than none.
        let silent = BTreeSet::from([NodeId(1), NodeId(4)]);
        settle(&mut catalog, &silent);
        check(&catalog, &silent);
    }

    #[test]
    fn a_new_replica_on_a_node_is_another_one() {
        let mut catalog = cluster(2);
        create(&mut catalog, 1, 1);
        let place = |nodes: &[u32]| CatalogCommand::Place {
            table: TableId(1),
            partition: 0,
            nodes: nodes.iter().map(|node| NodeId(*node)).collect(),
            witness: None,
        };
        let first = catalog.get(TableId(1)).unwrap().placement[0].wanted[0];
        let other = 3 - first.node.0;
        apply(&mut catalog, place(&[first.node.0, other]));
        assert_eq!(catalog.get(TableId(1)).unwrap().placement[0].wanted[0], first, "what is there stays");
        let wanted = catalog.get(TableId(1)).unwrap().placement[0].wanted.clone();
        apply(&mut catalog, place(&[other]));
        apply(&mut catalog, CatalogCommand::Moved { table: TableId(1), partition: 0, members: vec![wanted[1]] });
        apply(&mut catalog, place(&[first.node.0]));
        let again = catalog.get(TableId(1)).unwrap().placement[0].wanted[0];
        assert!(again.node == first.node && again != first);
    }

    #[test]
    fn the_number_of_replicas_changes_a_vote_at_a_time() {
        let none = BTreeSet::new();
        let mut catalog = cluster(3);
        create(&mut catalog, 16, 2);
        for replicas in [3, 2, 1, 2, 3, 1] {
            apply(&mut catalog, CatalogCommand::SetReplicas { name: "t16".into(), replicas });
            settle(&mut catalog, &none);
            check(&catalog, &none);
        }
    }

    #[test]
    fn a_lost_replica_does_not_take_the_place_of_the_witness() {
        let mut catalog = cluster(3);
        create(&mut catalog, 16, 2);
        settle(&mut catalog, &BTreeSet::from([NodeId(2)]));
        for placement in &catalog.get(TableId(1)).unwrap().placement {
            assert_eq!(placement.wanted.iter().filter(|replica| replica.is_witness()).count(), 1);
        }
    }
}
