//! Those who wait: from the entry being put together to the answer.

use super::{Group, Payload};
use crate::Failure;
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// An entry's payload is closed when it has grown to this; what follows goes into the next entry.
const ENTRY_BYTES: usize = 1 << 20;
/// A buffer that held an entry longer than this is not kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

impl<T> Group<T> {
    /// Takes a ticket for what was just appended to `building`. Returns the entry that closed, if one did.
    pub(crate) fn replicate(&mut self, ticket: T, sync: bool, early: bool) -> Option<(u64, Bytes)> {
        self.wake();
        self.building_sync |= sync;
        // Where there is nobody else, what is persisted is committed.
        let tickets = if early && !self.is_alone { &mut self.building_early } else { &mut self.building_tickets };
        tickets.push(ticket);
        if self.building.len() >= ENTRY_BYTES { self.propose() } else { None }
    }

    /// Proposes what was put together. Returns the entry's index and payload; `None` also if the group leads no longer,
    /// which the next [`Self::collect`] tells.
    pub(crate) fn propose(&mut self) -> Option<(u64, Bytes)> {
        // Raft itself would hand a follower's proposal to the leader, without its payload, and say that it was made.
        if self.building.is_empty() || !self.is_serving() || self.node.propose(vec![], vec![]).is_err() {
            return None;
        }
        let index = self.node.raft.raft_log.last_index();
        // What is left of the buffer takes the next entry; once this one is applied, so does its room.
        let bytes = self.building.split().freeze();
        if bytes.len() > KEPT_BYTES {
            self.building = BytesMut::new();
        }
        let sync = std::mem::take(&mut self.building_sync);
        self.proposed.push_back((index, Payload { bytes: bytes.clone(), sync }));
        self.tickets.extend(self.building_tickets.drain(..).map(|ticket| (index, ticket)));
        self.early.extend(self.building_early.drain(..).map(|ticket| (index, ticket)));
        Some((index, bytes))
    }

    /// The index up to which commands may be answered early, if some wait for that.
    pub(crate) fn early_index(&self) -> Option<u64> {
        let persisted = self.node.raft.raft_log.persisted;
        self.early.front().filter(|(index, _)| *index <= persisted).map(|_| persisted)
    }

    /// The next ticket that needs no more waiting, with what became of it.
    pub(crate) fn next_answerable(&mut self) -> Option<(T, Result<(), Failure>)> {
        let applied = self.applied;
        if let Some(in_doubt) = self.next_answerable_in_doubt() {
            return Some(in_doubt);
        }
        if let Some(persisted) = self.early_index() {
            return self.early.pop_front_if(|(index, _)| *index <= persisted).map(|(_, ticket)| (ticket, Ok(())));
        }
        self.tickets.pop_front_if(|(index, _)| *index <= applied).map(|(_, ticket)| (ticket, Ok(())))
    }

    pub(crate) fn has_tickets(&self) -> bool {
        !self.tickets.is_empty()
            || !self.building_tickets.is_empty()
            || !self.unconfirmed.is_empty()
            || !self.in_doubt.is_empty()
            || !self.building_early.is_empty()
            || !self.early.is_empty()
    }

    /// Gives up what was not proposed. What was may still take effect: its tickets wait for the news.
    pub(crate) fn depose(&mut self) -> Vec<T> {
        self.building.clear();
        self.building_sync = false;
        self.lease = Some(Duration::ZERO);
        let term = self.serving.take().unwrap_or_default();
        self.in_doubt.take_in(term, self.tickets.drain(..).chain(self.early.drain(..)));
        let unconfirmed = self.unconfirmed.drain(..).map(|(_, _, ticket)| ticket);
        self.building_tickets.drain(..).chain(self.building_early.drain(..)).chain(unconfirmed).collect()
    }

    /// All tickets, answerable or not, oldest first.
    pub(crate) fn take_tickets(&mut self) -> impl Iterator<Item = T> + '_ {
        let unconfirmed = self.unconfirmed.drain(..).map(|(_, _, ticket)| ticket);
        let proposed = self.tickets.drain(..).chain(self.early.drain(..)).map(|(_, ticket)| ticket);
        let building = self.building_tickets.drain(..).chain(self.building_early.drain(..));
        self.in_doubt.drain().chain(proposed).chain(building).chain(unconfirmed)
    }
}
