//! Consensus groups: many Raft groups in one process, driven by one loop per worker over one log per disk.
//!
//! What a group replicates is opaque here: a [`StateMachine`] turns commands into payloads, and committed payloads
//! into state. This crate does not know what a table or a record is. It is the only one that names raft.
//!
//! Read first: [`worker`] (the loop), then [`log`] (what makes a write durable), then [`StateMachine`].

#![warn(missing_docs)]

mod group;
pub mod log;
mod machine;
mod moment;
#[cfg(test)]
mod small_disk;
pub mod worker;

#[cfg(feature = "exposure")]
pub use group::exposure::expose;
pub use group::message::PeerMessage;
pub use group::{
    GroupSettings, GroupView, Heir, Inconsistent, KEPT_FOR_LAGGARDS, Lack, Left, LoggedReplica, MemberChange,
    MemberView, begin_at, heir, leave_alone,
};
pub use log::{LogConfig, LogError, LogStatus, SharedLog};
pub use machine::{Committed, Evaluated, Failure, StateMachine};
pub use moment::Moment;
pub use worker::{DISK_PATIENCE, GroupStart, Inbox, InboxFull, Transport, Worker};

/// Names a group on this cluster. The storeys above choose the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

impl std::fmt::Display for GroupId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}
