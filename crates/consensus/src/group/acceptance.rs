//! Checks of messages before Raft sees them.
//!
//! Raft trusts its peers: if a message contradicts its own state, it ends the process, because one of the two must be
//! wrong and nothing shows which. So a node that errs, or somebody who has taken its place, could end every process
//! that it reaches. Therefore everything that Raft asserts of messages, or relies on, is checked here first. A message
//! that fails a check is dropped, which Raft copes with. A sound replica sends no such message, unless its disk, or
//! this one's, has lost what was durable.

use super::members::read_change;
use super::message::{PeerMessage, split_snapshot};
use super::{Group, Inconsistent, from_raft};
use raft::StateRole;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, SnapshotMetadata};
use std::collections::BTreeSet;

/// No group ever reaches a higher index or term, so there is always a next one.
const CEILING: u64 = u64::MAX >> 1;

impl<T> Group<T> {
    /// Whether Raft can take the message. If not, the error says why.
    pub(super) fn accepts(&self, peer_message: &PeerMessage) -> Result<(), &'static str> {
        let PeerMessage { message, payloads, .. } = peer_message;
        let raft = &self.node.raft;
        let (log, last) = (&raft.raft_log, raft.raft_log.last_index());
        if message.from == raft.id || message.to != raft.id || from_raft(message.from).node.0 == 0 {
            return Err("it does not name the other replica that sent it");
        }
        let numbers = [message.term, message.index, message.log_term, message.commit, message.commit_term];
        if message.term == 0 || numbers.into_iter().any(|number| number > CEILING) {
            return Err("its term or index is impossible");
        }
        if message.request_snapshot != raft::INVALID_INDEX || payloads.len() != message.entries.len() {
            return Err("it has parts that no message may have");
        }
        match message.msg_type() {
            MessageType::MsgAppend => are_entries(message),
            _ if !message.entries.is_empty() => Err("it has entries"),
            MessageType::MsgHeartbeat if message.commit > last && message.term >= raft.term => {
                Err("it commits what this replica's log does not have")
            }
            MessageType::MsgAppendResponse if message.term >= raft.term => {
                if message.index > last && self.is_leader() {
                    return Err("it acknowledges more than the leader sent");
                }
                if message.reject_hint > message.index {
                    Err("it rejects an entry and hints at a later one")
                } else {
                    Ok(())
                }
            }
            MessageType::MsgSnapshot => self.accepts_snapshot(message),
            MessageType::MsgTimeoutNow if !self.may_campaign() => Err("this replica's log is not on its disk yet"),
            // Requests for votes are sent when the log is on disk, and the log stays the same until there is an answer.
            // Raft ignores answers that come after the election is over.
            MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse
                if log.persisted != last && matches!(raft.state, StateRole::Candidate | StateRole::PreCandidate) =>
            {
                Err("it answers a request that was not sent yet")
            }
            MessageType::MsgHeartbeat
            | MessageType::MsgAppendResponse
            | MessageType::MsgTimeoutNow
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVoteResponse => Ok(()),
            _ => Err("replicas do not send each other messages of this kind"),
        }
    }

    /// Whether a leader's message reveals that this replica has lost entries that it had acknowledged as durable. If
    /// so, returns why it cannot go on.
    ///
    /// A heartbeat commits no more than this replica acknowledged *to that leader, in its term*: Raft sends the lower
    /// one of the acknowledged and the committed index. Before the replica acknowledged anything in a term, it had that
    /// term on disk. So a replica that is still in an earlier term has lost the term. A replica in the same term has
    /// lost entries, because in that term nothing replaced the entries that it had acknowledged. In a later term the
    /// message proves nothing. It does not matter when the message was sent, how often it comes and what overtook it:
    /// what the replica had then, it must have for good.
    ///
    /// This holds only where everything acknowledged is on disk. Otherwise a replica whose machine lost power may go on
    /// with less than it had, if most others lost power too.
    pub(super) fn reveals_loss(&self, message: &Message) -> Option<Inconsistent> {
        let raft = &self.node.raft;
        let (had, has) = (message.commit, raft.raft_log.last_index());
        let is_loss = self.log.is_fsynced()
            && message.msg_type() == MessageType::MsgHeartbeat
            && (raft.term..=CEILING).contains(&message.term)
            && (has + 1..=CEILING).contains(&had);
        is_loss.then_some(Inconsistent::Forgotten { had, has })
    }

    fn accepts_snapshot(&self, message: &Message) -> Result<(), &'static str> {
        let (raft, snapshot) = (&self.node.raft, message.get_snapshot());
        let SnapshotMetadata { index, term, .. } = *snapshot.get_metadata();
        let (log, is_late) = (&raft.raft_log, message.term < raft.term);
        if index == 0 || index > CEILING || term == 0 || term > message.term || split_snapshot(snapshot).is_none() {
            return Err("its snapshot is impossible");
        }
        if !are_members(snapshot.get_metadata().get_conf_state()) {
            return Err("the members of its snapshot are impossible");
        }
        if !is_late && index == log.committed && index != self.applied && !log.match_term(index, term) {
            return Err("its snapshot belongs to another log");
        }
        if !is_late && self.is_leader() {
            // A heartbeat, which comes too, makes it step down.
            return Err("a leader steps down before it takes a snapshot");
        }
        Ok(())
    }

    /// Whether Raft can call an election: it reads all entries that it does not know to be applied, so after a snapshot
    /// the log must have the snapshot first. A replica that needs no other votes must have all of its log on disk.
    pub(super) fn may_campaign(&self) -> bool {
        let raft = &self.node.raft;
        let log = &raft.raft_log;
        let is_whole = log.unstable.snapshot.is_some() || log.applied + 1 >= log.first_index();
        let needs_others = || raft.prs().conf().voters().ids().iter().any(|id| id != raft.id);
        is_whole && (log.persisted == log.last_index() || needs_others())
    }
}

/// Whether the entries of a message could follow each other in a leader's log.
fn are_entries(message: &Message) -> Result<(), &'static str> {
    if (message.index == 0) != (message.log_term == 0) {
        // Raft also gives the term 0 to indexes after its log's end, and would leave a hole.
        return Err("the entry before its entries must have a term, unless they begin with the first entry");
    }
    let mut before = (message.index, message.log_term);
    for entry in &message.entries {
        let Entry { index, term, .. } = *entry;
        if index != before.0 + 1 || term < before.1.max(1) || term > message.term {
            return Err("its entries do not follow each other");
        }
        let is_sound = match entry.entry_type() {
            EntryType::EntryNormal => entry.data.is_empty(),
            EntryType::EntryConfChangeV2 => read_change(&entry.data).is_ok(),
            EntryType::EntryConfChange => false,
        };
        if !is_sound {
            return Err("one of its entries is impossible");
        }
        before = (index, term);
    }
    Ok(())
}

/// Whether a group could have these members.
fn are_members(members: &ConfState) -> bool {
    let ConfState { voters, learners, voters_outgoing, learners_next, auto_leave } = members;
    let unique = |ids: &[u64]| -> Option<BTreeSet<u64>> {
        let set: BTreeSet<_> = ids.iter().copied().collect();
        (set.len() == ids.len() && !set.contains(&raft::INVALID_ID)).then_some(set)
    };
    let all = [voters, learners, voters_outgoing, learners_next].map(|ids| unique(ids));
    let [Some(voters), Some(learners), Some(outgoing), Some(next)] = all else { return false };
    !voters.is_empty()
        && learners.is_disjoint(&voters)
        && learners.is_disjoint(&outgoing)
        && next.is_subset(&outgoing)
        && next.is_disjoint(&voters)
        && (!outgoing.is_empty() || !*auto_leave)
}
