//! Clusters whose nodes come, die, lose their disks, lag, are drained and removed, all from a seed: the driver's
//! decisions, the catalog and placement as they are, above groups that are [modelled](group).
//!
//! Nodes are killed only as long as every group can bear it. So these must be so all along: every group has a majority;
//! no change leaves a group that bears less, or has a complete copy less; no node drops a replica that votes. And in
//! the end, when all who can have come back: every partition has all its replicas, and nothing moves.
//!
//! How one replica takes the place of another on one node is [simulated](succession) write by write.
//!
//! Each rule left out makes it fail.

mod group;
mod succession;
mod world;

use crate::CatalogCommand;
use crate::rules::{Rule, without};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tessera_types::NodeId;
use world::{AWAY, LOST, QUIET, STEADY, World};

/// A whole life of a cluster, up to peace.
fn live(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..1_500 {
        world.round();
        if world.dice.one_in(8) {
            world.disturb();
        }
    }
    world.make_peace();
    world
}

/// `TESSERA_SEEDS` sets how many clusters there are.
#[test]
fn clusters_keep_what_they_have_and_become_whole() {
    let seeds = std::env::var("TESSERA_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(25);
    let (mut changes, mut given_up) = (0, 0);
    for seed in 0..seeds {
        let world = catch_unwind(|| live(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        changes += world.changes;
        given_up += world.given_up;
    }
    assert!(changes > 50 * seeds && given_up > seeds, "{changes} changes, {given_up} moves given up");
}

/// A cluster of nodes that have been there for a while, with a table of three replicas.
fn settled(nodes: u32) -> World {
    let mut world = World::new(7);
    for _ in 1..nodes {
        world.round();
        world.join(true).expect("it is let in");
    }
    (0..60).for_each(|_| world.round());
    assert!(world.create("t", 3, 3));
    (0..200).for_each(|_| world.round());
    assert_eq!(world.what_is_missing(), None);
    world
}

/// The node that is to lead next dies before it does; others take over from a node that is drained all the same.
fn drain_beside_a_dead_heir() {
    let mut world = settled(4);
    let led_by = |world: &World, node: NodeId| {
        world.groups.values().filter(|group| group.leader.is_some_and(|leader| leader.node == node)).count()
    };
    let node = NodeId(1);
    assert!(led_by(&world, node) > 0 && world.change(CatalogCommand::Drain { node, is_draining: true }));
    // Those that are wanted first by groups that it leads, as soon as they have votes.
    let found = (0..100).find_map(|_| {
        world.round();
        let mut led = world.groups.iter().filter(|(_, group)| group.leader.is_some_and(|leader| leader.node == node));
        led.find_map(|(place, group)| {
            let (table, partition) = place;
            let target = &world.catalog.get(*table)?.placement[*partition as usize].target;
            let heir = target.first().filter(|heir| heir.node != node && group.is_voter(heir))?;
            world.can_bear(heir.node).then_some((*place, heir.node))
        })
    });
    let (place, heir) = found.expect("a move comes that far");
    world.kill(heir, false);
    // In less time than a move is given up in.
    let is_led_elsewhere = |world: &World| world.groups[&place].leader.is_some_and(|leader| leader.node != node);
    let takes_over = (0..AWAY / 2).any(|_| {
        world.round();
        is_led_elsewhere(&world)
    });
    assert!(takes_over, "the node that is drained still leads");
}

/// Voters of the catalog's group that are lost for long do not count on for ever.
fn lose_voters_of_the_catalog() {
    let mut world = settled(7);
    for _ in 0..2 {
        let voters = world.catalog_group.voters.clone();
        let lost = voters.iter().map(|voter| voter.node).find(|node| world.is_up(*node) && world.can_bear(*node));
        world.kill(lost.expect("the cluster can bear it"), false);
        (0..LOST + 100).for_each(|_| world.round());
    }
    let group = &world.catalog_group;
    assert_eq!(group.voters.len(), 5);
    assert!(group.voters.iter().all(|voter| world.is_up(voter.node)), "{group:?}");
}

/// A fourth node joins, and whenever it has been there for a moment it is gone again. All partitions keep their three
/// copies.
fn join_and_never_stay() {
    let mut world = settled(3);
    let node = world.join(true).expect("it is let in");
    let is_fetching = |world: &World| {
        world
            .groups
            .values()
            .any(|group| group.learners.iter().any(|it| it.node == node && group.copies.contains_key(it)))
    };
    let begins = (0..100).any(|_| {
        world.round();
        is_fetching(&world)
    });
    assert!(begins, "replicas move to it");
    for _ in 0..10 {
        world.kill(node, false);
        (0..=QUIET).for_each(|_| world.round());
        world.start(node);
        (1..STEADY).for_each(|_| world.round());
    }
    world.kill(node, true);
    (0..2 * AWAY).for_each(|_| world.round());
    for (place, group) in &world.groups {
        let copies = group.voters.iter().filter(|voter| world.is_sound(group, voter)).count();
        assert_eq!(copies, 3, "{place:?}: {group:?}");
    }
}

#[test]
fn a_node_that_joins_and_dies_costs_no_copy() {
    join_and_never_stay();
}

#[test]
fn whoever_is_there_takes_over_from_a_node_that_is_drained() {
    drain_beside_a_dead_heir();
}

#[test]
fn the_catalog_replaces_voters_that_are_lost() {
    lose_voters_of_the_catalog();
}

/// Whether something fails without a rule.
fn fails_without(rule: Rule, act: impl FnOnce()) -> bool {
    without(Some(rule), || catch_unwind(AssertUnwindSafe(act)).is_err())
}

#[test]
fn no_rule_can_be_left_out() {
    let of_all = [
        Rule::SnapshotIsThere,
        Rule::VotersKeepUp,
        Rule::LackIsBounded,
        Rule::TokensAreKnown,
        Rule::MajorityRemains,
        Rule::CopiesRemain,
        Rule::MovesAreGivenUp,
        Rule::GivenUpIsRemembered,
        Rule::PlacedOnTheLiving,
    ];
    for rule in of_all {
        assert!((0..30).any(|seed| fails_without(rule, || _ = live(seed))), "nobody misses {rule:?}");
    }
    assert!(fails_without(Rule::VotersLive, join_and_never_stay));
    assert!(fails_without(Rule::AnyHeir, drain_beside_a_dead_heir));
    assert!(fails_without(Rule::LostVotersAreReplaced, lose_voters_of_the_catalog));
}
