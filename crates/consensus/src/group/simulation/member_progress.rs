//! What a leader knows of the other members, while these come, go and lag.

use super::*;

const JOINING: Kind = Kind { nodes: 2, initial_members: 1, has_witnesses: false, log: Log::Synced };

fn run(world: &mut World, millis: u64) {
    (0..millis / 5).for_each(|_| world.step());
}

fn member(world: &World, node: u32) -> MemberView {
    let view = world.replicas[0].group.as_ref().expect("it is up").view();
    *view.others.iter().find(|other| other.replica.node == NodeId(node)).expect("a member")
}

fn led_by_first(seed: u64, kind: Kind) -> World {
    let mut world = World::new(seed, kind);
    world.loss = 0.0;
    run(&mut world, 1_000);
    assert_eq!(world.readers, [0], "seed {seed}: the first node leads");
    world
}

#[test]
fn a_member_that_never_came_has_not_caught_up_however_short_the_log_is() {
    for seed in 0..20 {
        let mut world = led_by_first(seed, JOINING);
        let newcomer = world.replicas[1].id;
        assert!(world.replicas[0].group.as_mut().unwrap().change_members(&[MemberChange::Learner(newcomer)]));
        world.pass(0);
        run(&mut world, 5_000);
        let ghost = member(&world, 2);
        assert_eq!((ghost.is_heard, ghost.matched, ghost.keeps_up), (false, 0, false), "seed {seed}");
        assert!(ghost.lag < 10 && ghost.lag_bytes == u64::MAX, "seed {seed}: {ghost:?}");

        world.replicas[1].is_there = true;
        world.start(1);
        run(&mut world, 8_000);
        let there = member(&world, 2);
        assert!(there.is_heard && there.keeps_up && !there.takes_snapshot, "seed {seed}: {there:?}");
        assert_eq!((there.lag, there.lag_bytes), (0, 0), "seed {seed}");
    }
}

#[test]
fn a_member_that_goes_is_missed_within_a_second_and_lags_within_two() {
    for seed in 0..20 {
        let mut world = led_by_first(seed, STEADY);
        for _ in 0..200 {
            world.write();
            world.step();
        }
        assert!(member(&world, 2).is_heard && member(&world, 3).keeps_up, "seed {seed}");
        world.replicas[2].group = None;
        for step in 0..600 {
            world.write();
            world.step();
            let gone = member(&world, 3);
            assert!(step < 140 || !gone.is_heard, "seed {seed}: {gone:?}");
            assert!(step < 500 || (!gone.keeps_up && gone.lag_bytes == u64::MAX), "seed {seed}: {gone:?}");
        }
        let there = member(&world, 2);
        assert!(there.is_heard && there.keeps_up && there.lag_bytes < u64::MAX, "seed {seed}: {there:?}");
    }
}

#[test]
fn a_leader_that_rests_looks_who_is_there_before_it_changes_members() {
    for seed in 0..20 {
        let mut world = led_by_first(seed, STEADY);
        run(&mut world, 20_000);
        assert!(world.replicas[0].group.as_ref().unwrap().is_hibernating(), "seed {seed}");
        world.replicas[1].group = None;
        let third = world.replicas[2].id;
        let leader = world.replicas[0].group.as_mut().unwrap();
        assert!(!leader.change_members(&[MemberChange::Remove(third)]), "seed {seed}: nobody knows who is there");
        assert!(!leader.is_hibernating());
        run(&mut world, 500);
        assert!(!member(&world, 2).is_heard && member(&world, 3).is_heard, "seed {seed}");
    }
}

#[test]
fn a_hibernating_leader_without_a_majority_wakes_and_steps_down() {
    for seed in 0..20 {
        let mut world = led_by_first(seed, STEADY);
        run(&mut world, 20_000);
        world.replicas[1].group = None;
        for _ in 0..10 {
            run(&mut world, 500);
            world.wake_what_waits();
        }
        let leader = world.replicas[0].group.as_ref().unwrap();
        assert!(leader.is_hibernating(), "seed {seed}: it has a majority");
        world.replicas[2].group = None;
        for _ in 0..6 {
            run(&mut world, 500);
            world.wake_what_waits();
        }
        assert!(!world.replicas[0].group.as_ref().unwrap().is_leader(), "seed {seed}");
    }
}
