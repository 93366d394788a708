//! Nodes that coordinate transfers, and what happens to them.

use super::super::world::{STEP, World};
use super::super::{Kind, go_wrong};
use super::history::History;
use super::partition::{Account, Accounts, Partition, Party};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tessera_transaction::{
    Abort, Access, Age, Answer, Coordinator, Effect, End, Outcome, ReadAttempt, ReadStep, Request, TransactionId,
    TransactionIds,
};
use tessera_types::NodeId;

const PARTITIONS: usize = 3;
const ACCOUNTS: u8 = 9;
const NODES: usize = 4;
/// A request is sent again after so many steps.
const PATIENCE: usize = 20;
/// An intent is asked about when it is so old, whoever coordinates it.
const SUSPICIOUS: Duration = Duration::from_secs(1);
/// How long a client waits for a transfer.
const DEADLINE: Duration = Duration::from_secs(5);
/// How likely something may go wrong with a partition in a step.
const CALAMITY: f64 = 0.25;
/// Everything must come to rest within so many steps once nothing goes wrong any more.
const PEACE: usize = 6_000;

/// Something that a partition's leader must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carelessness {
    /// It answers when it has evaluated.
    AnswersEarly,
    /// It evaluates without the ledger that its predecessors have left.
    ForgetsTheLedger,
    /// It evaluates on what is applied, without its own entries that are on their way.
    EvaluatesOnTheApplied,
    /// It answers reads without a look at intents.
    ReadsIntents,
}

fn partition_of(account: u8) -> usize {
    usize::from(account) % PARTITIONS
}

fn accounts_of(partition: usize) -> Vec<u8> {
    (0..ACCOUNTS).filter(|account| partition_of(*account) == partition).collect()
}

enum Message {
    Request(usize, Party, Request<Accounts>),
    Answer(Party, usize, TransactionId, Answer<Accounts>),
}

enum Running {
    Transfer {
        number: u64,
        changes: Vec<(u8, i64)>,
        began: Duration,
        coordinator: Coordinator<Accounts>,
        is_retried: bool,
    },
    Read {
        began: Duration,
        attempt: ReadAttempt<Accounts>,
        confirming: Option<BTreeMap<usize, (u64, u64)>>,
        read: BTreeSet<usize>,
    },
}

struct Node {
    generation: u64,
    ids: TransactionIds,
    running: Option<Running>,
}

/// The groups, the nodes that ask them, and what is on its way between them.
pub(super) struct Bank {
    random: StdRng,
    now: Duration,
    partitions: Vec<Partition>,
    nodes: Vec<Node>,
    network: Vec<(Duration, Message)>,
    /// How often a message is lost, or comes twice.
    loss: f64,
    transfers: u64,
    /// Whether clients ask for more.
    is_open: bool,
    /// When each intent was first seen.
    seen: HashMap<(usize, TransactionId), Duration>,
    /// Who has not resolved a transaction that an anchor finishes.
    finishing: HashMap<(usize, TransactionId), BTreeSet<usize>>,
    /// Since when each partition has had a leader with a lease.
    led_since: Vec<Option<Duration>>,
    /// The longest time for which an intent stood although its partition and its anchor had leaders.
    pub(super) longest_held: Duration,
    pub(super) history: History,
    pub(super) deaths: u64,
    pub(super) recoveries: u64,
}

impl Bank {
    pub(super) fn new(seed: u64, kind: Kind, carelessness: Option<Carelessness>) -> Self {
        let world = |partition| World::new(seed * 16 + partition as u64, kind);
        let node = |number| Node { generation: 1, ids: TransactionIds::new(NodeId(number), 1), running: None };
        Self {
            random: StdRng::seed_from_u64(seed),
            now: Duration::ZERO,
            partitions: (0..PARTITIONS).map(|partition| Partition::new(world(partition), carelessness)).collect(),
            nodes: (0..NODES as u32).map(node).collect(),
            network: Vec::new(),
            loss: 0.05,
            transfers: 0,
            is_open: true,
            seen: HashMap::new(),
            finishing: HashMap::new(),
            led_since: vec![None; PARTITIONS],
            longest_held: Duration::ZERO,
            history: History::default(),
            deaths: 0,
            recoveries: 0,
        }
    }

    /// Clients ask while all that may go wrong does.
    pub(super) fn live(&mut self, steps: usize) -> Result<(), String> {
        for step in 0..steps {
            for partition in &mut self.partitions {
                partition.world.step();
                if step.is_multiple_of(200) {
                    partition.world.wake_what_waits();
                }
                // A transfer needs several partitions, so each of them has more peace than one alone.
                if self.random.random_bool(CALAMITY) {
                    go_wrong(&mut partition.world, step);
                }
            }
            if self.random.random_bool(0.002) {
                let node = self.random.random_range(0..NODES);
                self.deaths += u64::from(self.nodes[node].running.is_some());
                self.die(node);
            }
            self.step(step)?;
        }
        Ok(())
    }

    /// Nothing goes wrong any more: everything that was begun must end, no account may stay locked, and all that was
    /// acknowledged must be there.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.is_open = false;
        self.loss = 0.0;
        self.partitions.iter_mut().for_each(|partition| partition.world.heal());
        for step in 0..PEACE {
            for partition in &mut self.partitions {
                partition.world.step();
                if step.is_multiple_of(200) {
                    partition.world.wake_what_waits();
                }
            }
            self.step(step)?;
            let is_idle = self.nodes.iter().all(|node| node.running.is_none()) && self.network.is_empty();
            if is_idle && let Some(accounts) = self.read_all_if_free() {
                self.history.check(self.now, &accounts)?;
                return self.history.check_order(&accounts);
            }
        }
        Err(format!("something does not come to rest: {}", self.describe()))
    }

    fn describe(&mut self) -> String {
        let running = |node: &Node| match &node.running {
            None => "nothing".to_string(),
            Some(Running::Read { read, confirming, .. }) => format!("read of {read:?}, {confirming:?}"),
            Some(Running::Transfer { coordinator, .. }) => format!("{coordinator:?}"),
        };
        let nodes: Vec<_> = self.nodes.iter().map(running).collect();
        let partition = |partition: &mut Partition| {
            let at = partition.world.readers.first().copied();
            let ledger = at.map(|at| format!("{:?}", partition.applied(at).ledger));
            format!("{ledger:?} {}", partition.world.describe())
        };
        let partitions: Vec<_> = self.partitions.iter_mut().map(partition).collect();
        format!("{}\n{}", nodes.join("\n"), partitions.join("\n"))
    }

    fn read_all_if_free(&mut self) -> Option<BTreeMap<u8, Account>> {
        let read = |(number, partition): (usize, &mut Partition)| {
            let at = *partition.world.readers.first()?;
            let is_free = partition.applied(at).ledger.has_no_intents();
            is_free.then(|| partition.read(&accounts_of(number)).map(|(_, accounts)| accounts)).flatten()
        };
        let read: Option<Vec<_>> = self.partitions.iter_mut().enumerate().map(read).collect();
        Some(read?.into_iter().flatten().collect())
    }

    /// A node dies with what it coordinates, and is started again.
    fn die(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.generation += 1;
        node.ids = TransactionIds::new(NodeId(number as u32), node.generation);
        node.running = None;
    }

    fn send(&mut self, message: impl Fn() -> Message) {
        let copies = if self.random.random_bool(self.loss) { [0, 2][self.random.random_range(0..2)] } else { 1 };
        for _ in 0..copies {
            // Some come very late.
            let most = if self.random.random_bool(0.02) && self.loss > 0.0 { 3_000 } else { 20 };
            let delay = Duration::from_millis(self.random.random_range(0..most));
            self.network.push((self.now + delay, message()));
        }
    }

    fn ask(&mut self, from: Party, requests: Vec<(usize, Request<Accounts>)>) {
        for (to, request) in requests {
            self.send(|| Message::Request(to, from, request.clone()));
        }
    }

    fn step(&mut self, step: usize) -> Result<(), String> {
        self.now += STEP;
        let now = self.now;
        for number in 0..PARTITIONS {
            let is_led = !self.partitions[number].world.readers.is_empty();
            self.led_since[number] = is_led.then(|| self.led_since[number].unwrap_or(now));
            for (to, id, answer) in self.partitions[number].answers() {
                self.send(|| Message::Answer(to, number, id, answer.clone()));
            }
            if step.is_multiple_of(100) {
                self.partitions[number].world.wake_leaders();
            }
        }
        for (_, message) in self.network.extract_if(.., |(due, _)| *due <= now).collect::<Vec<_>>() {
            self.arrive(message);
        }
        for node in 0..NODES {
            self.go_on(node, step)?;
        }
        if step.is_multiple_of(PATIENCE) {
            (0..PARTITIONS).for_each(|partition| self.maintain(partition));
        }
        Ok(())
    }

    fn arrive(&mut self, message: Message) {
        match message {
            Message::Request(to, from, request) => {
                let Some(at) = self.partitions[to].serving().into_iter().choose(&mut self.random) else { return };
                if let Some(early) = self.partitions[to].ask(at, from, &request) {
                    self.send(|| Message::Answer(from, to, request.id(), early.clone()));
                }
            }
            Message::Answer(Party::Coordinator(node, generation), from, id, answer) => {
                if self.nodes[node].generation == generation {
                    self.inform(node, id, |coordinator| coordinator.receive(from, answer));
                }
            }
            Message::Answer(Party::Participant(number), _, id, answer) => {
                let outcome = match answer {
                    Answer::Committed(_) => Outcome::Committed,
                    Answer::Aborted => Outcome::Aborted,
                    // It has resolved its intent.
                    _ => return,
                };
                self.ask(Party::Participant(number), vec![(number, Request::Resolve(id, outcome))]);
            }
            Message::Answer(Party::Anchor(number), from, id, _) => {
                if let Some(waiting) = self.finishing.get_mut(&(number, id)) {
                    waiting.remove(&from);
                }
            }
        }
    }

    fn inform(
        &mut self,
        number: usize,
        id: TransactionId,
        inform: impl FnOnce(&mut Coordinator<Accounts>) -> Vec<Effect<Accounts>>,
    ) {
        let (now, node) = (self.now, &mut self.nodes[number]);
        let from = Party::Coordinator(number, node.generation);
        let Some(Running::Transfer { number: transfer, coordinator, began, is_retried, .. }) = &mut node.running else {
            return;
        };
        if coordinator.id() != id {
            return;
        }
        let mut requests = Vec::new();
        for effect in inform(coordinator) {
            match effect {
                Effect::Send(to, request) => requests.push((to, request)),
                Effect::Answer(End::Committed(_)) => self.history.commit(*transfer, now),
                Effect::Answer(End::Aborted(Abort::GaveWay)) if now < *began + DEADLINE => *is_retried = true,
                Effect::Answer(End::Aborted(_)) => self.history.abort(*transfer),
                Effect::Settle => node.ids.settle(coordinator.id()),
            }
        }
        self.ask(from, requests);
    }

    /// A node does what is next: begins something, or asks again.
    fn go_on(&mut self, number: usize, step: usize) -> Result<(), String> {
        let node = &mut self.nodes[number];
        let from = Party::Coordinator(number, node.generation);
        match &mut node.running {
            None if self.is_open && self.random.random_bool(0.05) => self.begin(number),
            None => (),
            Some(Running::Transfer { number: transfer, changes, began, coordinator, is_retried }) => {
                let (id, age) = (coordinator.id(), coordinator.age());
                if coordinator.is_settled() {
                    let again = is_retried.then(|| (*transfer, changes.clone(), *began, age));
                    node.running = None;
                    if let Some((transfer, changes, began, age)) = again {
                        self.transfer(number, transfer, changes, began, Some(age));
                    }
                } else if (step + number).is_multiple_of(PATIENCE) {
                    let requests = coordinator.requests();
                    let is_late = self.now > *began + DEADLINE;
                    self.ask(from, requests);
                    if is_late {
                        self.inform(number, id, Coordinator::give_up);
                    }
                }
            }
            Some(Running::Read { .. }) => self.read(number)?,
        }
        Ok(())
    }

    fn begin(&mut self, number: usize) {
        if self.random.random_bool(0.3) {
            self.nodes[number].running = Some(reading(self.now));
            return;
        }
        let count = self.random.random_range(2..4);
        let accounts = (0..ACCOUNTS).choose_multiple(&mut self.random, count);
        let mut changes: Vec<_> = accounts.iter().map(|account| (*account, 1)).collect();
        changes[0].1 = 1 - count as i64;
        self.transfers += 1;
        self.history.begin(self.transfers, accounts, self.now);
        self.transfer(number, self.transfers, changes, self.now, None);
    }

    fn transfer(&mut self, number: usize, transfer: u64, changes: Vec<(u8, i64)>, began: Duration, age: Option<Age>) {
        let node = &mut self.nodes[number];
        let id = node.ids.begin().expect("one at a time");
        let age = age.unwrap_or(Age { began_millis: began.as_millis() as u64, first: id });
        let mut parts: BTreeMap<usize, Vec<(u8, i64)>> = BTreeMap::new();
        changes.iter().for_each(|change| parts.entry(partition_of(change.0)).or_default().push(*change));
        let part = |(partition, changes): (usize, Vec<(u8, i64)>)| {
            let locks = changes.iter().map(|(account, _)| (*account, Access::Exclusive)).collect();
            (partition, locks, (transfer, changes))
        };
        let anchor = partition_of(changes[0].0);
        let coordinator = Coordinator::new((id, age, node.ids.settled()), anchor, parts.into_iter().map(part));
        let (from, requests) = (Party::Coordinator(number, node.generation), coordinator.requests());
        node.running = Some(Running::Transfer { number: transfer, changes, began, coordinator, is_retried: false });
        self.ask(from, requests);
    }

    /// A read of all accounts goes on by at most one partition.
    fn read(&mut self, number: usize) -> Result<(), String> {
        let Some(Running::Read { began, attempt, confirming, read }) = &mut self.nodes[number].running else {
            return Ok(());
        };
        let partition = self.random.random_range(0..PARTITIONS);
        let accounts = accounts_of(partition);
        let step = match confirming {
            None if read.contains(&partition) => ReadStep::Wait,
            None => match self.partitions[partition].read(&accounts) {
                Some((stamp, values)) => {
                    read.insert(partition);
                    attempt.receive(partition, stamp, values)
                }
                None => ReadStep::Wait,
            },
            Some(stamps) => match stamps.get(&partition) {
                Some(stamp) => match self.partitions[partition].confirms(&accounts, *stamp) {
                    Some(is_unchanged) => {
                        stamps.remove(&partition);
                        attempt.confirm(partition, is_unchanged)
                    }
                    None => ReadStep::Wait,
                },
                None => ReadStep::Wait,
            },
        };
        let began = *began;
        match step {
            ReadStep::Wait => Ok(()),
            ReadStep::Confirm(stamps) => {
                *confirming = Some(stamps.into_iter().collect());
                Ok(())
            }
            ReadStep::Changed => {
                self.nodes[number].running = Some(reading(began));
                Ok(())
            }
            ReadStep::Done(values) => {
                self.nodes[number].running = None;
                self.history.read(began, self.now, values.into_values().flatten().collect())
            }
        }
    }

    /// What the leader of a partition does now and then: it asks about intents, and finishes what it has committed.
    fn maintain(&mut self, number: usize) {
        let Some(&at) = self.partitions[number].world.readers.first() else { return };
        let ledger = &self.partitions[number].applied(at).ledger;
        let intents: Vec<_> = ledger.intents().collect();
        let unfinished: Vec<(TransactionId, BTreeSet<usize>)> =
            ledger.unfinished().map(|(id, participants)| (id, participants.iter().copied().collect())).collect();
        let now = self.now;
        for (id, anchor) in intents {
            let seen = *self.seen.entry((number, id)).or_insert(now);
            if let (Some(own), Some(other)) = (self.led_since[number], self.led_since[anchor]) {
                self.longest_held = self.longest_held.max(now - seen.max(own).max(other));
            }
            if self.is_gone(id) || now > seen + SUSPICIOUS {
                self.recoveries += 1;
                self.ask(Party::Participant(number), vec![(anchor, Request::Recover(id))]);
            }
        }
        for (id, participants) in unfinished {
            let seen = *self.seen.entry((number, id)).or_insert(now);
            if !self.is_gone(id) && now < seen + SUSPICIOUS {
                continue;
            }
            let waiting = self.finishing.entry((number, id)).or_insert(participants);
            if waiting.is_empty() {
                self.finishing.remove(&(number, id));
                self.partitions[number].forget(at, id);
                continue;
            }
            let requests = waiting.iter().map(|to| (*to, Request::Resolve(id, Outcome::Committed))).collect();
            self.ask(Party::Anchor(number), requests);
        }
    }

    fn is_gone(&self, id: TransactionId) -> bool {
        self.nodes[id.node.0 as usize].generation != id.generation
    }
}

fn reading(began: Duration) -> Running {
    let (confirming, read) = (None, BTreeSet::new());
    Running::Read { began, attempt: ReadAttempt::new(0..PARTITIONS), confirming, read }
}
