//! Placement: which nodes hold the replicas of a partition. All functions are pure functions of the catalog, so their
//! results are the same on every node.

mod loads;
mod nodes;
mod of_new_table;
mod weights;

use crate::rules::{Rule, holds};
use crate::{Catalog, CatalogCommand, Placement, Presence, Standing, TableEntry};
use loads::{Loads, WITNESSED, is_uneven, may_hold};
pub(crate) use nodes::Nodes;
pub(crate) use of_new_table::of_new_table;
use std::collections::BTreeSet;
use tessera_types::{NodeId, ReplicaId, TableId};
pub use weights::{Weight, Weights, next_trade};

/// Whether a partition has a leader whose node is alive.
pub type IsLed<'a> = dyn Fn(TableId, u32) -> bool + 'a;

/// Nodes that get no replicas now: a node that was lost, or came, a moment ago may be gone in the next.
fn unfit(catalog: &Catalog, presence: &Presence) -> BTreeSet<NodeId> {
    let fit = if holds(Rule::PlacedOnTheLiving) { Standing::Steady } else { Standing::Away };
    presence.below(fit, catalog.nodes().map(|node| node.id))
}

/// How many replicas, leaders and witnesses the nodes of a catalog have. `unfit` nodes get no replicas.
fn loads_of(catalog: &Catalog, unfit: &BTreeSet<NodeId>) -> Loads {
    let (nodes, tables): (Vec<_>, Vec<_>) = (catalog.nodes().collect(), catalog.tables().collect());
    Loads::of(&nodes, &tables, unfit)
}

/// The next moves, after which every partition has its replicas on live nodes that stay, evenly spread. No more than
/// `limit` partitions move at the same time, and each move concerns another partition. Replicas of lost nodes are made
/// anew on other nodes. Moves to nodes that have gone away are given up, so they take none of the `limit` slots. Moves
/// of partitions without a leader take no slot either, because they make no progress. Replicas that a move would remove
/// without need, because their nodes are not drained any more, stay; until that counts, nothing else is planned.
pub fn next_moves(catalog: &Catalog, presence: &Presence, limit: usize, is_led: &IsLed<'_>) -> Vec<CatalogCommand> {
    let (lost, unfit) = (presence.below(Standing::Away, catalog.nodes().map(|node| node.id)), unfit(catalog, presence));
    let mut loads = loads_of(catalog, &unfit);
    let mut moves = Vec::new();
    let mut slots = limit;
    let mut are_kept = false;
    for (table, partition, placement) in partitions(catalog).filter(|(.., placement)| placement.is_moving()) {
        let replicas = usize::from(table.schema.replicas);
        if holds(Rule::MovesAreGivenUp) && is_in_vain(placement, presence) {
            loads.turn_to(table);
            // If the way back leads to members that are lost as well, the next move starts from there.
            let back = way_back(&loads, placement, replicas);
            let nodes = back.or_else(|| better(&mut loads, &lost, catalog, placement, replicas));
            moves.extend(nodes.map(|nodes| place(table.id, partition, nodes)));
        } else if holds(Rule::MovesAreGivenUp)
            && let Some(nodes) = keeping_needed(&loads, placement, replicas)
        {
            moves.push(place(table.id, partition, nodes));
            are_kept = true;
        } else if (is_led(table.id, partition) && !waits(placement, presence)) || !holds(Rule::MovesAreGivenUp) {
            slots = slots.saturating_sub(1);
        }
    }
    if are_kept {
        // The loads do not count what stays.
        return moves;
    }
    let leaves = |replica: &ReplicaId| {
        lost.contains(&replica.node) || catalog.node(replica.node).is_none_or(|node| !may_hold(node))
    };
    // Dropped tables that can still be recalled move away from nodes that leave; otherwise they are not balanced.
    let (dropped, live): (Vec<_>, Vec<_>) = catalog.tables().partition(|table| table.is_dropped());
    for table in live.into_iter().chain(dropped) {
        let replicas = usize::from(table.schema.replicas);
        loads.turn_to(table);
        for (partition, placement) in (0..).zip(&table.placement) {
            if slots == 0 {
                return moves;
            }
            if !placement.is_moving()
                && (!table.is_dropped() || placement.target.iter().any(leaves))
                && let Some(nodes) = better(&mut loads, &lost, catalog, placement, replicas)
            {
                moves.push(place(table.id, partition, nodes));
                slots -= 1;
            }
        }
    }
    moves
}

fn partitions(catalog: &Catalog) -> impl Iterator<Item = (&TableEntry, u32, &Placement)> {
    catalog
        .tables()
        .flat_map(|table| (0..).zip(&table.placement).map(move |(partition, placement)| (table, partition, placement)))
}

/// The replicas that a move will make members.
fn targets(placement: &Placement) -> impl Iterator<Item = &ReplicaId> {
    placement.target.iter().filter(|replica| !placement.current.contains(replica))
}

/// Whether a move must be planned again: the node to which it moves a replica is away, or a node that it needs is lost.
fn is_in_vain(placement: &Placement, presence: &Presence) -> bool {
    let is_away = |replica: &ReplicaId| presence.of(replica.node) <= Standing::Away;
    targets(placement).any(is_away)
        || placement.target.iter().any(|replica| presence.of(replica.node) == Standing::Lost)
}

/// Whether a move has only to wait for a member that is away, before another member can be removed.
fn waits(placement: &Placement, presence: &Presence) -> bool {
    let is_away = |replica: &ReplicaId| presence.of(replica.node) <= Standing::Away;
    targets(placement).next().is_none() && placement.target.iter().any(is_away)
}

/// The nodes of a partition whose move is given up: it moves back, except that members which the move replaced on their
/// own nodes get new nodes.
fn way_back(loads: &Loads, placement: &Placement, replicas: usize) -> Option<Nodes> {
    let stays = |member: &&ReplicaId| placement.on(member.node) == Some(**member);
    let members: Vec<ReplicaId> = placement.current.iter().filter(stays).copied().collect();
    let mut nodes = Nodes::of_replicas(&members);
    if members.len() < placement.current.len() {
        let taken: Vec<NodeId> = placement.current.iter().chain(&placement.target).map(|it| it.node).collect();
        let missing = replicas.saturating_sub(nodes.data_replicas.len());
        let spares = loads.least_loaded(missing, &taken);
        if spares.is_empty() {
            return None;
        }
        nodes.data_replicas.extend(spares);
    }
    let is_news = !nodes.data_replicas.is_empty() && nodes != Nodes::of(placement);
    is_news.then_some(nodes)
}

/// The nodes of a partition whose move only removes members, if it need not remove all of them: the table wants more
/// replicas than the move leaves, and a member that is to go is on a node that may hold replicas, as after a drain that
/// was undone. Moves that bring new replicas come to their end.
///
/// The group may have removed that member already. Its node keeps the replica as long as it is among the current
/// members, and the leader's report of the removal counts no more once the target has changed. So it becomes a member
/// again as what it is. If the report came first, the node gets a new replica.
fn keeping_needed(loads: &Loads, placement: &Placement, replicas: usize) -> Option<Nodes> {
    if targets(placement).next().is_some() {
        return None;
    }
    let left = Nodes::of(placement);
    let may_stay = |member: &ReplicaId| {
        let is_to_go = !placement.target.contains(member) && placement.on(member.node) == Some(*member);
        is_to_go && loads.is_fit(member.node)
    };
    let (witnesses, mut kept): (Vec<ReplicaId>, Vec<ReplicaId>) =
        placement.current.iter().copied().filter(may_stay).partition(|member| member.is_witness());
    kept.truncate(replicas.saturating_sub(left.data_replicas.len()));
    // In the order of the members, so that the one that was to lead is to lead again.
    let stays = |member: &&ReplicaId| placement.target.contains(member) || kept.contains(member);
    let members: Vec<ReplicaId> = placement.current.iter().filter(stays).copied().collect();
    let mut nodes = Nodes::of_replicas(&members);
    // A witness that gives way to a replica of a node that is being drained goes all the same.
    let stay_all = nodes.data_replicas.iter().all(|node| loads.is_fit(*node));
    if replicas == WITNESSED && nodes.data_replicas.len() == WITNESSED && stay_all {
        nodes.witness = nodes.witness.or(witnesses.first().map(|witness| witness.node));
    }
    let is_news = !kept.is_empty() || nodes.witness != left.witness;
    is_news.then_some(nodes)
}

fn place(table: TableId, partition: u32, Nodes { data_replicas, witness }: Nodes) -> CatalogCommand {
    CatalogCommand::Place { table, partition, nodes: data_replicas, witness }
}

/// Chooses another node for a replica of one partition whose node counts as lost, if there is one.
pub fn replacement(
    catalog: &Catalog,
    presence: &Presence,
    table: TableId,
    partition: u32,
    lost: NodeId,
) -> Option<CatalogCommand> {
    let silent = BTreeSet::from([lost]);
    let mut unfit = unfit(catalog, presence);
    unfit.insert(lost);
    let mut loads = loads_of(catalog, &unfit);
    let entry = catalog.get(table)?;
    loads.turn_to(entry);
    let placement = entry.placement.get(partition as usize).filter(|placement| !placement.is_moving())?;
    let nodes = better(&mut loads, &silent, catalog, placement, usize::from(entry.schema.replicas))?;
    Some(place(table, partition, nodes))
}

/// Better nodes for a partition, if there are some; the loads are then updated as if it had moved.
fn better(
    loads: &mut Loads,
    silent: &BTreeSet<NodeId>,
    catalog: &Catalog,
    placement: &Placement,
    replicas: usize,
) -> Option<Nodes> {
    let before = Nodes::of(placement);
    let has_lost = before.data_replicas.iter().any(|node| silent.contains(node));
    let nodes = if before.witness.is_some() && replicas != WITNESSED {
        // The witness is removed first, because its node may be needed; but not while its vote is needed.
        match has_lost {
            true => Nodes {
                data_replicas: data_replicas(loads, silent, catalog, &before, before.data_replicas.len()),
                ..before.clone()
            },
            false => Nodes { witness: None, ..before.clone() },
        }
    } else {
        // A witness and a data replica do not replace each other on a node in one step.
        let data_replicas = data_replicas(loads, silent, catalog, &before, replicas);
        let is_drained = |node: &NodeId| catalog.node(*node).is_none_or(|node| node.is_draining);
        let witness = before.witness.filter(|node| !is_drained(node));
        // If only the witness's node can take a replica that must move, the witness is removed first: that is better
        // than one copy less.
        let gives_way = data_replicas == before.data_replicas
            && !has_lost
            && data_replicas.iter().any(is_drained)
            && witness.is_some_and(|node| loads.is_fit(node));
        let needs_witness = replicas == WITNESSED && !gives_way;
        let witness = if needs_witness { loads.witness(&data_replicas, &before.data_replicas, witness) } else { None };
        Nodes { data_replicas, witness }
    };
    if nodes == before {
        return None;
    }
    loads.count(&before, -1);
    loads.count(&nodes, 1);
    Some(nodes)
}

fn data_replicas(
    loads: &Loads,
    silent: &BTreeSet<NodeId>,
    catalog: &Catalog,
    before: &Nodes,
    replicas: usize,
) -> Vec<NodeId> {
    let mut nodes = before.data_replicas.clone();
    let spares = |count: usize, nodes: &[NodeId]| {
        let others: Vec<_> = nodes.iter().chain(&before.witness).copied().collect();
        loads.least_loaded(count, &others)
    };
    let is_lost = |node: &NodeId| silent.contains(node) || catalog.node(*node).is_none_or(|node| node.is_draining);
    // If there are too many replicas, lost ones are removed first.
    while nodes.len() > replicas
        && let Some(lost) = nodes.iter().position(|node| silent.contains(node))
    {
        nodes.remove(lost);
    }
    // A replica that cannot be replaced is better than none, unless its node is to be emptied and no other node of the
    // cluster could take it, were it there. The witness's node can, once the witness has given way.
    let mut lost = 0;
    while lost < nodes.len() {
        let has_room = || catalog.nodes().any(|node| may_hold(node) && !nodes.contains(&node.id));
        if !is_lost(&nodes[lost]) {
            lost += 1;
        } else if let Some(spare) = spares(1, &nodes).first() {
            nodes[lost] = *spare;
        } else if nodes.len() > 1 && !silent.contains(&nodes[lost]) && !has_room() {
            nodes.remove(lost);
        } else {
            lost += 1;
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
    if nodes == before.data_replicas {
        rebalance(loads, &mut nodes, before.witness);
    }
    nodes
}

/// Moves one replica, or else the leader, from the node that has most to the node that has least.
fn rebalance(loads: &Loads, nodes: &mut [NodeId], witness: Option<NodeId>) {
    // A replica that shares a zone moves first; among equals, the one whose node has most replicas.
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
    // Nodes that get no replicas now get no leaders either.
    let fit = (0..nodes.len()).filter(|at| loads.is_fit(nodes[*at]));
    let Some(least) = fit.min_by_key(|at| (loads.leaders(nodes[*at]), *at)) else { return };
    if is_uneven(loads.leaders(nodes[0]), loads.leaders(nodes[least])) {
        nodes.swap(0, least);
    }
}

#[cfg(test)]
mod tests;
