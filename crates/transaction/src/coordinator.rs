//! A transaction, as the node sees it that carries it out.

use crate::data::Data;
use crate::id::{Age, TransactionId};
use crate::intent::Locks;
use crate::message::{Answer, Decide, Outcome, Prepare, Request};
use crate::rules::{Rule, Rules};
use std::collections::{BTreeMap, BTreeSet};

/// What a coordinator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<D: Data> {
    /// A request goes to a partition. If no answer comes, [`Coordinator::requests`] has it again.
    Send(D::Partition, Request<D>),
    /// The client is told.
    Answer(End<D>),
    /// Partitions may forget the transaction: [`TransactionIds::settle`](crate::TransactionIds::settle).
    Settle,
}

/// How a transaction ends for its client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End<D: Data> {
    /// It has taken effect. What the partitions have replied; the anchor's reply may be lost.
    Committed(BTreeMap<D::Partition, D::Reply>),
    /// It takes effect nowhere.
    Aborted(Abort<D>),
}

/// Why a transaction is aborted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Abort<D: Data> {
    /// It gave way to an older one, or somebody who waited for it took its coordinator for gone. It may be tried again, under
    /// another name and with its old age.
    GaveWay,
    /// A condition does not hold.
    Refused(D::Partition, D::Reply),
    /// Whoever asked for it does not wait any more.
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase<D: Data> {
    /// Participants evaluate. The decision was not asked for, so it cannot be made.
    Preparing,
    /// The anchor was asked to commit. It may have, whatever else it answers.
    Deciding,
    /// The anchor was asked to abort unless it has committed.
    Revoking(Abort<D>),
    /// The transaction is decided, and these have not resolved it.
    Resolving(Outcome, BTreeSet<D::Partition>),
    /// All have resolved it.
    Resolved,
}

/// The part of a transaction that concerns one partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Part<D: Data> {
    /// What is locked and evaluated, until it is certain that nobody is asked to do so any more.
    work: Option<(Locks<D>, D::Operation)>,
    reply: Option<D::Reply>,
}

/// One attempt to carry out a transaction.
///
/// It is a process that may end at any time: nothing depends on its memory. Answers may come late, twice, or not at all.
///
/// Cancellation: a coordinator that is dropped leaves its intents to those who meet them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coordinator<D: Data> {
    id: TransactionId,
    age: Age,
    settled: u64,
    anchor: D::Partition,
    parts: BTreeMap<D::Partition, Part<D>>,
    phase: Phase<D>,
    rules: Rules,
}

impl<D: Data> Coordinator<D> {
    /// A transaction of these parts; `settled` is [`TransactionIds::settled`](crate::TransactionIds::settled).
    ///
    /// # Panics
    /// If there is no part for the anchor.
    pub fn new(
        (id, age, settled): (TransactionId, Age, u64),
        anchor: D::Partition,
        parts: impl IntoIterator<Item = (D::Partition, Locks<D>, D::Operation)>,
    ) -> Self {
        let part = |(partition, locks, operation)| (partition, Part { work: Some((locks, operation)), reply: None });
        let parts: BTreeMap<_, _> = parts.into_iter().map(part).collect();
        assert!(parts.contains_key(&anchor), "the anchor has a part in the transaction");
        // Without participants nothing is to be prepared, so the first request may be the one that commits.
        let phase = if parts.len() == 1 { Phase::Deciding } else { Phase::Preparing };
        Self { id, age, settled, anchor, parts, phase, rules: Rules::default() }
    }

    #[cfg(test)]
    pub(crate) fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// The name of the transaction.
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// How old the transaction is.
    pub fn age(&self) -> Age {
        self.age
    }

    /// Whether the anchor was not asked to commit yet. So it has not.
    pub fn is_preparing(&self) -> bool {
        self.phase == Phase::Preparing
    }

    /// A number that grows with each step towards the end.
    pub fn progress(&self) -> usize {
        let prepared = self.parts.values().filter(|part| part.reply.is_some()).count();
        let parts = self.parts.len() + 1;
        match &self.phase {
            Phase::Preparing => prepared,
            Phase::Deciding => parts,
            Phase::Revoking(_) => 2 * parts,
            Phase::Resolving(_, waiting) => 4 * parts - waiting.len(),
            Phase::Resolved => 5 * parts,
        }
    }

    /// Whether nothing depends on this coordinator any more: all participants have resolved the transaction, or it is aborted. Of an
    /// abort participants that are not told find out by themselves.
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Resolving(Outcome::Aborted, _) | Phase::Resolved)
    }

    /// Nobody waits for the replies any more.
    pub fn forget_replies(&mut self) {
        if matches!(self.phase, Phase::Revoking(_)) {
            self.parts.values_mut().for_each(|part| part.reply = None);
        }
    }

    fn participants(&self) -> impl Iterator<Item = (D::Partition, &Part<D>)> {
        self.parts.iter().filter(|(partition, _)| **partition != self.anchor).map(|(id, part)| (*id, part))
    }

    /// What is asked at this time: to be sent at the beginning, and again when an answer does not come, or is that a key is busy.
    pub fn requests(&self) -> Vec<(D::Partition, Request<D>)> {
        let (id, age, settled, anchor) = (self.id, self.age, self.settled, self.anchor);
        match &self.phase {
            Phase::Preparing => {
                let unprepared = self.participants().filter(|(_, part)| part.reply.is_none());
                let request = |(partition, part): (D::Partition, &Part<D>)| {
                    let (locks, operation) = part.work.clone()?;
                    Some((partition, Request::Prepare(Prepare { id, age, settled, anchor, locks, operation })))
                };
                unprepared.filter_map(request).collect()
            }
            Phase::Deciding => self.decide().map(|decide| (anchor, decide)).into_iter().collect(),
            Phase::Revoking(_) => vec![(anchor, Request::Recover(id))],
            Phase::Resolving(outcome, waiting) => {
                waiting.iter().map(|partition| (*partition, Request::Resolve(id, *outcome))).collect()
            }
            Phase::Resolved => Vec::new(),
        }
    }

    fn is_prepared(&self) -> bool {
        self.participants().all(|(_, part)| part.reply.is_some())
            || !self.rules.keep(Rule::DecideWhenAllArePrepared)
                && self.participants().any(|(_, part)| part.reply.is_some())
    }

    fn decide(&self) -> Option<Request<D>> {
        let (locks, operation) = self.parts[&self.anchor].work.clone()?;
        let participants = self.participants().map(|(partition, _)| partition).collect();
        let (id, age, settled) = (self.id, self.age, self.settled);
        Some(Request::Decide(Decide { id, age, settled, locks, operation, participants }))
    }

    /// Takes in an answer of a partition about this transaction.
    pub fn receive(&mut self, from: D::Partition, answer: Answer<D>) -> Vec<Effect<D>> {
        let is_anchor = from == self.anchor;
        let (age, rules) = (self.age, self.rules);
        // Of the same age is an earlier attempt, whose end is on its way.
        let waits_for = |holder| age <= holder || !rules.keep(Rule::YoungerGivesWay);
        match (&mut self.phase, answer) {
            (Phase::Preparing, Answer::Prepared(reply)) if !is_anchor => {
                if let Some(part) = self.parts.get_mut(&from) {
                    part.reply = Some(reply);
                }
                match self.is_prepared() {
                    true => self.enter(Phase::Deciding),
                    false => Vec::new(),
                }
            }
            (Phase::Preparing | Phase::Deciding, Answer::Busy(holder)) if waits_for(holder.age) => Vec::new(),
            (Phase::Preparing | Phase::Deciding, Answer::Busy(_)) => self.abort(Abort::GaveWay),
            (Phase::Preparing | Phase::Deciding, Answer::Refused(reply)) => self.abort(Abort::Refused(from, reply)),
            // Somebody has asked the anchor about it, which has logged the abort.
            (Phase::Preparing, Answer::Over) => self.abort(Abort::GaveWay),
            (Phase::Deciding | Phase::Revoking(_), Answer::Committed(reply)) if is_anchor => {
                if let Some(part) = self.parts.get_mut(&from) {
                    part.reply = reply;
                }
                let replies = self.parts.iter_mut().filter_map(|(id, part)| Some((*id, part.reply.take()?)));
                let end = End::Committed(replies.collect());
                self.resolve(Outcome::Committed, end)
            }
            (Phase::Deciding, Answer::Aborted) if is_anchor => {
                self.resolve(Outcome::Aborted, End::Aborted(Abort::GaveWay))
            }
            (Phase::Revoking(abort), Answer::Aborted) if is_anchor => {
                let end = End::Aborted(abort.clone());
                self.resolve(Outcome::Aborted, end)
            }
            (Phase::Resolving(outcome, waiting), Answer::Resolved) => {
                waiting.remove(&from);
                if !waiting.is_empty() {
                    return Vec::new();
                }
                let was_settled = *outcome == Outcome::Aborted;
                self.phase = Phase::Resolved;
                if was_settled { Vec::new() } else { vec![Effect::Settle] }
            }
            // Late, or of a request that does not matter any more.
            _ => Vec::new(),
        }
    }

    /// Whoever asked for the transaction does not wait any more. It is aborted unless it was, or is being, committed.
    pub fn give_up(&mut self) -> Vec<Effect<D>> {
        match self.phase {
            Phase::Preparing | Phase::Deciding => self.abort(Abort::GivenUp),
            Phase::Revoking(_) | Phase::Resolving(..) | Phase::Resolved => Vec::new(),
        }
    }

    fn abort(&mut self, abort: Abort<D>) -> Vec<Effect<D>> {
        match self.phase {
            // A request to commit may still reach the anchor, also one that it has answered once.
            Phase::Deciding if self.rules.keep(Rule::AbortAtTheAnchor) => {
                self.forget_work();
                self.enter(Phase::Revoking(abort))
            }
            _ => self.resolve(Outcome::Aborted, End::Aborted(abort)),
        }
    }

    fn resolve(&mut self, outcome: Outcome, end: End<D>) -> Vec<Effect<D>> {
        let waiting: BTreeSet<_> = self.participants().map(|(partition, _)| partition).collect();
        let have_all_resolved = waiting.is_empty() || !self.rules.keep(Rule::SettleWhenAllHaveResolved);
        self.forget_work();
        self.parts.values_mut().for_each(|part| part.reply = None);
        let mut effects = vec![Effect::Answer(end)];
        effects.extend(self.enter(Phase::Resolving(outcome, waiting)));
        if have_all_resolved {
            self.phase = Phase::Resolved;
        }
        // Who asks the anchor about a transaction that was aborted hears so, also when it is forgotten.
        if have_all_resolved || outcome == Outcome::Aborted {
            effects.push(Effect::Settle);
        }
        effects
    }

    /// Nobody is asked to evaluate a part any more. What is to be done may be large, and telling who cannot be reached may take long.
    fn forget_work(&mut self) {
        self.parts.values_mut().for_each(|part| part.work = None);
    }

    fn enter(&mut self, phase: Phase<D>) -> Vec<Effect<D>> {
        self.phase = phase;
        self.requests().into_iter().map(|(to, request)| Effect::Send(to, request)).collect()
    }
}

#[cfg(test)]
mod tests;
