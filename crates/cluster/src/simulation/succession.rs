//! A node on which one replica of a partition takes the place of another, time and again, and which is killed, or loses
//! power, between any two writes on the way. What decides the order of these writes is the node's own code
//! ([`succession`]); the list, the log and the engine that it writes are modelled: what of each is on disk, and what is
//! not yet.
//!
//! All along: no replica begins with votes or records of another one; one that begins again has all that it had said,
//! since the others count on its votes; nothing is removed under a replica that runs.

use super::world::Dice;
use crate::rules::{Rule, without};
use crate::{Holding, Succession, succession};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tessera_types::{NodeId, ReplicaId};

/// What the log is told of the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// A replica's vote, and how many it has cast with that one.
    Vote(ReplicaId, u64),
    Removed,
}

/// The replica whose records the engine holds, if it holds any.
type Records = Option<ReplicaId>;

#[derive(Debug, Default)]
struct Disk {
    listed: Option<ReplicaId>,
    /// The first of these are fsynced; the others outlive the process and not the machine.
    log: Vec<Record>,
    synced: usize,
    records: Records,
}

impl Disk {
    /// What a start finds in the log.
    fn recovered(&self) -> &[Record] {
        let removed = self.log.iter().rposition(|record| *record == Record::Removed);
        &self.log[removed.map_or(0, |at| at + 1)..]
    }
}

/// What ends with the process.
#[derive(Debug, Default)]
struct Process {
    listed: Option<ReplicaId>,
    running: Option<ReplicaId>,
    /// Whose end is under way, and how many of its steps are done.
    leaving: Option<usize>,
    /// Whether what the log held of the partition at the start has neither been given to a replica nor forgotten.
    holds_recovered: bool,
    /// Whether the log was told to forget something, and may not have that on disk.
    forgotten: bool,
    records: Records,
}

struct Node {
    dice: Dice,
    disk: Disk,
    process: Process,
    /// The replica that the catalog wants here, and how many there were.
    due: Option<ReplicaId>,
    replicas: u32,
    /// How often each replica has voted, as far as anybody was told.
    votes: Vec<u64>,
    successions: u64,
    ends: u64,
}

impl Node {
    fn new(seed: u64) -> Self {
        let (disk, process) = Default::default();
        Self { dice: Dice(seed), disk, process, due: None, replicas: 0, votes: Vec::new(), successions: 0, ends: 0 }
    }

    /// The process ends, or the machine, and starts again.
    fn end(&mut self, loses_power: bool) {
        self.ends += 1;
        if loses_power {
            let unsynced = (self.disk.log.len() - self.disk.synced) as u64;
            let kept = self.disk.synced + self.dice.below(unsynced + 1) as usize;
            self.disk.log.truncate(kept);
        }
        self.disk.synced = self.disk.log.len();
        let holds_recovered = !self.disk.recovered().is_empty();
        let (listed, records) = (self.disk.listed, self.disk.records);
        self.process = Process { listed, records, holds_recovered, ..Process::default() };
    }

    fn append(&mut self, record: Record) {
        self.disk.log.push(record);
    }

    /// The log is told to forget what it held at the start.
    fn forget_recovered(&mut self) {
        if std::mem::take(&mut self.process.holds_recovered) {
            self.process.forgotten = true;
            self.append(Record::Removed);
        }
    }

    /// The next write, of the node or of a replica on it.
    fn step(&mut self) {
        if let Some(done) = self.process.leaving
            && self.dice.one_in(2)
        {
            return self.go_on_leaving(done);
        }
        match self.dice.below(10) {
            0 => self.disk.synced = self.disk.log.len(),
            1 => self.disk.records = self.process.records,
            2..5 => self.take_part(),
            _ => self.succeed(),
        }
    }

    /// The worker ends the replica: first the log hears of it.
    fn go_on_leaving(&mut self, done: usize) {
        self.process.leaving = Some(done + 1);
        match done {
            0 => self.append(Record::Removed),
            1 => {
                let running = self.process.running;
                assert!(running.is_none(), "records go under {running:?}");
                self.process.records = None;
            }
            _ => (self.process.leaving, self.process.forgotten) = (None, true),
        }
    }

    /// The replica that runs votes, and writes.
    fn take_part(&mut self) {
        let Some(running) = self.process.running else { return };
        let number = self.votes[running.incarnation as usize] + 1;
        self.append(Record::Vote(running, number));
        // The machine may go down before the vote is on disk, and then nobody hears of it.
        if self.dice.one_in(4) {
            return self.end(true);
        }
        self.disk.synced = self.disk.log.len();
        self.votes[running.incarnation as usize] = number;
        self.process.records = Some(running);
    }

    fn succeed(&mut self) {
        let Process { listed, running, leaving, .. } = self.process;
        let holding = Holding { listed, runs: running.is_some(), is_leaving: leaving.is_some() };
        // What the log held at the start belongs to the replica on the list. If there is none, it is forgotten.
        if listed.is_none() && running.is_none() {
            self.forget_recovered();
        }
        let (log_remembers, records) = (self.process.forgotten, self.process.records.or(self.disk.records));
        let next = succession::<Infallible>(self.due, holding, || log_remembers, || Ok(records.is_some()));
        match next.expect("it cannot fail") {
            Succession::Leave => {
                self.process.listed = None;
                if self.process.running.take().is_some() {
                    self.process.leaving = Some(0);
                } else {
                    self.forget_recovered();
                }
                if self.dice.one_in(4) {
                    let loses_power = self.dice.one_in(2);
                    return self.end(loses_power);
                }
                self.disk.listed = None;
            }
            Succession::ForgetLog => {
                self.disk.synced = self.disk.log.len();
                self.process.forgotten = false;
            }
            Succession::Clear => {
                self.process.records = None;
                if self.dice.one_in(4) {
                    return self.end(true);
                }
                self.disk.records = None;
            }
            Succession::List => {
                self.process.listed = self.due;
                self.disk.listed = self.due;
            }
            Succession::Start => self.start(),
            Succession::Wait | Succession::Stay => {}
        }
    }

    fn start(&mut self) {
        let due = self.due.expect("it is target");
        let is_own = |record: &Record| matches!(record, Record::Vote(replica, _) if *replica == due);
        let recovered = if self.process.holds_recovered { self.disk.recovered() } else { &[] };
        assert!(recovered.iter().all(is_own), "{due:?} begins with {recovered:?}");
        let votes = self.votes[due.incarnation as usize];
        let remembers = votes == 0 || recovered.contains(&Record::Vote(due, votes));
        assert!(remembers, "{due:?} has forgotten {votes} votes: {recovered:?}");
        let records = self.process.records.or(self.disk.records);
        assert!(records.is_none_or(|of| of == due), "{due:?} begins with records of {records:?}");
        self.process.holds_recovered = false;
        self.process.running = self.due;
        self.successions += u64::from(votes == 0);
    }

    /// The catalog wants another replica here, or none; that is on disk.
    fn want(&mut self) {
        self.due = None;
        if !self.dice.one_in(4) {
            self.due = Some(ReplicaId { node: NodeId(1), incarnation: self.replicas });
            self.replicas += 1;
            self.votes.push(0);
        }
    }
}

fn live(seed: u64) -> Node {
    let mut node = Node::new(seed);
    for _ in 0..3_000 {
        node.step();
        if node.dice.one_in(30) {
            node.want();
        }
        if node.dice.one_in(12) {
            let loses_power = node.dice.one_in(2);
            node.end(loses_power);
        }
    }
    node
}

#[test]
fn a_replica_never_begins_with_what_another_one_had_nor_twice() {
    let (mut successions, mut ends) = (0, 0);
    for seed in 0..100 {
        let node = catch_unwind(|| live(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        successions += node.successions;
        ends += node.ends;
    }
    assert!(successions > 1_000 && ends > 10_000, "{successions} successions, {ends} ends");
}

#[test]
fn no_rule_of_succession_can_be_left_out() {
    let rules = [
        Rule::EndedBeforeTheNext,
        Rule::LogForgetsBeforeTheNext,
        Rule::RecordsGoBeforeTheNext,
        Rule::ListedBeforeItRuns,
    ];
    for rule in rules {
        let fails = |seed| without(Some(rule), || catch_unwind(AssertUnwindSafe(|| live(seed))).is_err());
        assert!((0..100).any(fails), "nobody misses {rule:?}");
    }
}
