//! Groups of several replicas in a simulated world: a network that delays, loses, repeats, reorders and cuts off, disks
//! that lose what was not fsynced, clocks that run apart, and crashes. All of it comes from a seed, so a failure repeats.
//!
//! Checked all along: replicas apply the same entries in the same order; what was acknowledged is in every later read
//! under a lease; nobody holds a lease beside another leader. And in the end, when the world is at peace: everything
//! acknowledged is everywhere.

use super::*;
use crate::log::LogRecord;
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
    /// Written and not fsynced yet, with the ready that waits for it.
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
            LogRecord::Removed { .. } => unreachable!("nothing removes the group"),
        }
    }
}

struct Replica {
    node: NodeId,
    group: Option<Group<u64>>,
    state: State,
    disk: Disk,
    lease: Duration,
    /// Of the replica's own clock.
    clock_rate: f64,
    next_tick: Duration,
    started: Duration,
}

struct World {
    random: StdRng,
    now: Duration,
    voters: Vec<NodeId>,
    replicas: Vec<Replica>,
    /// Messages under way, each with when it arrives.
    network: Vec<(Duration, PeerMessage)>,
    /// Pairs of nodes that do not reach each other.
    cut: BTreeSet<(u64, u64)>,
    loss: f64,
    /// Longest log that was seen, to compare all others with.
    agreed: Vec<u64>,
    acknowledged: Vec<u64>,
    next_number: u64,
    elections: u64,
    snapshots: u64,
    lease_reads: u64,
}

impl World {
    fn new(seed: u64, nodes: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let voters: Vec<_> = (1..=nodes).map(NodeId).collect();
        let replica = |node| Replica {
            node,
            group: None,
            state: State::default(),
            disk: Disk::default(),
            lease: Duration::ZERO,
            clock_rate: random.random_range(0.96..1.04),
            next_tick: Duration::ZERO,
            started: Duration::ZERO,
        };
        let replicas: Vec<_> = voters.iter().copied().map(replica).collect();
        let mut world = Self {
            random,
            now: Duration::ZERO,
            voters,
            replicas,
            network: Vec::new(),
            cut: BTreeSet::new(),
            loss: 0.02,
            agreed: Vec::new(),
            acknowledged: Vec::new(),
            next_number: 0,
            elections: 0,
            snapshots: 0,
            lease_reads: 0,
        };
        (0..world.replicas.len()).for_each(|at| world.start(at));
        world
    }

    fn start(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        replica.state = replica.disk.checkpoint.clone();
        replica.started = self.now;
        replica.next_tick = self.now + TICK;
        replica.lease = Duration::ZERO;
        let settings = GroupSettings {
            persistent: true,
            applied: replica.state.applied,
            node: replica.node,
            voters: self.voters.clone(),
        };
        replica.group = Some(Group::new(ID, settings, replica.disk.log.clone()));
        self.pass(at);
    }

    /// Ends a replica at once. Of what was not fsynced a random part, in order, is on disk.
    fn crash(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        replica.group = None;
        let survives = self.random.random_range(0..=replica.disk.unsynced.len());
        for (records, _) in std::mem::take(&mut replica.disk.unsynced).into_iter().take(survives) {
            records.into_iter().for_each(|record| replica.disk.write(record));
        }
    }

    /// What the worker's loop does after messages, ticks and commands.
    fn pass(&mut self, at: usize) {
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
                let _ = group.depose();
                replica.lease = Duration::ZERO;
            }
            for (_, until) in output.leases {
                replica.lease = replica.lease.max(until);
            }
            if !output.snapshots_wanted.is_empty() {
                group.offer_snapshot(replica.state.applied, replica.state.to_snapshot());
            }
            if !output.records.is_empty() || !output.waiting.is_empty() {
                let number = output.waiting.last().map(|(_, number)| *number);
                // A snapshot's place in the log is on disk as soon as its state is.
                replica.disk.unsynced.push((output.records, number));
            }
            let committed = std::mem::take(&mut output.committed);
            let is_done = committed.is_empty();
            for Committed { index, payloads, .. } in committed {
                if replica.state.applied < index {
                    replica.state.applied = index;
                    replica.state.numbers.extend(payloads.iter().flat_map(|payload| numbers(payload)));
                }
                self.elections += u64::from(group.applied(index));
                while let Some(number) = group.next_answerable() {
                    self.acknowledged.push(number);
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
        assert_eq!(numbers[..common], self.agreed[..common], "{:?} applied something else", self.replicas[at].node);
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
            let (from, to) = (message.from().0, message.to().0);
            if self.cut.contains(&(from.min(to), from.max(to))) {
                continue;
            }
            let at = to as usize - 1;
            if let Some(group) = &mut self.replicas[at].group {
                group.step(message);
                self.pass(at);
            }
        }
        for at in 0..self.replicas.len() {
            let replica = &mut self.replicas[at];
            if now >= replica.next_tick
                && let Some(group) = &mut replica.group
            {
                replica.next_tick += TICK.div_f64(replica.clock_rate);
                group.tick(now - replica.started);
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

    fn read_under_leases(&mut self) {
        let reading: Vec<usize> = (0..self.replicas.len())
            .filter(|at| {
                let replica = &self.replicas[*at];
                let own_time = self.now - replica.started;
                replica.group.as_ref().is_some_and(Group::is_serving) && own_time < replica.lease
            })
            .collect();
        assert!(reading.len() <= 1, "two leaders with leases: {reading:?}");
        for at in reading {
            self.lease_reads += 1;
            let known: BTreeSet<_> = self.replicas[at].state.numbers.iter().collect();
            let missing = self.acknowledged.iter().rev().take(50).find(|number| !known.contains(number));
            assert_eq!(missing, None, "{:?} reads under a lease", self.replicas[at].node);
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
            group.building.extend_from_slice(&number.to_le_bytes());
            group.replicate(number, true);
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
            60..75 => {
                let other = self.random.random_range(0..self.replicas.len());
                let (low, high) = (at.min(other) as u64 + 1, at.max(other) as u64 + 1);
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

fn live(seed: u64, nodes: u64, steps: usize) -> World {
    let mut world = World::new(seed, nodes);
    for _ in 0..steps {
        world.step();
        if world.random.random_bool(0.3) {
            world.write();
        }
        if world.random.random_bool(0.01) {
            world.disturb();
        }
    }
    world.heal();
    for _ in 0..4_000 {
        world.step();
    }
    let acknowledged: BTreeSet<_> = world.acknowledged.iter().copied().collect();
    for replica in &world.replicas {
        let state: BTreeSet<_> = replica.state.numbers.iter().copied().collect();
        let lost: Vec<_> = acknowledged.difference(&state).collect();
        assert!(lost.is_empty(), "seed {seed}: {:?} lacks {lost:?}", replica.node);
        assert_eq!(replica.state.numbers, world.agreed, "seed {seed}: {:?} has not caught up", replica.node);
    }
    world
}

/// `TESSERA_SEEDS` sets how many worlds there are; each is minutes of simulated time.
#[test]
fn replicas_agree_and_keep_what_they_acknowledged() {
    let worlds: u64 = std::env::var("TESSERA_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(8);
    let mut totals: HashMap<&str, u64> = HashMap::new();
    for seed in 0..worlds {
        eprintln!("seed {seed}");
        let world = live(seed, if seed % 4 == 3 { 5 } else { 3 }, 20_000);
        for (name, count) in [
            ("acknowledged", world.acknowledged.len() as u64),
            ("elections", world.elections),
            ("snapshots", world.snapshots),
            ("reads under a lease", world.lease_reads),
        ] {
            *totals.entry(name).or_default() += count;
        }
    }
    eprintln!("{worlds} worlds: {totals:?}");
    assert!(totals["acknowledged"] > worlds * 500 && totals["elections"] > worlds && totals["reads under a lease"] > 0);
}

/// A replica that restarts has forgotten that it promised to take part in no election for a while.
#[test]
fn a_restarted_replica_does_not_break_a_lease() {
    for seed in 0..100 {
        let mut world = World::new(seed, 3);
        let run = |world: &mut World, millis: u64| (0..millis / 5).for_each(|_| world.step());
        world.loss = 0.0;
        run(&mut world, 1_000);
        world.write();
        run(&mut world, 200);
        // The third node hears of the first one no more and wants to lead; the second, which does hear of it, refuses.
        world.cut.insert((1, 3));
        run(&mut world, 1_500);
        assert!(world.replicas[0].lease > world.now, "seed {seed}: the first node leads");
        world.cut.insert((1, 2));
        world.crash(1);
        world.start(1);
        let number = world.acknowledged.len();
        // Elections may be split; a few in a row are not.
        for _ in 0..2_000 {
            world.write();
            world.step();
            if world.acknowledged.len() > number {
                break;
            }
        }
        assert!(world.acknowledged.len() > number, "seed {seed}: the others go on");
    }
}
