//! Pending replies: what is needed to answer commands, from the entry that is being built to the answer.

use super::{Group, Payload};
use crate::Failure;
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// An entry's payload is closed when it has grown to this; what follows goes into the next entry.
const ENTRY_BYTES: usize = 1 << 20;
/// A buffer that held an entry longer than this is not kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

impl<T> Group<T> {
    /// Keeps the pending reply of the command whose effect was just appended to `building`. With `leader_acked` it is
    /// answered once this replica has persisted the entry. Returns the entry that was proposed, if `building` has
    /// become so long.
    pub(crate) fn replicate(&mut self, reply: T, sync: bool, leader_acked: bool) -> Option<(u64, Bytes)> {
        self.wake();
        self.building_sync |= sync;
        // In a group of one member, what is persisted is committed.
        let replies =
            if leader_acked && !self.is_alone { &mut self.building_leader_acked } else { &mut self.building_pending };
        replies.push(reply);
        if self.building.len() >= ENTRY_BYTES { self.propose() } else { None }
    }

    /// Proposes the entry that was built. Returns its index and payload. Returns `None` if there is nothing to propose,
    /// and if the replica leads no longer, which the next [`Self::collect`] reports.
    pub(crate) fn propose(&mut self) -> Option<(u64, Bytes)> {
        // Raft would pass a follower's proposal on to the leader, without its payload, and report that it was proposed.
        if self.building.is_empty() || !self.is_serving() || self.node.propose(vec![], vec![]).is_err() {
            return None;
        }
        let index = self.node.raft.raft_log.last_index();
        // The rest of the buffer takes the next entry. Once this entry is applied, its memory is used again, too.
        let bytes = self.building.split().freeze();
        if bytes.len() > KEPT_BYTES {
            self.building = BytesMut::new();
        }
        let sync = std::mem::take(&mut self.building_sync);
        self.proposed.push_back((index, Payload { bytes: bytes.clone(), sync }));
        self.pending.extend(self.building_pending.drain(..).map(|reply| (index, reply)));
        self.leader_acked.extend(self.building_leader_acked.drain(..).map(|reply| (index, reply)));
        Some((index, bytes))
    }

    /// The index up to which leader-acked commands may be answered, if some wait.
    pub(crate) fn leader_acked_index(&self) -> Option<u64> {
        let persisted = self.node.raft.raft_log.persisted;
        self.leader_acked.front().filter(|(index, _)| *index <= persisted).map(|_| persisted)
    }

    /// The next reply that can be sent, with the outcome of its command.
    pub(crate) fn next_answerable(&mut self) -> Option<(T, Result<(), Failure>)> {
        let applied = self.applied;
        if let Some(in_doubt) = self.next_answerable_in_doubt() {
            return Some(in_doubt);
        }
        if let Some(persisted) = self.leader_acked_index() {
            return self.leader_acked.pop_front_if(|(index, _)| *index <= persisted).map(|(_, reply)| (reply, Ok(())));
        }
        self.pending.pop_front_if(|(index, _)| *index <= applied).map(|(_, reply)| (reply, Ok(())))
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
            || !self.building_pending.is_empty()
            || !self.unconfirmed.is_empty()
            || !self.in_doubt.is_empty()
            || !self.building_leader_acked.is_empty()
            || !self.leader_acked.is_empty()
    }

    /// This replica leads no longer. Returns the pending replies of commands that were not proposed; those are not
    /// done. Proposed entries may still take effect: their replies wait as [in-doubt proposals](super::in_doubt).
    pub(crate) fn step_down(&mut self) -> Vec<T> {
        self.building.clear();
        self.building_sync = false;
        self.lease = Some(Duration::ZERO);
        let term = self.serving.take().unwrap_or_default();
        self.in_doubt.take_in(term, self.pending.drain(..).chain(self.leader_acked.drain(..)));
        let unconfirmed = self.unconfirmed.drain(..).map(|(_, _, reply)| reply);
        self.building_pending.drain(..).chain(self.building_leader_acked.drain(..)).chain(unconfirmed).collect()
    }

    /// Takes all pending replies, answerable or not, oldest first.
    pub(crate) fn take_pending(&mut self) -> impl Iterator<Item = T> + '_ {
        let unconfirmed = self.unconfirmed.drain(..).map(|(_, _, reply)| reply);
        let proposed = self.pending.drain(..).chain(self.leader_acked.drain(..)).map(|(_, reply)| reply);
        let building = self.building_pending.drain(..).chain(self.building_leader_acked.drain(..));
        self.in_doubt.drain().chain(proposed).chain(building).chain(unconfirmed)
    }
}
