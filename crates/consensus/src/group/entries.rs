//! Entries on their way: into the log, to the state machine, and out of memory again.

use super::message::{PeerMessage, split_snapshot};
use super::standby::takes_snapshot;
use super::storage::Held;
use super::{Group, Inconsistent, PassOutput, Restore};
use crate::Committed;
use crate::log::{LogRecord, StoredEntry, StoredSnapshot};
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::{Entry, Snapshot};

/// Bytes of applied entries that a leader, or a witness, keeps for replicas that lag. A replica that lags more receives
/// a snapshot.
pub const KEPT_FOR_LAGGARDS: usize = 16 << 20;
/// Bytes of applied entries that a leader keeps while a replica receives a snapshot: afterwards the replica needs the
/// later entries.
const KEPT_FOR_COMERS: usize = 8 * KEPT_FOR_LAGGARDS;
/// Bytes of applied entries that a follower keeps, in case it becomes the leader.
const FOLLOWER_KEEPS_BYTES: usize = 256 << 10;

/// What [`Group::append`] put into the log.
#[derive(Default)]
pub(super) struct Appended {
    /// Whether one of the entries asks for an fsync.
    pub(super) sync: bool,
    pub(super) has_payload: bool,
}

impl<T> Group<T> {
    /// The record that the log must have before the state is replaced by a snapshot; `None` if there is no log, or no
    /// state.
    pub(crate) fn restoring(&self, message: &PeerMessage) -> Option<LogRecord> {
        let snapshot = message.message.get_snapshot();
        let (metadata, (members_index, _)) = (snapshot.get_metadata(), split_snapshot(snapshot)?);
        let members = Bytes::from(metadata.get_conf_state().encode_to_vec());
        let snapshot = StoredSnapshot { index: metadata.index, term: metadata.term, members_index, members };
        let is_to_know = self.is_persistent() && !self.replica().is_witness();
        is_to_know.then_some(LogRecord::Restoring { group: self.id, snapshot })
    }

    /// Replaces state and log by a snapshot.
    ///
    /// # Errors
    /// If the new state is missing. Without it this replica cannot go on.
    pub(super) fn install(
        &mut self,
        snapshot: &Snapshot,
        output: &mut PassOutput,
        restore: &mut Restore<'_>,
    ) -> Result<(), Inconsistent> {
        let metadata = snapshot.get_metadata().clone();
        let failed = |error| Inconsistent::Snapshot { index: metadata.index, error };
        let (members_index, state) =
            split_snapshot(snapshot).ok_or_else(|| failed("it does not name its members' index".into()))?;
        if !self.replica().is_witness() {
            restore(self.id, metadata.index, state).map_err(failed)?;
        }
        self.node.mut_store().restore(&metadata, members_index);
        self.applied = metadata.index;
        if self.is_persistent() {
            output.records.push(LogRecord::Restored { group: self.id, index: metadata.index, term: metadata.term });
        }
        self.members_changed(output);
        Ok(())
    }

    /// Puts entries into the log, in memory and on disk.
    pub(super) fn append(&mut self, entries: &[Entry], output: &mut PassOutput) -> Appended {
        let mut sync = self.log.is_fsynced() && !self.is_alone();
        let held: Vec<Held> = entries
            .iter()
            .map(|entry| {
                let payload = self.payloads.take(entry);
                sync |= payload.sync;
                Held { index: entry.index, term: entry.term, kind: entry.entry_type, payload }
            })
            .collect();
        if self.is_persistent() {
            let stored = |held: &Held| StoredEntry {
                index: held.index,
                term: held.term,
                kind: u8::try_from(held.kind).expect("Raft has three entry types"),
                payload: held.payload.bytes.clone(),
            };
            output.records.push(LogRecord::Entries { group: self.id, entries: held.iter().map(stored).collect() });
        }
        let has_payload = held.iter().any(|held| !held.payload.bytes.is_empty());
        self.node.mut_store().append(held.into_iter());
        Appended { sync, has_payload }
    }

    /// Outputs committed entries, and applies the changes of members among them.
    ///
    /// # Errors
    /// If a change cannot be made.
    pub(super) fn commit(&mut self, entries: &[Entry], output: &mut PassOutput) -> Result<(), Inconsistent> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let (mut payloads, mut changes) = (Vec::new(), Vec::new());
        for held in self.node.store().range(first.index, last.index) {
            if !held.is_command() {
                changes.push((held.index, held.payload.bytes.clone()));
            } else if !held.payload.bytes.is_empty() {
                payloads.push(held.payload.bytes.clone());
            }
        }
        if self.replica().is_witness() {
            output.witnessed.push((self.id, last.index));
        } else {
            output.committed.push(Committed { group: self.id, index: last.index, term: last.term, payloads });
        }
        let members_index = self.node.store().members_index();
        changes.retain(|(index, _)| *index > members_index);
        for (index, change) in changes {
            self.apply_change(index, &change)?;
            self.members_changed(output);
        }
        Ok(())
    }

    /// The log has persisted the Ready of that number, and all before it.
    pub(crate) fn persisted(&mut self, number: u64) {
        self.log.persisted(number);
        self.node.on_persist_ready(number);
        self.report_applied();
    }

    /// Reports the applied index to Raft. A snapshot is applied before it is persisted, and Raft accepts the report
    /// only afterwards.
    pub(super) fn report_applied(&mut self) {
        let log = &self.node.raft.raft_log;
        let applied = self.applied.min(log.persisted).min(log.committed);
        if applied > log.applied {
            self.node.advance_apply_to(applied);
        }
    }

    /// Entries up to `index` are applied. Returns whether this replica begins to serve by that.
    pub(crate) fn applied(&mut self, index: u64) -> bool {
        if index <= self.applied {
            return false; // a snapshot was installed in between
        }
        self.applied = index;
        self.node.advance_apply_to(index);
        self.forget();
        self.freshness.on_applied(index);
        // The first entry that a leader commits in its own term commits everything before it.
        let term = self.node.raft.term;
        let may_serve = self.is_leader() && !self.replica().is_witness();
        let begins = !self.is_serving() && may_serve && self.node.store().term_at(index) == Some(term);
        if begins {
            self.leadership.serve(term, !self.is_alone());
        }
        begins
    }

    /// Drops applied entries from memory, except those that another replica may still ask for.
    pub(super) fn forget(&mut self) {
        let applied = self.applied;
        let (replicated_index, keeps) = if self.is_alone() {
            (applied, 0)
        } else if self.is_leader() || self.replica().is_witness() {
            let is_being_made = self.node.store().wants_snapshot.get();
            let is_filling = is_being_made || self.node.raft.prs().iter().any(|(_, progress)| takes_snapshot(progress));
            (self.replicated_index().min(applied), if is_filling { KEPT_FOR_COMERS } else { KEPT_FOR_LAGGARDS })
        } else {
            (0, FOLLOWER_KEEPS_BYTES)
        };
        let store = self.node.mut_store();
        // A log without its first entry is not mistaken for a complete one, so a replica that joins receives a snapshot.
        store.truncate(replicated_index.max(applied.min(1)));
        while let Some(first) = store.first().map(|held| held.index)
            && store.payload_bytes() > keeps
            && first <= applied
        {
            store.truncate(first);
        }
    }

    /// The index and term up to which the log may be truncated once the state machine is durable up to `durable`.
    pub(crate) fn truncation(&self, durable: u64) -> Option<(u64, u64)> {
        let index = durable.min(self.applied);
        self.node.store().term_at(index).map(|term| (index, term))
    }
}
