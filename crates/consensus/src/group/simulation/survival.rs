//! One of two voters without a log ends at any moment of a world's life, and the other one goes on with everything that was
//! acknowledged, if it can know that nobody else votes.

use super::world::numbers;
use super::{Group, Kind, Log, MOVING, World, live_for};
use rand::seq::IndexedRandom;
use std::collections::BTreeSet;
use tessera_types::ReplicaId;

const PAIR: Kind = Kind { nodes: 4, initial_members: 2, log: Log::Volatile, ..MOVING };

/// Ends one of two voters, if there are two. Returns which.
fn lose_half(world: &mut World) -> Option<ReplicaId> {
    let leader = world.replicas[*world.readers.first()?].group.as_ref()?;
    let (voters, _) = leader.members();
    let lost = *(voters.len() == 2).then_some(&voters)?.choose(&mut world.random)?;
    let is_there = |id: &ReplicaId| world.replicas.iter().any(|replica| replica.id == *id && replica.group.is_some());
    if !voters.iter().all(is_there) {
        return None;
    }
    let at = world.replicas.iter().position(|replica| replica.id == lost)?;
    world.renew(at);
    Some(lost)
}

/// Lets time pass until somebody serves. Whoever says that it lacks only the one that was lost goes on without it.
fn recover(world: &mut World, lost: ReplicaId, went_on: &mut usize) -> bool {
    for step in 0..2_500 {
        world.step();
        if step % 200 == 0 {
            world.wake_what_waits();
        }
        if step % 20 == 0 {
            for at in 0..world.replicas.len() {
                let Some(group) = &mut world.replicas[at].group else { continue };
                if group.view().counterpart == Some(lost) && group.go_on_without(lost) {
                    *went_on += 1;
                    world.pass(at);
                }
            }
        }
        let is_past = |at: &usize| world.replicas[*at].group.as_ref().is_some_and(|group| is_without(group, lost));
        if world.readers.first().is_some_and(is_past) {
            return true;
        }
    }
    false
}

fn is_without(group: &Group<u64>, lost: ReplicaId) -> bool {
    let (voters, _) = group.members();
    !voters.contains(&lost) || voters.len() > 2
}

#[test]
fn one_of_two_goes_on_with_everything() {
    let (mut losses, mut went_on, mut stuck, mut with_learners) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut world = World::new(seed, PAIR);
        live_for(&mut world, 300 + 7 * seed as usize);
        for _ in 0..6 {
            live_for(&mut world, 150);
            world.heal_links();
            let Some(lost) = lose_half(&mut world) else { continue };
            losses += 1;
            let before = went_on;
            if !recover(&mut world, lost, &mut went_on) {
                stuck += 1;
                break; // a change of the voters was under way, and the partition begins anew
            }
            let leader = world.replicas[world.readers[0]].group.as_ref().expect("it leads");
            with_learners += usize::from(went_on > before && !leader.members().1.is_empty());
            let acknowledged: BTreeSet<u64> = world.answers.acknowledged.iter().copied().collect();
            let state: BTreeSet<u64> =
                numbers(&world.replicas[world.readers[0]].state.to_snapshot()).into_iter().collect();
            let missing: Vec<_> = acknowledged.difference(&state).take(5).collect();
            assert!(missing.is_empty(), "seed {seed}: {missing:?} are lost: {}", world.describe());
        }
    }
    eprintln!("{losses} losses, {went_on} went on, {with_learners} of them with learners, {stuck} could not");
    assert!(went_on > 200 && with_learners > 10 && stuck * 5 < losses, "{losses}, {went_on}, {with_learners}, {stuck}");
}
