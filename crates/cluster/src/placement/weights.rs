//! Balances bytes and leader load once the counts of replicas and leaders are even.
//!
//! Two partitions of a table trade places, so that every count stays the same and no decision by counts is undone.
//! Leaders trade first, because that moves no records. The caller lets a trade take effect, and weighs the partitions
//! again, before the next one.

use super::{Loads, Nodes, loads_of, place};
use crate::{Catalog, CatalogCommand};
use std::collections::{BTreeMap, BTreeSet};
use tessera_types::{NodeId, TableId};

/// The weight of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Bytes of the records of each replica.
    pub bytes: u64,
    /// Capacity units per second that its leader reads and writes.
    pub load: u64,
}

/// The weight of each partition, by table and number.
pub type Weights = BTreeMap<(TableId, u32), Weight>;

/// Nodes are even enough if no two of them differ both by more than a fifth of the average of a node and by more than
/// this. A trade must bring them nearer by at least half of that.
const EVEN: f64 = 0.2;
const EVEN_BYTES: u64 = 256 << 20;
const EVEN_LOAD: u64 = 1_000;

/// A partition with its nodes and its weight.
struct Weighed {
    table: TableId,
    partition: u32,
    nodes: Nodes,
    weight: u64,
}

/// Which part of a partition trades places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trade {
    Leaders,
    Replicas,
}

/// The two placements that balance leaders best, or else replicas; empty if the nodes are even enough. To be called
/// when nothing is moving. `unfit` nodes take no part.
pub fn next_trade(catalog: &Catalog, unfit: &BTreeSet<NodeId>, weights: &Weights) -> Vec<CatalogCommand> {
    let loads = loads_of(catalog, unfit);
    let trade = |trade, weigh: fn(&Weight) -> u64, enough| {
        let weight = |table, partition| weights.get(&(table, partition)).map_or(0, weigh);
        let partitions = catalog.tables().filter(|table| !table.is_dropped()).flat_map(|table| {
            (0..).zip(&table.placement).map(move |(partition, placement)| Weighed {
                table: table.id,
                partition,
                nodes: Nodes::of(placement),
                weight: weight(table.id, partition),
            })
        });
        best(&loads, &partitions.collect::<Vec<_>>(), trade, enough)
    };
    trade(Trade::Leaders, |weight| weight.load, EVEN_LOAD)
        .or_else(|| trade(Trade::Replicas, |weight| weight.bytes, EVEN_BYTES))
        .unwrap_or_default()
}

fn best(loads: &Loads, partitions: &[Weighed], trade: Trade, enough: u64) -> Option<Vec<CatalogCommand>> {
    let mut sums: BTreeMap<NodeId, u64> = loads.fit().map(|node| (node, 0)).collect();
    for Weighed { nodes, weight, .. } in partitions {
        let bearers = if trade == Trade::Leaders { 1 } else { nodes.data_replicas.len() };
        for node in nodes.data_replicas.iter().take(bearers) {
            sums.entry(*node).and_modify(|sum| *sum += weight);
        }
    }
    let mean = sums.values().sum::<u64>() as f64 / sums.len().max(1) as f64;
    let of_others = |(heavy, most)| sums.iter().map(move |(light, least): (&NodeId, &u64)| (heavy, light, most, least));
    let uneven = sums.iter().flat_map(of_others).filter_map(|(heavy, light, most, least): (_, _, &u64, &u64)| {
        let gap = most.saturating_sub(*least);
        (gap > enough && gap as f64 > EVEN * mean).then_some((gap, heavy, light))
    });
    let mut uneven: Vec<_> = uneven.collect();
    uneven.sort_by_key(|(gap, ..)| std::cmp::Reverse(*gap));
    for (gap, heavy, light) in uneven {
        let gives = partitions.iter().filter(|it| may_go(loads, it, *heavy, *light, trade));
        let takes: Vec<_> = partitions.iter().filter(|it| may_go(loads, it, *light, *heavy, trade)).collect();
        let pairs = gives.flat_map(|give| takes.iter().map(move |take| (give, *take)));
        let is_fair = |(give, take): &(&Weighed, &Weighed)| {
            let leads = |it: &Weighed, node| it.nodes.data_replicas.first() == Some(&node);
            give.table == take.table && give.weight > take.weight && leads(give, *heavy) == leads(take, *light)
        };
        let left = |(give, take): &(&Weighed, &Weighed)| gap.abs_diff(2 * (give.weight - take.weight));
        // Among equal trades, the one that moves least wins.
        let best = pairs.filter(is_fair).min_by_key(|pair| (left(pair), pair.0.weight));
        if let Some((give, take)) = best.filter(|pair| left(pair) + enough / 2 <= gap) {
            return Some(vec![gone(give, *heavy, *light, trade), gone(take, *light, *heavy, trade)]);
        }
    }
    None
}

/// Whether a partition's leader, or a replica, may go from one node to another.
fn may_go(loads: &Loads, it: &Weighed, from: NodeId, to: NodeId, trade: Trade) -> bool {
    let data_replicas = &it.nodes.data_replicas;
    match trade {
        Trade::Leaders => data_replicas.first() == Some(&from) && data_replicas.contains(&to),
        Trade::Replicas => {
            let others: Vec<NodeId> = data_replicas.iter().copied().filter(|node| *node != from).collect();
            data_replicas.contains(&from)
                && !data_replicas.contains(&to)
                && it.nodes.witness != Some(to)
                && (loads.is_near(from, &others) || !loads.is_near(to, &others))
        }
    }
}

fn gone(it: &Weighed, from: NodeId, to: NodeId, trade: Trade) -> CatalogCommand {
    let Nodes { mut data_replicas, witness } = it.nodes.clone();
    match trade {
        Trade::Leaders => {
            let at = data_replicas.iter().position(|node| *node == to).expect("it may go there");
            data_replicas.swap(0, at);
        }
        Trade::Replicas => data_replicas.iter_mut().filter(|node| **node == from).for_each(|node| *node = to),
    }
    place(it.table, it.partition, Nodes { data_replicas, witness })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{apply, check, cluster, create, settle};
    use super::*;

    fn sums(catalog: &Catalog, weights: &Weights, bearers: usize, weigh: fn(&Weight) -> u64) -> Vec<u64> {
        let mut sums: BTreeMap<NodeId, u64> = catalog.nodes().map(|node| (node.id, 0)).collect();
        for table in catalog.tables() {
            for (partition, placement) in (0..).zip(&table.placement) {
                for node in Nodes::of(placement).data_replicas.iter().take(bearers) {
                    *sums.get_mut(node).unwrap() += weigh(&weights[&(table.id, partition)]);
                }
            }
        }
        sums.into_values().collect()
    }

    /// Trades until there is nothing left to do.
    fn even_out(catalog: &mut Catalog, weights: &Weights) -> usize {
        for trades in 0.. {
            assert!(trades < 500, "no end");
            let commands = next_trade(catalog, &BTreeSet::new(), weights);
            if commands.is_empty() {
                return trades;
            }
            assert_eq!(commands.len(), 2);
            for command in commands {
                let CatalogCommand::Place { table, partition, .. } = command else { panic!("{command:?}") };
                apply(catalog, command);
                let moved =
                    CatalogCommand::moved(table, partition, &catalog.get(table).unwrap().placement[partition as usize]);
                apply(catalog, moved);
            }
            check(catalog, &BTreeSet::new());
        }
        unreachable!()
    }

    #[test]
    fn bytes_and_load_are_evened_out_and_counts_stay() {
        for (nodes, replicas) in [(3, 1), (3, 2), (5, 2), (5, 3), (7, 3)] {
            let mut catalog = cluster(nodes);
            create(&mut catalog, 64, replicas);
            create(&mut catalog, 32, replicas);
            settle(&mut catalog, &BTreeSet::new());
            let mut weights = Weights::new();
            for table in catalog.tables() {
                for (partition, placement) in (0..).zip(&table.placement) {
                    // Node 1 has got what is large and busy.
                    let hash = (u64::from(partition) + u64::from(table.id.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
                    let is_large = placement.target[0].node == NodeId(1);
                    let factor = if is_large { 10 } else { 1 } * (1 + hash);
                    let weight = Weight { bytes: factor * (100 << 20), load: factor * 500 };
                    weights.insert((table.id, partition), weight);
                }
            }
            assert!(even_out(&mut catalog, &weights) > 0);
            for (bearers, weigh) in [(1, (|weight| weight.load) as fn(&Weight) -> u64), (9, |weight| weight.bytes)] {
                if bearers > 1 && (nodes, replicas) == (3, 2) {
                    continue; // witnesses are in the way
                }
                let sums = sums(&catalog, &weights, bearers, weigh);
                let (most, least) = (*sums.iter().max().unwrap() as f64, *sums.iter().min().unwrap() as f64);
                assert!(most <= 1.5 * least, "{nodes} nodes, {replicas} replicas: {sums:?}");
            }
            assert_eq!(super::super::tests::moves(&catalog, &BTreeSet::new(), 9), [], "counts undo nothing");
        }
    }

    #[test]
    fn little_is_not_worth_a_move_and_one_hot_partition_is_not_passed_around() {
        let mut catalog = cluster(3);
        create(&mut catalog, 16, 2);
        settle(&mut catalog, &BTreeSet::new());
        let table = catalog.by_name("t16").unwrap().id;
        let weights = |weight: &dyn Fn(u32) -> Weight| (0..16).map(|at| ((table, at), weight(at))).collect::<Weights>();
        let small = weights(&|at| Weight { bytes: u64::from(at) << 10, load: u64::from(at) });
        assert_eq!(even_out(&mut catalog, &small), 0);
        let hot = weights(&|at| Weight { bytes: 1 << 20, load: if at == 3 { 100_000 } else { 10 } });
        assert!(even_out(&mut catalog, &hot) <= 1);
    }
}
