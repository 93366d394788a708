//! The end of a group's log that is kept in memory: what is not applied yet, and what other replicas may still lack.

use super::message::Payload;
use crate::log::StoredEntry;
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot, SnapshotMetadata};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::cell::Cell;
use std::collections::VecDeque;

/// Entries with their payloads. Raft sees the entries without them: it copies entries from hand to hand several times,
/// and need not look at what they carry.
pub(crate) struct GroupStorage {
    hard_state: HardState,
    members: ConfState,
    /// Index of the entry that made these members.
    members_index: u64,
    /// Index and term of the last entry that is no longer here.
    truncated: (u64, u64),
    entries: VecDeque<Held>,
    payload_bytes: usize,
    /// Bytes of all payloads that were ever appended.
    bytes_seen: u64,
    /// The first index of each term, as index and term, ascending. It gives the term of entries that were dropped. It
    /// grows by one per election.
    term_starts: Vec<(u64, u64)>,
    /// Index, term and state of what was [offered](Self::offer_snapshot).
    snapshot: Option<(u64, u64, Vec<u8>)>,
    /// On a witness: the replica that receives a snapshot without a state, and [keeps its own](super::witness).
    force_recovered: Option<u64>,
    /// Whether Raft asked for a snapshot that was not available.
    pub(crate) wants_snapshot: Cell<bool>,
}

/// An entry in memory.
pub(crate) struct Held {
    pub(crate) index: u64,
    pub(crate) term: u64,
    /// Raft's entry type.
    pub(crate) kind: i32,
    pub(crate) payload: Payload,
}

impl Held {
    /// Whether the payload is the state machine's, not Raft's own.
    pub(crate) fn is_command(&self) -> bool {
        self.kind == EntryType::EntryNormal as i32
    }
}

impl GroupStorage {
    pub(crate) fn new(
        hard_state: HardState,
        (members_index, members): (u64, ConfState),
        truncated: (u64, u64),
        entries: VecDeque<StoredEntry>,
    ) -> Self {
        let mut storage = Self {
            hard_state,
            members,
            members_index,
            truncated,
            entries: VecDeque::new(),
            payload_bytes: 0,
            bytes_seen: 0,
            term_starts: vec![truncated],
            snapshot: None,
            force_recovered: None,
            wants_snapshot: Cell::new(false),
        };
        storage.append(entries.into_iter().map(|StoredEntry { index, term, kind, payload }| Held {
            index,
            term,
            kind: i32::from(kind),
            payload: Payload { bytes: payload, sync: true },
        }));
        storage
    }

    pub(crate) fn hard_state(&self) -> &HardState {
        &self.hard_state
    }

    pub(crate) fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    pub(crate) fn members(&self) -> &ConfState {
        &self.members
    }

    pub(crate) fn members_index(&self) -> u64 {
        self.members_index
    }

    pub(crate) fn set_members(&mut self, index: u64, members: ConfState) {
        self.members_index = index;
        self.members = members;
    }

    /// The term of an entry that is, or was, in the log; `None` for one before it began here.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        let start = self.term_starts.iter().rev().find(|(start, _)| *start <= index)?;
        Some(start.1)
    }

    pub(crate) fn last(&self) -> u64 {
        self.truncated.0 + self.entries.len() as u64
    }

    /// Bytes of the payloads held.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    pub(crate) fn bytes_seen(&self) -> u64 {
        self.bytes_seen
    }

    /// Appends entries in the place of any from the first one's index on.
    pub(crate) fn append(&mut self, entries: impl Iterator<Item = Held>) {
        for held in entries {
            while self.entries.back().is_some_and(|last| last.index >= held.index) {
                let replaced = self.entries.pop_back().expect("just seen");
                self.payload_bytes -= replaced.payload.bytes.len();
            }
            assert_eq!(held.index, self.last() + 1, "a group's log has no hole");
            while self.term_starts.last().is_some_and(|(start, _)| *start >= held.index) {
                self.term_starts.pop();
            }
            if self.term_starts.last().is_none_or(|(_, term)| *term != held.term) {
                self.term_starts.push((held.index, held.term));
            }
            self.payload_bytes += held.payload.bytes.len();
            self.bytes_seen += held.payload.bytes.len() as u64;
            self.entries.push_back(held);
        }
    }

    /// Forgets entries up to `index`.
    pub(crate) fn truncate(&mut self, index: u64) {
        while let Some(first) = self.entries.front().filter(|first| first.index <= index) {
            self.truncated = (first.index, first.term);
            self.payload_bytes -= first.payload.bytes.len();
            self.entries.pop_front();
        }
    }

    /// The oldest entry held.
    pub(crate) fn first(&self) -> Option<&Held> {
        self.entries.front()
    }

    /// Entries from one index to another, both included, as far as they are here.
    pub(crate) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &Held> {
        let from = usize::try_from(from.saturating_sub(self.truncated.0 + 1)).unwrap_or(usize::MAX);
        self.entries.iter().skip(from).take_while(move |held| held.index <= to)
    }

    /// Index and term of the last entry that is no longer here.
    pub(crate) fn truncated(&self) -> (u64, u64) {
        self.truncated
    }

    /// Starts the log anew behind a snapshot.
    pub(crate) fn restore(&mut self, metadata: &SnapshotMetadata, members_index: u64) {
        self.entries.clear();
        self.payload_bytes = 0;
        self.truncated = (metadata.index, metadata.term);
        self.term_starts = vec![self.truncated];
        self.members = metadata.conf_state.clone().unwrap_or_default();
        self.members_index = members_index;
        self.hard_state.commit = self.hard_state.commit.max(metadata.index);
        self.snapshot = None;
    }

    /// Gives Raft the snapshot that it [asked for](Self::wants_snapshot): the state as it was when `index` had been
    /// applied.
    pub(crate) fn offer_snapshot(&mut self, index: u64, state: Vec<u8>) {
        self.snapshot = Some((index, self.term_at(index).unwrap_or_default(), state));
        self.wants_snapshot.set(false);
    }

    pub(crate) fn forget_snapshot(&mut self) {
        self.snapshot = None;
    }

    pub(crate) fn force_recover(&mut self, to: Option<u64>) {
        self.force_recovered = to;
    }

    /// A snapshot with the present members, not those at `index`. Its data begins with the index of the entry that made
    /// these members.
    fn snapshot_of(&self, index: u64, term: u64, state: &[u8]) -> Snapshot {
        let metadata = SnapshotMetadata { conf_state: Some(self.members.clone()), index, term };
        Snapshot { data: [&self.members_index.to_le_bytes(), state].concat(), metadata: Some(metadata) }
    }

    fn position(&self, index: u64) -> raft::Result<usize> {
        if index <= self.truncated.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        usize::try_from(index - self.truncated.0 - 1).map_err(|_| raft::Error::Store(StorageError::Unavailable))
    }
}

impl Storage for GroupStorage {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let (from, to) = (self.position(low)?, self.position(high)?);
        if to > self.entries.len() {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        // Raft's limit is on what travels: the payloads.
        let limit = max_size.into().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut bytes = 0;
        let entries = self.entries.range(from..to).take_while(|held| {
            let is_first = bytes == 0;
            bytes += 32 + held.payload.bytes.len();
            is_first || bytes <= limit
        });
        Ok(entries
            .map(|held| Entry { index: held.index, term: held.term, entry_type: held.kind, ..Default::default() })
            .collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.truncated.0 {
            return Ok(self.truncated.1);
        }
        let entry = self.entries.get(self.position(index)?);
        entry.map(|entry| entry.term).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.truncated.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let needs_no_state = super::from_raft(to).is_witness() || self.force_recovered == Some(to);
        if needs_no_state && self.truncated.0 >= request_index {
            // A witness has no state. It has the log from this index on.
            return Ok(self.snapshot_of(self.truncated.0, self.truncated.1, &[]));
        }
        let fits = |(index, ..): &&(u64, u64, Vec<u8>)| *index >= request_index && *index >= self.truncated.0;
        match self.snapshot.as_ref().filter(fits) {
            Some((index, term, state)) => Ok(self.snapshot_of(*index, *term, state)),
            None => {
                self.wants_snapshot.set(true);
                Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}
