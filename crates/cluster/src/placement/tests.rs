use super::*;
use crate::test_schema::schema_of;
use crate::{Changed, Site};
use tessera_types::{Durability, EngineKind, Limits, TableSettings};

pub(super) fn cluster(nodes: u32) -> Catalog {
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    (1..nodes).for_each(|_| add_node(&mut catalog));
    catalog
}

fn add_node(catalog: &mut Catalog) {
    let command = CatalogCommand::AddNode { site: Site::default(), token: None };
    let Ok(Changed::Node(node)) = catalog.apply(&command, &Limits::default()) else { panic!("a node") };
    apply(catalog, CatalogCommand::Arrived { node, has_vote: false });
}

pub(super) fn apply(catalog: &mut Catalog, command: CatalogCommand) {
    catalog.apply(&command, &Limits::default()).unwrap();
}

pub(super) fn create(catalog: &mut Catalog, partitions: u32, replicas: u8) {
    let schema = schema_of(EngineKind::Rocksdb, Durability::Hard, partitions, replicas);
    let settings = TableSettings::default();
    apply(
        catalog,
        CatalogCommand::Create { name: format!("t{partitions}"), schema, settings, absent: BTreeSet::new() },
    );
}

/// All nodes but those are there.
pub(super) fn moves(catalog: &Catalog, silent: &BTreeSet<NodeId>, limit: usize) -> Vec<CatalogCommand> {
    let standing = |node: NodeId| (node, if silent.contains(&node) { Standing::Lost } else { Standing::Steady });
    let presence = Presence::new(catalog.nodes().map(|node| standing(node.id)), BTreeSet::new());
    next_moves(catalog, &presence, limit, &|_, _| true)
}

/// Moves until nothing is left to do; every move is taken for done at once. Returns how many there were.
pub(super) fn settle(catalog: &mut Catalog, silent: &BTreeSet<NodeId>) -> usize {
    let mut moved = 0;
    loop {
        let moves = moves(catalog, silent, 3);
        if moves.is_empty() {
            return moved;
        }
        moved += moves.len();
        assert!(moved < 2_000, "no end: {moves:?}");
        for command in moves {
            let CatalogCommand::Place { table, partition, .. } = command else { panic!("{command:?}") };
            apply(catalog, command);
            let moved =
                CatalogCommand::moved(table, partition, &catalog.get(table).unwrap().placement[partition as usize]);
            apply(catalog, moved);
        }
    }
}

pub(super) fn check(catalog: &Catalog, silent: &BTreeSet<NodeId>) {
    let mut loads = loads_of(catalog, silent);
    let fit: BTreeSet<NodeId> = loads.fit().collect();
    let spread = |of: &dyn Fn(NodeId) -> usize| {
        let all = || fit.iter().map(|node| of(*node));
        all().max().unwrap() - all().min().unwrap()
    };
    // A replica and a witness cannot change places, so with few nodes these stay a little less even.
    let slack = if fit.iter().any(|node| loads.witnesses(*node).1 > 0) { 4 } else { 0 };
    assert!(spread(&|node| loads.replicas(node).1) <= 2 + slack, "{loads:?}");
    for table in catalog.tables() {
        loads.turn_to(table);
        assert!(spread(&|node| loads.replicas(node).0) <= 1 + slack, "{loads:?}");
        assert!(spread(&|node| loads.leaders(node).0) <= 2, "{loads:?}");
        assert!(spread(&|node| loads.witnesses(node).0) <= 2 + slack, "{loads:?}");
    }
    for table in catalog.tables() {
        for placement in &table.placement {
            let nodes: BTreeSet<_> = placement.target.iter().map(|replica| replica.node).collect();
            assert_eq!(nodes.len(), placement.target.len(), "two replicas on a node");
            let votes = if table.schema.replicas == 2 { 3 } else { usize::from(table.schema.replicas) };
            assert_eq!(nodes.len(), votes.min(fit.len()), "{placement:?}");
            assert!(nodes.iter().all(|node| fit.contains(node)), "{placement:?}");
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
        add_node(&mut catalog);
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
    let led_by_first = placement.iter().map(Nodes::of).filter(|nodes| nodes.data_replicas[0] == NodeId(1));
    let heirs: Vec<NodeId> = led_by_first.map(|nodes| nodes.data_replicas[1]).collect();
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
        let zones: BTreeSet<_> = placement.target.iter().map(zone).collect();
        assert_eq!(zones.len(), placement.target.len(), "{placement:?}");
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
    let first = catalog.get(TableId(1)).unwrap().placement[0].target[0];
    let other = 3 - first.node.0;
    apply(&mut catalog, place(&[first.node.0, other]));
    assert_eq!(catalog.get(TableId(1)).unwrap().placement[0].target[0], first, "what is there stays");
    apply(&mut catalog, place(&[other]));
    let moved = CatalogCommand::moved(TableId(1), 0, &catalog.get(TableId(1)).unwrap().placement[0]);
    apply(&mut catalog, moved);
    apply(&mut catalog, place(&[first.node.0]));
    let again = catalog.get(TableId(1)).unwrap().placement[0].target[0];
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
        assert_eq!(placement.target.iter().filter(|replica| replica.is_witness()).count(), 1);
    }
}

fn presence(standings: &[(u32, Standing)]) -> Presence {
    Presence::new(standings.iter().map(|(node, standing)| (NodeId(*node), *standing)), BTreeSet::new())
}

fn placement(catalog: &Catalog) -> Placement {
    catalog.get(TableId(1)).unwrap().placement[0].clone()
}

fn nodes_of(placement: &Placement) -> Vec<u32> {
    placement.target.iter().map(|replica| replica.node.0).collect()
}

const LED: &IsLed<'_> = &|_, _| true;

#[test]
fn a_move_to_a_node_that_is_gone_goes_back_and_takes_no_slot() {
    let all = [1, 2, 3, 4].map(|node| (node, Standing::Steady));
    let mut catalog = cluster(3);
    create(&mut catalog, 8, 3);
    add_node(&mut catalog);
    settle(&mut catalog, &BTreeSet::from([NodeId(4)]));
    let before = placement(&catalog);
    let begun = next_moves(&catalog, &presence(&all), 4, LED);
    assert_eq!(begun.len(), 4);
    begun.into_iter().for_each(|command| apply(&mut catalog, command));
    assert_eq!(next_moves(&catalog, &presence(&all), 4, LED), [], "so many at one time");
    let unled = next_moves(&catalog, &presence(&all), 4, &|_, _| false);
    assert!(!unled.is_empty(), "those that nobody leads hold up nobody");

    let restarts = presence(&[all[0], all[1], all[2], (4, Standing::Silent)]);
    assert_eq!(next_moves(&catalog, &restarts, 4, LED), [], "it may have been started again");
    let gone = presence(&[all[0], all[1], all[2], (4, Standing::Away)]);
    let back = next_moves(&catalog, &gone, 4, LED);
    let is_there =
        |it: &CatalogCommand| matches!(it, CatalogCommand::Place { nodes, .. } if !nodes.contains(&NodeId(4)));
    assert!(back.len() >= 4 && back.iter().all(is_there), "{back:?}");
    back.into_iter().for_each(|command| apply(&mut catalog, command));
    assert_eq!(placement(&catalog).target, before.target);
    for partition in 0..8 {
        let moved = &catalog.get(TableId(1)).unwrap().placement[partition as usize];
        let moved = CatalogCommand::moved(TableId(1), partition, moved);
        apply(&mut catalog, moved);
    }
    assert_eq!(catalog.get(TableId(1)).unwrap().placement.iter().filter(|it| it.is_moving()).count(), 0);
    assert_eq!(next_moves(&catalog, &gone, 4, LED), [], "nothing goes there again");
}

#[test]
fn a_node_is_not_emptied_at_the_cost_of_a_copy_while_another_one_may_come_back() {
    let mut catalog = cluster(4);
    create(&mut catalog, 8, 3);
    apply(&mut catalog, CatalogCommand::Drain { node: NodeId(3), is_draining: true });
    let steady = [1, 2, 3].map(|node| (node, Standing::Steady));
    let with_fourth = |standing| presence(&[&steady[..], &[(4, standing)]].concat());
    let keeps = |catalog: &Catalog, presence: &Presence| {
        let is_short = |it: &CatalogCommand| matches!(it, CatalogCommand::Place { table: TableId(1), nodes, .. } if nodes.len() < 3);
        !next_moves(catalog, presence, 99, LED).iter().any(is_short)
    };
    for standing in [Standing::Silent, Standing::Away, Standing::Lost] {
        assert!(keeps(&catalog, &with_fourth(standing)), "{standing:?}");
    }
    // The operator says that it does not come back.
    let mut smaller = cluster(3);
    create(&mut smaller, 8, 3);
    apply(&mut smaller, CatalogCommand::Drain { node: NodeId(3), is_draining: true });
    let moves = next_moves(&smaller, &presence(&steady), 99, LED);
    assert!(moves.iter().any(|it| matches!(it, CatalogCommand::Place { nodes, .. } if nodes.len() == 2)));
    settle(&mut catalog, &BTreeSet::new());
    assert_eq!(catalog.replicas_on(NodeId(3)), 0);
}

#[test]
fn leaders_do_not_go_to_nodes_that_are_not_there() {
    let mut catalog = cluster(3);
    create(&mut catalog, 8, 3);
    settle(&mut catalog, &BTreeSet::new());
    let first = nodes_of(&placement(&catalog))[0];
    let standings = [1, 2, 3].map(|node| (node, if node == first { Standing::Steady } else { Standing::Silent }));
    assert_eq!(next_moves(&catalog, &presence(&standings), 99, LED), []);
}

#[test]
fn of_too_many_replicas_those_that_are_lost_go_first() {
    let mut catalog = cluster(5);
    create(&mut catalog, 1, 3);
    let lost = placement(&catalog).target[1].node;
    apply(&mut catalog, CatalogCommand::SetReplicas { name: "t1".into(), replicas: 1 });
    settle(&mut catalog, &BTreeSet::from([lost]));
    assert!(!nodes_of(&placement(&catalog)).contains(&lost.0));
}

fn carry_out(catalog: &mut Catalog, commands: Vec<CatalogCommand>) {
    commands.into_iter().for_each(|command| apply(catalog, command));
}

fn drain(catalog: &mut Catalog, node: u32, is_draining: bool) {
    apply(catalog, CatalogCommand::Drain { node: NodeId(node), is_draining });
}

/// The replicas that all partitions are to have.
fn targets_of(catalog: &Catalog) -> Vec<Vec<ReplicaId>> {
    partitions(catalog).map(|(.., placement)| placement.target.clone()).collect()
}

/// They once went all the same, and were made anew later.
#[test]
fn replicas_that_have_only_to_go_stay_when_a_drain_is_undone() {
    let none = BTreeSet::new();
    for replicas in [2, 3] {
        let mut catalog = cluster(3);
        create(&mut catalog, 8, replicas);
        settle(&mut catalog, &none);
        let before = targets_of(&catalog);
        drain(&mut catalog, 3, true);
        let begun = moves(&catalog, &none, 999);
        assert_eq!(begun.len(), before.len());
        carry_out(&mut catalog, begun);
        let drained = placement(&catalog);
        assert_eq!(moves(&catalog, &none, 999), [], "the node is being drained");

        drain(&mut catalog, 3, false);
        let returns = presence(&[(1, Standing::Steady), (2, Standing::Steady), (3, Standing::Here)]);
        assert_eq!(next_moves(&catalog, &returns, 999, LED), [], "nothing goes to a node that may be gone again");
        let back = moves(&catalog, &none, 0);
        assert_eq!(back.len(), before.len(), "no slot is needed");
        carry_out(&mut catalog, back);
        assert_eq!(targets_of(&catalog), before);
        // The group had removed it; its leader makes it a member again.
        apply(&mut catalog, CatalogCommand::moved(TableId(1), 0, &drained));
        assert_eq!(placement(&catalog).current, placement(&catalog).target);
        assert_eq!(targets_of(&catalog), before);
        assert_eq!(moves(&catalog, &none, 999), []);
    }
}

#[test]
fn a_replica_that_is_gone_when_a_drain_is_undone_comes_as_another_one() {
    let none = BTreeSet::new();
    let mut catalog = cluster(3);
    create(&mut catalog, 8, 3);
    settle(&mut catalog, &none);
    let first = placement(&catalog).on(NodeId(3)).unwrap();
    drain(&mut catalog, 3, true);
    let begun = moves(&catalog, &none, 999);
    carry_out(&mut catalog, begun);
    let moved = CatalogCommand::moved(TableId(1), 0, &placement(&catalog));
    apply(&mut catalog, moved);
    assert_eq!(placement(&catalog).on(NodeId(3)), None);
    drain(&mut catalog, 3, false);
    settle(&mut catalog, &none);
    check(&catalog, &none);
    assert!(placement(&catalog).on(NodeId(3)).is_some_and(|again| again != first));
}

#[test]
fn a_move_to_another_node_goes_on_when_a_drain_is_undone() {
    let none = BTreeSet::new();
    let mut catalog = cluster(4);
    create(&mut catalog, 8, 3);
    settle(&mut catalog, &none);
    drain(&mut catalog, 3, true);
    let begun = moves(&catalog, &none, 999);
    carry_out(&mut catalog, begun);
    let is_moving = |(table, partition): (TableId, u32)| {
        catalog.get(table).unwrap().placement.get(partition as usize).unwrap().is_moving()
    };
    assert!((0..8).any(|partition| is_moving((TableId(1), partition))));
    let mut undone = catalog.clone();
    drain(&mut undone, 3, false);
    for command in moves(&undone, &none, 999) {
        let CatalogCommand::Place { table, partition, .. } = command else { panic!("{command:?}") };
        assert!(!is_moving((table, partition)), "{command:?}");
    }
}

#[test]
fn replicas_that_a_table_has_too_many_of_go_unless_it_wants_them_again() {
    let none = BTreeSet::new();
    let mut catalog = cluster(3);
    create(&mut catalog, 8, 3);
    settle(&mut catalog, &none);
    let before = targets_of(&catalog);
    let set_replicas = |replicas| CatalogCommand::SetReplicas { name: "t8".into(), replicas };
    apply(&mut catalog, set_replicas(2));
    let begun = moves(&catalog, &none, 999);
    carry_out(&mut catalog, begun);
    let is_of_table = |it: &CatalogCommand| matches!(it, CatalogCommand::Place { table: TableId(1), .. });
    assert!(!moves(&catalog, &none, 999).iter().any(is_of_table), "they go");
    apply(&mut catalog, set_replicas(3));
    let back = moves(&catalog, &none, 999);
    assert_eq!(back.iter().filter(|it| is_of_table(it)).count(), 8);
    carry_out(&mut catalog, back);
    assert_eq!(targets_of(&catalog)[16..], before[16..]);
}

/// Where only the witness's node could take a replica, the table once had one copy until the new one was complete.
#[test]
fn no_copy_is_given_up_before_the_witness_has_made_room_for_another_one() {
    let none = BTreeSet::new();
    let mut catalog = cluster(3);
    create(&mut catalog, 8, 2);
    settle(&mut catalog, &none);
    drain(&mut catalog, 3, true);
    for _ in 0..4 {
        let begun = moves(&catalog, &none, 999);
        carry_out(&mut catalog, begun);
        for (table, partition) in
            partitions(&catalog).map(|(table, partition, _)| (table.id, partition)).collect::<Vec<_>>()
        {
            let placement = catalog.get(table).unwrap().placement[partition as usize].clone();
            let copies = placement.target.iter().filter(|replica| !replica.is_witness()).count();
            assert!(copies >= 2, "{placement:?}");
            apply(&mut catalog, CatalogCommand::moved(table, partition, &placement));
        }
    }
    assert!(targets_of(&catalog).iter().flatten().all(|replica| replica.node != NodeId(3)));
}

#[test]
fn a_witness_gives_way_as_long_as_a_data_replica_must_move() {
    let mut catalog = cluster(3);
    create(&mut catalog, 1, 2);
    settle(&mut catalog, &BTreeSet::new());
    add_node(&mut catalog);
    let before = placement(&catalog).target;
    let leaver = before[0].node.0;
    drain(&mut catalog, leaver, true);
    // Another node could take the replica, and is not there.
    let standings = [1, 2, 3].map(|node| (node, Standing::Steady));
    let without_fourth = presence(&[&standings[..], &[(4, Standing::Silent)]].concat());
    let begun = next_moves(&catalog, &without_fourth, 999, LED);
    carry_out(&mut catalog, begun);
    assert_eq!(placement(&catalog).target, before[..2]);
    let is_of_table = |it: &CatalogCommand| matches!(it, CatalogCommand::Place { table: TableId(1), .. });
    assert!(!next_moves(&catalog, &without_fourth, 999, LED).iter().any(is_of_table), "it is to go");
    drain(&mut catalog, leaver, false);
    let back = next_moves(&catalog, &without_fourth, 999, LED);
    carry_out(&mut catalog, back);
    assert_eq!(placement(&catalog).target, before);
}
