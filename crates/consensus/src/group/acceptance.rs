//! What a message must be before Raft sees it.
//!
//! Raft takes the word of its peers: where a message contradicts what it knows, it ends the process, since one of the two must be
//! wrong and nothing tells which. A node that errs, or somebody who has got at its place, could so end every process that it
//! reaches. So all that Raft asserts of messages, or relies on, is looked at here first. What does not pass is dropped, which
//! Raft copes with. An honest replica sends nothing of the kind, unless its disk, or this one's, has lost what was durable.

use super::members::read_change;
use super::message::{PeerMessage, split_snapshot};
use super::{Group, Inconsistent, from_raft};
use raft::StateRole;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, SnapshotMetadata};
use std::collections::BTreeSet;

/// More is no index or term that a group gets to; so there is always a next one.
const CEILING: u64 = u64::MAX >> 1;

impl<T> Group<T> {
    /// Whether Raft can take the message. If not, says why.
    pub(super) fn accepts(&self, peer_message: &PeerMessage) -> Result<(), &'static str> {
        let PeerMessage { message, payloads, .. } = peer_message;
        let raft = &self.node.raft;
        let (log, last) = (&raft.raft_log, raft.raft_log.last_index());
        if message.from == raft.id || message.to != raft.id || from_raft(message.from).node.0 == 0 {
            return Err("it does not say which other replica it is from");
        }
        let numbers = [message.term, message.index, message.log_term, message.commit, message.commit_term];
        if message.term == 0 || numbers.into_iter().any(|number| number > CEILING) {
            return Err("its term or index is none that there can be");
        }
        if message.request_snapshot != raft::INVALID_INDEX || payloads.len() != message.entries.len() {
            return Err("it has parts that no message has");
        }
        match message.msg_type() {
            MessageType::MsgAppend => are_entries(message),
            _ if !message.entries.is_empty() => Err("it has entries"),
            MessageType::MsgHeartbeat if message.commit > last && message.term >= raft.term => {
                Err("it commits what this replica's log does not have")
            }
            MessageType::MsgAppendResponse if message.term >= raft.term => {
                if message.index > last && self.is_leader() {
                    return Err("it has more than the leader sent");
                }
                if message.reject_hint > message.index { Err("it refuses what follows what it lacks") } else { Ok(()) }
            }
            MessageType::MsgSnapshot => self.accepts_snapshot(message),
            MessageType::MsgTimeoutNow if !self.may_campaign() => Err("this replica's log is not on its disk yet"),
            // Requests for votes leave when the log is on disk, and it stays as it is until there is an answer. Answers that come
            // after the election is over are late, and Raft passes them over.
            MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse
                if log.persisted != last && matches!(raft.state, StateRole::Candidate | StateRole::PreCandidate) =>
            {
                Err("it answers what was not asked yet")
            }
            MessageType::MsgHeartbeat
            | MessageType::MsgAppendResponse
            | MessageType::MsgTimeoutNow
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVoteResponse => Ok(()),
            _ => Err("replicas do not send each other such messages"),
        }
    }

    /// Whether a leader's message tells that this replica has lost what it had acknowledged as durable; if so, why it cannot go on.
    ///
    /// A leader commits with a heartbeat no more than what this replica acknowledged *to it, in its term*: Raft takes the lower one
    /// of that and of what is committed. Before it acknowledged anything in a term, the replica had that term on disk. So one
    /// that is still in an earlier term has lost that; and one in the same term has lost entries, because in that term nothing took
    /// the place of entries that it had acknowledged. In a later term the message says nothing. When it was sent, how often it
    /// comes, and what overtook it makes no difference: what the replica had by then, it has for good.
    ///
    /// That holds where everything acknowledged is on disk. Without that, one whose machine lost power may go on with less than it
    /// had, if most others lost power too.
    pub(super) fn reveals_loss(&self, message: &Message) -> Option<Inconsistent> {
        let raft = &self.node.raft;
        let (had, has) = (message.commit, raft.raft_log.last_index());
        let is_loss = self.persistent
            && self.synced
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
            return Err("its snapshot is none that there can be");
        }
        if !are_members(snapshot.get_metadata().get_conf_state()) {
            return Err("the members of its snapshot are none that there can be");
        }
        if !is_late && index == log.committed && index != self.applied && !log.match_term(index, term) {
            return Err("its snapshot is of another log");
        }
        if !is_late && self.is_leader() {
            // A heartbeat comes as well.
            return Err("a leader steps down before it takes a snapshot");
        }
        Ok(())
    }

    /// Whether Raft can call an election: it looks at all entries that it does not know to be applied. After a snapshot that is
    /// so once the log has it, and one who needs no other votes must have all of its log on disk at once.
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
        // Raft gives the term 0 to what is behind its log too, and would leave a hole.
        return Err("the entry that its entries follow has a term, and only that before the first has none");
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
            return Err("an entry of it is none that there can be");
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
