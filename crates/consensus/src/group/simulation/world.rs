//! The simulated world, which moves on in steps.

use super::disk::{Disk, State};
use crate::Failure;
use crate::group::*;
use bytes::{Bytes, BytesMut};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeSet, HashMap};

pub(super) const ID: GroupId = GroupId(1);
/// The world moves on in steps of this length.
pub(super) const STEP: Duration = Duration::from_millis(5);

/// What clients were told.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) acknowledged: Vec<u64>,
    /// Writes that were said not to be done.
    pub(super) refused: Vec<u64>,
    pub(super) unknown: u64,
    /// Reads through the loop that wait for their answer: what they saw lacks these of what was acknowledged before.
    pub(super) reads: HashMap<u64, Option<u64>>,
    pub(super) loop_reads: u64,
    /// The reads among these that were answered, for who waits for them.
    pub(super) answered_reads: Vec<u64>,
}

impl Answers {
    /// A write is acknowledged; a read is answered, and then nothing may be missing in what it saw.
    pub(super) fn take(&mut self, number: u64, outcome: Result<(), Failure>) {
        match (self.reads.remove(&number), outcome) {
            (None, Ok(())) => self.acknowledged.push(number),
            (None, Err(Failure::NotServing)) => self.refused.push(number),
            (None, Err(_)) => self.unknown += 1,
            (Some(missing), Ok(())) => {
                self.loop_reads += 1;
                self.answered_reads.push(number);
                assert_eq!(missing, None, "a read was answered by what was no longer so");
            }
            (Some(_), Err(_)) => {}
        }
    }
}

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) nodes: u32,
    pub(super) initial_members: usize,
    /// Whether some replicas are witnesses, the last founder to begin with.
    pub(super) has_witnesses: bool,
    pub(super) log: Log,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Log {
    /// Fsynced before anything counts.
    Synced,
    /// Fsynced at some time: what a machine had not fsynced when it crashed is lost.
    Relaxed,
    /// In memory only.
    Volatile,
}

pub(super) fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect()
}

pub(super) struct Replica {
    pub(super) id: ReplicaId,
    /// Nodes without a replica have this one's place empty.
    pub(super) is_there: bool,
    pub(super) group: Option<Group<u64>>,
    pub(super) state: State,
    pub(super) disk: Disk,
    /// `None` is for ever.
    pub(super) lease: Option<Duration>,
    /// Of the replica's own clock.
    pub(super) clock_rate: f64,
    pub(super) next_tick: Duration,
    pub(super) started: Duration,
    /// Whether it has been given something since its last pass.
    pub(super) is_touched: bool,
    /// Until when its process is stopped, and what has come for it meanwhile.
    pub(super) stopped_until: Duration,
    pub(super) inbox: Vec<PeerMessage>,
}

pub(super) struct World {
    pub(super) kind: Kind,
    pub(super) random: StdRng,
    pub(super) now: Duration,
    pub(super) initial_members: Vec<ReplicaId>,
    pub(super) replicas: Vec<Replica>,
    /// Messages under way, each with when it arrives.
    pub(super) network: Vec<(Duration, PeerMessage)>,
    /// Pairs of nodes that do not reach each other.
    pub(super) cut: BTreeSet<(u32, u32)>,
    pub(super) loss: f64,
    /// How likely a process ends at either of two moments while its state is replaced.
    pub(super) tears: f64,
    /// How likely a disk has caught up after a step.
    pub(super) sync_chance: f64,
    /// Whether disks are set back, and which replicas were set aside for it.
    pub(super) loses_disks: bool,
    pub(super) set_aside: Vec<(usize, Inconsistent)>,
    /// Whether writes ask for an fsync, whatever the log gives.
    pub(super) syncs_writes: bool,
    /// Whether the state machine remembers the term of the last entry that it reflects.
    pub(super) remembers_terms: bool,
    /// Longest log that was seen, to compare all others with.
    pub(super) agreed: Vec<u64>,
    pub(super) answers: Answers,
    pub(super) next_number: u64,
    pub(super) elections: u64,
    pub(super) snapshots: u64,
    pub(super) lease_reads: u64,
    /// How often a leader lay down, and how often a replica came back as another one.
    pub(super) hibernations: u64,
    pub(super) renewed: u64,
    /// Whoever holds a lease.
    pub(super) readers: Vec<usize>,
    pub(super) member_changes: u64,
    /// How often a process ended while its state was replaced, and how many messages at most were taken in one pass.
    pub(super) torn_snapshots: u64,
    pub(super) most_at_once: usize,
    /// What entries of an index and a term carry, wherever they are; and the terms of those that were applied.
    payloads: HashMap<(u64, u64), Bytes>,
    terms: HashMap<u64, u64>,
    /// What is to happen, and when.
    plans: Vec<(Duration, Plan)>,
}

#[derive(Clone, Copy, Debug)]
enum Plan {
    /// A process is stopped until then.
    Stop(usize, Duration),
    Reconnect,
}

impl World {
    /// With the group's first replicas on the first of the nodes.
    pub(super) fn new(seed: u64, kind: Kind) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut ids: Vec<_> = (1..=kind.nodes).map(|node| ReplicaId { node: NodeId(node), incarnation: 0 }).collect();
        if kind.has_witnesses {
            ids[kind.initial_members - 1] = ReplicaId::new_witness(ids[kind.initial_members - 1].node, 0);
        }
        let initial_members = ids[..kind.initial_members].to_vec();
        let replica = |id| Replica {
            id,
            is_there: initial_members.contains(&id),
            group: None,
            state: State::default(),
            disk: Disk::default(),
            lease: Some(Duration::ZERO),
            clock_rate: random.random_range(0.96..1.04),
            next_tick: Duration::ZERO,
            started: Duration::ZERO,
            is_touched: false,
            stopped_until: Duration::ZERO,
            inbox: Vec::new(),
        };
        let replicas: Vec<_> = ids.into_iter().map(replica).collect();
        let mut world = Self {
            kind,
            random,
            now: Duration::ZERO,
            initial_members,
            replicas,
            network: Vec::new(),
            cut: BTreeSet::new(),
            loss: 0.02,
            tears: 0.0,
            sync_chance: 0.5,
            loses_disks: false,
            set_aside: Vec::new(),
            syncs_writes: true,
            remembers_terms: true,
            agreed: Vec::new(),
            answers: Answers::default(),
            next_number: 0,
            elections: 0,
            snapshots: 0,
            lease_reads: 0,
            hibernations: 0,
            renewed: 0,
            readers: Vec::new(),
            member_changes: 0,
            torn_snapshots: 0,
            most_at_once: 0,
            payloads: HashMap::new(),
            terms: HashMap::new(),
            plans: Vec::new(),
        };
        (0..world.replicas.len()).for_each(|at| world.start(at));
        world
    }

    pub(super) fn start(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        if !replica.is_there {
            return;
        }
        replica.state = replica.disk.checkpoint.clone();
        replica.started = self.now;
        replica.next_tick = self.now + TICK;
        replica.lease = Some(Duration::ZERO);
        (replica.stopped_until, replica.inbox) = (Duration::ZERO, Vec::new());
        let settings = self.settings(at);
        let replica = &mut self.replicas[at];
        let group = Group::new(ID, settings, replica.disk.log.clone());
        replica.group = Some(group.unwrap_or_else(|error| panic!("{:?} cannot go on: {error}", replica.id)));
        self.pass(at);
    }

    /// How a replica goes on with what its state is.
    pub(super) fn settings(&self, at: usize) -> GroupSettings {
        let replica = &self.replicas[at];
        GroupSettings {
            persistent: self.kind.log != Log::Volatile,
            synced: self.kind.log == Log::Synced,
            applied: replica.state.applied,
            applied_term: Some(replica.state.term).filter(|term| *term > 0 && self.remembers_terms),
            replica: replica.id,
            initial_members: if self.initial_members.contains(&replica.id) {
                self.initial_members.clone()
            } else {
                Vec::new()
            },
        }
    }

    /// Ends a replica at once. Of what was not fsynced a random part, in order, is on disk. If that may be less than what
    /// counted, the replica is gone, and another one may come in its place; so this does not happen to a majority.
    pub(super) fn crash(&mut self, at: usize) {
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
    pub(super) fn can_lose(&self, at: usize) -> bool {
        let leader = self.readers.first().and_then(|at| self.replicas[*at].group.as_ref());
        let Some(leader) = leader.filter(|leader| !leader.is_changing()) else { return false };
        let lives = |id: &&ReplicaId| self.replicas.iter().any(|replica| replica.id == **id && replica.is_there);
        let (voters, _) = leader.members();
        let remain = voters.iter().filter(lives).filter(|id| **id != self.replicas[at].id).count();
        remain > voters.len() / 2
    }

    /// What a node had is gone for good. What it may get later is another replica.
    pub(super) fn renew(&mut self, at: usize) {
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
    pub(super) fn pass_now_or_later(&mut self, at: usize) {
        self.replicas[at].is_touched = true;
        if self.random.random_bool(0.5) {
            self.pass(at);
        }
    }

    pub(super) fn is_stopped(&self, at: usize) -> bool {
        self.now < self.replicas[at].stopped_until
    }

    /// A message is there. If it is a snapshot the process may end while the state is being replaced.
    fn hear(&mut self, at: usize, message: PeerMessage) {
        let replica = &mut self.replicas[at];
        let Some(group) = &mut replica.group else { return };
        if message.is_snapshot()
            && group.would_install(&message)
            && let Some(record) = group.restoring(&message)
        {
            if let Some(number) = replica.disk.sync() {
                group.persisted(number);
            }
            replica.disk.write(record);
            let is_replaced = !self.random.random_bool(self.tears);
            if is_replaced {
                let (index, snapshot) = message.snapshot();
                replica.state.replace(index, snapshot);
                // Restoring is durable before it returns.
                replica.disk.checkpoint = replica.state.clone();
            }
            if !is_replaced || self.random.random_bool(self.tears) {
                self.torn_snapshots += 1;
                replica.group = None;
                return;
            }
        }
        // No sound replica's message is dropped, as long as no disk loses what was acknowledged.
        if message.to() == group.replica()
            && let Err(reason) = group.accepts(&message)
        {
            assert!(self.loses_disks || self.kind.log != Log::Synced, "{reason}: {message:?}");
        }
        group.step(message);
    }

    /// What the worker's loop does after messages, ticks and commands.
    pub(super) fn pass(&mut self, at: usize) {
        if self.is_stopped(at) {
            return;
        }
        self.replicas[at].is_touched = false;
        loop {
            let replica = &mut self.replicas[at];
            let Some(group) = &mut replica.group else { return };
            group.propose();
            let mut output = PassOutput::default();
            let (state, disk, snapshots) = (&mut replica.state, &mut replica.disk, &mut self.snapshots);
            let collected = group.collect(&mut output, &mut |_, index, snapshot| {
                state.replace(index, snapshot);
                disk.checkpoint = state.clone();
                *snapshots += 1;
                Ok(())
            });
            if let Err(error) = collected {
                assert!(self.loses_disks, "{:?} cannot go on: {error}", replica.id);
                self.set_aside.push((at, error));
                replica.group = None;
                return;
            }
            if !output.stepped_down.is_empty() {
                for number in group.step_down() {
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
            let last = |readies: &ReadyNumbers| readies.last().map(|(_, number)| *number);
            let (is_written, waits) = (last(&output.awaiting_stage), last(&output.awaiting_fsync));
            if !output.records.is_empty() || waits.is_some() {
                replica.disk.unsynced.push((output.records, waits));
            }
            is_written.into_iter().for_each(|number| group.persisted(number));
            let committed = std::mem::take(&mut output.committed);
            let is_done = committed.is_empty() && is_written.is_none();
            for Committed { index, term, payloads, .. } in committed {
                if replica.state.applied < index {
                    (replica.state.applied, replica.state.term) = (index, term);
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

    pub(super) fn post(&mut self, message: PeerMessage) {
        for (entry, payload) in message.message.entries.iter().zip(&message.payloads) {
            let known = self.payloads.entry((entry.index, entry.term)).or_insert_with(|| payload.bytes.clone());
            assert_eq!(*known, payload.bytes, "{:?} sends what another entry carries: {entry:?}", message.from());
        }
        let copies = if self.random.random_bool(self.loss) { self.random.random_range(0..=2) } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_micros(self.random.random_range(100..30_000));
            let mut encoded = BytesMut::new();
            message.encode(&mut encoded);
            let decoded = PeerMessage::decode(&mut encoded.freeze()).expect("just encoded");
            self.network.push((self.now + delay, decoded));
        }
    }

    pub(super) fn check_agreement(&mut self, at: usize) {
        let numbers = &self.replicas[at].state.numbers;
        let common = numbers.len().min(self.agreed.len());
        assert_eq!(numbers[..common], self.agreed[..common], "{:?} applied something else", self.replicas[at].id);
        if numbers.len() > common {
            self.agreed = numbers.clone();
        }
        if let Some(group) = &self.replicas[at].group
            && let Some(term) = group.node.store().term_at(group.applied).filter(|term| *term > 0)
        {
            let known = *self.terms.entry(group.applied).or_insert(term);
            assert_eq!(known, term, "{:?} takes entry {} for another", self.replicas[at].id, group.applied);
        }
    }

    /// A leader loses most of its peers while it is written to, and is stopped soon after. When it goes on, what those
    /// said that it still reached waits for it beside what its successor says.
    pub(super) fn strand_a_leader(&mut self) {
        let Some(at) = self.readers.first().copied() else { return };
        let own = at as u32 + 1;
        let others: Vec<_> = (1..=self.replicas.len() as u32).filter(|other| *other != own).collect();
        let count = self.random.random_range(others.len() / 2..=others.len());
        let lost: Vec<_> = others.choose_multiple(&mut self.random, count).copied().collect();
        self.cut.extend(lost.into_iter().map(|other| (own.min(other), own.max(other))));
        self.loss = 0.4;
        for _ in 0..3 {
            self.write();
        }
        let stop = self.now + Duration::from_millis(self.random.random_range(5..100));
        let reconnect = stop + Duration::from_millis(self.random.random_range(200..1_500));
        let go_on = reconnect + Duration::from_millis(self.random.random_range(100..1_000));
        self.plans.extend([(stop, Plan::Stop(at, go_on)), (reconnect, Plan::Reconnect)]);
    }

    /// What comes from now on need not agree with what was before.
    pub(super) fn forget_what_was_agreed(&mut self) {
        self.agreed.clear();
        self.terms.clear();
    }

    pub(super) fn heal_links(&mut self) {
        self.cut.clear();
        self.plans.clear();
        self.loss = 0.0;
        self.replicas.iter_mut().for_each(|replica| replica.stopped_until = Duration::ZERO);
    }

    fn follow_plans(&mut self) {
        let now = self.now;
        for (_, plan) in self.plans.extract_if(.., |(due, _)| *due <= now).collect::<Vec<_>>() {
            match plan {
                Plan::Stop(at, until) => self.replicas[at].stopped_until = until,
                Plan::Reconnect => {
                    self.cut.clear();
                    self.loss = 0.02;
                }
            }
        }
    }

    pub(super) fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        self.follow_plans();
        let (due, later) = std::mem::take(&mut self.network).into_iter().partition(|(at, _)| *at <= now);
        self.network = later;
        let due: Vec<(Duration, PeerMessage)> = due;
        for (_, message) in due {
            let (from, to) = (message.from().node.0, message.to().node.0);
            if self.cut.contains(&(from.min(to), from.max(to))) {
                continue;
            }
            let at = to as usize - 1;
            if self.is_stopped(at) {
                self.replicas[at].inbox.push(message);
                continue;
            }
            self.hear(at, message);
            self.pass_now_or_later(at);
        }
        for at in 0..self.replicas.len() {
            if self.is_stopped(at) {
                continue;
            }
            let inbox = std::mem::take(&mut self.replicas[at].inbox);
            if !inbox.is_empty() {
                self.most_at_once = self.most_at_once.max(inbox.len());
                inbox.into_iter().for_each(|message| self.hear(at, message));
                self.pass(at);
                self.replicas[at].next_tick = now;
            }
            if self.replicas[at].is_touched {
                self.pass(at);
            }
            let replica = &mut self.replicas[at];
            if now >= replica.next_tick
                && let Some(group) = &mut replica.group
            {
                replica.next_tick += TICK.div_f64(replica.clock_rate);
                group.tick(now - replica.started);
                if group.may_hibernate() {
                    group.hibernate();
                    self.hibernations += 1;
                }
                self.pass(at);
            }
            self.sync_disk(at);
        }
        self.read_under_leases();
    }

    /// Now and then the disk has caught up with what was written.
    pub(super) fn sync_disk(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        if replica.group.is_none()
            || replica.disk.unsynced.is_empty()
            || self.random.random_bool(1.0 - self.sync_chance)
        {
            return;
        }
        if let (Some(number), Some(group)) = (replica.disk.sync(), &mut replica.group) {
            group.persisted(number);
            self.pass(at);
        }
    }

    /// Each node wakes what needs nodes that it does not hear from.
    pub(super) fn wake_what_waits(&mut self) {
        for at in 0..self.replicas.len() {
            let is_heard = |other: &usize| {
                let (low, high) = (at.min(*other) as u32 + 1, at.max(*other) as u32 + 1);
                let is_up = self.replicas[*other].group.is_some() && !self.is_stopped(*other);
                *other == at || (is_up && !self.cut.contains(&(low, high)))
            };
            let silent = (0..self.replicas.len()).filter(|other| !is_heard(other));
            let silent: Vec<_> = silent.map(|other| self.replicas[other].id.node).collect();
            if let Some(group) = &mut self.replicas[at].group {
                group.wake_if_it_needs(&silent);
            }
        }
    }

    pub(super) fn read_under_leases(&mut self) {
        let reading: Vec<usize> = (0..self.replicas.len())
            .filter(|at| {
                let replica = &self.replicas[*at];
                let own_time = self.now - replica.started;
                let has_lease = replica.lease.is_none_or(|until| own_time < until);
                replica.group.as_ref().is_some_and(Group::is_serving) && has_lease && !self.is_stopped(*at)
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
    pub(super) fn write(&mut self) {
        let leaders = |replica: &Replica| replica.group.as_ref().is_some_and(Group::is_serving);
        let may_ask = |at: &usize| leaders(&self.replicas[*at]) && !self.is_stopped(*at);
        let candidates: Vec<_> = (0..self.replicas.len()).filter(may_ask).collect();
        let Some(&at) = candidates.choose(&mut self.random) else { return };
        let group = self.replicas[at].group.as_mut().unwrap();
        for _ in 0..self.random.random_range(1..4) {
            let number = self.next_number;
            self.next_number += 1;
            if self.random.random_bool(0.3) && group.building().is_empty() {
                return self.read_through_loop(at, number);
            }
            group.building().extend_from_slice(&number.to_le_bytes());
            group.replicate(number, self.syncs_writes, false);
        }
        self.pass_now_or_later(at);
    }

    /// A read that is carried out like a write.
    pub(super) fn read_through_loop(&mut self, at: usize, number: u64) {
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

    pub(super) fn disturb(&mut self) {
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
            75..83 => self.cut.clear(),
            83..89 => self.strand_a_leader(),
            89..91 => {
                let stopped = Duration::from_millis(self.random.random_range(100..4_000));
                self.replicas[at].stopped_until = self.now + stopped;
            }
            91..93 => self.write_checkpoint(at),
            93..98 if self.kind.log == Log::Synced => {
                // From then on it helps those that lag with a snapshot only.
                self.write_checkpoint(at);
                self.crash(at);
                self.start(at);
            }
            _ => self.loss = self.random.random_range(0.0..0.3),
        }
    }

    /// The state as it is now is on disk.
    pub(super) fn write_checkpoint(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        let log = &replica.disk.log;
        let durable = log.entries.back().map_or(log.truncated.0, |last| last.index);
        // Where every entry is fsynced before it counts, none is applied that the log could still lose. RocksDB does
        // not wait for the log of a `soft` table.
        if replica.state.applied <= durable || self.kind.log == Log::Relaxed {
            replica.disk.checkpoint = replica.state.clone();
        }
    }

    /// The operator asks the leader to move replicas, or to let another one lead, and cleans up behind earlier moves.
    pub(super) fn move_replicas(&mut self) {
        let is_up = |at: &&usize| self.replicas[**at].group.is_some();
        let Some(&leading) = self.readers.iter().find(is_up) else { return };
        let leader = self.replicas[leading].group.as_ref().expect("it is up");
        let (voters, learners) = leader.members();
        if self.random.random_bool(0.2) {
            let to = *voters.choose(&mut self.random).expect("there are voters");
            if self.replicas[leading].group.as_mut().expect("it is up").transfer_leadership(to) {
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
        let (witnesses, data_replicas): (Vec<usize>, Vec<usize>) =
            nodes.iter().partition(|at| self.replicas[**at].id.is_witness());
        let target = self.random.random_range(1..=self.kind.initial_members.max(3));
        let mut wanted: Vec<usize> = data_replicas.choose_multiple(&mut self.random, target).copied().collect();
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

    pub(super) fn describe(&self) -> String {
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

    pub(super) fn wake_leaders(&mut self) {
        for at in 0..self.replicas.len() {
            let replica = &mut self.replicas[at];
            if let Some(group) = replica.group.as_mut().filter(|group| group.is_hibernating() && group.is_serving()) {
                group.wake_and_renew_lease(self.now - replica.started);
                self.pass(at);
            }
        }
    }

    pub(super) fn heal(&mut self) {
        self.heal_links();
        for at in 0..self.replicas.len() {
            if self.replicas[at].group.is_none() {
                self.start(at);
            }
        }
    }
}
