//! What a leader knows of the other members, for whoever decides on the group's members and on who leads it next.
//!
//! Raft's own book-keeping tells what a member has, but not whether it is still there: a member that was never heard of looks
//! like one that lacks as many entries as the log has, which may be few. So the leader also remembers when it last heard of
//! each member in its term, and what was committed a second or two ago: a member that has that keeps up.

use super::standby::{is_on_standby, takes_snapshot};
use super::{Group, from_raft};
use tessera_types::ReplicaId;

/// A member that a leader has not heard of for so many ticks is not there. One that is there answers heartbeats, of which
/// there is one every [`HEARTBEAT_TICKS`](super::HEARTBEAT_TICKS).
const HEARD_TICKS: u32 = 8;
/// How many ticks pass between two times that the leader notes what is committed.
const MARK_TICKS: u32 = 20;

/// What a leader knows of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    pub replica: ReplicaId,
    /// Whether the leader heard of it in the last few ticks. While a group rests nobody is heard of, and this is what it was.
    pub is_heard: bool,
    /// The index up to which its log is known to be the leader's; zero for one that has said nothing in the leader's term.
    pub matched: u64,
    /// Entries that it lacks.
    pub lag: u64,
    /// Bytes of entries that it lacks; `u64::MAX` if it does not keep up, or lacks more than the leader holds in memory.
    pub owed_bytes: u64,
    /// Whether it has everything that was committed a second or two ago.
    pub keeps_up: bool,
    /// Whether a snapshot is on its way to it.
    pub takes_snapshot: bool,
}

/// What a leader remembers to tell that.
#[derive(Default)]
pub(super) struct Attention {
    /// The term in which it leads.
    term: u64,
    /// Members that were heard of in the term, with the ticks since.
    heard: Vec<(u64, u32)>,
    /// What was committed at two times; the older one is one to two times [`MARK_TICKS`] ago.
    committed: [u64; 2],
    ticks: u32,
}

impl<T> Group<T> {
    /// A message came from another member. Called for each, so it does little.
    pub(super) fn hear_of(&mut self, member: u64, term: u64) {
        if !self.is_leader() || term != self.node.raft.term || term != self.attention.term {
            return;
        }
        match self.attention.heard.iter_mut().find(|(id, _)| *id == member) {
            Some((_, ticks)) => *ticks = 0,
            None => self.attention.heard.push((member, 0)),
        }
    }

    /// Once per tick of a leader.
    pub(super) fn count_attention_tick(&mut self) {
        let (term, committed) = (self.node.raft.term, self.node.raft.raft_log.committed);
        if self.attention.term != term {
            return self.attend_anew();
        }
        let prs = self.node.raft.prs();
        self.attention.heard.retain(|(id, _)| prs.get(*id).is_some());
        self.attention.heard.iter_mut().for_each(|(_, ticks)| *ticks = ticks.saturating_add(1));
        self.attention.ticks += 1;
        if self.attention.ticks >= MARK_TICKS {
            self.attention.ticks = 0;
            self.attention.committed = [self.attention.committed[1], committed];
        }
    }

    /// Forgets what an earlier leader knew, or what this one knew before time stood still for it. Until it has noted more, a
    /// member keeps up that has the whole log of now.
    pub(super) fn attend_anew(&mut self) {
        let last = self.node.raft.raft_log.last_index();
        self.attention = Attention { term: self.node.raft.term, committed: [last; 2], ..Attention::default() };
    }

    /// Time stood still for this replica: who was there before may be gone.
    pub(super) fn forget_who_was_heard(&mut self) {
        self.attention.heard.clear();
    }

    /// What this replica, if it leads, knows of the other members.
    pub(super) fn others(&self) -> Vec<MemberView> {
        let raft = &self.node.raft;
        if !self.is_leader() || self.attention.term != raft.term {
            return Vec::new();
        }
        let last = raft.raft_log.last_index();
        let is_heard = |id: u64| {
            self.is_hibernating()
                || self.attention.heard.iter().any(|(heard, ticks)| *heard == id && *ticks <= HEARD_TICKS)
        };
        let others = raft.prs().iter().filter(|(id, _)| **id != raft.id);
        let view = |(id, progress): (&u64, &raft::Progress)| {
            // A standby witness could have everything that it lacks at any time.
            let is_on_standby = is_on_standby(progress);
            let keeps_up = progress.matched > 0 && (is_on_standby || progress.matched >= self.attention.committed[0]);
            let owed_bytes = match (is_on_standby, keeps_up) {
                (true, _) => 0,
                (false, true) => self.bytes_above(progress.matched),
                (false, false) => u64::MAX,
            };
            MemberView {
                replica: from_raft(*id),
                is_heard: is_heard(*id),
                matched: progress.matched,
                lag: last - progress.matched.min(last),
                owed_bytes,
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
