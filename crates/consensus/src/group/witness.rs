//! Witnesses: replicas that vote and keep the log, but have no state machine.
//!
//! With two data replicas and a witness, any one of the three may be lost: an entry is committed when a data replica
//! and the witness have it. The witness keeps each entry until both data replicas have it, so that the remaining one
//! can receive what it lacks. If only the witness has everything, it wins the election, sends the data replica what
//! that lacks, and transfers leadership to it. It serves nothing meanwhile.
//!
//! For a data replica that stays away the witness keeps as many entries as a leader does, and no more. A replica that
//! lags further is [unreachable by log](Group::unreachable_by_log) for the witness. It waits until the other data
//! replica leads, which replaces it by a new replica that receives a snapshot. If there is no other one, because all
//! others have forgotten what the witness counted on, the catalog decides so, and the leader
//! [force-recovers](Group::force_recover) the replica.

use super::{Group, MemberChange, PassOutput, PeerMessage, from_raft, to_raft};
use crate::log::LogRecord;
use raft::SnapshotStatus;
use raft::eraftpb::{Message, MessageType};
use tessera_types::ReplicaId;

impl<T> Group<T> {
    /// The index up to which every data replica, including those that are being filled, has the log.
    pub(super) fn replicated_index(&self) -> u64 {
        if !self.is_leader() {
            return self.peers.replicated.reported();
        }
        let data_replicas = self.node.raft.prs().iter().filter(|(id, _)| !from_raft(**id).is_witness());
        data_replicas.map(|(_, progress)| progress.matched).min().unwrap_or(0)
    }

    /// The index that a leader reports with a message; see [`PeerMessage::progress`].
    pub(super) fn progress_for(&self, message: &Message) -> u64 {
        let tells = matches!(message.msg_type(), MessageType::MsgAppend | MessageType::MsgHeartbeat);
        match tells && self.is_leader() {
            true if from_raft(message.to).is_witness() => self.replicated_index(),
            true => self.node.raft.raft_log.committed,
            false => 0,
        }
    }

    pub(super) fn on_replicated_index(&mut self, index: u64) {
        if self.peers.replicated.on_report(index) {
            self.forget();
        }
    }

    /// Truncates the log on disk where it is truncated in memory. A witness has no state that would have to become
    /// durable first.
    pub(super) fn forget_on_disk(&mut self, output: &mut PassOutput) {
        let (index, term) = self.node.store().truncated();
        let (now, hibernates) = (self.ticks.now(), self.is_hibernating());
        if self.replica().is_witness() && self.log.truncate(index, now, hibernates) {
            output.records.push(LogRecord::Truncated { group: self.id, index, term });
        }
    }

    /// An estimate, from above, of the bytes of entries that some data replica lacks.
    pub(super) fn unreplicated_bytes(&self) -> u64 {
        if self.is_leader() { self.peers.replicated.lacking_bytes(self.node.store()) } else { 0 }
    }

    /// Updates the estimate of [`Self::unreplicated_bytes`].
    pub(super) fn update_unreplicated_bytes(&mut self) {
        self.peers.replicated.update(self.replicated_index(), self.node.store());
    }

    /// Whether, after these changes, all committed entries survive the loss of any one voter. A majority may consist of
    /// this leader and a witness, so every other data replica among the voters must have all entries that the witness
    /// does not keep.
    pub(super) fn would_keep_records(&self, changes: &[MemberChange]) -> bool {
        let (voters, _) = self.members();
        let leaves = |change: &MemberChange, id: &ReplicaId| matches!(change, MemberChange::Remove(it) | MemberChange::Learner(it) if it == id);
        let stays = |id: &&ReplicaId| !changes.iter().any(|change| leaves(change, id));
        let comes = |change: &MemberChange| match change {
            MemberChange::Voter(id) if !voters.contains(id) => Some(*id),
            _ => None,
        };
        let (witnesses, data_replicas): (Vec<ReplicaId>, Vec<ReplicaId>) =
            changes.iter().filter_map(comes).partition(|id| id.is_witness());
        let matched = |id: &ReplicaId| self.node.raft.prs().get(to_raft(*id)).map_or(0, |progress| progress.matched);
        let mut others = voters.iter().filter(|id| !id.is_witness() && **id != self.replica());
        // A present witness has dropped nothing that a voter lacks; a new witness gets what the log of this leader holds.
        let everybody = others.clone().map(matched).min().unwrap_or(0).max(1);
        // Leaving voters have their votes until all new voters have theirs.
        let is_witnessed = !witnesses.is_empty() || voters.iter().any(|id| id.is_witness());
        let here = if witnesses.is_empty() { 0 } else { self.node.store().truncated().0.max(1) };
        !is_witnessed
            || (data_replicas.iter().all(|id| matched(id) >= everybody.max(here))
                && others.all(|id| !stays(&id) || matched(id) >= here))
    }

    /// On a witness that leads: live data replicas that lack entries which the witness has dropped.
    pub(super) fn unreachable_by_log(&self) -> Vec<ReplicaId> {
        if !self.is_leader() || !self.replica().is_witness() {
            return Vec::new();
        }
        let truncated = self.node.store().truncated().0;
        // Raft has asked the replica where its log ends, and would send it the entries from there on.
        let is_unreachable = |id: &ReplicaId| {
            let progress = self.node.raft.prs().get(to_raft(*id));
            !id.is_witness() && progress.is_some_and(|it| it.recent_active && it.next_idx <= truncated)
        };
        self.members().0.into_iter().filter(is_unreachable).collect()
    }

    /// If this replica is a witness that leads, lets a replica that is [unreachable by log](Self::unreachable_by_log)
    /// continue with its own state, as if that reflected all entries that the witness has dropped. Those entries are
    /// lost; later ones are not. To be used only in a group in which no other replica has more than that one any more.
    pub(crate) fn force_recover(&mut self, replica: ReplicaId) {
        if self.unreachable_by_log().contains(&replica) {
            let to = to_raft(replica);
            self.node.mut_store().force_recover(Some(to));
            // A snapshot that was sent before may have been lost.
            self.node.report_snapshot(to, SnapshotStatus::Failure);
            self.node.raft.send_append(to);
        }
    }

    /// The index up to which this replica's own log counts. At the snapshot's index the snapshot counts, whatever the
    /// log has there.
    fn own_end(&self, recovery: &PeerMessage) -> u64 {
        self.node.raft.raft_log.last_index().min(recovery.snapshot().0.saturating_sub(1))
    }

    /// Whether the message [force-recovers](Self::force_recover) this replica, and its log has entries that must be
    /// committed first.
    pub(super) fn force_recovery_must_wait(&self, message: &PeerMessage) -> bool {
        message.keeps_state()
            && !self.replica().is_witness()
            && self.own_end(message) > self.node.raft.raft_log.committed
    }

    /// No other replica has more than this one, so the entries in its log count: turns the message into one that
    /// commits them. The leader sends the message again later.
    pub(super) fn commit_own_log(&self, recovery: PeerMessage) -> PeerMessage {
        let (kind, commit) = (MessageType::MsgHeartbeat as i32, self.own_end(&recovery));
        let Message { from, to, term, .. } = recovery.message;
        PeerMessage { message: Message { msg_type: kind, from, to, term, commit, ..Default::default() }, ..recovery }
    }

    /// A witness that leads transfers leadership to a data replica that has all entries.
    pub(super) fn transfer_leadership_from_witness(&mut self) {
        // This must not wait until an entry is committed: a member that needs a snapshot gets none from a witness.
        if !self.is_leader() {
            return self.node.mut_store().force_recover(None);
        }
        if !self.replica().is_witness() || self.node.raft.lead_transferee.is_some() {
            return;
        }
        let last = self.node.raft.raft_log.last_index();
        let (voters, _) = self.members();
        let has_everything = |id: &u64| self.node.raft.prs().get(*id).is_some_and(|progress| progress.matched == last);
        let mut heirs = voters.into_iter().filter(|voter| !voter.is_witness()).map(to_raft);
        if let Some(heir) = heirs.find(has_everything) {
            self.node.transfer_leader(heir);
        }
    }
}
