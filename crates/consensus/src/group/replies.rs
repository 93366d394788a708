//! Pending replies: what is needed to answer commands, from the entry that is being built to the answer.

use super::building::Building;
use super::in_doubt::InDoubt;
use super::message::Payload;
use super::storage::GroupStorage;
use crate::Failure;
use raft::RaftLog;
use std::collections::VecDeque;
use std::time::Duration;

/// The pending replies of a group, each in one of its states.
pub(super) struct Replies<T> {
    /// Those of commands that are not proposed yet.
    pub(super) building: Building<T>,
    /// Each with the index of the entry that must be applied first. Indexes ascend.
    pending: VecDeque<(u64, T)>,
    /// Those of leader-acked commands, each with the index of the entry that must be persisted on this replica first.
    leader_acked: VecDeque<(u64, T)>,
    /// Those of commands that change nothing and need the confirmation that this replica leads: the index that must be
    /// applied first, and when the command came.
    unconfirmed: Vec<(u64, Duration, T)>,
    /// Those of proposals of a term in which this replica led, and leads no longer.
    in_doubt: InDoubt<T>,
}

impl<T> Default for Replies<T> {
    fn default() -> Self {
        Self {
            building: Building::default(),
            pending: VecDeque::new(),
            leader_acked: VecDeque::new(),
            unconfirmed: Vec::new(),
            in_doubt: InDoubt::default(),
        }
    }
}

impl<T> Replies<T> {
    /// The entry that was built is proposed under this index. Returns its payload.
    pub(super) fn propose(&mut self, index: u64) -> Payload {
        let payload = self.building.close();
        self.pending.extend(self.building.drain_pending().map(|reply| (index, reply)));
        self.leader_acked.extend(self.building.drain_leader_acked().map(|reply| (index, reply)));
        payload
    }

    /// Keeps the reply of a command that changes nothing until the entry of that index is applied.
    pub(super) fn wait_for(&mut self, index: u64, reply: T) {
        self.pending.push_back((index, reply));
    }

    /// Keeps the reply of a command that changes nothing and came at `now` until this replica is [confirmed](Self::confirm)
    /// to lead, and until the entry of that index is applied.
    pub(super) fn wait_for_confirmation(&mut self, index: u64, now: Duration, reply: T) {
        self.unconfirmed.push((index, now, reply));
    }

    /// When the last command came that waits for a confirmation.
    pub(super) fn last_unconfirmed(&self) -> Option<Duration> {
        self.unconfirmed.last().map(|(_, came, _)| *came)
    }

    /// A majority has confirmed, after `asked`, that this replica leads. Returns whether some replies need only their entry
    /// now.
    pub(super) fn confirm(&mut self, asked: Duration) -> bool {
        let mut is_news = false;
        for (index, came, reply) in std::mem::take(&mut self.unconfirmed) {
            if came > asked {
                self.unconfirmed.push((index, came, reply));
                continue;
            }
            let place = self.pending.partition_point(|(earlier, _)| *earlier <= index);
            self.pending.insert(place, (index, reply));
            is_news = true;
        }
        is_news
    }

    /// Counts a tick. Returns whether some in-doubt proposals have waited too long.
    pub(super) fn tick(&mut self) -> bool {
        self.in_doubt.tick()
    }

    /// Whether some replies may be sent although nothing was applied.
    pub(super) fn are_answerable(&self, persisted: u64) -> bool {
        self.in_doubt.are_overdue() || self.has_leader_acked(persisted)
    }

    /// Whether leader-acked commands wait whose entries this replica has persisted.
    pub(super) fn has_leader_acked(&self, persisted: u64) -> bool {
        self.leader_acked.front().is_some_and(|(index, _)| *index <= persisted)
    }

    /// The next reply that can be sent, with the outcome of its command.
    pub(super) fn next_answerable(
        &mut self,
        applied: u64,
        log: &RaftLog<GroupStorage>,
    ) -> Option<(T, Result<(), Failure>)> {
        if let Some(in_doubt) = self.in_doubt.next_answerable(log) {
            return Some(in_doubt);
        }
        let leader_acked = self.leader_acked.pop_front_if(|(index, _)| *index <= log.persisted);
        let done = leader_acked.or_else(|| self.pending.pop_front_if(|(index, _)| *index <= applied));
        done.map(|(_, reply)| (reply, Ok(())))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
            && self.leader_acked.is_empty()
            && self.unconfirmed.is_empty()
            && self.in_doubt.is_empty()
            && !self.building.has_replies()
    }

    /// Whether commands were accepted of which nobody knows yet whether they are done.
    pub(super) fn are_owed(&self) -> bool {
        !self.pending.is_empty() || self.building.has_pending() || !self.in_doubt.is_empty()
    }

    /// The replica leads no longer, as it did in `term`. Returns the replies of commands that were not proposed; those are
    /// not done. Proposed entries may still take effect: their replies wait as [in-doubt proposals](super::in_doubt).
    pub(super) fn step_down(&mut self, term: u64) -> Vec<T> {
        self.building.discard();
        self.in_doubt.take_in(term, self.pending.drain(..).chain(self.leader_acked.drain(..)));
        self.building.drain().chain(self.unconfirmed.drain(..).map(|(_, _, reply)| reply)).collect()
    }

    /// Takes all replies, answerable or not, oldest first.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + '_ {
        let unconfirmed = self.unconfirmed.drain(..).map(|(_, _, reply)| reply);
        let proposed = self.pending.drain(..).chain(self.leader_acked.drain(..)).map(|(_, reply)| reply);
        self.in_doubt.drain().chain(proposed).chain(self.building.drain()).chain(unconfirmed)
    }
}
