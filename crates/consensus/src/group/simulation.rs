//! Groups of several replicas in a simulated world: a network that delays, loses, repeats, reorders and cuts off, disks
//! that lose what was not fsynced, clocks that run apart, crashes, and an operator who moves replicas from node to node
//! all the while. All of it comes from a seed, so a failure repeats.
//!
//! Checked all along: replicas apply the same entries in the same order; what was acknowledged is in every later read
//! under a lease; nobody holds a lease beside another leader. And in the end, when the world is at peace: everything
//! acknowledged is everywhere.

use super::*;
use crate::Failure;
use crate::log::LogRecord;
use raft::eraftpb::Snapshot;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeSet, HashMap};

const ID: GroupId = GroupId(1);
/// The world moves on in steps of this length.
const STEP: Duration = Duration::from_millis(5);

/// What a disk holds of the group: the log, and the state machine's last checkpoint.
#[derive(Clone, Default)]
struct Disk {
    log: RecoveredGroup,
    checkpoint: State,
    /// Written and not fsynced yet, with the ready that waits for that.
    unsynced: Vec<(Vec<LogRecord>, Option<u64>)>,
}

/// The state machine: the numbers that were written, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    applied: u64,
    numbers: Vec<u64>,
}

impl State {
    fn to_snapshot(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }
}

/// What clients were told.
#[derive(Default)]
struct Answers {
    acknowledged: Vec<u64>,
    /// Writes that were said not to be done.
    refused: Vec<u64>,
    unknown: u64,
    /// Reads through the loop that wait for their answer: what they saw lacks these of what was acknowledged before.
    reads: HashMap<u64, Option<u64>>,
    loop_reads: u64,
}

impl Answers {
    /// A write is acknowledged; a read is answered, and then nothing may be missing in what it saw.
    fn take(&mut self, number: u64, outcome: Result<(), Failure>) {
        match (self.reads.remove(&number), outcome) {
            (None, Ok(())) => self.acknowledged.push(number),
            (None, Err(Failure::NotServing)) => self.refused.push(number),
            (None, Err(_)) => self.unknown += 1,
            (Some(missing), Ok(())) => {
                self.loop_reads += 1;
                assert_eq!(missing, None, "a read was answered by what was no longer so");
            }
            (Some(_), Err(_)) => {}
        }
    }
}

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
struct Kind {
    nodes: u32,
    founders: usize,
    /// Whether some replicas are witnesses, the last founder to begin with.
    has_witnesses: bool,
    log: Log,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Log {
    /// Fsynced before anything counts.
    Synced,
    /// Fsynced at some time: what a machine had not fsynced when it crashed is lost.
    Relaxed,
    /// In memory only.
    Volatile,
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect()
}

impl Disk {
    fn write(&mut self, record: LogRecord) {
        match record {
            LogRecord::Entries { entries, .. } => {
                let first = entries[0].index;
                self.log.entries.retain(|entry| entry.index < first);
                self.log.entries.extend(entries);
            }
            LogRecord::State { state, .. } => self.log.state = state,
            LogRecord::Truncated { index, term, .. } => {
                self.log.truncated = (index, term);
                self.log.entries.retain(|entry| entry.index > index);
            }
            LogRecord::Restored { index, term, .. } => {
                self.log.truncated = (index, term);
                self.log.entries.clear();
            }
            LogRecord::Members { index, members, .. } => self.log.members = (index, members),
            LogRecord::Removed { .. } => unreachable!("replicas are removed with their disk"),
        }
    }
}

struct Replica {
    id: ReplicaId,
    /// Nodes without a replica have this one's place empty.
    is_there: bool,
    group: Option<Group<u64>>,
    state: State,
    disk: Disk,
    /// `None` is for ever.
    lease: Option<Duration>,
    /// Of the replica's own clock.
    clock_rate: f64,
    next_tick: Duration,
    started: Duration,
    /// Whether it has been given something since its last pass.
    is_touched: bool,
}

struct World {
    kind: Kind,
    random: StdRng,
    now: Duration,
    founders: Vec<ReplicaId>,
    replicas: Vec<Replica>,
    /// Messages under way, each with when it arrives.
    network: Vec<(Duration, PeerMessage)>,
    /// Pairs of nodes that do not reach each other.
    cut: BTreeSet<(u32, u32)>,
    loss: f64,
    /// Longest log that was seen, to compare all others with.
    agreed: Vec<u64>,
    answers: Answers,
    next_number: u64,
    elections: u64,
    snapshots: u64,
    lease_reads: u64,
    /// How often a leader lay down, and how often a replica came back as another one.
    rests: u64,
    renewed: u64,
    /// Whoever holds a lease.
    readers: Vec<usize>,
    member_changes: u64,
}

impl World {
    /// With the group's first replicas on the first of the nodes.
    fn new(seed: u64, kind: Kind) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut ids: Vec<_> = (1..=kind.nodes).map(|node| ReplicaId { node: NodeId(node), incarnation: 0 }).collect();
        if kind.has_witnesses {
            ids[kind.founders - 1] = ReplicaId::new_witness(ids[kind.founders - 1].node, 0);
        }
        let founders = ids[..kind.founders].to_vec();
        let replica = |id| Replica {
            id,
            is_there: founders.contains(&id),
            group: None,
            state: State::default(),
            disk: Disk::default(),
            lease: Some(Duration::ZERO),
            clock_rate: random.random_range(0.96..1.04),
            next_tick: Duration::ZERO,
            started: Duration::ZERO,
            is_touched: false,
        };
        let replicas: Vec<_> = ids.into_iter().map(replica).collect();
        let mut world = Self {
            kind,
            random,
            now: Duration::ZERO,
            founders,
            replicas,
            network: Vec::new(),
            cut: BTreeSet::new(),
            loss: 0.02,
            agreed: Vec::new(),
            answers: Answers::default(),
            next_number: 0,
            elections: 0,
            snapshots: 0,
            lease_reads: 0,
            rests: 0,
            renewed: 0,
            readers: Vec::new(),
            member_changes: 0,
        };
        (0..world.replicas.len()).for_each(|at| world.start(at));
        world
    }

    fn start(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        if !replica.is_there {
            return;
        }
        replica.state = replica.disk.checkpoint.clone();
        replica.started = self.now;
        replica.next_tick = self.now + TICK;
        replica.lease = Some(Duration::ZERO);
        let settings = GroupSettings {
            persistent: self.kind.log != Log::Volatile,
            synced: self.kind.log == Log::Synced,
            applied: replica.state.applied,
            replica: replica.id,
            founders: if self.founders.contains(&replica.id) { self.founders.clone() } else { Vec::new() },
        };
        replica.group = Some(Group::new(ID, settings, replica.disk.log.clone()));
        self.pass(at);
    }

    /// Ends a replica at once. Of what was not fsynced a random part, in order, is on disk. If that may be less than what
    /// counted, the replica is gone, and another one may come in its place; so this does not happen to a majority.
    fn crash(&mut self, at: usize) {
        let unsynced = self.replicas[at].disk.unsynced.len();
        let survives = match self.kind.log {
            Log::Synced => self.random.random_range(0..=unsynced),
            // The process crashes, or its machine.
            Log::Relaxed if self.random.random_bool(0.5) => unsynced,
            Log::Relaxed | Log::Volatile => {
                if self.can_lose(at) {
                    self.renew(at);
                }
                return;
            }
        };
        let replica = &mut self.replicas[at];
        replica.group = None;
        for (records, _) in std::mem::take(&mut replica.disk.unsynced).into_iter().take(survives) {
            records.into_iter().for_each(|record| replica.disk.write(record));
        }
    }

    /// Whether enough voters remain if this one is lost, as far as the leader knows.
    fn can_lose(&self, at: usize) -> bool {
        let leader = self.readers.first().and_then(|at| self.replicas[*at].group.as_ref());
        let Some(leader) = leader.filter(|leader| !leader.is_changing()) else { return false };
        let lives = |id: &&ReplicaId| self.replicas.iter().any(|replica| replica.id == **id && replica.is_there);
        let (voters, _) = leader.members();
        let remain = voters.iter().filter(lives).filter(|id| **id != self.replicas[at].id).count();
        remain > voters.len() / 2
    }

    /// What a node had is gone for good. What it may get later is another replica.
    fn renew(&mut self, at: usize) {
        let is_witness = self.kind.has_witnesses && self.random.random_bool(0.3);
        let replica = &mut self.replicas[at];
        let incarnation =
            replica.id.to_string().trim_end_matches('w').split_once('.').unwrap().1.parse::<u32>().unwrap() + 1;
        let node = replica.id.node;
        replica.id =
            if is_witness { ReplicaId::new_witness(node, incarnation) } else { ReplicaId { node, incarnation } };
        self.renewed += u64::from(replica.is_there);
        replica.is_there = false;
        replica.group = None;
        replica.disk = Disk::default();
        replica.state = State::default();
    }

    /// The worker's loop may find more to do before the pass.
    fn pass_now_or_later(&mut self, at: usize) {
        self.replicas[at].is_touched = true;
        if self.random.random_bool(0.5) {
            self.pass(at);
        }
    }

    /// What the worker's loop does after messages, ticks and commands.
    fn pass(&mut self, at: usize) {
        self.replicas[at].is_touched = false;
        loop {
            let replica = &mut self.replicas[at];
            let Some(group) = &mut replica.group else { return };
            group.propose();
            let mut output = PassOutput::default();
            let (state, disk, snapshots) = (&mut replica.state, &mut replica.disk, &mut self.snapshots);
            group.collect(&mut output, &mut |_, index, snapshot| {
                *state = State { applied: index, numbers: numbers(snapshot) };
                // Restoring is durable before it returns.
                disk.checkpoint = state.clone();
                *snapshots += 1;
                Ok(())
            });
            if !output.deposed.is_empty() {
                for number in group.depose() {
                    self.answers.take(number, Err(Failure::NotServing));
                }
                replica.lease = Some(Duration::ZERO);
            }
            for (_, until) in output.leases {
                replica.lease = until;
            }
            if !output.answerable.is_empty() {
                while let Some((number, outcome)) = group.next_answerable() {
                    self.answers.take(number, outcome);
                }
            }
            for (_, index) in output.witnessed {
                group.applied(index);
            }
            if !output.snapshots_wanted.is_empty() {
                group.offer_snapshot(replica.state.applied, replica.state.to_snapshot());
            }
            let number = output.waiting.last().map(|(_, number)| *number);
            // What need not be fsynced counts as soon as it is written, unless what is before it waits for that.
            let waits = output.sync || replica.disk.unsynced.iter().any(|(_, number)| number.is_some());
            let is_written = number.filter(|_| !waits);
            if !output.records.is_empty() || number.is_some() {
                // A snapshot's place in the log is on disk as soon as its state is.
                replica.disk.unsynced.push((output.records, number.filter(|_| waits)));
            }
            is_written.into_iter().for_each(|number| group.persisted(number));
            let committed = std::mem::take(&mut output.committed);
            let is_done = committed.is_empty() && is_written.is_none();
            for Committed { index, payloads, .. } in committed {
                if replica.state.applied < index {
                    replica.state.applied = index;
                    replica.state.numbers.extend(payloads.iter().flat_map(|payload| numbers(payload)));
                }
                if group.applied(index) {
                    self.elections += 1;
                    replica.lease = group.lease();
                }
                while let Some((number, outcome)) = group.next_answerable() {
                    self.answers.take(number, outcome);
                }
            }
            for message in output.messages {
                self.post(message);
            }
            if is_done {
                break;
            }
        }
        self.check_agreement(at);
    }

    fn post(&mut self, message: PeerMessage) {
        let copies = if self.random.random_bool(self.loss) { self.random.random_range(0..=2) } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_micros(self.random.random_range(100..30_000));
            let mut encoded = BytesMut::new();
            message.encode(&mut encoded);
            let decoded = PeerMessage::decode(&mut encoded.freeze()).expect("just encoded");
            self.network.push((self.now + delay, decoded));
        }
    }

    fn check_agreement(&mut self, at: usize) {
        let numbers = &self.replicas[at].state.numbers;
        let common = numbers.len().min(self.agreed.len());
        assert_eq!(numbers[..common], self.agreed[..common], "{:?} applied something else", self.replicas[at].id);
        if numbers.len() > common {
            self.agreed = numbers.clone();
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.network).into_iter().partition(|(at, _)| *at <= now);
        self.network = later;
        let due: Vec<(Duration, PeerMessage)> = due;
        for (_, message) in due {
            let (from, to) = (message.from().node.0, message.to().node.0);
            if self.cut.contains(&(from.min(to), from.max(to))) {
                continue;
            }
            let at = to as usize - 1;
            if let Some(group) = &mut self.replicas[at].group {
                group.step(message);
                self.pass_now_or_later(at);
            }
        }
        for at in 0..self.replicas.len() {
            if self.replicas[at].is_touched {
                self.pass(at);
            }
            let replica = &mut self.replicas[at];
            if now >= replica.next_tick
                && let Some(group) = &mut replica.group
            {
                replica.next_tick += TICK.div_f64(replica.clock_rate);
                group.tick(now - replica.started);
                if group.is_tired() {
                    group.lie_down();
                    self.rests += 1;
                }
                self.pass(at);
            }
            self.sync_disk(at);
        }
        self.read_under_leases();
    }

    /// Now and then the disk has caught up with what was written.
    fn sync_disk(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        if replica.group.is_none() || replica.disk.unsynced.is_empty() || self.random.random_bool(0.5) {
            return;
        }
        let mut last = None;
        for (records, number) in std::mem::take(&mut replica.disk.unsynced) {
            records.into_iter().for_each(|record| replica.disk.write(record));
            last = number.or(last);
        }
        if let (Some(number), Some(group)) = (last, &mut replica.group) {
            group.persisted(number);
            self.pass(at);
        }
    }

    /// Each node wakes what waits for leaders on nodes that it does not hear of.
    fn wake_what_waits(&mut self) {
        for at in 0..self.replicas.len() {
            for other in 0..self.replicas.len() {
                let (low, high) = (at.min(other) as u32 + 1, at.max(other) as u32 + 1);
                let is_heard = self.replicas[other].group.is_some() && !self.cut.contains(&(low, high));
                let node = self.replicas[other].id.node;
                if let Some(group) = self.replicas[at].group.as_mut().filter(|_| !is_heard) {
                    group.wake_if_led_by(node);
                }
            }
        }
    }

    fn read_under_leases(&mut self) {
        let reading: Vec<usize> = (0..self.replicas.len())
            .filter(|at| {
                let replica = &self.replicas[*at];
                let own_time = self.now - replica.started;
                let has_lease = replica.lease.is_none_or(|until| own_time < until);
                replica.group.as_ref().is_some_and(Group::is_serving) && has_lease
            })
            .collect();
        self.readers.clone_from(&reading);
        assert!(reading.len() <= 1, "two leaders with leases: {reading:?}");
        for at in reading {
            self.lease_reads += 1;
            let known: BTreeSet<_> = self.replicas[at].state.numbers.iter().collect();
            let missing = self.answers.acknowledged.iter().rev().take(50).find(|number| !known.contains(number));
            assert_eq!(missing, None, "{:?} reads under a lease", self.replicas[at].id);
        }
    }

    /// A client writes to whoever says that it leads.
    fn write(&mut self) {
        let leaders = |replica: &Replica| replica.group.as_ref().is_some_and(Group::is_serving);
        let candidates: Vec<_> = (0..self.replicas.len()).filter(|at| leaders(&self.replicas[*at])).collect();
        let Some(&at) = candidates.choose(&mut self.random) else { return };
        let group = self.replicas[at].group.as_mut().unwrap();
        for _ in 0..self.random.random_range(1..4) {
            let number = self.next_number;
            self.next_number += 1;
            if self.random.random_bool(0.3) && group.building.is_empty() {
                return self.read_through_loop(at, number);
            }
            group.building.extend_from_slice(&number.to_le_bytes());
            group.replicate(number, true, false);
        }
        self.pass_now_or_later(at);
    }

    /// A read that is carried out like a write.
    fn read_through_loop(&mut self, at: usize, number: u64) {
        let replica = &mut self.replicas[at];
        let known: BTreeSet<_> = replica.state.numbers.iter().collect();
        let missing = self.answers.acknowledged.iter().rev().take(50).find(|number| !known.contains(number)).copied();
        self.answers.reads.insert(number, missing);
        let now = self.now - replica.started;
        let confirm = number.is_multiple_of(2);
        if let Some(number) = replica.group.as_mut().expect("it serves").follow(number, confirm, || now) {
            self.answers.take(number, Ok(()));
        }
        self.pass(at);
    }

    fn disturb(&mut self) {
        let at = self.random.random_range(0..self.replicas.len());
        match self.random.random_range(0..100) {
            0..20 => self.crash(at),
            20..60 => {
                if self.replicas[at].group.is_none() {
                    self.start(at);
                }
            }
            60..67 => {
                let own = at as u32 + 1;
                let others = (1..=self.replicas.len() as u32).filter(|other| *other != own);
                self.cut.extend(others.map(|other| (own.min(other), own.max(other))));
            }
            67..75 => {
                let other = self.random.random_range(0..self.replicas.len());
                let (low, high) = (at.min(other) as u32 + 1, at.max(other) as u32 + 1);
                self.cut.insert((low, high));
            }
            75..95 => self.cut.clear(),
            95..98 => {
                let replica = &mut self.replicas[at];
                let before = std::mem::replace(&mut replica.disk.checkpoint, replica.state.clone());
                // A checkpoint reflects nothing that the log could still lose.
                let log = &replica.disk.log;
                let durable = log.entries.back().map_or(log.truncated.0, |last| last.index);
                if replica.state.applied > durable {
                    replica.disk.checkpoint = before;
                }
            }
            _ => self.loss = self.random.random_range(0.0..0.3),
        }
    }

    /// The operator asks the leader to move replicas, or to let another one lead, and cleans up behind earlier moves.
    fn move_replicas(&mut self) {
        let is_up = |at: &&usize| self.replicas[**at].group.is_some();
        let Some(&leading) = self.readers.iter().find(is_up) else { return };
        let leader = self.replicas[leading].group.as_ref().expect("it is up");
        let (voters, learners) = leader.members();
        if self.random.random_bool(0.2) {
            let to = *voters.choose(&mut self.random).expect("there are voters");
            if self.replicas[leading].group.as_mut().expect("it is up").hand_over(to) {
                self.replicas[leading].lease = Some(Duration::ZERO);
            }
            return self.pass(leading);
        }
        // A leader with a lease and no change under way knows who is no member: such replicas go, and never come back as
        // themselves.
        let members: Vec<_> = voters.iter().chain(&learners).copied().collect();
        let is_idle = !leader.node.raft.has_pending_conf();
        for at in 0..self.replicas.len() {
            if is_idle && !members.contains(&self.replicas[at].id) {
                self.renew(at);
            }
        }
        let nodes: Vec<usize> = (0..self.replicas.len()).collect();
        let (witnesses, keepers): (Vec<usize>, Vec<usize>) =
            nodes.iter().partition(|at| self.replicas[**at].id.is_witness());
        let target = self.random.random_range(1..=3);
        let mut wanted: Vec<usize> = keepers.choose_multiple(&mut self.random, target).copied().collect();
        if wanted.len() == 2 {
            // The third vote.
            wanted.extend(witnesses.choose(&mut self.random));
        }
        // Members that are lost for good.
        let is_known = |id: &&ReplicaId| self.replicas.iter().any(|replica| replica.id == **id);
        let mut changes: Vec<_> =
            members.iter().filter(|id| !is_known(id)).map(|id| MemberChange::Remove(*id)).collect();
        for at in nodes {
            let id = self.replicas[at].id;
            if wanted.contains(&at) || at == leading {
                if !self.replicas[at].is_there {
                    self.replicas[at].is_there = true;
                    self.start(at);
                }
                if !voters.contains(&id) {
                    let early = self.random.random_bool(0.3);
                    changes.push(if early { MemberChange::Learner(id) } else { MemberChange::Voter(id) });
                }
            } else if members.contains(&id) {
                changes.push(MemberChange::Remove(id));
            }
        }
        let Some(leader) = self.replicas[leading].group.as_mut() else { return };
        if !changes.is_empty() && leader.change_members(&changes) {
            self.member_changes += 1;
        }
        self.pass(leading);
    }

    fn describe(&self) -> String {
        let replicas = self.replicas.iter().filter_map(|replica| {
            let group = replica.group.as_ref()?;
            let (raft, members) = (&group.node.raft, group.node.store().members());
            let progress: Vec<_> = if group.is_leader() { raft.prs().iter().collect() } else { Vec::new() };
            Some(format!(
                "\n{:?} {:?} of term {}, lease {:?}, members {members:?} of {}, applied {}, {progress:?}",
                replica.id,
                raft.state,
                raft.term,
                replica.lease,
                group.node.store().members_index(),
                group.applied
            ))
        });
        replicas.collect()
    }

    fn wake_leaders(&mut self) {
        for at in 0..self.replicas.len() {
            let replica = &mut self.replicas[at];
            if let Some(group) = replica.group.as_mut().filter(|group| group.is_resting() && group.is_serving()) {
                group.wake(self.now - replica.started);
                self.pass(at);
            }
        }
    }

    fn heal(&mut self) {
        self.cut.clear();
        self.loss = 0.0;
        for at in 0..self.replicas.len() {
            if self.replicas[at].group.is_none() {
                self.start(at);
            }
        }
    }
}

fn live(seed: u64, kind: Kind, steps: usize) -> World {
    let mut world = World::new(seed, kind);
    for step in 0..steps {
        world.step();
        if step % 200 == 0 {
            world.wake_what_waits();
        }
        // At times nobody wants anything.
        let is_quiet = step % 5_000 > 3_000;
        if !is_quiet && world.random.random_bool(0.3) {
            world.write();
        }
        if world.random.random_bool(if is_quiet { 0.001 } else { 0.01 }) {
            world.disturb();
        }
        if kind.nodes as usize > kind.founders && world.random.random_bool(0.005) {
            world.move_replicas();
        }
    }
    world.heal();
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

const STEADY: Kind = Kind { nodes: 3, founders: 3, has_witnesses: false, log: Log::Synced };
const MOVING: Kind = Kind { nodes: 5, ..STEADY };
const KINDS: [Kind; 8] = [
    STEADY,
    MOVING,
    Kind { has_witnesses: true, ..STEADY },
    Kind { log: Log::Volatile, ..MOVING },
    Kind { founders: 5, ..MOVING },
    Kind { has_witnesses: true, ..MOVING },
    Kind { log: Log::Relaxed, ..MOVING },
    Kind { has_witnesses: true, log: Log::Volatile, ..MOVING },
];

/// Worlds that found something: a voter that was blank when the others with records were lost; a witness that led, and never
/// handed over, while a member needed a snapshot.
const FOUND: [u64; 2] = [95, 167];

/// `TESSERA_SEEDS` sets how many worlds there are; each is minutes of simulated time.
#[test]
fn replicas_agree_and_keep_what_they_acknowledged() {
    let worlds: u64 = std::env::var("TESSERA_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(8);
    let mut totals: HashMap<&str, u64> = HashMap::new();
    for seed in (0..worlds).chain(FOUND) {
        let world = live(seed, KINDS[seed as usize % KINDS.len()], 20_000);
        for (name, count) in [
            ("acknowledged", world.answers.acknowledged.len() as u64),
            ("refused", world.answers.refused.len() as u64),
            ("unknown", world.answers.unknown),
            ("renewed", world.renewed),
            ("elections", world.elections),
            ("snapshots", world.snapshots),
            ("changes of members", world.member_changes),
            ("rests", world.rests),
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
    at_least("rests", worlds);
    at_least("renewed", worlds);
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
        group.building.extend_from_slice(&1_000_000u64.to_le_bytes());
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
    assert_eq!(world.replicas[0].group.as_ref().expect("it is up").owed_bytes(), 0);
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
        group.building.extend_from_slice(&number.to_le_bytes());
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
        let message = PeerMessage { group: ID, rests: false, progress: 0, message, payloads };
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
    let settings = GroupSettings { persistent: true, synced: true, applied: 7, replica: id(2), founders: Vec::new() };
    let state = StoredState { term: 5, vote: 0, commit: 0 };
    let mut group: Group<u64> = Group::new(ID, settings, RecoveredGroup { state, ..Default::default() });
    let mut hear = |message: Message| {
        let payloads = vec![Payload::default(); message.entries.len()];
        let message = Message { from: to_raft(id(1)), to: to_raft(id(2)), term: 5, ..message };
        let message = PeerMessage { group: ID, rests: false, progress: 0, message, payloads };
        let would_install = group.would_install(&message);
        group.step(message);
        let mut output = PassOutput::default();
        group.collect(&mut output, &mut |_, _, _| Ok(()));
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

/// It once said so as soon as the entry was queued for the log, and a kill in that moment made it forget.
#[test]
fn a_replica_has_an_entry_when_it_is_written_not_before() {
    let id = |node| ReplicaId { node: NodeId(node), incarnation: 0 };
    let founders = vec![id(1), id(2), id(3)];
    let settings = GroupSettings { persistent: true, synced: false, applied: 0, replica: id(2), founders };
    let state = StoredState { term: 5, vote: 0, commit: 0 };
    let mut group: Group<u64> = Group::new(ID, settings, RecoveredGroup { state, ..Default::default() });
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
    group.step(PeerMessage { group: ID, rests: false, progress: 0, message: append, payloads });
    let collect = |group: &mut Group<u64>| {
        let mut output = PassOutput::default();
        group.collect(&mut output, &mut |_, _, _| Ok(()));
        output
    };
    let output = collect(&mut group);
    assert!(output.messages.is_empty() && output.records.len() == 1, "nothing is said yet");
    let [(_, number)] = output.waiting[..] else { panic!("it waits for the log") };
    assert!(!output.sync, "it need not be fsynced");
    group.persisted(number);
    let said = collect(&mut group).messages;
    assert_eq!(said[0].message.msg_type(), MessageType::MsgAppendResponse);
}
