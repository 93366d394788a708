//! What a leader knows of the other members. Those who decide on the group's members, and on its next leader, use it.
//!
//! Raft's own book-keeping says which entries a member has, but not whether the member is alive: a member that was
//! never heard from looks like one that lacks as many entries as the log has, which may be few. So the leader also
//! remembers when it last heard from each member in its term, and which index was committed a second or two ago: a
//! member that has that index keeps up.

use super::standby::{is_on_standby, takes_snapshot};
use super::storage::GroupStorage;
use super::{Group, from_raft};
use raft::Raft;
use tessera_types::ReplicaId;

/// A member that the leader has not heard from for this many ticks counts as down. A live member answers heartbeats,
/// and there is one every [`HEARTBEAT_TICKS`](super::HEARTBEAT_TICKS).
const HEARD_TICKS: u32 = 8;
/// The leader notes the committed index once in this many ticks.
const MARK_TICKS: u32 = 20;

/// What a leader knows of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The other member.
    pub replica: ReplicaId,
    /// Whether the leader heard from it in the last few ticks. Always true while the group hibernates, because nobody
    /// sends then.
    pub is_heard: bool,
    /// The index up to which its log is known to be the leader's; zero for one that has said nothing in the leader's
    /// term.
    pub matched: u64,
    /// Entries that it lacks.
    pub lag: u64,
    /// Bytes of the entries that it lacks; `u64::MAX` if it does not keep up, or lacks more than the leader holds in
    /// memory.
    pub lag_bytes: u64,
    /// Whether it has everything that was committed a second or two ago.
    pub keeps_up: bool,
    /// Whether a snapshot is being sent to it.
    pub takes_snapshot: bool,
}

/// What a leader remembers for these views.
#[derive(Default)]
pub(super) struct MemberProgress {
    /// The term in which this replica leads.
    term: u64,
    /// Members that were heard from in the term, with the ticks since.
    heard: Vec<(u64, u32)>,
    /// The committed index at two times; the older one was one to two times [`MARK_TICKS`] ago.
    committed: [u64; 2],
    ticks: u32,
}

impl MemberProgress {
    /// A message of this term came from another member to the leader. Called for every message, so it must be cheap.
    fn on_message(&mut self, member: u64, term: u64) {
        if term != self.term {
            return;
        }
        match self.heard.iter_mut().find(|(id, _)| *id == member) {
            Some((_, ticks)) => *ticks = 0,
            None => self.heard.push((member, 0)),
        }
    }

    /// Called once per tick of a leader.
    pub(super) fn tick(&mut self, raft: &Raft<GroupStorage>) {
        if self.term != raft.term {
            return self.reset(raft);
        }
        self.heard.retain(|(id, _)| raft.prs().get(*id).is_some());
        self.heard.iter_mut().for_each(|(_, ticks)| *ticks = ticks.saturating_add(1));
        self.ticks += 1;
        if self.ticks >= MARK_TICKS {
            self.ticks = 0;
            self.committed = [self.committed[1], raft.raft_log.committed];
        }
    }

    /// Forgets what an earlier leader knew, and what this leader knew before its ticks were paused. Until the leader
    /// has noted more, a member keeps up if it has the whole log as it is now.
    pub(super) fn reset(&mut self, raft: &Raft<GroupStorage>) {
        let last = raft.raft_log.last_index();
        *self = Self { term: raft.term, committed: [last; 2], ..Self::default() };
    }

    /// This replica's ticks were paused: members that were alive before may be down now.
    pub(super) fn forget_heard(&mut self) {
        self.heard.clear();
    }

    fn is_heard(&self, member: u64) -> bool {
        self.heard.iter().any(|(heard, ticks)| *heard == member && *ticks <= HEARD_TICKS)
    }

    /// Whether a member with the log up to `matched` has everything that was committed a second or two ago.
    fn keeps_up(&self, matched: u64) -> bool {
        matched >= self.committed[0]
    }
}

impl<T> Group<T> {
    /// A message came from another member. Called for every message, so it must be cheap.
    pub(super) fn on_message_from(&mut self, member: u64, term: u64) {
        if self.is_leader() && term == self.node.raft.term {
            self.peers.progress.on_message(member, term);
        }
    }

    /// What this replica knows of the other members; empty unless it leads.
    pub(super) fn others(&self) -> Vec<MemberView> {
        let raft = &self.node.raft;
        if !self.is_leader() || self.peers.progress.term != raft.term {
            return Vec::new();
        }
        let last = raft.raft_log.last_index();
        let known = &self.peers.progress;
        let others = raft.prs().iter().filter(|(id, _)| **id != raft.id);
        let view = |(id, progress): (&u64, &raft::Progress)| {
            // A standby witness could have everything that it lacks at any time.
            let is_on_standby = is_on_standby(progress);
            let keeps_up = progress.matched > 0 && (is_on_standby || known.keeps_up(progress.matched));
            let lag_bytes = match (is_on_standby, keeps_up) {
                (true, _) => 0,
                (false, true) => self.bytes_above(progress.matched),
                (false, false) => u64::MAX,
            };
            MemberView {
                replica: from_raft(*id),
                is_heard: self.is_hibernating() || known.is_heard(*id),
                matched: progress.matched,
                lag: last - progress.matched.min(last),
                lag_bytes,
                keeps_up,
                takes_snapshot: takes_snapshot(progress),
            }
        };
        others.map(view).collect()
    }

    /// Bytes of the entries above an index; `u64::MAX` if not all of them are in memory.
    fn bytes_above(&self, index: u64) -> u64 {
        let store = self.node.store();
        if index < store.truncated().0 {
            return u64::MAX;
        }
        store.range(index + 1, u64::MAX).map(|held| held.payload.bytes.len() as u64).sum()
    }
}
