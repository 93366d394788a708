//! Nodes are lost for good at any moment of a world's life, and an operator has those that are left go on: what is said
//! to be complete has everything that was acknowledged, whatever was under way.

use super::disk::State;
use super::world::numbers;
use super::{ID, KINDS, Log, World, live_for};
use crate::group::{Group, GroupSettings, Heir, Left, LoggedReplica, PassOutput, TICK, heir, leave_alone};
use crate::log::RecoveredGroup;
use std::collections::BTreeSet;
use std::time::Duration;

/// Runs the only member of a group, and returns its state.
fn run_alone(settings: GroupSettings, recovered: RecoveredGroup, mut state: State) -> State {
    let mut group: Group<u64> = Group::new(ID, settings, recovered).expect("it goes on");
    let mut now = Duration::ZERO;
    for _ in 0..60 {
        now += TICK;
        group.tick(now);
        let mut output = PassOutput::default();
        group.collect(&mut output, &mut |_, _, _| Ok(())).expect("it goes on");
        output.awaiting_stage.iter().chain(&output.awaiting_fsync).for_each(|(_, number)| group.persisted(*number));
        for committed in output.committed {
            if state.applied < committed.index {
                state.applied = committed.index;
                state.numbers.extend(committed.payloads.iter().flat_map(|payload| numbers(payload)));
            }
            group.applied(committed.index);
        }
        assert!(output.messages.is_empty(), "there is nobody else");
    }
    assert!(group.is_serving(), "it leads alone");
    state
}

/// What became of groups of which only some replicas are left.
#[derive(Debug, Default)]
struct Totals {
    majorities: usize,
    complete: usize,
    lacking: usize,
    may_lack: usize,
    nobody: usize,
}

/// All ways to lose some of the nodes of a world that stands still.
fn lose_any(seed: u64, world: &World, totals: &mut Totals) {
    let acknowledged: BTreeSet<u64> = world.answers.acknowledged.iter().copied().collect();
    for lost in 1..(1_u32 << world.replicas.len()) - 1 {
        let is_left = |at: &usize| lost & (1 << at) == 0 && world.replicas[*at].is_there;
        let left: Vec<usize> = (0..world.replicas.len()).filter(is_left).collect();
        let logged = left.iter().map(|at| {
            let settings = world.settings(*at);
            LoggedReplica::read(&world.replicas[*at].disk.log, &settings.initial_members).expect("it can be read")
        });
        let logged: Vec<_> = logged.collect();
        let candidates = left.iter().zip(&logged).map(|(at, logged)| {
            let replica = world.replicas[*at].id;
            Left { replica, logged, has_tail: true }
        });
        let candidates: Vec<_> = candidates.collect();
        let (at, lacks) = match heir(&candidates) {
            Heir::Majority => {
                totals.majorities += 1;
                // Whoever it elects has what the longest log has. A witness has no state to compare.
                let most = (0..left.len()).max_by_key(|at| logged[*at].end).expect("some are left");
                if candidates[most].replica.is_witness() {
                    continue;
                }
                (left[most], None)
            }
            Heir::Nobody => {
                totals.nobody += 1;
                continue;
            }
            Heir::Replica { at, lacks } => {
                totals.complete += usize::from(lacks.is_none());
                (left[at], lacks)
            }
        };
        let replica = &world.replicas[at];
        let mut recovered = replica.disk.log.clone();
        leave_alone(ID, &mut recovered, replica.id);
        let state = run_alone(world.settings(at), recovered, replica.disk.checkpoint.clone());
        let state: BTreeSet<_> = state.numbers.into_iter().collect();
        let missing = acknowledged.difference(&state).next();
        let place = || format!("seed {seed}, lost {lost:b}, {:?} goes on", replica.id);
        match (lacks, missing) {
            (None, None) => {}
            (None, Some(missing)) => panic!("{}: it lacks {missing} and is said to lack nothing", place()),
            (Some(_), missing) => {
                totals.may_lack += 1;
                totals.lacking += usize::from(missing.is_some());
            }
        }
    }
}

#[test]
fn what_is_said_to_be_complete_has_everything_acknowledged() {
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| kind.log == Log::Synced && kind.nodes <= 5).collect();
    let mut totals = Totals::default();
    for seed in 0..600 {
        let mut world = World::new(seed, kinds[seed as usize % kinds.len()]);
        live_for(&mut world, 1_500);
        (0..world.replicas.len()).for_each(|at| world.crash(at));
        for replica in &mut world.replicas {
            replica.state = replica.disk.checkpoint.clone();
        }
        lose_any(seed, &world, &mut totals);
    }
    eprintln!("{totals:?}");
    let Totals { majorities, complete, lacking, may_lack, .. } = totals;
    assert!(majorities > 1_000 && complete > 200 && lacking > 100 && may_lack > lacking, "{totals:?}");
}
