//! Partitions, nodes and clients, and what may happen to them.

use super::history::{History, appended};
use super::set_up::{Faults, Operation, Program, SetUp, Small};
use crate::coordinator::{Abort, Coordinator, Effect, End};
use crate::id::{Age, TransactionId, TransactionIds};
use crate::intent::Access;
use crate::ledger::{Entry, Ledger, Step};
use crate::message::{Answer, Outcome, Request};
use crate::read::{ReadAttempt, ReadStep};
use crate::rules::Rule;
use std::collections::{BTreeMap, BTreeSet};
use tessera_types::NodeId;

/// Who asks a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Party {
    Coordinator(usize),
    /// A participant with an intent.
    Participant(u8),
    /// An anchor that finishes what a coordinator has left.
    Anchor(u8),
}

/// What is on its way. It stays there: it may arrive at any time, again, or never.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Message {
    Request { to: u8, from: Party, request: Request<Small> },
    Answer { to: Party, from: u8, id: TransactionId, answer: Answer<Small> },
}

/// An entry that is not committed yet, and who waits for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Pending {
    Entry(Entry<Small>, Option<(Party, TransactionId)>),
    /// A plain write of a node's client.
    Write(usize),
}

/// A partition as its group shows it: what is committed, and what its leader has in memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Partition {
    pub(super) ledger: Ledger<Small>,
    pub(super) value: u32,
    pub(super) term: u8,
    pub(super) applied: u8,
    pub(super) pending: Option<Pending>,
    /// Of transactions that were committed here: who has not said that it has resolved them.
    pub(super) finishing: BTreeMap<TransactionId, BTreeSet<u8>>,
}

impl Partition {
    /// What is written, and the value that was there. `Err` if a condition does not hold.
    fn evaluate(&self, operation: Operation) -> Result<(Option<u32>, u32), u32> {
        let Operation { access, only_if_empty, client } = operation;
        match only_if_empty && self.value != 0 {
            true => Err(self.value),
            false => Ok(((access == Access::Exclusive).then(|| appended(self.value, client)), self.value)),
        }
    }

    fn step(&self, request: &Request<Small>) -> Step<Small> {
        match request {
            Request::Prepare(prepare) => self.ledger.prepare(prepare),
            Request::Decide(decide) => self.ledger.decide(decide),
            Request::Recover(id) => self.ledger.recover(*id),
            Request::Resolve(id, outcome) => self.ledger.resolve(*id, *outcome),
        }
    }

    fn stamp(&self) -> (u8, u8) {
        (self.term, self.applied)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Running {
    Transaction { coordinator: Coordinator<Small>, attempts: u8, is_retried: bool },
    Write,
    Read { attempt: ReadAttempt<Small>, read: BTreeSet<u8>, confirming: BTreeMap<u8, (u8, u8)>, attempts: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Node {
    pub(super) generation: u64,
    pub(super) ids: TransactionIds,
    /// How many of its programs have begun.
    pub(super) begun: usize,
    pub(super) running: Option<Running>,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct World {
    pub(super) partitions: Vec<Partition>,
    pub(super) nodes: Vec<Node>,
    pub(super) network: BTreeSet<Message>,
    pub(super) history: History,
    pub(super) faults: Faults,
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A node's next client asks.
    Begin(usize),
    Arrive(Message),
    /// A plain write is evaluated.
    Write(usize),
    /// A node's read reads a partition.
    Read(usize, u8),
    /// It has a partition confirm what it has read.
    Confirm(usize, u8),
    Commit(u8),
    /// Another replica leads. It has what is committed.
    ChangeLeader(u8),
    /// A node dies with its coordinator, and is started again.
    Crash(usize),
    /// The client of a node's transaction does not wait any more.
    GiveUp(usize),
    /// A participant asks about an intent.
    Recover(u8, TransactionId),
    /// A participant gives up an intent by itself, which a rule forbids.
    Drop(u8, TransactionId),
    /// An anchor finishes what a coordinator has left.
    Finish(u8, TransactionId),
}

impl Event {
    pub(super) fn is_fault(&self) -> bool {
        matches!(self, Self::ChangeLeader(_) | Self::Crash(_) | Self::GiveUp(_))
    }
}

impl SetUp {
    fn transaction(&self, node: &mut Node, client: u32, age: Option<Age>) -> (Coordinator<Small>, Vec<Message>) {
        let program = self.all[client as usize];
        let only_if_empty = matches!(program, Program::IfEmpty(_));
        let accesses = program.accesses();
        let id = node.ids.begin().expect("few transactions");
        let age = age.unwrap_or(Age { began_millis: client.into(), first: id });
        let part = |(key, access): &(u8, Access)| {
            (*key, vec![(*key, *access)], Operation { access: *access, only_if_empty, client })
        };
        let coordinator = Coordinator::new((id, age, node.ids.settled()), accesses[0].0, accesses.iter().map(part));
        let coordinator = coordinator.with_rules(self.rules());
        let from = Party::Coordinator(id.node.0 as usize);
        let requests = coordinator.requests().into_iter().map(|(to, request)| Message::Request { to, from, request });
        let requests = requests.collect();
        (coordinator, requests)
    }

    fn read(&self, keys: &[u8], attempts: u8) -> Running {
        let read: BTreeSet<_> = keys.iter().copied().collect();
        let attempt = ReadAttempt::new(read.clone()).with_rules(self.rules());
        Running::Read { attempt, read, confirming: BTreeMap::new(), attempts }
    }
}

impl World {
    /// Whether a message that arrives may change anything. Most have arrived before, so this is asked before the world is copied.
    pub(super) fn changes_by(&self, message: &Message) -> bool {
        match message {
            Message::Request { to, from, request } => {
                let partition = &self.partitions[usize::from(*to)];
                let id = request.id();
                partition.pending.is_none()
                    && match partition.step(request) {
                        Step::Answer(answer) => {
                            let answer = Message::Answer { to: *from, from: *to, id, answer };
                            self.is_awaited(&answer) && !self.network.contains(&answer)
                        }
                        Step::Evaluate | Step::Log(_) => true,
                    }
            }
            Message::Answer { to: Party::Coordinator(node), from, answer, .. } => match &self.nodes[*node].running {
                Some(Running::Transaction { coordinator, .. }) => {
                    let mut informed = coordinator.clone();
                    informed.receive(*from, answer.clone());
                    informed != *coordinator
                }
                _ => false,
            },
            Message::Answer { .. } => true,
        }
    }

    pub(super) fn take(&mut self, set_up: &SetUp, event: Event) {
        match event {
            Event::Begin(node) => self.begin(set_up, node),
            Event::Arrive(Message::Request { to, from, request }) => self.ask(set_up, to, from, &request),
            Event::Arrive(Message::Answer { to, from, id, answer }) => self.answer(set_up, to, from, id, answer),
            Event::Write(node) => {
                let Program::Write(key) = self.program(set_up, node) else { unreachable!("a write") };
                let partition = &self.partitions[usize::from(key)];
                if partition.pending.is_none() && partition.ledger.holder(&key, Access::Exclusive).is_none() {
                    self.log(set_up, key, Pending::Write(node));
                }
            }
            Event::Read(node, key) => self.read(set_up, node, key),
            Event::Confirm(node, key) => self.confirm(set_up, node, key),
            Event::Commit(partition) => self.commit(set_up, partition),
            Event::ChangeLeader(number) => {
                let partition = &mut self.partitions[usize::from(number)];
                self.faults.leader_changes -= 1;
                partition.term += 1;
                partition.pending = None;
                partition.finishing.clear();
            }
            Event::Crash(number) => {
                let node = &mut self.nodes[number];
                self.faults.crashes -= 1;
                node.generation += 1;
                node.ids = TransactionIds::new(NodeId(number as u32), node.generation);
                node.running = None;
            }
            Event::GiveUp(node) => {
                self.faults.give_ups -= 1;
                self.inform(set_up, node, Coordinator::give_up);
            }
            Event::Recover(number, id) => {
                let (_, to) =
                    self.partitions[usize::from(number)].ledger.intents().find(|(held, _)| *held == id).expect("held");
                let from = Party::Participant(number);
                self.suspect(id);
                self.network.insert(Message::Request { to, from, request: Request::Recover(id) });
            }
            Event::Drop(number, id) => {
                if self.partitions[usize::from(number)].pending.is_none() {
                    self.log(set_up, number, Pending::Entry(Entry::Resolve(id, Outcome::Aborted), None));
                }
            }
            Event::Finish(number, id) => self.finish(set_up, number, id),
        }
    }

    fn is_coordinated(&self, id: TransactionId) -> bool {
        let running = &self.nodes[id.node.0 as usize].running;
        matches!(running, Some(Running::Transaction { coordinator, .. }) if coordinator.id() == id)
    }

    pub(super) fn may_be_gone(&self, id: TransactionId) -> bool {
        !self.is_coordinated(id) || self.faults.suspicions > 0
    }

    fn suspect(&mut self, id: TransactionId) {
        if self.is_coordinated(id) {
            self.faults.suspicions -= 1;
        }
    }

    fn program(&self, set_up: &SetUp, node: usize) -> Program {
        set_up.programs[node][self.nodes[node].begun - 1]
    }

    fn client(&self, set_up: &SetUp, node: usize) -> u32 {
        set_up.client(node, self.nodes[node].begun - 1)
    }

    fn begin(&mut self, set_up: &SetUp, number: usize) {
        self.nodes[number].begun += 1;
        let client = self.client(set_up, number);
        self.history.ask(client);
        let running = match self.program(set_up, number) {
            Program::Transaction(_) | Program::IfEmpty(_) => {
                let (coordinator, requests) = set_up.transaction(&mut self.nodes[number], client, None);
                self.network.extend(requests);
                Running::Transaction { coordinator, attempts: 1, is_retried: false }
            }
            Program::Write(_) => Running::Write,
            Program::Read(keys) => set_up.read(keys, 1),
        };
        self.nodes[number].running = Some(running);
    }

    /// A request arrives at a partition, whose leader evaluates one after the other.
    fn ask(&mut self, set_up: &SetUp, to: u8, from: Party, request: &Request<Small>) {
        let partition = &self.partitions[usize::from(to)];
        if partition.pending.is_some() {
            return;
        }
        let ledger = &partition.ledger;
        let id = request.id();
        let entry = match (partition.step(request), request) {
            (Step::Answer(answer), _) => {
                self.network.insert(Message::Answer { to: from, from: to, id, answer });
                return;
            }
            (Step::Log(entry), _) => entry,
            (Step::Evaluate, request) => {
                let evaluated = match request {
                    Request::Prepare(prepare) => partition
                        .evaluate(prepare.operation)
                        .map(|(writes, reply)| ledger.prepared(prepare, writes, reply)),
                    Request::Decide(decide) => partition
                        .evaluate(decide.operation)
                        .map(|(writes, reply)| ledger.committed(decide, writes, reply)),
                    Request::Recover(_) | Request::Resolve(..) => unreachable!("nothing to evaluate"),
                };
                match evaluated {
                    Ok(entry) => entry,
                    Err(value) => {
                        self.network.insert(Message::Answer { to: from, from: to, id, answer: Answer::Refused(value) });
                        return;
                    }
                }
            }
        };
        if !set_up.rules().keep(Rule::AnswersWaitForCommit) {
            self.network.insert(Message::Answer { to: from, from: to, id, answer: entry.answer() });
        }
        self.log(set_up, to, Pending::Entry(entry, Some((from, id))));
    }

    fn log(&mut self, set_up: &SetUp, number: u8, pending: Pending) {
        self.partitions[usize::from(number)].pending = Some(pending);
        if self.faults.leader_changes == 0 {
            // Nothing can come between that makes a difference.
            self.commit(set_up, number);
        }
    }

    fn commit(&mut self, set_up: &SetUp, number: u8) {
        let partition = &mut self.partitions[usize::from(number)];
        match partition.pending.take().expect("pending") {
            Pending::Entry(entry, asker) => {
                if let Some(value) = partition.ledger.apply(&entry, &mut Vec::new()).flatten() {
                    partition.value = value;
                    partition.applied += 1;
                }
                if let Some((to, id)) = asker {
                    self.network.insert(Message::Answer { to, from: number, id, answer: entry.answer() });
                }
            }
            Pending::Write(node) => {
                let client = set_up.client(node, self.nodes[node].begun - 1);
                let reads = BTreeMap::from([(number, partition.value)]);
                partition.value = appended(partition.value, client);
                partition.applied += 1;
                self.nodes[node].running = None;
                self.history.done(client, reads);
            }
        }
    }

    fn answer(&mut self, set_up: &SetUp, to: Party, from: u8, id: TransactionId, answer: Answer<Small>) {
        match to {
            Party::Coordinator(node) => self.inform(set_up, node, |coordinator| coordinator.receive(from, answer)),
            Party::Participant(number) => {
                let outcome = match answer {
                    Answer::Committed(_) => Outcome::Committed,
                    _ => Outcome::Aborted,
                };
                let partition = &self.partitions[usize::from(number)];
                if let (None, Step::Log(entry)) = (&partition.pending, partition.ledger.resolve(id, outcome)) {
                    self.log(set_up, number, Pending::Entry(entry, None));
                }
            }
            Party::Anchor(number) => {
                if let Some(waiting) = self.partitions[usize::from(number)].finishing.get_mut(&id) {
                    waiting.remove(&from);
                }
            }
        }
    }

    fn inform(
        &mut self,
        set_up: &SetUp,
        number: usize,
        inform: impl FnOnce(&mut Coordinator<Small>) -> Vec<Effect<Small>>,
    ) {
        let client = self.client(set_up, number);
        let node = &mut self.nodes[number];
        let Some(Running::Transaction { coordinator, attempts, is_retried }) = &mut node.running else { return };
        for effect in inform(coordinator) {
            match effect {
                Effect::Send(to, request) => {
                    let from = Party::Coordinator(number);
                    self.network.insert(Message::Request { to, from, request });
                }
                Effect::Answer(End::Committed(replies)) => self.history.done(client, replies),
                Effect::Answer(End::Aborted(Abort::GaveWay)) if *attempts < set_up.attempts => *is_retried = true,
                Effect::Answer(End::Aborted(Abort::Refused(partition, value))) => {
                    self.history.refused(client, partition, value);
                }
                Effect::Answer(End::Aborted(_)) => self.history.not_done(client),
                Effect::Settle => node.ids.settle(coordinator.id()),
            }
        }
        if !coordinator.is_settled() {
            return;
        }
        let (age, attempts, is_retried) = (coordinator.age(), *attempts + 1, *is_retried);
        node.running = is_retried.then(|| {
            let (coordinator, requests) = set_up.transaction(node, client, Some(age));
            self.network.extend(requests);
            Running::Transaction { coordinator, attempts, is_retried: false }
        });
    }

    fn read(&mut self, set_up: &SetUp, number: usize, key: u8) {
        let partition = &self.partitions[usize::from(key)];
        if partition.ledger.holder(&key, Access::Shared).is_some() {
            return;
        }
        let Some(Running::Read { attempt, read, .. }) = &mut self.nodes[number].running else { return };
        read.remove(&key);
        let step = attempt.receive(key, partition.stamp(), partition.value);
        self.go_on_reading(set_up, number, step);
    }

    fn confirm(&mut self, set_up: &SetUp, number: usize, key: u8) {
        let partition = &self.partitions[usize::from(key)];
        let Some(Running::Read { attempt, confirming, .. }) = &mut self.nodes[number].running else { return };
        let stamp = confirming.remove(&key).expect("asked for once");
        let step = attempt.confirm(key, partition.ledger.confirms(&[key], &stamp, &partition.stamp()));
        self.go_on_reading(set_up, number, step);
    }

    fn go_on_reading(&mut self, set_up: &SetUp, number: usize, step: ReadStep<Small>) {
        let client = self.client(set_up, number);
        let Program::Read(keys) = self.program(set_up, number) else { unreachable!("a read") };
        let running = &mut self.nodes[number].running;
        let Some(Running::Read { confirming, attempts, .. }) = running else { return };
        match step {
            ReadStep::Wait => (),
            ReadStep::Confirm(stamps) => confirming.extend(stamps),
            ReadStep::Done(values) => {
                *running = None;
                self.history.done(client, values);
            }
            ReadStep::Changed if *attempts < set_up.attempts => *running = Some(set_up.read(keys, *attempts + 1)),
            ReadStep::Changed => {
                *running = None;
                self.history.not_done(client);
            }
        }
    }

    fn finish(&mut self, set_up: &SetUp, number: u8, id: TransactionId) {
        self.suspect(id);
        let partition = &mut self.partitions[usize::from(number)];
        let Some((_, participants)) = partition.ledger.unfinished().find(|(known, _)| *known == id) else { return };
        let participants: BTreeSet<_> = participants.iter().copied().collect();
        let waiting = partition.finishing.entry(id).or_insert_with(|| participants.clone());
        if waiting.is_empty() || !set_up.rules().keep(Rule::ForgetWhenAllHaveResolved) {
            if let (None, Some(entry)) = (&partition.pending, partition.ledger.forget(id)) {
                partition.finishing.remove(&id);
                self.log(set_up, number, Pending::Entry(entry, None));
            }
            return;
        }
        let request = |to| Message::Request {
            to,
            from: Party::Anchor(number),
            request: Request::Resolve(id, Outcome::Committed),
        };
        self.network.extend(participants.into_iter().map(request));
    }

    /// Whether somebody waits for an answer.
    fn is_awaited(&self, message: &Message) -> bool {
        match message {
            Message::Request { .. } => true,
            Message::Answer { to: Party::Coordinator(node), id, .. } => matches!(
                &self.nodes[*node].running,
                Some(Running::Transaction { coordinator, .. }) if coordinator.id() == *id
            ),
            Message::Answer { to: Party::Participant(number), id, .. } => {
                self.partitions[usize::from(*number)].ledger.intents().any(|(held, _)| held == *id)
            }
            Message::Answer { to: Party::Anchor(number), id, .. } => {
                self.partitions[usize::from(*number)].finishing.contains_key(id)
            }
        }
    }

    /// Answers that nobody waits for make no difference, and would make more states.
    pub(super) fn forget_answers(&mut self) {
        let mut network = std::mem::take(&mut self.network);
        network.retain(|message| self.is_awaited(message));
        self.network = network;
    }
}
