//! What Raft reads of a group's log: the entries that are not applied yet, in memory.

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::collections::VecDeque;

/// The unapplied end of one group's log.
///
/// Entries here carry no payload: payloads travel beside Raft (see [`crate::group`]), because Raft copies entries from
/// hand to hand several times.
pub(crate) struct GroupStorage {
    hard_state: HardState,
    voters: ConfState,
    /// Index and term of the last entry that is no longer here.
    truncated: (u64, u64),
    entries: VecDeque<Entry>,
    /// Where terms began, as index and term, ascending: tells the term of entries that are no longer here. Grows by one
    /// per election.
    term_starts: Vec<(u64, u64)>,
}

impl GroupStorage {
    pub(crate) fn new(
        hard_state: HardState,
        voters: Vec<u64>,
        truncated: (u64, u64),
        entries: VecDeque<Entry>,
    ) -> Self {
        let voters = ConfState::from((voters, vec![]));
        let no_entries = VecDeque::new();
        let mut storage = Self { hard_state, voters, truncated, entries: no_entries, term_starts: vec![truncated] };
        storage.append(entries.into_iter());
        storage
    }

    /// The term of an entry that is, or was, in the log; `None` for one before it began here.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        let start = self.term_starts.iter().rev().find(|(start, _)| *start <= index)?;
        Some(start.1)
    }

    pub(crate) fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    pub(crate) fn append(&mut self, entries: impl Iterator<Item = Entry>) {
        for entry in entries {
            while self.entries.back().is_some_and(|last| last.index >= entry.index) {
                self.entries.pop_back();
            }
            let last = self.entries.back().map_or(self.truncated.0, |last| last.index);
            assert_eq!(entry.index, last + 1, "a group's log has no hole");
            while self.term_starts.last().is_some_and(|(start, _)| *start >= entry.index) {
                self.term_starts.pop();
            }
            if self.term_starts.last().is_none_or(|(_, term)| *term != entry.term) {
                self.term_starts.push((entry.index, entry.term));
            }
            self.entries.push_back(entry);
        }
    }

    /// Forgets entries up to `index`.
    pub(crate) fn truncate(&mut self, index: u64) {
        while let Some(first) = self.entries.front().filter(|first| first.index <= index) {
            self.truncated = (first.index, first.term);
            self.entries.pop_front();
        }
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
        Ok(RaftState::new(self.hard_state.clone(), self.voters.clone()))
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
        let mut entries: Vec<Entry> = self.entries.range(from..to).cloned().collect();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
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
        Ok(self.truncated.0 + self.entries.len() as u64)
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // Asked for by followers only; snapshots are shipped by the storey above when groups have some.
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
