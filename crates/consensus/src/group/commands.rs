//! Commands of a leader, from their evaluation to their answer.

use super::Group;
use crate::Failure;
use bytes::{Bytes, BytesMut};

impl<T> Group<T> {
    /// Where a command appends its effect, which [`Self::replicate`] then takes.
    pub(crate) fn building(&mut self) -> &mut BytesMut {
        self.replies.building.payload_mut()
    }

    /// Keeps the pending reply of the command whose effect was just [appended](Self::building). With `leader_acked` it is
    /// answered once this replica has persisted the entry. Returns the entry that was proposed, if it has become so long.
    pub(crate) fn replicate(&mut self, reply: T, sync: bool, leader_acked: bool) -> Option<(u64, Bytes)> {
        self.wake();
        // In a group of one member, what is persisted is committed.
        let leader_acked = leader_acked && !self.is_alone();
        if self.replies.building.push(reply, sync, leader_acked) { self.propose() } else { None }
    }

    /// Proposes the entry that was built. Returns its index and payload. Returns `None` if there is nothing to propose,
    /// and if the replica leads no longer, which the next [`Self::collect`] reports.
    pub(crate) fn propose(&mut self) -> Option<(u64, Bytes)> {
        // Raft would pass a follower's proposal on to the leader, without its payload, and report that it was proposed.
        if self.replies.building.is_empty() || !self.is_serving() || self.node.propose(vec![], vec![]).is_err() {
            return None;
        }
        let index = self.node.raft.raft_log.last_index();
        let payload = self.replies.propose(index);
        let bytes = payload.bytes.clone();
        self.payloads.proposed(index, payload);
        Some((index, bytes))
    }

    /// The index up to which leader-acked commands may be answered, if some wait.
    pub(crate) fn leader_acked_index(&self) -> Option<u64> {
        let persisted = self.node.raft.raft_log.persisted;
        self.replies.has_leader_acked(persisted).then_some(persisted)
    }

    /// The next reply that can be sent, with the outcome of its command.
    pub(crate) fn next_answerable(&mut self) -> Option<(T, Result<(), Failure>)> {
        self.replies.next_answerable(self.applied, &self.node.raft.raft_log)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.replies.is_empty()
    }

    /// This replica leads no longer. Returns the pending replies of commands that were not proposed; those are not
    /// done. Proposed entries may still take effect: their replies wait as [in-doubt proposals](super::in_doubt).
    pub(crate) fn step_down(&mut self) -> Vec<T> {
        let term = self.leadership.step_down();
        self.replies.step_down(term)
    }

    /// Takes all pending replies, answerable or not, oldest first.
    pub(crate) fn take_pending(&mut self) -> impl Iterator<Item = T> + '_ {
        self.replies.take_all()
    }
}
