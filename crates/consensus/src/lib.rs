//! Consensus groups: many Raft groups in one process, driven by one loop per worker over one log per disk.
//!
//! What a group replicates is opaque here: a [`StateMachine`] turns commands into payloads, and committed payloads
//! into state. This crate does not know what a table or a record is. It is the only one that names raft.
//!
//! Read first: [`worker`] (the loop), then [`log`] (what makes a write durable), then [`StateMachine`].

mod group;
pub mod log;
mod machine;
pub mod worker;

pub use group::message::PeerMessage;
pub use group::{GroupSettings, GroupView, MemberChange};
pub use log::{LogConfig, LogError, LogStatus, SharedLog};
pub use machine::{Committed, Evaluated, Failure, StateMachine};
pub use worker::{GroupStart, Inbox, InboxFull, Transport, Worker};

/// Names a group on this cluster. The storeys above choose the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// Names a node. Given once, never to another one; zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A replica of a group: the node it is on, and which of the group's replicas there in the course of time. A replica that
/// has lost its log, or comes back to a node after it was removed, is another one: it must not vote as if it remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    pub node: NodeId,
    pub incarnation: u32,
}

impl ReplicaId {
    /// The number that Raft knows it by.
    pub(crate) fn to_raft(self) -> u64 {
        u64::from(self.node.0) << 32 | u64::from(self.incarnation)
    }

    pub(crate) fn from_raft(number: u64) -> Self {
        // The halves, by construction.
        Self { node: NodeId((number >> 32) as u32), incarnation: number as u32 }
    }
}
