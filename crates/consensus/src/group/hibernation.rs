//! Groups that nobody uses hibernate: they have no ticks, no heartbeats and no lease. So a node can have thousands of
//! them.
//!
//! A leader hibernates when it has had nothing to do for [`HIBERNATE_TICKS`] and all members have all entries. It
//! announces that with a last heartbeat; a follower that receives it and has all entries stops its ticks too. Any
//! message, command or read wakes a replica. So does its node when it has not heard for a while from the leader's node, or
//! from so many nodes that the leader has no majority, because a hibernating replica notices nothing by itself.
//! Hibernation can only make a replica wait longer than necessary before it calls an election. So whatever depends on
//! elections being slow, such as leases, is safe.

use super::Group;
use raft::eraftpb::MessageType;
use std::time::Duration;
use tessera_types::NodeId;

/// After this many ticks without anything to do a group hibernates.
const HIBERNATE_TICKS: u32 = 60;

pub(super) enum Hibernation {
    Awake {
        /// Ticks since the group last had something to do.
        idle_ticks: u32,
    },
    Hibernating,
}

impl Default for Hibernation {
    fn default() -> Self {
        Self::Awake { idle_ticks: 0 }
    }
}

impl Hibernation {
    fn is_hibernating(&self) -> bool {
        matches!(self, Self::Hibernating)
    }

    pub(super) fn count_idle_tick(&mut self) {
        if let Self::Awake { idle_ticks } = self {
            *idle_ticks += 1;
        }
    }

    /// Whether the group is awake and has had nothing to do for `ticks`.
    pub(super) fn is_idle_for(&self, ticks: u32) -> bool {
        matches!(self, Self::Awake { idle_ticks } if *idle_ticks >= ticks)
    }

    /// Somebody uses the group, if it is awake.
    fn reset_idle_ticks(&mut self) {
        if let Self::Awake { idle_ticks } = self {
            *idle_ticks = 0;
        }
    }
}

impl<T> Group<T> {
    pub(crate) fn is_hibernating(&self) -> bool {
        self.hibernation.is_hibernating()
    }

    /// Ends hibernation, because there is something to do.
    pub(super) fn wake(&mut self) {
        if self.is_hibernating() {
            // Members that were alive before may be down now.
            self.peers.progress.forget_heard();
        }
        self.hibernation = Hibernation::default();
    }

    /// Wakes the group for a reader; a leader asks for a lease again.
    pub(crate) fn wake_and_renew_lease(&mut self, now: Duration) {
        self.wake();
        if self.is_serving() && !self.is_alone() {
            self.ask_for_confirmation(now);
        }
    }

    /// Wakes the group if it hibernates and needs one of these nodes, which are not heard from any more: its leader is
    /// there, or the leader is this replica and has no majority without them. Such a leader then steps down.
    pub(crate) fn wake_if_it_needs(&mut self, silent: &[NodeId]) {
        if !self.is_hibernating() {
            return;
        }
        let is_silent = |replica: u64| silent.contains(&super::from_raft(replica).node);
        let progress = self.node.raft.prs();
        let lacks_majority = || {
            let heard = progress.iter().map(|(replica, _)| *replica).filter(|replica| !is_silent(*replica)).collect();
            !progress.has_quorum(&heard)
        };
        if is_silent(self.node.raft.leader_id) || (self.is_leader() && lacks_majority()) {
            self.wake();
        }
    }

    /// Whether this leader could hibernate: nothing is under way, and all members have all entries.
    pub(crate) fn may_hibernate(&self) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        self.hibernation.is_idle_for(HIBERNATE_TICKS)
            && self.is_serving()
            && !self.is_alone()
            && !self.has_pending()
            && self.applied == last
            && !self.is_changing()
            && raft.lead_transferee.is_none()
            && self.peers.snapshots_sent.is_empty()
            && raft.prs().iter().all(|(_, progress)| progress.matched == last)
    }

    /// Somebody reads from the group, so it stays active for another [`HIBERNATE_TICKS`].
    pub(crate) fn reset_idle_ticks(&mut self) {
        self.hibernation.reset_idle_ticks();
    }

    /// Tells the followers with a last heartbeat, and hibernates.
    pub(crate) fn hibernate(&mut self) {
        self.hibernation = Hibernation::Hibernating;
        self.node.ping();
    }

    /// Whether a message that leaves now announces that the group hibernates.
    pub(super) fn announces_hibernation(&self, message: &raft::eraftpb::Message) -> bool {
        self.is_hibernating() && self.is_leader() && message.msg_type() == MessageType::MsgHeartbeat
    }

    /// After a message was taken: hibernates with the leader, or wakes. The answer to a leader's last heartbeat wakes
    /// nobody.
    pub(super) fn hibernate_or_wake(&mut self, kind: MessageType, from: u64, announces_hibernation: bool) {
        let raft = &self.node.raft;
        if announces_hibernation && raft.leader_id == from && raft.raft_log.last_index() == raft.raft_log.committed {
            self.hibernation = Hibernation::Hibernating;
            self.freshness.on_hibernation();
        } else if kind != MessageType::MsgHeartbeatResponse
            && (kind != MessageType::MsgHeartbeat || self.is_hibernating())
        {
            self.wake();
        }
    }
}
