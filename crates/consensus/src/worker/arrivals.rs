//! Snapshots on their way into groups.
//!
//! A leader's message only names a snapshot. The state machine fetches what it names, which may take long, while the group
//! goes on as it is. Then the group stands still, hears and says nothing, while its state is replaced; that may take a while
//! too, and the loop goes on with other groups. Then Raft gets the message, and takes the snapshot for installed.

use super::{StateMachine, Worker, touch};
use crate::GroupId;
use crate::group::message::PeerMessage;
use ahash::AHashMap;

#[derive(Default)]
pub(super) struct Arrivals {
    by_group: AHashMap<GroupId, Arrival>,
}

struct Arrival {
    message: PeerMessage,
    /// Whether the state is being replaced by it.
    is_taking: bool,
    /// Whether the group is to be removed after that.
    is_leaving: bool,
}

impl Arrivals {
    /// Whether the group's state is being replaced.
    pub(super) fn is_taking(&self, group: GroupId) -> bool {
        !self.by_group.is_empty() && self.by_group.get(&group).is_some_and(|arrival| arrival.is_taking)
    }

    /// Whether a group may be removed now; if not, it will have to be once its state is replaced.
    pub(super) fn may_leave(&mut self, group: GroupId) -> bool {
        match self.by_group.get_mut(&group).filter(|arrival| arrival.is_taking) {
            Some(arrival) => {
                arrival.is_leaving = true;
                false
            }
            None => {
                self.by_group.remove(&group);
                true
            }
        }
    }
}

impl<M: StateMachine> Worker<M> {
    pub(super) fn snapshot_arrived(&mut self, message: PeerMessage) {
        let id = message.group;
        let Some(group) = self.groups.get_mut(&id) else { return };
        if self.arrivals.is_taking(id) {
            return;
        }
        if !group.would_install(&message) {
            // Raft may learn from it that it is late.
            group.step(message);
            return touch(&mut self.touched, group);
        }
        let is_known = |arrival: &Arrival| arrival.message.snapshot() == message.snapshot();
        let is_on_its_way = self.arrivals.by_group.get(&id).is_some_and(is_known);
        let (index, state) = message.snapshot();
        let is_there = is_on_its_way || group.replica().is_witness() || self.machine.fetch(id, index, state);
        // The same one again may come from a later term.
        self.arrivals.by_group.insert(id, Arrival { message, is_taking: false, is_leaving: false });
        if is_there && !is_on_its_way {
            self.snapshot_fetched(id, index, true);
        }
    }

    pub(super) fn snapshot_fetched(&mut self, id: GroupId, index: u64, is_there: bool) {
        let (Some(group), Some(arrival)) = (self.groups.get(&id), self.arrivals.by_group.get_mut(&id)) else { return };
        if arrival.message.snapshot().0 != index {
            return;
        }
        let is_behind = self.unapplied.iter().any(|committed| committed.group == id);
        if !is_there || is_behind || !group.would_install(&arrival.message) {
            self.arrivals.by_group.remove(&id);
            return self.machine.discard(id); // if it is still needed, the leader says so again
        }
        arrival.is_taking = true;
        if group.replica().is_witness() || self.machine.prepare(id, index, arrival.message.snapshot().1) {
            self.snapshot_prepared(id, index);
        }
    }

    pub(super) fn snapshot_prepared(&mut self, id: GroupId, index: u64) {
        let is_it = |arrival: &Arrival| arrival.is_taking && arrival.message.snapshot().0 == index;
        if !self.arrivals.by_group.get(&id).is_some_and(is_it) {
            return;
        }
        let Some(Arrival { message, is_leaving, .. }) = self.arrivals.by_group.remove(&id) else { return };
        if is_leaving {
            return self.remove(id);
        }
        if let Some(group) = self.groups.get_mut(&id) {
            group.step(message);
            assert!(group.is_installing(), "{id:?}: its state is replaced by a snapshot that Raft does not take");
            touch(&mut self.touched, group);
        }
    }
}
