//! What a partition remembers of transactions, and what it does when it is asked about one.

use crate::data::Data;
use crate::id::TransactionId;
use crate::intent::{Access, Holder, Intent, Locks};
use crate::message::{Answer, Decide, Outcome, Prepare};
use crate::record::{Decision, LedgerKey, LedgerRecord};
use crate::rules::{Rule, Rules};
use std::collections::{BTreeMap, BTreeSet};
use tessera_types::NodeId;

/// So many records of transactions that are over go with one log entry. Each entry adds at most two, so it is enough that entries of
/// the same node follow.
const FORGOTTEN_AT_ONCE: usize = 256;

/// What the log says about a transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry<D: Data> {
    /// A participant has evaluated its part.
    Prepare {
        /// The transaction.
        id: TransactionId,
        /// See [`TransactionIds`](crate::TransactionIds).
        settled: u64,
        /// The result.
        intent: Intent<D>,
    },
    /// The anchor has evaluated its part, and the transaction has taken effect.
    Commit {
        /// The transaction.
        id: TransactionId,
        /// See [`TransactionIds`](crate::TransactionIds).
        settled: u64,
        /// Who must resolve it.
        participants: Vec<D::Partition>,
        /// What the anchor writes.
        writes: D::Writes,
        /// What the anchor answers.
        reply: D::Reply,
    },
    /// The anchor has no decision, and will never commit.
    Abort(TransactionId),
    /// A participant applies its intent, or drops it.
    Resolve(TransactionId, Outcome),
    /// All participants of a committed transaction have resolved it.
    Forget(TransactionId),
}

impl<D: Data> Entry<D> {
    /// What is answered when the entry is committed.
    pub fn answer(&self) -> Answer<D> {
        match self {
            Self::Prepare { intent, .. } => Answer::Prepared(intent.reply.clone()),
            Self::Commit { reply, .. } => Answer::Committed(Some(reply.clone())),
            Self::Abort(_) => Answer::Aborted,
            Self::Resolve(..) | Self::Forget(_) => Answer::Resolved,
        }
    }
}

/// What a partition's leader does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<D: Data> {
    /// It evaluates the operation, and logs what [`Ledger::prepared`] or [`Ledger::committed`] makes of the result.
    Evaluate,
    /// It logs this, and gives the entry's [answer](Entry::answer) when that is committed.
    Log(Entry<D>),
    /// It answers, when all that is logged so far is committed and nobody else can have led by then: the answer rests on that.
    Answer(Answer<D>),
}

/// All that a partition has logged about transactions: its replicas agree on it.
///
/// Of a transaction, a partition has at most one of these:
/// - as a participant an [`Intent`], and afterwards a note that it is *finished*;
/// - as the anchor a decision: committed, committed and forgotten, or aborted.
///
/// What is finished, forgotten or aborted stands for messages that may come late, and goes when the transaction is settled
/// or when its coordinator's node was started again. From then on the node's *mark* refuses such messages. An intent, and a
/// commit that some participant may not know, do not go that way.
///
/// Each of these is a [record](LedgerRecord), which whoever keeps the ledger can store and [restore](Self::restore).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ledger<D: Data> {
    intents: BTreeMap<TransactionId, Intent<D>>,
    /// The locks of all intents, by key.
    locks: BTreeMap<D::Key, BTreeMap<TransactionId, Access>>,
    /// Decisions that stand for messages which may come late: aborts, and commits that are forgotten.
    decided: BTreeMap<TransactionId, Decision<D>>,
    /// Commits that some participant may not have resolved.
    unfinished: BTreeMap<TransactionId, Decision<D>>,
    finished: BTreeSet<TransactionId>,
    /// Of each node, the generation and number of the first transaction that may not be over.
    marks: BTreeMap<NodeId, (u64, u64)>,
    rules: Rules,
}

impl<D: Data> Default for Ledger<D> {
    fn default() -> Self {
        Self::new(Rules::default())
    }
}

impl<D: Data> Ledger<D> {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            intents: BTreeMap::new(),
            locks: BTreeMap::new(),
            decided: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            finished: BTreeSet::new(),
            marks: BTreeMap::new(),
            rules,
        }
    }

    /// A ledger of records that were stored.
    pub fn restore(records: impl IntoIterator<Item = (LedgerKey, LedgerRecord<D>)>) -> Self {
        let mut ledger = Self::default();
        for (key, record) in records {
            match (key, record) {
                (LedgerKey::Intent(id), LedgerRecord::Intent(intent)) => ledger.lock(id, intent),
                (LedgerKey::Decision(id), LedgerRecord::Decision(decision)) => ledger.keep(id, decision),
                (LedgerKey::Finished(id), LedgerRecord::Finished) => _ = ledger.finished.insert(id),
                (LedgerKey::Mark(node), LedgerRecord::Mark { generation, sequence }) => {
                    ledger.marks.insert(node, (generation, sequence));
                }
                (key, record) => unreachable!("{key:?} names another record than {record:?}"),
            }
        }
        ledger
    }

    /// What is to be stored under a key; `None` if nothing is.
    pub fn record(&self, key: LedgerKey) -> Option<LedgerRecord<D>> {
        Some(match key {
            LedgerKey::Intent(id) => LedgerRecord::Intent(self.intents.get(&id)?.clone()),
            LedgerKey::Decision(id) => LedgerRecord::Decision(self.decision(id)?.clone()),
            LedgerKey::Finished(id) => self.finished.contains(&id).then_some(LedgerRecord::Finished)?,
            LedgerKey::Mark(node) => {
                let (generation, sequence) = *self.marks.get(&node)?;
                LedgerRecord::Mark { generation, sequence }
            }
        })
    }

    /// The keys of all records.
    pub fn keys(&self) -> impl Iterator<Item = LedgerKey> {
        let intents = self.intents.keys().copied().map(LedgerKey::Intent);
        let decisions = self.unfinished.keys().chain(self.decided.keys()).copied().map(LedgerKey::Decision);
        let finished = self.finished.iter().copied().map(LedgerKey::Finished);
        intents.chain(decisions).chain(finished).chain(self.marks.keys().copied().map(LedgerKey::Mark))
    }

    /// Whether there is nothing that a reader or writer would have to look at.
    pub fn has_no_intents(&self) -> bool {
        self.intents.is_empty()
    }

    /// The intents, with the partitions that have their decisions.
    pub fn intents(&self) -> impl Iterator<Item = (TransactionId, D::Partition)> {
        self.intents.iter().map(|(id, intent)| (*id, intent.anchor))
    }

    /// The intent of a transaction, as long as it is there.
    pub fn intent(&self, id: TransactionId) -> Option<&Intent<D>> {
        self.intents.get(&id)
    }

    /// Transactions that were committed here, and participants that may not have resolved them.
    pub fn unfinished(&self) -> impl Iterator<Item = (TransactionId, &[D::Partition])> {
        self.unfinished.iter().filter_map(|(id, decision)| match decision {
            Decision::Committed { participants, .. } => Some((*id, participants.as_slice())),
            Decision::Forgotten | Decision::Aborted => None,
        })
    }

    /// The transaction that keeps a plain read or write from using a key. Whoever meets it waits: it may have taken effect
    /// already, and somebody may have been told so or have seen its other writes.
    pub fn holder(&self, key: &D::Key, access: Access) -> Option<Holder<D>> {
        let rule = match access {
            Access::Shared => Rule::ReadsWaitForLocks,
            Access::Exclusive => Rule::WritesWaitForLocks,
        };
        if !self.rules.keep(rule) {
            return None;
        }
        self.other_holder(None, key, access)
    }

    /// Whether what was read of these keys, by somebody who then read elsewhere, still holds.
    pub fn confirms(&self, keys: &[D::Key], read: &D::Stamp, now: &D::Stamp) -> bool {
        let is_locked = || keys.iter().any(|key| self.other_holder(None, key, Access::Shared).is_some());
        (read == now || !self.rules.keep(Rule::ConfirmNoChange))
            && (!self.rules.keep(Rule::ConfirmNoLock) || !is_locked())
    }

    fn other_holder(&self, own: Option<TransactionId>, key: &D::Key, access: Access) -> Option<Holder<D>> {
        let excludes = |held: Access| access == Access::Exclusive || held == Access::Exclusive;
        let mut holders = self.locks.get(key)?.iter();
        let (id, _) = holders.find(|(id, held)| Some(**id) != own && excludes(**held))?;
        let intent = self.intents.get(id)?;
        Some(Holder { id: *id, age: intent.age, anchor: intent.anchor })
    }

    fn holder_of_any(&self, own: TransactionId, locks: &Locks<D>) -> Option<Holder<D>> {
        locks.iter().find_map(|(key, access)| self.other_holder(Some(own), key, *access))
    }

    /// Whether nothing is to be done for this transaction any more.
    fn is_over(&self, id: TransactionId) -> bool {
        let mark = self.marks.get(&id.node).copied().unwrap_or_default();
        self.rules.keep(Rule::RefuseWhatIsSettled) && (id.generation, id.sequence) < mark
    }

    /// A participant is asked to prepare.
    pub fn prepare(&self, request: &Prepare<D>) -> Step<D> {
        let id = request.id;
        if let Some(intent) = self.intents.get(&id) {
            return Step::Answer(Answer::Prepared(intent.reply.clone()));
        }
        let was_resolved = self.finished.contains(&id) && self.rules.keep(Rule::PrepareOnce);
        if was_resolved || self.is_over(id) {
            return Step::Answer(Answer::Over);
        }
        match self.holder_of_any(id, &request.locks) {
            Some(holder) => Step::Answer(Answer::Busy(holder)),
            None => Step::Evaluate,
        }
    }

    /// What is logged of a part that was evaluated. For a request to which [`Self::prepare`] said that it is to be.
    pub fn prepared(&self, request: &Prepare<D>, writes: D::Writes, reply: D::Reply) -> Entry<D> {
        let mut locks = request.locks.clone();
        if !self.rules.keep(Rule::LockWhatIsRead) {
            locks.retain(|(_, access)| *access == Access::Exclusive);
        }
        let intent = Intent { anchor: request.anchor, age: request.age, locks, writes, reply };
        Entry::Prepare { id: request.id, settled: request.settled, intent }
    }

    /// The anchor is asked to commit.
    pub fn decide(&self, request: &Decide<D>) -> Step<D> {
        match self.decision(request.id) {
            Some(Decision::Aborted) => return Step::Answer(Answer::Aborted),
            Some(_) if !self.rules.keep(Rule::DecideOnce) => (),
            Some(Decision::Committed { reply, .. }) => return Step::Answer(Answer::Committed(Some(reply.clone()))),
            Some(Decision::Forgotten) => return Step::Answer(Answer::Committed(None)),
            // The coordinator does not wait for this answer any more.
            None if self.is_over(request.id) => return Step::Answer(Answer::Aborted),
            None => (),
        }
        match self.holder_of_any(request.id, &request.locks) {
            Some(holder) if self.rules.keep(Rule::DecisionsWaitForLocks) => Step::Answer(Answer::Busy(holder)),
            _ => Step::Evaluate,
        }
    }

    /// What is logged of the anchor's own part. For a request to which [`Self::decide`] said that it is to be evaluated.
    pub fn committed(&self, request: &Decide<D>, writes: D::Writes, reply: D::Reply) -> Entry<D> {
        let (id, settled, participants) = (request.id, request.settled, request.participants.clone());
        Entry::Commit { id, settled, participants, writes, reply }
    }

    /// The anchor is asked what has become of a transaction, by somebody who does not expect its coordinator to go on.
    pub fn recover(&self, id: TransactionId) -> Step<D> {
        match self.decision(id) {
            Some(Decision::Committed { reply, .. }) => Step::Answer(Answer::Committed(Some(reply.clone()))),
            Some(Decision::Forgotten) => Step::Answer(Answer::Committed(None)),
            Some(Decision::Aborted) => Step::Answer(Answer::Aborted),
            // Had it committed, its record would be here until all participants had resolved it.
            None if self.is_over(id) => Step::Answer(Answer::Aborted),
            None if self.rules.keep(Rule::LogAborts) => Step::Log(Entry::Abort(id)),
            None => Step::Answer(Answer::Aborted),
        }
    }

    /// A participant is told what has become of a transaction.
    pub fn resolve(&self, id: TransactionId, outcome: Outcome) -> Step<D> {
        match self.intents.contains_key(&id) {
            true => Step::Log(Entry::Resolve(id, outcome)),
            // It has resolved it. Or it was never asked to prepare, and the transaction is aborted: if it is asked now, it asks
            // the anchor in turn.
            false => Step::Answer(Answer::Resolved),
        }
    }

    /// All participants of a transaction that was committed here have resolved it.
    pub fn forget(&self, id: TransactionId) -> Option<Entry<D>> {
        self.unfinished.contains_key(&id).then_some(Entry::Forget(id))
    }

    /// Takes in a committed entry. Returns what the partition is to write, and adds to `changed` which records are others now, or
    /// are gone.
    pub fn apply(&mut self, entry: &Entry<D>, changed: &mut Vec<LedgerKey>) -> Option<D::Writes> {
        match entry {
            Entry::Prepare { id, settled, intent } => {
                self.lock(*id, intent.clone());
                changed.push(LedgerKey::Intent(*id));
                self.settle(*id, *settled, changed);
                None
            }
            Entry::Commit { id, settled, participants, writes, reply } => {
                let (participants, reply) = (participants.clone(), reply.clone());
                self.decide_as(*id, Decision::Committed { participants, reply }, changed);
                self.settle(*id, *settled, changed);
                Some(writes.clone())
            }
            Entry::Abort(id) => {
                self.decide_as(*id, Decision::Aborted, changed);
                None
            }
            Entry::Resolve(id, outcome) => {
                let intent = self.unlock(*id)?;
                changed.push(LedgerKey::Intent(*id));
                if !self.is_over(*id) {
                    self.finished.insert(*id);
                    changed.push(LedgerKey::Finished(*id));
                }
                (*outcome == Outcome::Committed).then_some(intent.writes)
            }
            Entry::Forget(id) => {
                if self.is_over(*id) {
                    self.unfinished.remove(id);
                    changed.push(LedgerKey::Decision(*id));
                } else {
                    self.decide_as(*id, Decision::Forgotten, changed);
                }
                None
            }
        }
    }

    fn decide_as(&mut self, id: TransactionId, decision: Decision<D>, changed: &mut Vec<LedgerKey>) {
        self.keep(id, decision);
        changed.push(LedgerKey::Decision(id));
    }

    fn decision(&self, id: TransactionId) -> Option<&Decision<D>> {
        self.unfinished.get(&id).or_else(|| self.decided.get(&id))
    }

    fn keep(&mut self, id: TransactionId, decision: Decision<D>) {
        let (of_its_kind, other) = match decision {
            Decision::Committed { .. } => (&mut self.unfinished, &mut self.decided),
            Decision::Forgotten | Decision::Aborted => (&mut self.decided, &mut self.unfinished),
        };
        other.remove(&id);
        of_its_kind.insert(id, decision);
    }

    fn lock(&mut self, id: TransactionId, intent: Intent<D>) {
        for (key, access) in &intent.locks {
            let held = self.locks.entry(key.clone()).or_default().entry(id).or_insert(*access);
            *held = (*held).max(*access);
        }
        self.intents.insert(id, intent);
    }

    fn unlock(&mut self, id: TransactionId) -> Option<Intent<D>> {
        let intent = self.intents.remove(&id)?;
        for (key, _) in &intent.locks {
            if let Some(holders) = self.locks.get_mut(key) {
                holders.remove(&id);
                if holders.is_empty() {
                    self.locks.remove(key);
                }
            }
        }
        Some(intent)
    }

    /// A transaction's node says which of its transactions are settled.
    fn settle(&mut self, id: TransactionId, settled: u64, changed: &mut Vec<LedgerKey>) {
        let mark = self.marks.entry(id.node).or_default();
        if (id.generation, settled) > *mark {
            *mark = (id.generation, settled);
            changed.push(LedgerKey::Mark(id.node));
        }
        let (generation, sequence) = *mark;
        let id_of = |generation, sequence| TransactionId { node: id.node, generation, sequence };
        let over = id_of(0, 0)..id_of(generation, sequence);
        // What is settled was resolved by all, or has never committed. That a node was started again says nothing of the kind.
        let keeps_commits = self.rules.keep(Rule::KeepDecisionsOfEarlierStarts);
        let finished_commits = if keeps_commits { id_of(generation, 0) } else { id_of(0, 0) }..over.end;
        let finished = self.finished.range(over.clone()).copied().map(LedgerKey::Finished);
        let decided = self.decided.range(over).map(|(id, _)| LedgerKey::Decision(*id));
        let commits = self.unfinished.range(finished_commits).map(|(id, _)| LedgerKey::Decision(*id));
        let gone: Vec<_> = commits.chain(finished).chain(decided).take(FORGOTTEN_AT_ONCE).collect();
        for key in &gone {
            match key {
                LedgerKey::Finished(id) => _ = self.finished.remove(id),
                LedgerKey::Decision(id) => _ = self.unfinished.remove(id).or_else(|| self.decided.remove(id)),
                LedgerKey::Intent(_) | LedgerKey::Mark(_) => {}
            }
        }
        changed.extend(gone);
    }
}

#[cfg(test)]
mod tests;
