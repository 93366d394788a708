//! The members of a group, and how they change.

use super::{Group, Inconsistent, PassOutput, from_raft, to_raft};
use crate::log::LogRecord;
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use std::time::Duration;
use tessera_types::ReplicaId;

/// A change of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// The replica has a vote.
    Voter(ReplicaId),
    /// The replica receives everything and has no vote.
    Learner(ReplicaId),
    /// The replica is no member any more.
    Remove(ReplicaId),
}

/// Decodes an entry that changes members. Kinds of changes that are not known are errors here; Raft would end the
/// process.
pub(super) fn read_change(bytes: &[u8]) -> Result<ConfChangeV2, String> {
    let change = ConfChangeV2::decode(bytes).map_err(|error| error.to_string())?;
    let is_known = |single: &ConfChangeSingle| ConfChangeType::from_i32(single.change_type).is_some();
    let are_known = ConfChangeTransition::from_i32(change.transition).is_some() && change.changes.iter().all(is_known);
    are_known.then_some(change).ok_or_else(|| "a change of a kind that is not known".into())
}

impl<T> Group<T> {
    /// Applies an entry that changes members.
    ///
    /// # Errors
    /// If it does not fit the present members. Raft refuses such a proposal, so the entry comes from a replica that erred.
    pub(super) fn apply_change(&mut self, index: u64, change: &Bytes) -> Result<(), Inconsistent> {
        let does_not_fit = |error: String| Inconsistent::Change { index, error };
        let change = read_change(change).map_err(does_not_fit)?;
        let members = self.node.apply_conf_change(&change).map_err(|error| does_not_fit(error.to_string()))?;
        self.node.mut_store().set_members(index, members);
        if self.is_leader() && !self.node.raft.promotable() {
            // An earlier leader proposed that this one loses its vote.
            self.node.raft.become_follower(self.node.raft.term, raft::INVALID_ID);
        }
        Ok(())
    }

    /// The members have changed.
    pub(super) fn members_changed(&mut self, output: &mut PassOutput) {
        let is_alone = self.has_no_peers();
        let was_alone = std::mem::replace(&mut self.peers.are_none, is_alone);
        if self.is_persistent() {
            let store = self.node.store();
            let (index, members) = (store.members_index(), Bytes::from(store.members().encode_to_vec()));
            output.records.push(LogRecord::Members { group: self.id, index, members });
        }
        if was_alone {
            // A leader without peers counts no ticks.
            self.peers.progress.reset(&self.node.raft);
        }
        if was_alone != is_alone && self.is_serving() {
            let until = if is_alone { None } else { Some(Duration::ZERO) };
            self.set_lease(until, output);
        }
    }

    pub(super) fn has_no_peers(&self) -> bool {
        let ConfState { voters, learners, voters_outgoing, .. } = self.node.store().members();
        *voters == [self.node.raft.id] && learners.is_empty() && voters_outgoing.is_empty()
    }

    /// The voters, including those of a change that is not complete; then the learners.
    pub(crate) fn members(&self) -> (Vec<ReplicaId>, Vec<ReplicaId>) {
        let ConfState { voters, learners, voters_outgoing, learners_next, .. } = self.node.store().members();
        let mut all: Vec<_> = voters.iter().chain(voters_outgoing).map(|id| from_raft(*id)).collect();
        all.sort_unstable();
        all.dedup();
        let learners = learners.iter().chain(learners_next).map(|id| from_raft(*id)).collect();
        (all, learners)
    }

    /// Whether a change of several voters has begun and not ended.
    fn is_joint(&self) -> bool {
        !self.node.store().members().voters_outgoing.is_empty()
    }

    /// Whether a change of members is under way.
    pub(super) fn is_changing(&self) -> bool {
        self.is_joint() || self.node.raft.has_pending_conf()
    }

    /// Makes all these changes at once; several changes of voters use joint consensus. Returns whether the change was
    /// begun. Only a leader that stays a voter begins one, if no other change is under way and [no entry could be
    /// lost](Self::would_keep_records). A hibernating leader does not know which members are alive: it wakes, and must
    /// be asked again.
    pub(crate) fn change_members(&mut self, changes: &[MemberChange]) -> bool {
        let own = self.replica();
        let is_own = |change: &MemberChange| matches!(change, MemberChange::Learner(id) | MemberChange::Remove(id) if *id == own);
        let is_busy = self.is_changing() || self.node.raft.lead_transferee.is_some() || self.owes_removal();
        if self.is_hibernating() {
            self.wake();
            return false;
        }
        if !self.is_leader() || is_busy || changes.iter().any(is_own) || !self.would_keep_records(changes) {
            return false;
        }
        let single = |change: &MemberChange| {
            let (kind, id) = match change {
                MemberChange::Voter(id) => (ConfChangeType::AddNode, id),
                MemberChange::Learner(id) => (ConfChangeType::AddLearnerNode, id),
                MemberChange::Remove(id) => (ConfChangeType::RemoveNode, id),
            };
            ConfChangeSingle { change_type: kind as i32, node_id: to_raft(*id) }
        };
        let transition = if changes.len() > 1 { ConfChangeTransition::Explicit } else { ConfChangeTransition::Auto };
        let changes = changes.iter().map(single).collect();
        self.wake();
        self.propose_change(ConfChangeV2 { transition: transition as i32, changes, context: Vec::new() })
    }

    pub(super) fn propose_change(&mut self, change: ConfChangeV2) -> bool {
        self.node.propose_conf_change(Vec::new(), change).is_ok()
    }

    /// Ends joint consensus once the change that began it is done.
    pub(super) fn leave_joint(&mut self) {
        if self.is_joint() && !self.node.raft.has_pending_conf() {
            // If it cannot be proposed now, the next heartbeat tries again.
            self.propose_change(ConfChangeV2::default());
        }
    }

    /// Asks another replica to lead; it does so if it catches up soon. Returns whether it was asked. In that case this
    /// replica's lease ends now, and it gets no other lease in this term, because the other replica need not wait for a
    /// lease to end.
    pub(crate) fn transfer_leadership(&mut self, to: ReplicaId) -> bool {
        let is_possible = self.is_leader() && to != self.replica() && !to.is_witness();
        if is_possible {
            self.wake();
            self.leadership.transfer(self.node.raft.term);
            self.node.transfer_leader(to_raft(to));
        }
        is_possible
    }
}
