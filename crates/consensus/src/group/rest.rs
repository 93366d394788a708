//! Groups that nobody uses rest: no ticks, no heartbeats, no lease. So a node can have thousands of them.
//!
//! A leader that has had nothing to do for [`REST_TICKS`], and whose members all have everything, says so with a last
//! heartbeat; who hears it and has everything stops counting the time too. Any message, command or read wakes a replica,
//! and so does its node when it has not heard of the leader's node for a while, since a resting replica notices nothing by
//! itself. Resting only means that a replica waits longer than it must before it calls an election, so nothing that rests
//! on elections being slow, such as leases, is touched by it.

use super::Group;
use raft::eraftpb::MessageType;
use std::time::Duration;
use tessera_types::NodeId;

/// Ticks without anything to do after which a group rests.
const REST_TICKS: u32 = 60;

#[derive(Default)]
pub(super) struct Rest {
    is_resting: bool,
    /// Ticks since there was something to do.
    idle_ticks: u32,
}

impl<T> Group<T> {
    pub(crate) fn is_resting(&self) -> bool {
        self.rest.is_resting
    }

    pub(super) fn count_idle_tick(&mut self) {
        self.rest.idle_ticks += 1;
    }

    /// Whether there was nothing to do for so many ticks.
    pub(super) fn is_idle_for(&self, ticks: u32) -> bool {
        self.rest.idle_ticks >= ticks
    }

    /// Something is to be done.
    pub(super) fn stir(&mut self) {
        if self.is_resting() {
            self.forget_who_was_heard();
        }
        self.rest = Rest::default();
    }

    /// A leader that rests asks for a lease again.
    pub(crate) fn wake(&mut self, now: Duration) {
        self.stir();
        if self.is_serving() && !self.is_alone {
            self.ask_for_confirmation(now);
        }
    }

    /// Wakes a replica that waits for a leader on a node which is not heard of any more.
    pub(crate) fn wake_if_led_by(&mut self, node: NodeId) {
        if self.is_resting() && super::from_raft(self.node.raft.leader_id).node == node {
            self.stir();
        }
    }

    /// Whether the group could rest, for all it knows.
    pub(crate) fn is_tired(&self) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        !self.is_resting()
            && self.rest.idle_ticks >= REST_TICKS
            && self.is_serving()
            && !self.is_alone
            && !self.has_tickets()
            && self.applied == last
            && !self.is_changing()
            && raft.lead_transferee.is_none()
            && self.snapshots_sent.is_empty()
            && raft.prs().iter().all(|(_, progress)| progress.matched == last)
    }

    /// Somebody uses the group after all.
    pub(crate) fn stay_awake(&mut self) {
        self.rest.idle_ticks = 0;
    }

    /// Tells the others, and rests.
    pub(crate) fn lie_down(&mut self) {
        self.rest.is_resting = true;
        self.node.ping();
    }

    /// Whether a message that goes out now tells that the group rests.
    pub(super) fn tells_rest(&self, message: &raft::eraftpb::Message) -> bool {
        self.is_resting() && self.is_leader() && message.msg_type() == MessageType::MsgHeartbeat
    }

    /// After a message was taken: rests with the leader, or is awake. What answers a leader's last heartbeat wakes nobody.
    pub(super) fn rest_or_stir(&mut self, kind: MessageType, from: u64, tells_rest: bool) {
        let raft = &self.node.raft;
        if tells_rest && raft.leader_id == from && raft.raft_log.last_index() == raft.raft_log.committed {
            self.rest.is_resting = true;
            self.rested();
        } else if kind != MessageType::MsgHeartbeatResponse && (kind != MessageType::MsgHeartbeat || self.is_resting())
        {
            self.stir();
        }
    }
}
