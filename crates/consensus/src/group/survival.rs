//! Of two voters without a log one survives: the process of the other one has ended, and with it everything that it had.
//!
//! Neither of two voters can do anything without the other one, so the survivor has every entry that was ever committed,
//! and nobody else can have a later one. It is safe for it to go on as the only voter, if the other one never votes
//! again, which the caller must know. It is not safe where a change of the voters may have been committed that this
//! replica does not know to be committed: others may then have gone on without it. A voter has applied the entry that
//! made it one, because a learner gets a vote only if it lacks little and no snapshot is on its way to it.

use super::members::read_change;
use super::{Group, from_raft, to_raft};
use bytes::Bytes;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState};
use tessera_types::ReplicaId;

impl<T> Group<T> {
    /// The only other voter, if the log is in memory, this replica is one of two voters and knows of no leader, and no
    /// entry that it has not applied changes the voters.
    pub(super) fn counterpart(&self) -> Option<ReplicaId> {
        let raft = &self.node.raft;
        let ConfState { voters, voters_outgoing, learners_next, .. } = self.node.store().members();
        let knows_leader = self.is_leader() || raft.leader_id != raft::INVALID_ID;
        let is_joint = !voters_outgoing.is_empty() || !learners_next.is_empty();
        // A witness has no records with which to go on.
        if self.is_persistent() || self.replica().is_witness() || knows_leader || is_joint {
            return None;
        }
        let other = match voters[..] {
            [first, second] if first == raft.id => second,
            [first, second] if second == raft.id => first,
            _ => return None,
        };
        (!self.may_change_voters()).then(|| from_raft(other))
    }

    /// Whether an entry that is not applied yet changes who votes, or may do so.
    fn may_change_voters(&self) -> bool {
        let (store, last) = (self.node.store(), self.node.raft.raft_log.last_index());
        let mut changes = store.range(self.applied + 1, last).filter(|held| !held.is_command());
        // What is not in the storage yet is on its way there.
        store.last() < last || changes.any(|held| self.changes_voters(&held.payload.bytes))
    }

    fn changes_voters(&self, change: &Bytes) -> bool {
        let voters = &self.node.store().members().voters;
        let concerns_learner = |single: &ConfChangeSingle| {
            let adds_voter = single.change_type == ConfChangeType::AddNode as i32;
            !adds_voter && !voters.contains(&single.node_id)
        };
        read_change(change).map_or(true, |change| !change.changes.iter().all(concerns_learner))
    }

    /// Goes on without the only other voter, which has lost everything and never votes again. Does nothing if it is not
    /// the [counterpart](super::GroupView::counterpart). Returns whether it goes on.
    pub(crate) fn go_on_without(&mut self, lost: ReplicaId) -> bool {
        if self.counterpart() != Some(lost) {
            return false;
        }
        let Ok(members) = self.node.apply_conf_change(&removal_of(lost)) else { return false };
        // No entry makes this change. Whoever joins gets the members with a snapshot; learners are told by an entry later.
        let index = self.node.store().members_index();
        self.node.mut_store().set_members(index, members);
        self.wake();
        self.peers.are_none = self.has_no_peers();
        self.peers.gone_counterpart = Some(lost);
        self.peers.progress.reset(&self.node.raft);
        if self.may_campaign() {
            // If it is too early, the next ticks call the election.
            _ = self.node.campaign();
        }
        true
    }

    /// Whether learners do not know yet that a voter is gone.
    pub(super) fn owes_removal(&self) -> bool {
        self.peers.gone_counterpart.is_some() && !self.peers.are_none
    }

    /// A leader that [went on alone](Self::go_on_without) tells learners, by an entry, that the other voter is gone.
    pub(super) fn tell_who_is_gone(&mut self) {
        if let Some(gone) = self.peers.gone_counterpart
            && !self.is_changing()
        {
            // If it cannot be proposed now, the next heartbeat tries again.
            if self.propose_change(removal_of(gone)) {
                self.peers.gone_counterpart = None;
            }
        }
    }
}

fn removal_of(voter: ReplicaId) -> ConfChangeV2 {
    let removal = ConfChangeSingle { change_type: ConfChangeType::RemoveNode as i32, node_id: to_raft(voter) };
    ConfChangeV2 { changes: vec![removal], ..ConfChangeV2::default() }
}
