//! What a replica knows of the other members of its group.

use super::member_progress::MemberProgress;
use super::replicated::Replicated;
use super::snapshots_sent::SnapshotsSent;
use super::standby::Standby;
use tessera_types::ReplicaId;

#[derive(Default)]
pub(super) struct Peers {
    /// Whether there are none: this replica is the only member.
    pub(super) are_none: bool,
    /// A voter without which this replica [went on](super::Group::go_on_without), as long as no entry says so.
    pub(super) gone_counterpart: Option<ReplicaId>,
    /// On a leader: which of them are alive and keep up.
    pub(super) progress: MemberProgress,
    /// On a leader: whether its witnesses are needed.
    pub(super) standby: Standby,
    pub(super) replicated: Replicated,
    pub(super) snapshots_sent: SnapshotsSent,
}
