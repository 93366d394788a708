//! One group: Raft's state, and beside it what Raft need not touch.

use crate::log::{LogRecord, RecoveredGroup, StoredEntry, StoredState};
use crate::storage::GroupStorage;
use crate::{Committed, GroupId, THIS_NODE};
use bytes::{Bytes, BytesMut};
use raft::eraftpb::{Entry, EntryType, HardState};
use raft::{Config, RawNode};
use std::collections::VecDeque;

/// An entry's payload is closed when it has grown to this; what follows goes into the next entry.
const ENTRY_BYTES: usize = 1 << 20;

/// A buffer that held an entry longer than this is not kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

/// How a group is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Whether its log is on disk.
    pub persistent: bool,
    /// The log index that the state machine reflects already.
    pub applied: u64,
}

/// A group with `T` as tickets of the commands on their way.
///
/// Payloads stand in `pending`, in order of index, until they are applied; Raft sees entries without payload.
pub(crate) struct Group<T> {
    pub(crate) id: GroupId,
    pub(crate) persistent: bool,
    node: RawNode<GroupStorage>,
    pending: VecDeque<Pending>,
    /// Each waits for its index to be applied. Indexes ascend.
    tickets: VecDeque<(u64, T)>,
    /// The entry being put together in this pass.
    pub(crate) building: BytesMut,
    building_sync: bool,
    building_tickets: Vec<T>,
    applied: u64,
    /// Number of the last ready that waits for the log, and of the last one that came back from it.
    waiting: u64,
    persisted: u64,
    serving: bool,
    /// Whether the group is in the worker's list for this pass.
    pub(crate) in_pass: bool,
}

struct Pending {
    index: u64,
    payload: Bytes,
    sync: bool,
}

/// What a pass has to do outside of the groups.
#[derive(Default)]
pub(crate) struct PassOutput {
    pub(crate) records: Vec<LogRecord>,
    /// Readies that count as persisted once the records are fsynced.
    pub(crate) waiting: Vec<(GroupId, u64)>,
    pub(crate) committed: Vec<Committed>,
}

impl<T> Group<T> {
    /// # Panics
    /// If the log does not reach back to the applied index: state in between would be missing.
    pub(crate) fn new(id: GroupId, settings: GroupSettings, recovered: RecoveredGroup) -> Self {
        let GroupSettings { persistent, applied } = settings;
        let RecoveredGroup { state, truncated, mut entries } = recovered;
        let mut before = truncated;
        while let Some(first) = entries.front().filter(|first| first.index <= applied) {
            before = (first.index, first.term);
            entries.pop_front();
        }
        if before.0 < applied {
            assert!(entries.is_empty(), "{id:?}: the log begins behind the applied index {applied}");
            // The state is ahead of a log that lost its unsynced tail; it stands for the lost entries.
            before = (applied, state.term.max(before.1));
        }
        assert_eq!(before.0, applied, "{id:?}: the state machine lost entries that it had called durable");
        let last = entries.back().map_or(before.0, |last| last.index);
        let hard_state =
            HardState { term: state.term.max(before.1), vote: state.vote, commit: state.commit.clamp(applied, last) };
        let mut pending = VecDeque::new();
        let mut raft_entries = VecDeque::new();
        for StoredEntry { index, term, kind, payload } in entries {
            raft_entries.push_back(Entry { index, term, entry_type: i32::from(kind), ..Default::default() });
            if !payload.is_empty() {
                pending.push_back(Pending { index, payload, sync: true });
            }
        }
        let storage = GroupStorage::new(hard_state, vec![THIS_NODE], before, raft_entries);
        let config = Config { id: THIS_NODE, applied, pre_vote: true, check_quorum: true, ..Config::new(THIS_NODE) };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let mut node = RawNode::new(&config, storage, &silent).expect("the configuration is fixed and valid");
        // The only voter wins at once; it serves when the entry that opens its term is applied.
        node.campaign().expect("a lone voter may always campaign");
        Self {
            id,
            persistent,
            node,
            pending,
            tickets: VecDeque::new(),
            building: BytesMut::new(),
            building_sync: false,
            building_tickets: Vec::new(),
            applied,
            waiting: 0,
            persisted: 0,
            serving: false,
            in_pass: false,
        }
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving
    }

    /// Takes a ticket for what was just appended to `building`. Returns the entry that closed, if one did.
    pub(crate) fn replicate(&mut self, ticket: T, sync: bool) -> Option<(u64, Bytes)> {
        self.building_sync |= sync;
        self.building_tickets.push(ticket);
        if self.building.len() >= ENTRY_BYTES { self.propose() } else { None }
    }

    /// Takes a ticket for a command that changed nothing. Gives it back if nothing is on its way that the answer could rest on.
    pub(crate) fn follow(&mut self, ticket: T) -> Option<T> {
        if !self.building.is_empty() {
            self.building_tickets.push(ticket);
            return None;
        }
        match self.pending.back() {
            Some(last) => {
                self.tickets.push_back((last.index, ticket));
                None
            }
            None => Some(ticket),
        }
    }

    /// Proposes what was put together. Returns the entry's index and payload.
    pub(crate) fn propose(&mut self) -> Option<(u64, Bytes)> {
        if self.building.is_empty() {
            return None;
        }
        self.node.propose(vec![], vec![]).expect("a serving lone voter is the leader");
        let index = self.node.raft.raft_log.last_index();
        // What is left of the buffer takes the next entry; once this one is applied, so does its room.
        let payload = self.building.split().freeze();
        if payload.len() > KEPT_BYTES {
            self.building = BytesMut::new();
        }
        self.pending.push_back(Pending {
            index,
            payload: payload.clone(),
            sync: std::mem::take(&mut self.building_sync),
        });
        self.tickets.extend(self.building_tickets.drain(..).map(|ticket| (index, ticket)));
        Some((index, payload))
    }

    /// Takes what Raft has ready: records for the log, committed entries to apply.
    pub(crate) fn collect(&mut self, output: &mut PassOutput) {
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            self.commit(&ready.take_committed_entries(), output);
            let entries = ready.take_entries();
            let hard_state = ready.hs().cloned();
            let stored = &self.node.raft.raft_log.store;
            let before = raft::Storage::initial_state(stored).expect("memory").hard_state;
            let votes = hard_state.as_ref().is_some_and(|now| (now.term, now.vote) != (before.term, before.vote));
            let mut sync = votes;
            if self.persistent {
                if let Some(now) = hard_state.as_ref().filter(|_| votes) {
                    let state = StoredState { term: now.term, vote: now.vote, commit: now.commit };
                    output.records.push(LogRecord::State { group: self.id, state });
                }
                if !entries.is_empty() {
                    sync |= self.record_entries(&entries, output);
                }
            }
            let store = self.node.mut_store();
            if let Some(now) = hard_state {
                store.set_hard_state(now);
            }
            store.append(entries.into_iter());
            // A ready that came back counts for all before it, so none may overtake one that still waits.
            if self.persistent && (sync || self.waiting > self.persisted) {
                self.waiting = ready.number();
                output.waiting.push((self.id, self.waiting));
                self.node.advance_append_async(ready);
            } else {
                let mut light = self.node.advance_append(ready);
                self.commit(&light.take_committed_entries(), output);
            }
        }
    }

    /// Returns whether one of the entries asked for an fsync.
    fn record_entries(&self, entries: &[Entry], output: &mut PassOutput) -> bool {
        let first = entries[0].index;
        let mut pending = self.pending.iter().skip_while(|pending| pending.index < first).peekable();
        let mut sync = false;
        let entries = entries
            .iter()
            .map(|entry| {
                let pending = pending.next_if(|pending| pending.index == entry.index);
                sync |= pending.is_some_and(|pending| pending.sync);
                StoredEntry {
                    index: entry.index,
                    term: entry.term,
                    kind: u8::try_from(entry.entry_type).expect("Raft has three entry types"),
                    payload: pending.map(|pending| pending.payload.clone()).unwrap_or_default(),
                }
            })
            .collect();
        output.records.push(LogRecord::Entries { group: self.id, entries });
        sync
    }

    fn commit(&mut self, entries: &[Entry], output: &mut PassOutput) {
        let Some(last) = entries.last() else { return };
        debug_assert!(entries.iter().all(|entry| entry.entry_type() == EntryType::EntryNormal));
        let mut payloads = Vec::new();
        for pending in self.pending.iter().take_while(|pending| pending.index <= last.index) {
            if pending.index >= entries[0].index {
                payloads.push(pending.payload.clone());
            }
        }
        output.committed.push(Committed { group: self.id, index: last.index, payloads });
    }

    /// The log has fsynced the ready of that number.
    pub(crate) fn persisted(&mut self, number: u64) {
        self.persisted = number;
        self.node.on_persist_ready(number);
    }

    /// Entries up to `index` are applied. Returns whether the group begins to serve with that.
    pub(crate) fn applied(&mut self, index: u64) -> bool {
        self.applied = index;
        self.node.advance_apply_to(index);
        self.node.mut_store().truncate(index);
        while self.pending.front().is_some_and(|pending| pending.index <= index) {
            self.pending.pop_front();
        }
        // What a leader commits first in its own term covers everything before it.
        let begins = !self.serving && self.node.raft.commit_to_current_term();
        self.serving |= begins;
        begins
    }

    /// The next ticket that needs no more waiting.
    pub(crate) fn next_answerable(&mut self) -> Option<T> {
        let applied = self.applied;
        self.tickets.pop_front_if(|(index, _)| *index <= applied).map(|(_, ticket)| ticket)
    }

    pub(crate) fn has_tickets(&self) -> bool {
        !self.tickets.is_empty() || !self.building_tickets.is_empty()
    }

    /// All tickets, answerable or not, oldest first.
    pub(crate) fn take_tickets(&mut self) -> impl Iterator<Item = T> + '_ {
        self.tickets.drain(..).map(|(_, ticket)| ticket).chain(self.building_tickets.drain(..))
    }

    /// Index and term that the log may forget once the state machine is durable up to `durable`.
    pub(crate) fn truncation(&self, durable: u64) -> Option<(u64, u64)> {
        let index = durable.min(self.applied);
        self.node.raft.raft_log.store.term_at(index).map(|term| (index, term))
    }
}
