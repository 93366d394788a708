//! What a leader knows of the other members. Those who decide on the group's members, and on its next leader, use it.
//!
//! Raft's own book-keeping says which entries a member has, but not whether the member is alive: a member that was
//! never heard from looks like one that lacks as many entries as the log has, which may be few. So the leader also
//! remembers when it last heard from each member in its term, and which index was committed a second or two ago: a
//! member that has that index keeps up.

use super::standby::{is_on_standby, takes_snapshot};
use super::{Group, from_raft};
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

impl<T> Group<T> {
    /// A message came from another member. Called for every message, so it must be cheap.
    pub(super) fn on_message_from(&mut self, member: u64, term: u64) {
        if !self.is_leader() || term != self.node.raft.term || term != self.member_progress.term {
            return;
        }
        match self.member_progress.heard.iter_mut().find(|(id, _)| *id == member) {
            Some((_, ticks)) => *ticks = 0,
            None => self.member_progress.heard.push((member, 0)),
        }
    }

    /// Called once per tick of a leader.
    pub(super) fn count_member_progress_tick(&mut self) {
        let (term, committed) = (self.node.raft.term, self.node.raft.raft_log.committed);
        if self.member_progress.term != term {
            return self.reset_member_progress();
        }
        let prs = self.node.raft.prs();
        self.member_progress.heard.retain(|(id, _)| prs.get(*id).is_some());
        self.member_progress.heard.iter_mut().for_each(|(_, ticks)| *ticks = ticks.saturating_add(1));
        self.member_progress.ticks += 1;
        if self.member_progress.ticks >= MARK_TICKS {
            self.member_progress.ticks = 0;
            self.member_progress.committed = [self.member_progress.committed[1], committed];
        }
    }

    /// Forgets what an earlier leader knew, and what this leader knew before its ticks were paused. Until the leader
    /// has noted more, a member keeps up if it has the whole log as it is now.
    pub(super) fn reset_member_progress(&mut self) {
        let last = self.node.raft.raft_log.last_index();
        self.member_progress =
            MemberProgress { term: self.node.raft.term, committed: [last; 2], ..MemberProgress::default() };
    }

    /// This replica's ticks were paused: members that were alive before may be down now.
    pub(super) fn forget_heard(&mut self) {
        self.member_progress.heard.clear();
    }

    /// What this replica knows of the other members; empty unless it leads.
    pub(super) fn others(&self) -> Vec<MemberView> {
        let raft = &self.node.raft;
        if !self.is_leader() || self.member_progress.term != raft.term {
            return Vec::new();
        }
        let last = raft.raft_log.last_index();
        let is_heard = |id: u64| {
            self.is_hibernating()
                || self.member_progress.heard.iter().any(|(heard, ticks)| *heard == id && *ticks <= HEARD_TICKS)
        };
        let others = raft.prs().iter().filter(|(id, _)| **id != raft.id);
        let view = |(id, progress): (&u64, &raft::Progress)| {
            // A standby witness could have everything that it lacks at any time.
            let is_on_standby = is_on_standby(progress);
            let keeps_up =
                progress.matched > 0 && (is_on_standby || progress.matched >= self.member_progress.committed[0]);
            let lag_bytes = match (is_on_standby, keeps_up) {
                (true, _) => 0,
                (false, true) => self.bytes_above(progress.matched),
                (false, false) => u64::MAX,
            };
            MemberView {
                replica: from_raft(*id),
                is_heard: is_heard(*id),
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
