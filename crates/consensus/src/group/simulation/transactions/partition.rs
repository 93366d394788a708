//! A partition of the bank: a group, and what its entries mean.

use super::super::world::World;
use super::bank::Carelessness;
use std::collections::{BTreeMap, HashMap};
use tessera_transaction::{Access, Answer, Data, Entry, Ledger, Request, Step, TransactionId};

/// What transactions of the bank are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Accounts;

impl Data for Accounts {
    type Partition = usize;
    type Key = u8;
    /// A transfer, and what it adds to which accounts.
    type Operation = (u64, Vec<(u8, i64)>);
    type Writes = BTreeMap<u8, Account>;
    /// The accounts as they were.
    type Reply = BTreeMap<u8, Account>;
    /// Term, and how many entries with writes were applied.
    type Stamp = (u64, u64);
}

/// What an account has, and the transfers that it has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Account {
    pub(super) balance: i64,
    pub(super) transfers: Vec<u64>,
}

/// The state that a prefix of the log amounts to.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) ledger: Ledger<Accounts>,
    pub(super) accounts: BTreeMap<u8, Account>,
    writes: u64,
}

impl State {
    fn apply(&mut self, entry: &Entry<Accounts>) {
        if let Some(writes) = self.ledger.apply(entry, &mut Vec::new()) {
            self.accounts.extend(writes);
            self.writes += 1;
        }
    }

    fn evaluate(&self, (transfer, changes): &(u64, Vec<(u8, i64)>)) -> (BTreeMap<u8, Account>, BTreeMap<u8, Account>) {
        let before = |account: &u8| self.accounts.get(account).cloned().unwrap_or_default();
        let reply: BTreeMap<_, _> = changes.iter().map(|(account, _)| (*account, before(account))).collect();
        let mut writes = reply.clone();
        for (account, change) in changes {
            let account = writes.get_mut(account).expect("just read");
            account.balance += change;
            account.transfers.push(*transfer);
        }
        (writes, reply)
    }
}

/// What a partition was asked, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    /// A node with its generation.
    Coordinator(usize, u64),
    Participant(usize),
    Anchor(usize),
}

/// An answer that waits for its entry.
struct Waiting {
    to: Party,
    id: TransactionId,
    answer: Answer<Accounts>,
}

/// One group, the meaning of the numbers in its log, and what its replicas make of them.
pub(super) struct Partition {
    pub(super) world: World,
    entries: HashMap<u64, Entry<Accounts>>,
    waiting: HashMap<u64, Waiting>,
    /// How many acknowledged numbers were looked at.
    acknowledged: usize,
    /// What each replica has applied, and how many numbers that is.
    applied: Vec<(usize, State)>,
    /// What each replica evaluates on, as long as it leads in one term: what was applied when it began, and what it has proposed.
    evaluated: Vec<Option<(u64, State)>>,
    carelessness: Option<Carelessness>,
}

impl Partition {
    pub(super) fn new(world: World, carelessness: Option<Carelessness>) -> Self {
        let replicas = world.replicas.len();
        Self {
            world,
            entries: HashMap::new(),
            waiting: HashMap::new(),
            acknowledged: 0,
            applied: vec![(0, State::default()); replicas],
            evaluated: vec![None; replicas],
            carelessness,
        }
    }

    /// The state of a replica, as far as it has applied its log.
    pub(super) fn applied(&mut self, at: usize) -> &State {
        let numbers = &self.world.replicas[at].state.numbers;
        let (known, state) = &mut self.applied[at];
        if numbers.len() < *known {
            (*known, *state) = (0, State::default());
        }
        // The world writes a number now and then that means nothing here.
        numbers[*known..].iter().filter_map(|number| self.entries.get(number)).for_each(|entry| state.apply(entry));
        *known = numbers.len();
        state
    }

    /// The replicas that take themselves for the leader. There may be two.
    pub(super) fn serving(&self) -> Vec<usize> {
        let serves = |at: &usize| {
            self.world.replicas[*at].group.as_ref().is_some_and(crate::group::Group::is_serving)
                && !self.world.is_stopped(*at)
        };
        (0..self.world.replicas.len()).filter(serves).collect()
    }

    fn term(&self, at: usize) -> u64 {
        self.world.replicas[at].group.as_ref().map_or(0, |group| group.node.raft.term)
    }

    /// A replica that leads takes a request. Returns an answer that was given too early.
    pub(super) fn ask(&mut self, at: usize, from: Party, request: &Request<Accounts>) -> Option<Answer<Accounts>> {
        let term = self.term(at);
        let is_known = self.evaluated[at].as_ref().is_some_and(|(known, _)| *known == term);
        if !is_known || self.carelessness == Some(Carelessness::EvaluatesOnTheApplied) {
            let mut state = self.applied(at).clone();
            if self.carelessness == Some(Carelessness::ForgetsTheLedger) {
                state.ledger = Ledger::default();
            }
            self.evaluated[at] = Some((term, state));
        }
        let (_, state) = self.evaluated[at].as_mut().expect("just made");
        let step = match request {
            Request::Prepare(prepare) => state.ledger.prepare(prepare),
            Request::Decide(decide) => state.ledger.decide(decide),
            Request::Recover(id) => state.ledger.recover(*id),
            Request::Resolve(id, outcome) => state.ledger.resolve(*id, *outcome),
        };
        let entry = match (step, request) {
            (Step::Answer(answer), _) => {
                self.answer_when_confirmed(at, Waiting { to: from, id: request.id(), answer });
                return None;
            }
            (Step::Log(entry), _) => entry,
            (Step::Evaluate, Request::Prepare(prepare)) => {
                let (writes, reply) = state.evaluate(&prepare.operation);
                state.ledger.prepared(prepare, writes, reply)
            }
            (Step::Evaluate, Request::Decide(decide)) => {
                let (writes, reply) = state.evaluate(&decide.operation);
                state.ledger.committed(decide, writes, reply)
            }
            (Step::Evaluate, _) => unreachable!("nothing to evaluate"),
        };
        self.log(at, entry, Some((from, request.id())))
    }

    /// All participants of a transaction that was committed here have resolved it.
    pub(super) fn forget(&mut self, at: usize, id: TransactionId) {
        let term = self.term(at);
        let known = self.evaluated[at].as_ref().filter(|(known, _)| *known == term);
        if let Some(entry) = known.and_then(|(_, state)| state.ledger.forget(id)) {
            self.log(at, entry, None);
        }
    }

    fn log(
        &mut self,
        at: usize,
        entry: Entry<Accounts>,
        asker: Option<(Party, TransactionId)>,
    ) -> Option<Answer<Accounts>> {
        let number = self.next_number();
        let (_, state) = self.evaluated[at].as_mut().expect("it was evaluated on");
        state.apply(&entry);
        let answer = entry.answer();
        self.entries.insert(number, entry);
        if let Some((to, id)) = asker {
            self.waiting.insert(number, Waiting { to, id, answer: answer.clone() });
        }
        let group = self.world.replicas[at].group.as_mut().expect("it serves");
        group.building().extend_from_slice(&number.to_le_bytes());
        group.replicate(number, true, false);
        self.world.pass_now_or_later(at);
        (self.carelessness == Some(Carelessness::AnswersEarly)).then_some(answer)
    }

    /// What was found rests on entries that may be on their way, and on nobody else leading.
    fn answer_when_confirmed(&mut self, at: usize, waiting: Waiting) {
        let number = self.next_number();
        self.waiting.insert(number, waiting);
        self.world.answers.reads.insert(number, None);
        let now = self.world.now - self.world.replicas[at].started;
        let group = self.world.replicas[at].group.as_mut().expect("it serves");
        if let Some(number) = group.follow(number, true, || now) {
            self.world.answers.take(number, Ok(()));
        }
        self.world.pass_now_or_later(at);
    }

    fn next_number(&mut self) -> u64 {
        self.world.next_number += 1;
        self.world.next_number - 1
    }

    /// Answers whose entries are committed.
    pub(super) fn answers(&mut self) -> Vec<(Party, TransactionId, Answer<Accounts>)> {
        let committed = self.world.answers.acknowledged[self.acknowledged..].to_vec();
        self.acknowledged += committed.len();
        let confirmed = std::mem::take(&mut self.world.answers.answered_reads);
        let waiting = committed.iter().chain(&confirmed).filter_map(|number| self.waiting.remove(number));
        waiting.map(|waiting| (waiting.to, waiting.id, waiting.answer)).collect()
    }

    /// Reads accounts from the replica that has a lease. `None` if nobody has one, or a transaction holds one of them.
    pub(super) fn read(&mut self, accounts: &[u8]) -> Option<((u64, u64), BTreeMap<u8, Account>)> {
        let at = *self.world.readers.first()?;
        let (term, looks) = (self.term(at), self.carelessness != Some(Carelessness::ReadsIntents));
        let state = self.applied(at);
        let is_held = |account: &u8| state.ledger.holder(account, Access::Shared).is_some();
        if looks && accounts.iter().any(is_held) {
            return None;
        }
        let value = |account: &u8| (*account, state.accounts.get(account).cloned().unwrap_or_default());
        Some(((term, state.writes), accounts.iter().map(value).collect()))
    }

    /// Whether what was read still holds. `None` if nobody can say.
    pub(super) fn confirms(&mut self, accounts: &[u8], stamp: (u64, u64)) -> Option<bool> {
        let at = *self.world.readers.first()?;
        let (term, looks) = (self.term(at), self.carelessness != Some(Carelessness::ReadsIntents));
        let state = self.applied(at);
        let keys = if looks { accounts } else { &[] };
        Some(state.ledger.confirms(keys, &stamp, &(term, state.writes)))
    }
}
