//! Witnesses: replicas that vote and keep the log, but have no state machine.
//!
//! With two replicas and a witness, any one of the three may be lost: an entry is committed when a replica and the witness
//! have it. The witness keeps each entry until both replicas have it, so that whichever of them is left can have what it
//! lacks. If only the witness has everything it wins the election, sends the other one what that lacks, and hands over to
//! it; it serves nothing meanwhile. Of a replica that stays away the witness keeps as much as a leader does, no more: who
//! lags further is stranded with the witness. It waits for another one with records to lead, which replaces it by somebody
//! who gets a snapshot. If there is none, since those have forgotten what the witness counted on, whoever decides that has
//! the leader [bridge](Group::bridge) the gap.

use super::{Group, MemberChange, PassOutput, PeerMessage, from_raft, to_raft};
use crate::log::LogRecord;
use raft::SnapshotStatus;
use raft::eraftpb::{Message, MessageType};
use std::time::Duration;
use tessera_types::ReplicaId;

#[derive(Default)]
pub(super) struct Witness {
    /// Of a witness: what leaders told it.
    everybody_has: u64,
    /// Of a leader, to estimate what is owed: an index with the bytes that the log had seen by then, and the bytes that it
    /// had seen when an earlier such index had reached everybody.
    mark: (u64, u64),
    paid: u64,
    /// Of a witness: what its log on disk was told to forget, and when.
    forgotten: (u64, Duration),
}

/// How often a witness's log on disk is told what it may forget.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);

impl<T> Group<T> {
    /// The index up to which every replica that has records, or is to have them, has the log.
    pub(super) fn everybody_has(&self) -> u64 {
        if !self.is_leader() {
            return self.witness.everybody_has;
        }
        let data_replicas = self.node.raft.prs().iter().filter(|(id, _)| !from_raft(**id).is_witness());
        data_replicas.map(|(_, progress)| progress.matched).min().unwrap_or(0)
    }

    /// What a leader tells with a message; see [`PeerMessage`].
    pub(super) fn tells_progress(&self, message: &Message) -> u64 {
        let tells = matches!(message.msg_type(), MessageType::MsgAppend | MessageType::MsgHeartbeat);
        match tells && self.is_leader() {
            true if from_raft(message.to).is_witness() => self.everybody_has(),
            true => self.node.raft.raft_log.committed,
            false => 0,
        }
    }

    pub(super) fn hear_what_everybody_has(&mut self, index: u64) {
        if index > self.witness.everybody_has {
            self.witness.everybody_has = index;
            self.forget();
        }
    }

    /// Lets the log on disk forget what is forgotten in memory: there is no state that would have to become durable first.
    pub(super) fn forget_on_disk(&mut self, output: &mut PassOutput) {
        let (index, term) = self.node.store().truncated();
        let (forgotten, at) = self.witness.forgotten;
        let is_due = self.now >= at + FORGET_INTERVAL || self.is_hibernating();
        if self.replica().is_witness() && self.persistent && index > forgotten && is_due {
            self.witness.forgotten = (index, self.now);
            output.records.push(LogRecord::Truncated { group: self.id, index, term });
        }
    }

    /// Bytes of entries that a replica with records lacks, about: rather too many than too few.
    pub(super) fn owed_bytes(&self) -> u64 {
        if self.is_leader() { self.node.store().bytes_seen() - self.witness.paid } else { 0 }
    }

    /// Goes on with the estimate of what is owed.
    pub(super) fn count_what_is_owed(&mut self) {
        let (everybody_has, store) = (self.everybody_has(), self.node.store());
        if everybody_has >= self.witness.mark.0 {
            self.witness.paid = self.witness.mark.1;
            self.witness.mark = (store.last(), store.bytes_seen());
        }
    }

    /// Whether, after these changes, what is committed could be had again whichever voter is lost. A majority may consist of
    /// this leader and a witness, so every other voter that has records must have all that the witness does not keep.
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
        // A witness that is there has dropped nothing that a voter lacks; one that comes gets what the log holds here.
        let everybody = others.clone().map(matched).min().unwrap_or(0).max(1);
        // Those that go have a say until all that come do.
        let is_witnessed = !witnesses.is_empty() || voters.iter().any(|id| id.is_witness());
        let here = if witnesses.is_empty() { 0 } else { self.node.store().truncated().0.max(1) };
        !is_witnessed
            || (data_replicas.iter().all(|id| matched(id) >= everybody.max(here))
                && others.all(|id| !stays(&id) || matched(id) >= here))
    }

    /// Of a witness that leads: replicas with records that are there and that it cannot bring up to date.
    pub(super) fn stranded(&self) -> Vec<ReplicaId> {
        if !self.is_leader() || !self.replica().is_witness() {
            return Vec::new();
        }
        let truncated = self.node.store().truncated().0;
        // Raft has asked the replica where its log ends, and would send it what follows.
        let is_stranded = |id: &ReplicaId| {
            let progress = self.node.raft.prs().get(to_raft(*id));
            !id.is_witness() && progress.is_some_and(|it| it.recent_active && it.next_idx <= truncated)
        };
        self.members().0.into_iter().filter(is_stranded).collect()
    }

    /// Has this witness, if it leads, let a [stranded](Self::stranded) replica go on with the state that it has, as if it
    /// reflected all that the witness has dropped: those entries are lost, later ones are not. Only for a group in which nobody
    /// has more than that replica any more.
    pub(crate) fn bridge(&mut self, replica: ReplicaId) {
        if self.stranded().contains(&replica) {
            let to = to_raft(replica);
            self.node.mut_store().bridge(Some(to));
            // What was sent before may have come to nothing.
            self.node.report_snapshot(to, SnapshotStatus::Failure);
            self.node.raft.send_append(to);
        }
    }

    /// Up to where this replica's own log counts before the snapshot's: that has the entry of its index, whatever is here.
    fn own_end(&self, bridge: &PeerMessage) -> u64 {
        self.node.raft.raft_log.last_index().min(bridge.snapshot().0.saturating_sub(1))
    }

    /// Whether this replica's state would [stay as it is](Self::bridge) although its log goes on behind that.
    pub(super) fn bridges_to_more(&self, message: &PeerMessage) -> bool {
        message.keeps_state()
            && !self.replica().is_witness()
            && self.own_end(message) > self.node.raft.raft_log.committed
    }

    /// Nobody has more than this replica, so what is in its log counts. The leader will ask again to bridge what follows.
    pub(super) fn commit_what_is_here(&self, bridge: PeerMessage) -> PeerMessage {
        let (kind, commit) = (MessageType::MsgHeartbeat as i32, self.own_end(&bridge));
        let Message { from, to, term, .. } = bridge.message;
        PeerMessage { message: Message { msg_type: kind, from, to, term, commit, ..Default::default() }, ..bridge }
    }

    /// A witness that leads lets a replica lead that has everything.
    pub(super) fn lead_no_longer_than_needed(&mut self) {
        // Not only once something is committed: a member whom only a snapshot helps gets none from a witness.
        if !self.is_leader() {
            return self.node.mut_store().bridge(None);
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
