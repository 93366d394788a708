//! Groups of several replicas in a simulated world: a network that delays, loses, repeats, reorders and cuts off, disks
//! that lose what was not fsynced, clocks that run apart, crashes, also between the two writes that a snapshot takes,
//! processes that are stopped for a while and then find messages of several terms, and an operator who moves replicas
//! from node to node all the while. All of it comes from a seed, so a failure repeats.
//!
//! Checked all along: replicas apply the same entries in the same order; an entry carries the same in every message;
//! what was acknowledged is in every later read under a lease; nobody holds a lease beside another leader. And in the
//! end, when the world is at peace: everything acknowledged is everywhere.

mod disk;
mod held_back;
mod lost_majority;
mod member_progress;
mod power;
mod survival;
mod transactions;
mod world;

use super::*;
use crate::log::StoredEntry;
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::Snapshot;
use rand::Rng;
use std::collections::{BTreeSet, HashMap};
use world::{Answers, ID, Kind, Log, Replica, World};

/// A part of a world's life, with all that may happen to it.
fn live_for(world: &mut World, steps: usize) {
    for step in 0..steps {
        world.step();
        if step % 200 == 0 {
            world.wake_what_waits();
        }
        // At times nobody wants anything.
        if !is_quiet(step) && world.random.random_bool(0.3) {
            world.write();
        }
        go_wrong(world, step);
    }
}

fn is_quiet(step: usize) -> bool {
    step % 5_000 > 3_000
}

/// What may happen in a step beside what clients do.
fn go_wrong(world: &mut World, step: usize) {
    if world.random.random_bool(if is_quiet(step) { 0.001 } else { 0.01 }) {
        world.disturb();
    }
    if world.kind.nodes as usize > world.kind.initial_members && world.random.random_bool(0.005) {
        world.move_replicas();
    }
}

/// A whole life of a world, up to peace; and what must be so then.
fn live(seed: u64, kind: Kind, steps: usize) -> World {
    let mut world = World::new(seed, kind);
    world.tears = 0.1;
    live_for(&mut world, steps);
    world.heal();
    world.tears = 0.0;
    for step in 0..4_000 {
        world.step();
        if step % 200 == 0 {
            world.wake_what_waits();
            // A read wakes whoever leads and rests.
            world.wake_leaders();
        }
    }
    world.wake_leaders();
    (0..60).for_each(|_| world.step());
    let acknowledged: BTreeSet<_> = world.answers.acknowledged.iter().copied().collect();
    let done = world.answers.refused.iter().find(|number| world.agreed.contains(number));
    assert_eq!(done, None, "seed {seed}: a write took effect that was said not to");
    let leader = world.readers.first().and_then(|at| world.replicas[*at].group.as_ref());
    let (voters, learners) =
        leader.unwrap_or_else(|| panic!("seed {seed}: nobody leads: {}", world.describe())).members();
    let is_member = |replica: &&Replica| voters.contains(&replica.id) || learners.contains(&replica.id);
    for replica in world.replicas.iter().filter(is_member).filter(|replica| !replica.id.is_witness()) {
        let state: BTreeSet<_> = replica.state.numbers.iter().copied().collect();
        let lost: Vec<_> = acknowledged.difference(&state).collect();
        let some = &lost[..lost.len().min(10)];
        assert!(
            lost.is_empty(),
            "seed {seed}: {:?} lacks {} such as {some:?}, {}",
            replica.id,
            lost.len(),
            world.describe()
        );
        assert_eq!(replica.state.numbers, world.agreed, "seed {seed}: {:?} has not caught up", replica.id);
    }
    world
}

const STEADY: Kind = Kind { nodes: 3, initial_members: 3, has_witnesses: false, log: Log::Synced };
const MOVING: Kind = Kind { nodes: 5, ..STEADY };
const KINDS: [Kind; 10] = [
    STEADY,
    MOVING,
    Kind { has_witnesses: true, ..STEADY },
    Kind { log: Log::Volatile, ..MOVING },
    Kind { initial_members: 5, ..MOVING },
    Kind { has_witnesses: true, ..MOVING },
    Kind { log: Log::Relaxed, ..MOVING },
    Kind { has_witnesses: true, log: Log::Volatile, ..MOVING },
    Kind { nodes: 7, initial_members: 7, ..STEADY },
    Kind { nodes: 7, initial_members: 5, ..STEADY },
];

/// `TESSERA_SEEDS` sets how many worlds there are; each is minutes of simulated time.
#[test]
fn replicas_agree_and_keep_what_they_acknowledged() {
    let worlds: u64 = std::env::var("TESSERA_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(10);
    let mut totals: HashMap<&str, u64> = HashMap::new();
    for seed in 0..worlds {
        let world = live(seed, KINDS[seed as usize % KINDS.len()], 20_000);
        for (name, count) in [
            ("acknowledged", world.answers.acknowledged.len() as u64),
            ("refused", world.answers.refused.len() as u64),
            ("unknown", world.answers.unknown),
            ("renewed", world.renewed),
            ("torn snapshots", world.torn_snapshots),
            ("messages at once", world.most_at_once as u64),
            ("elections", world.elections),
            ("snapshots", world.snapshots),
            ("changes of members", world.member_changes),
            ("hibernations", world.hibernations),
            ("reads under a lease", world.lease_reads),
            ("reads through the loop", world.answers.loop_reads),
        ] {
            *totals.entry(name).or_default() += count;
        }
    }
    eprintln!("{worlds} worlds: {totals:?}");
    let at_least = |name, least| assert!(totals[name] >= least, "{name}: {}", totals[name]);
    at_least("acknowledged", worlds * 500);
    at_least("elections", worlds);
    at_least("reads under a lease", 1);
    at_least("reads through the loop", worlds * 100);
    at_least("changes of members", worlds);
    at_least("hibernations", worlds);
    at_least("renewed", worlds);
    at_least("torn snapshots", 1);
    at_least("messages at once", worlds * 10);
}

/// A replica that restarts has forgotten that it promised to take part in no election for a while.
#[test]
fn a_restarted_replica_does_not_break_a_lease() {
    for seed in 0..100 {
        let mut world = World::new(seed, STEADY);
        let run = |world: &mut World, millis: u64| (0..millis / 5).for_each(|_| world.step());
        world.loss = 0.0;
        run(&mut world, 1_000);
        world.write();
        run(&mut world, 200);
        // The third node hears of the first one no more and wants to lead; the second, which does hear of it, refuses.
        world.cut.insert((1, 3));
        run(&mut world, 1_500);
        assert_eq!(world.readers, [0], "seed {seed}: the first node leads");
        world.cut.insert((1, 2));
        world.crash(1);
        world.start(1);
        let number = world.answers.acknowledged.len();
        // Elections may be split; a few in a row are not.
        for _ in 0..2_000 {
            world.write();
            world.step();
            if world.answers.acknowledged.len() > number {
                break;
            }
        }
        assert!(world.answers.acknowledged.len() > number, "seed {seed}: the others go on");
    }
}

/// For a while after others have elected another leader, a leader that is cut off does not know.
#[test]
fn a_leader_that_is_cut_off_answers_no_reads() {
    let mut tried = 0;
    for seed in 0..100 {
        let mut world = World::new(seed, STEADY);
        world.loss = 0.0;
        (0..200).for_each(|_| world.step());
        world.write();
        (0..40).for_each(|_| world.step());
        world.cut.extend([(1, 2), (1, 3)]);
        let is_serving = |world: &World, at: usize| world.replicas[at].group.as_ref().is_some_and(Group::is_serving);
        while is_serving(&world, 0) && !is_serving(&world, 1) && !is_serving(&world, 2) {
            world.step();
        }
        let before = world.answers.acknowledged.len();
        let leader = if is_serving(&world, 1) { 1 } else { 2 };
        let group = world.replicas[leader].group.as_mut().expect("it is up");
        group.building().extend_from_slice(&1_000_000u64.to_le_bytes());
        group.replicate(1_000_000, true, false);
        while is_serving(&world, 0) && world.answers.acknowledged.len() == before {
            (0..3).for_each(|at| world.pass(at));
            world.step();
        }
        if is_serving(&world, 0) {
            tried += 1;
            world.read_through_loop(0, 1_000_001);
            (0..400).for_each(|_| world.step());
        }
    }
    assert!(tried > 0, "no leader was left that did not know");
}

/// Of two replicas and a witness, the one replica that has a write is lost.
#[test]
fn a_witness_keeps_what_one_replica_lacks_and_lets_it_lead() {
    for seed in 0..100 {
        for log in [Log::Synced, Log::Volatile] {
            let mut world = World::new(seed, Kind { has_witnesses: true, log, ..STEADY });
            let run = |world: &mut World, millis: u64| (0..millis / 5).for_each(|_| world.step());
            world.loss = 0.0;
            run(&mut world, 1_000);
            assert_eq!(world.readers, [0], "seed {seed}: the first node leads");
            world.cut.extend([(1, 2), (2, 3)]);
            let before = world.answers.acknowledged.len();
            while world.answers.acknowledged.len() < before + 5 {
                world.write();
                world.step();
            }
            world.replicas[0].group = None;
            world.cut.clear();
            run(&mut world, 5_000);
            assert_eq!(world.readers, [1], "seed {seed}, {log:?}: the second node leads: {}", world.describe());
            assert_eq!(world.replicas[1].state.numbers, world.agreed, "seed {seed}, {log:?}");
            assert!(world.replicas[2].state.numbers.is_empty(), "a witness applies nothing");
        }
    }
}

/// A world of two replicas and a witness in which the first one leads and nothing goes wrong, after a second of writes
/// and two more; and how many of its messages since then brought the witness entries.
fn standby(seed: u64, log: Log) -> (World, usize) {
    let mut world = World::new(seed, Kind { has_witnesses: true, log, ..STEADY });
    world.loss = 0.0;
    (0..200).for_each(|_| world.step());
    assert_eq!(world.readers, [0], "seed {seed}: the first node leads");
    let mut told = 0;
    for step in 0..600 {
        world.write();
        world.step();
        let tells = |message: &PeerMessage| message.to().is_witness() && message.has_entries();
        let tells_now = world.network.iter().any(|(_, message)| tells(message));
        told += usize::from(step >= 200 && tells_now);
    }
    (world, told)
}

fn last_index(world: &World, at: usize) -> u64 {
    world.replicas[at].group.as_ref().expect("it is up").node.raft.raft_log.last_index()
}

/// Data replicas that keep up need no witness, and the group hibernates all the same when there is nothing to do.
#[test]
fn a_witness_hears_of_entries_when_it_is_needed_or_nothing_else_is_to_be_done() {
    let (mut world, told) = standby(1, Log::Synced);
    assert_eq!(told, 0, "steps in which the witness was told");
    assert!(last_index(&world, 2) + 300 < last_index(&world, 0));
    let hibernations = world.hibernations;
    (0..1_000).for_each(|_| world.step());
    assert_eq!(last_index(&world, 2), last_index(&world, 0));
    assert!(world.hibernations > hibernations, "{}", world.describe());
}

/// Both data replicas have what a standby witness lacks: whichever is lost, the other one goes on with everything.
#[test]
fn what_a_standby_witness_lacks_survives_the_loss_of_either_replica() {
    for (seed, lost) in (0..100).zip([0, 1].into_iter().cycle()) {
        for log in [Log::Synced, Log::Volatile] {
            let (mut world, _) = standby(seed, log);
            let before = world.answers.acknowledged.len();
            world.replicas[lost].group = None;
            for _ in 0..1_000 {
                world.write();
                world.step();
            }
            assert_eq!(world.readers, [1 - lost], "seed {seed}, {log:?}: {}", world.describe());
            assert!(world.answers.acknowledged.len() > before, "seed {seed}, {log:?}: nothing goes on");
            (0..400).for_each(|_| world.step());
            let state: BTreeSet<_> = world.replicas[1 - lost].state.numbers.iter().copied().collect();
            let kept = world.answers.acknowledged.iter().all(|number| state.contains(number));
            assert!(kept, "seed {seed}, {log:?}: {}", world.describe());
        }
    }
}

/// Both replicas have forgotten the newest entries, which the witness had dropped since they had them. It waits with
/// the one that is left until somebody says that nobody has more; then the group goes on, with what only the witness
/// has.
#[test]
fn a_witness_force_recovers_a_replica_when_all_have_forgotten() {
    for seed in 0..100 {
        let mut world = World::new(seed, Kind { has_witnesses: true, log: Log::Relaxed, ..STEADY });
        let run = |world: &mut World, millis: u64| (0..millis / 5).for_each(|_| world.step());
        let write = |world: &mut World, count: usize| {
            let before = world.answers.acknowledged.len();
            while world.answers.acknowledged.len() < before + count {
                world.write();
                world.step();
            }
            world.answers.acknowledged[before..].to_vec()
        };
        world.loss = 0.0;
        run(&mut world, 1_000);
        assert_eq!(world.readers, [0], "seed {seed}: the first node leads");
        let early = write(&mut world, 5);
        run(&mut world, 2_000);
        let disks = [0, 1].map(|at| world.replicas[at].disk.clone());
        let forgotten = write(&mut world, 5);
        run(&mut world, 2_000); // the witness hears of them and drops them
        world.cut.extend([(1, 2), (2, 3)]);
        let kept = write(&mut world, 5);
        world.cut.clear();
        for (at, disk) in disks.into_iter().enumerate() {
            world.replicas[at].group = None;
            world.replicas[at].disk = disk;
        }
        world.network.clear();
        world.agreed.clear();
        world.answers = Answers::default();
        world.start(1);
        run(&mut world, 5_000);
        let (second, mut was_unreachable) = (world.replicas[1].id, false);
        assert_eq!(world.readers, [], "seed {seed}: {}", world.describe());
        // First what is in its own log counts, so it takes more than one time.
        for _ in 0..100 {
            let witness = world.replicas[2].group.as_mut().expect("it is up");
            was_unreachable |= witness.view().unreachable_by_log == [second];
            witness.force_recover(second);
            run(&mut world, 200);
        }
        assert!(was_unreachable);
        assert_eq!(world.readers, [1], "seed {seed}: the second node leads: {}", world.describe());
        let later = write(&mut world, 5);
        // The first node comes back as it was when its machine lost power, and learns the rest from the leader.
        world.start(0);
        run(&mut world, 3_000);
        for replica in &world.replicas[..2] {
            let has = |numbers: &[u64]| numbers.iter().filter(|number| replica.state.numbers.contains(number)).count();
            let counts = [has(&early), has(&kept), has(&later)];
            assert_eq!(counts, [early.len(), kept.len(), later.len()], "seed {seed}: {}", world.describe());
            assert_eq!(has(&forgotten), 0, "seed {seed}: nobody had them");
        }
    }
}

/// A follower's disk is set back to an earlier time, and its process is started again. Raft ignores that such a
/// follower refuses what it has acknowledged: its leader once counted it among those that have everything, and it never
/// got anything again.
#[test]
fn a_replica_that_lacks_what_it_acknowledged_is_set_aside_by_its_leaders_next_word() {
    for seed in 0..50 {
        for is_hibernating in [false, true] {
            let mut world = World::new(seed, STEADY);
            (world.loses_disks, world.loss) = (true, 0.0);
            let run = |world: &mut World, millis: u64| (0..millis / 5).for_each(|_| world.step());
            run(&mut world, 1_000);
            assert_eq!(world.readers, [0], "seed {seed}: the first node leads");
            let earlier = world.replicas[2].disk.clone();
            let before = world.answers.acknowledged.len();
            while world.answers.acknowledged.len() < before + 10 {
                world.write();
                world.step();
            }
            run(&mut world, if is_hibernating { 10_000 } else { 500 });
            let hibernates = world.replicas[0].group.as_ref().is_some_and(Group::is_hibernating);
            assert_eq!(hibernates, is_hibernating, "seed {seed}: {}", world.describe());
            world.replicas[2].group = None;
            world.replicas[2].disk = earlier;
            world.start(2);
            run(&mut world, 3_000);
            let [(2, Inconsistent::Forgotten { had, has })] = world.set_aside[..] else {
                panic!("seed {seed}: {:?} {}", world.set_aside, world.describe())
            };
            assert!(has + 5 <= had, "seed {seed}: {has} of {had}");
            let before = world.answers.acknowledged.len();
            while world.answers.acknowledged.len() < before + 10 {
                world.write();
                world.step();
            }
        }
    }
}

/// What every replica has, no witness keeps.
#[test]
fn a_witness_forgets_what_everybody_has() {
    let mut world = World::new(1, Kind { has_witnesses: true, ..STEADY });
    for step in 0..2_000 {
        if step < 1_000 {
            world.write();
        }
        world.step();
    }
    let witness = world.replicas[2].group.as_ref().expect("it is up");
    assert!(world.answers.acknowledged.len() > 500);
    assert_eq!(witness.node.store().payload_bytes(), 0, "{}", world.describe());
    assert_eq!(world.replicas[0].group.as_ref().expect("it is up").unreplicated_bytes(), 0);
}

/// What a leader had evaluated and not proposed when it heard of another leader was once taken for proposed: in the entry
/// before, whose fate it then shared.
#[test]
fn what_was_not_proposed_in_time_is_not_acknowledged() {
    let mut world = World::new(1, STEADY);
    world.loss = 0.0;
    (0..400).for_each(|_| world.step());
    assert_eq!(world.readers, [0], "the first node leads");
    let write = |world: &mut World, number: u64| {
        let group = world.replicas[0].group.as_mut().expect("it is up");
        group.building().extend_from_slice(&number.to_le_bytes());
        group.replicate(number, true, false);
    };
    let (earlier, late) = (1_000_000, 1_000_001);
    write(&mut world, earlier);
    world.pass(0);
    world.network.clear();
    write(&mut world, late);
    let raft = &world.replicas[0].group.as_ref().expect("it is up").node.raft;
    let (from, to, term) = (to_raft(world.replicas[1].id), raft.id, raft.term);
    let last = raft.raft_log.last_index();
    let mut hear = |message: Message| {
        let payloads = vec![Payload::default(); message.entries.len()];
        let message = Message { from, to, term: term + 1, ..message };
        let message = PeerMessage { group: ID, hibernates: false, progress: 0, message, payloads };
        world.replicas[0].group.as_mut().expect("it is up").step(message);
        world.pass(0);
    };
    hear(Message { msg_type: MessageType::MsgHeartbeat as i32, ..Default::default() });
    // The new leader has the entry before.
    let own = raft::eraftpb::Entry { index: last + 1, term: term + 1, ..Default::default() };
    let append = MessageType::MsgAppend as i32;
    let entries = vec![own];
    hear(Message { msg_type: append, index: last, log_term: term, commit: last, entries, ..Default::default() });
    (0..10).for_each(|_| world.sync_disk(0));
    let Answers { acknowledged, refused, .. } = &world.answers;
    assert!(acknowledged.contains(&earlier) && !acknowledged.contains(&late), "{acknowledged:?}");
    assert!(refused.contains(&late), "it was never done");
}

/// It once went on from the snapshot's index without knowing the members, and failed at their first change.
#[test]
fn a_snapshot_that_the_log_does_not_know_of_is_taken_again() {
    let id = |node| ReplicaId { node: NodeId(node), incarnation: 0 };
    let settings = GroupSettings {
        persistent: true,
        synced: true,
        applied: 7,
        applied_term: None,
        replica: id(2),
        initial_members: Vec::new(),
    };
    let state = StoredState { term: 5, vote: 0, commit: 0 };
    let mut group: Group<u64> = Group::new(ID, settings, RecoveredGroup { state, ..Default::default() }).unwrap();
    let mut hear = |message: Message| {
        let payloads = vec![Payload::default(); message.entries.len()];
        let message = Message { from: to_raft(id(1)), to: to_raft(id(2)), term: 5, ..message };
        let message = PeerMessage { group: ID, hibernates: false, progress: 0, message, payloads };
        let would_install = group.would_install(&message);
        group.step(message);
        let mut output = PassOutput::default();
        group.collect(&mut output, &mut |_, _, _| Ok(())).unwrap();
        (would_install, output.committed.len(), group.view().applied)
    };
    let change = raft::eraftpb::Entry {
        entry_type: EntryType::EntryConfChangeV2 as i32,
        index: 8,
        term: 5,
        data: raft::eraftpb::ConfChangeV2::default().encode_to_vec(),
        ..Default::default()
    };
    let append = MessageType::MsgAppend as i32;
    let entries = vec![change];
    let heard = hear(Message { msg_type: append, index: 7, log_term: 5, commit: 8, entries, ..Default::default() });
    assert_eq!(heard, (false, 0, 0));
    let mut snapshot = Snapshot { data: vec![0; 8], ..Default::default() };
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (9, 5);
    *metadata.mut_conf_state() =
        ConfState { voters: vec![to_raft(id(1))], learners: vec![to_raft(id(2))], ..Default::default() };
    let kind = MessageType::MsgSnapshot as i32;
    let heard = hear(Message { msg_type: kind, snapshot: Some(snapshot), ..Default::default() });
    assert_eq!(heard, (true, 0, 9));
}

/// What it has of an earlier term at the snapshot's index and behind was replaced by what the leader has. It once
/// counted that too, and could not take the snapshot any more.
#[test]
fn forced_recovery_ends_at_the_snapshots_index_even_if_the_log_is_longer() {
    let id = |node| ReplicaId { node: NodeId(node), incarnation: 0 };
    let witness = ReplicaId::new_witness(NodeId(3), 0);
    let initial_members = vec![id(1), id(2), witness];
    let settings = GroupSettings {
        persistent: true,
        synced: false,
        applied: 0,
        applied_term: None,
        replica: id(2),
        initial_members,
    };
    let entries = (1..=25).map(|index| StoredEntry { index, term: 1, kind: 0, payload: Bytes::new() }).collect();
    let state = StoredState { term: 2, vote: 0, commit: 0 };
    let mut group: Group<u64> =
        Group::new(ID, settings, RecoveredGroup { state, entries, ..Default::default() }).unwrap();
    let mut snapshot = Snapshot { data: vec![0; 8], ..Default::default() };
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (20, 2);
    metadata.mut_conf_state().voters = [id(1), id(2), witness].map(to_raft).to_vec();
    let (kind, from, to) = (MessageType::MsgSnapshot as i32, to_raft(witness), to_raft(id(2)));
    let message = Message { msg_type: kind, from, to, term: 2, snapshot: Some(snapshot), ..Default::default() };
    let recovery = PeerMessage { group: ID, hibernates: false, progress: 0, message, payloads: Vec::new() };
    let mut hear = || {
        let would_install = group.would_install(&recovery);
        group.step(recovery.clone());
        let mut output = PassOutput::default();
        group.collect(&mut output, &mut |_, _, _| Ok(())).unwrap();
        output.committed.iter().for_each(|committed| _ = group.applied(committed.index));
        (would_install, group.view().applied, group.node.raft.raft_log.last_index())
    };
    assert_eq!(hear(), (false, 19, 25));
    assert_eq!(hear(), (true, 20, 20));
}

/// It once said so as soon as the entry was queued for the log, and a kill in that moment made it forget.
#[test]
fn a_replica_has_an_entry_when_it_is_written_not_before() {
    let id = |node| ReplicaId { node: NodeId(node), incarnation: 0 };
    let initial_members = vec![id(1), id(2), id(3)];
    let settings = GroupSettings {
        persistent: true,
        synced: false,
        applied: 0,
        applied_term: None,
        replica: id(2),
        initial_members,
    };
    let state = StoredState { term: 5, vote: 0, commit: 0 };
    let mut group: Group<u64> = Group::new(ID, settings, RecoveredGroup { state, ..Default::default() }).unwrap();
    let entries = vec![raft::eraftpb::Entry { index: 1, term: 5, ..Default::default() }];
    let append = Message {
        msg_type: MessageType::MsgAppend as i32,
        from: to_raft(id(1)),
        to: to_raft(id(2)),
        term: 5,
        entries,
        ..Default::default()
    };
    let payloads = vec![Payload::default()];
    group.step(PeerMessage { group: ID, hibernates: false, progress: 0, message: append, payloads });
    let collect = |group: &mut Group<u64>| {
        let mut output = PassOutput::default();
        group.collect(&mut output, &mut |_, _, _| Ok(())).unwrap();
        output
    };
    let output = collect(&mut group);
    assert!(output.messages.is_empty() && output.records.len() == 1, "nothing is said yet");
    let [(_, number)] = output.awaiting_stage[..] else { panic!("it waits for the log") };
    assert!(!output.sync, "it need not be fsynced");
    group.persisted(number);
    let said = collect(&mut group).messages;
    assert_eq!(said[0].message.msg_type(), MessageType::MsgAppendResponse);
}
