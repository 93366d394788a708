//! What the leader of a partition has in memory of its ledger, and where readers and writers look for locks.

use super::data::{IntendedWrites, OnTables, PartitionName};
use super::encoding::{PREFIX, decode_key, decode_record, encode_key, encode_record};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tessera_engine::{Engine, EngineError, Order};
use tessera_transaction::{Access, Age, Decision, Entry, Ledger, LedgerKey, LedgerRecord, TransactionId};
use tessera_types::{Space, successor};

/// How long a partition takes no new transactions where somebody waits until it has none, such as who wants to seal it.
const CLOSED_FOR: Duration = Duration::from_secs(1);

/// The ledger of a partition as its leader has evaluated it: with entries that are on their way. Empty on other replicas.
///
/// Costs readers and writers one load while no intent is there.
#[derive(Default)]
pub struct PartitionLedger {
    /// Intents whose keys somebody has to wait for.
    intents: AtomicUsize,
    /// Intents and commits that somebody may have to bring to their end.
    open: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ledger: Ledger<OnTables>,
    /// When the leader first knew of intents, and of commits that are not forgotten.
    since: HashMap<TransactionId, Instant>,
    /// Keys that readers wait for, with how many intents lock them exclusively, or did so until their writes are applied.
    unreadable: HashMap<Bytes, usize>,
    /// Intents that were resolved by entries which are not applied yet.
    leaving: VecDeque<Leaving>,
    closed_at: Option<Instant>,
    /// Whether this is what the engine had when the replica began to lead, with what was logged since. Else it says nothing.
    is_restored: bool,
}

/// An intent that was resolved.
struct Leaving {
    id: TransactionId,
    /// The log index of the entry that resolves it, once it has one.
    index: Option<u64>,
    keys: Vec<Bytes>,
}

/// A record of the ledger that is to be put under a key of the system space, or to be deleted.
pub(super) type StoredChange = (Vec<u8>, Option<Vec<u8>>);

/// What has waited for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// An intent, and where its decision is.
    Intent(TransactionId, PartitionName),
    /// A commit, and who may not have resolved it.
    Commit(TransactionId, Vec<PartitionName>),
}

/// The ledger that a partition's engine holds.
///
/// # Errors
/// What the engine reports, and [`EngineError::Corruption`].
fn load(engine: &dyn Engine, partition: u32) -> Result<Ledger<OnTables>, EngineError> {
    let (mut records, mut damaged) = (Vec::new(), None);
    let end = successor(PREFIX);
    let range = (Bound::Included(PREFIX), Bound::Excluded(&end[..]));
    engine.scan_space(partition, Space::SYSTEM, range, Order::Ascending, &mut |key, value| {
        match decode_key(key).and_then(|name| Some((name, decode_record(name, value)?))) {
            Some(record) => records.push(record),
            None => damaged = Some(format!("the record '{}' of transactions", key.escape_ascii())),
        }
        damaged.is_none()
    })?;
    match damaged {
        Some(what) => Err(EngineError::Corruption(what)),
        None => Ok(Ledger::restore(records)),
    }
}

/// Whether a transaction has committed at a partition, as its engine knows.
///
/// # Errors
/// What the engine reports.
pub(super) fn has_committed(engine: &dyn Engine, partition: u32, id: TransactionId) -> Result<bool, EngineError> {
    let (key, mut has_committed) = (LedgerKey::Decision(id), false);
    engine.get_in(partition, Space::SYSTEM, &encode_key(key), &mut |value| {
        let is_commit = |record| !matches!(record, LedgerRecord::Decision(Decision::Aborted));
        has_committed = decode_record(key, value).is_some_and(is_commit);
    })?;
    Ok(has_committed)
}

impl PartitionLedger {
    /// Whether a key of the system space is that of a record of a ledger.
    pub fn is_record(key: &[u8]) -> bool {
        decode_key(key).is_some()
    }

    /// Whether somebody may have to wait for a key.
    #[inline]
    pub(crate) fn has_locks(&self) -> bool {
        self.intents.load(Ordering::Acquire) != 0
    }

    /// Whether readers have to wait for a key. To be asked before the key is read.
    #[inline]
    pub(crate) fn is_unreadable(&self, hash_key: &[u8]) -> bool {
        self.has_locks() && self.state.lock().unreadable.contains_key(hash_key)
    }

    /// The transaction that keeps the partition's loop from reading or writing a key.
    pub(crate) fn holder(&self, hash_key: &[u8], access: Access) -> Option<TransactionId> {
        let key = Bytes::copy_from_slice(hash_key);
        self.state.lock().ledger.holder(&key, access).map(|holder| holder.id)
    }

    /// Some transaction that has an intent here.
    pub(crate) fn any_holder(&self) -> Option<TransactionId> {
        self.state.lock().ledger.intents().next().map(|(id, _)| id)
    }

    /// The transactions that have something here which is not to be seen yet.
    pub(crate) fn hidden(&self) -> Vec<TransactionId> {
        if !self.has_locks() {
            return Vec::new();
        }
        let state = self.state.lock();
        state.ledger.intents().map(|(id, _)| id).chain(state.leaving.iter().map(|leaving| leaving.id)).collect()
    }

    /// Looks at the ledger.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Ledger<OnTables>) -> T) -> T {
        look(&self.state.lock().ledger)
    }

    /// Takes in an entry that is being logged. Returns what it changes in the system space.
    pub(super) fn log(&self, entry: &Entry<OnTables>) -> Vec<StoredChange> {
        let State { ledger, since, unreadable, leaving, .. } = &mut *self.state.lock();
        match entry {
            Entry::Prepare { id, intent, .. } => {
                exclusive(&intent.locks).for_each(|key| *unreadable.entry(key.clone()).or_default() += 1);
                since.insert(*id, Instant::now());
                self.intents.fetch_add(1, Ordering::AcqRel);
            }
            Entry::Resolve(id, _) => {
                let keys = ledger.intent(*id).map(|intent| exclusive(&intent.locks).cloned().collect());
                leaving.push_back(Leaving { id: *id, index: None, keys: keys.unwrap_or_default() });
                since.remove(id);
            }
            Entry::Commit { id, .. } => _ = since.insert(*id, Instant::now()),
            Entry::Forget(id) => _ = since.remove(id),
            Entry::Abort(_) => {}
        }
        let mut changed = Vec::new();
        ledger.apply(entry, &mut changed);
        let stored = |key: LedgerKey| {
            let record = ledger.record(key);
            if record.is_none()
                && let LedgerKey::Decision(id) = key
            {
                since.remove(&id);
            }
            (encode_key(key), record.as_ref().map(encode_record))
        };
        let stored = changed.into_iter().map(stored).collect();
        self.open.store(since.len(), Ordering::Release);
        stored
    }

    /// All records.
    pub(crate) fn stored(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let state = self.state.lock();
        let stored = |key| Some((encode_key(key), encode_record(&state.ledger.record(key)?)));
        state.ledger.keys().filter_map(stored).collect()
    }

    /// Everything that was evaluated since the last call is in the log entry with this index.
    pub fn proposed(&self, index: u64) {
        if self.has_locks() {
            let mut state = self.state.lock();
            state.leaving.iter_mut().rev().take_while(|leaving| leaving.index.is_none()).for_each(|leaving| {
                leaving.index = Some(index);
            });
        }
    }

    /// Entries up to this index are in the engine. Returns whether readers need not wait any more for some keys.
    pub fn applied(&self, index: u64) -> bool {
        if !self.has_locks() {
            return false;
        }
        let mut is_released = false;
        let State { leaving, unreadable, .. } = &mut *self.state.lock();
        while let Some(gone) = leaving.pop_front_if(|leaving| leaving.index.is_some_and(|at| at <= index)) {
            for key in gone.keys {
                if let Some(count) = unreadable.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        unreadable.remove(&key);
                    }
                }
            }
            self.intents.fetch_sub(1, Ordering::AcqRel);
            is_released = true;
        }
        is_released
    }

    /// The replica here begins to lead: it takes what its engine holds. To be called before it serves.
    ///
    /// # Errors
    /// What the engine reports, and [`EngineError::Corruption`] if a record cannot be read.
    pub fn restore(&self, engine: &dyn Engine, partition: u32) -> Result<(), EngineError> {
        let (ledger, now) = (load(engine, partition)?, Instant::now());
        let mut state = State { is_restored: true, ..State::default() };
        for (id, _) in ledger.intents() {
            let locks = ledger.intent(id).map(|intent| exclusive(&intent.locks).cloned());
            locks.into_iter().flatten().for_each(|key| *state.unreadable.entry(key).or_default() += 1);
            state.since.insert(id, now);
        }
        let intents = state.since.len();
        state.since.extend(ledger.unfinished().map(|(id, _)| (id, now)));
        state.ledger = ledger;
        let mut place = self.state.lock();
        self.open.store(state.since.len(), Ordering::Release);
        *place = state;
        self.intents.store(intents, Ordering::Release);
        Ok(())
    }

    /// Reads what an engine holds of a ledger, so that its caches have it: [`Self::restore`] may be asked not to wait for the disk.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub fn warm(engine: &dyn Engine, partition: u32) -> Result<(), EngineError> {
        load(engine, partition).map(|_| ())
    }

    /// Whether the replica here leads, and has read what its engine held of the ledger.
    pub fn is_restored(&self) -> bool {
        self.state.lock().is_restored
    }

    /// The replica here leads no longer.
    pub fn reset(&self) {
        let mut state = self.state.lock();
        *state = State::default();
        self.intents.store(0, Ordering::Release);
        self.open.store(0, Ordering::Release);
    }

    /// The service of the face that carries out the intent of a transaction, if one does.
    pub(crate) fn service_of(&self, id: TransactionId) -> Option<u8> {
        match &self.state.lock().ledger.intent(id)?.writes {
            IntendedWrites::Operation(operation) => Some(operation.service),
            IntendedWrites::Mutations(_) => None,
        }
    }

    /// Whether an intent of a transaction stands here.
    pub fn has_intent(&self, id: TransactionId) -> bool {
        self.has_locks() && self.state.lock().ledger.intent(id).is_some()
    }

    /// How many intents, and commits that are not forgotten, stand here; 0 on replicas that do not lead.
    pub(crate) fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether an intent has stood here for so long.
    pub(crate) fn has_intents_for(&self, time: Duration) -> bool {
        if !self.has_locks() {
            return false;
        }
        let state = self.state.lock();
        state.ledger.intents().any(|(id, _)| state.since.get(&id).is_some_and(|since| since.elapsed() >= time))
    }

    /// Whether the partition may be sealed. If it may not, it takes no new transactions for a moment, so that it may soon.
    pub fn may_be_sealed(&self) -> bool {
        self.close();
        let state = self.state.lock();
        state.is_restored && state.ledger.has_no_intents() && state.ledger.unfinished().next().is_none()
    }

    /// What stands here that has to be brought to its end, for people: how much, and the oldest.
    pub fn describe(&self) -> String {
        let state = self.state.lock();
        let (intents, commits) = (state.ledger.intents().count(), state.ledger.unfinished().count());
        let oldest = state.since.iter().min_by_key(|(_, since)| **since).map(|(id, since)| {
            let decided = state.ledger.intents().find(|(other, _)| other == id).map(|(_, anchor)| anchor);
            let place = |name: &PartitionName| format!("partition {} of table {}", name.partition, name.table);
            let where_to = match decided {
                Some(anchor) => format!("to be decided by {}", place(&anchor)),
                None => {
                    let others = state.ledger.unfinished().find(|(other, _)| other == id);
                    let others: Vec<_> = others.into_iter().flat_map(|(_, others)| others).map(place).collect();
                    format!("committed, to be resolved by {}", others.join(" and "))
                }
            };
            format!(", the oldest {id} of {:.1} s, {where_to}", since.elapsed().as_secs_f64())
        });
        let unread = if state.is_restored { "" } else { " (not read yet)" };
        format!("{intents} intents, {commits} commits{unread}{}", oldest.unwrap_or_default())
    }

    /// The partition takes no new transactions for a moment.
    pub(crate) fn close(&self) {
        self.state.lock().closed_at = Some(Instant::now());
    }

    /// It takes new ones again.
    pub(crate) fn reopen(&self) {
        self.state.lock().closed_at = None;
    }

    /// Whether the partition takes no new transactions, since somebody waits until it has none.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed_at.is_some_and(|since| since.elapsed() < CLOSED_FOR)
    }

    /// The intents that `is_late` says are, by the age of their transactions and by how long they have stood here; and commits that have stood
    /// for so long.
    pub(crate) fn overdue(
        &self,
        is_late: impl Fn(TransactionId, Age, Duration) -> bool,
        commits: Duration,
    ) -> Vec<Overdue> {
        if self.open.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let state = self.state.lock();
        let is_closed = state.closed_at.is_some_and(|since| since.elapsed() < CLOSED_FOR);
        let stood = |id: &TransactionId| state.since.get(id).map(Instant::elapsed).unwrap_or_default();
        let age = |id: TransactionId| state.ledger.intent(id).map(|intent| intent.age);
        let is_late = |id: &TransactionId| age(*id).is_some_and(|age| is_late(*id, age, stood(id)));
        let late = state.ledger.intents().filter(|(id, _)| is_late(id));
        let unfinished = state.ledger.unfinished().filter(|(id, _)| is_closed || stood(id) >= commits);
        let commit = |(id, participants): (_, &[PartitionName])| Overdue::Commit(id, participants.to_vec());
        late.map(|(id, anchor)| Overdue::Intent(id, anchor)).chain(unfinished.map(commit)).collect()
    }
}

/// The keys that are locked exclusively.
fn exclusive(locks: &[(Bytes, Access)]) -> impl Iterator<Item = &Bytes> {
    locks.iter().filter(|(_, access)| *access == Access::Exclusive).map(|(key, _)| key)
}
