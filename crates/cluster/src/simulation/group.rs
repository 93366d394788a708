//! A consensus group as its members' changes see it: who has which part of the log, and what a majority can do.
//! Elections, terms and messages are left to the simulation of `tessera_consensus`.

use std::collections::BTreeMap;
use tessera_consensus::{GroupId, GroupView, MemberChange, MemberView};
use tessera_types::ReplicaId;

/// Rounds after which a member that lacks what was committed then does not keep up.
const MEMORY: usize = 4;

/// Bytes of an entry.
const ENTRY_BYTES: u64 = 100;

/// A replica on a node's disk.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) matched: u64,
    /// Rounds that its snapshot still takes.
    pub(super) snapshot: u32,
    /// Whether the leader of now has heard of it.
    pub(super) is_told: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) voters: Vec<ReplicaId>,
    /// Voters from before a change that is not complete.
    pub(super) outgoing: Vec<ReplicaId>,
    pub(super) learners: Vec<ReplicaId>,
    pub(super) copies: BTreeMap<ReplicaId, Copy>,
    pub(super) leader: Option<ReplicaId>,
    pub(super) end: u64,
    pub(super) committed: [u64; MEMORY],
}

impl Group {
    pub(super) fn of(initial_members: &[ReplicaId]) -> Self {
        Self {
            voters: initial_members.to_vec(),
            outgoing: Vec::new(),
            learners: Vec::new(),
            copies: BTreeMap::new(),
            leader: None,
            end: 1,
            committed: [1; MEMORY],
        }
    }

    pub(super) fn is_voter(&self, replica: &ReplicaId) -> bool {
        self.voters.contains(replica) || self.outgoing.contains(replica)
    }

    /// Whether those of whom that is so are a majority, also of the voters before a change that is under way.
    pub(super) fn is_majority(&self, mut is_so: impl FnMut(&ReplicaId) -> bool) -> bool {
        let mut has = |voters: &[ReplicaId]| voters.iter().filter(|voter| is_so(voter)).count() > voters.len() / 2;
        has(&self.voters) && (self.outgoing.is_empty() || has(&self.outgoing))
    }

    /// Whether a replica has all that was committed a while ago.
    pub(super) fn is_complete(&self, replica: &ReplicaId) -> bool {
        self.copies.get(replica).is_some_and(|copy| copy.snapshot == 0 && copy.matched >= self.committed[0])
    }

    /// Bytes of entries that a replica lacks.
    pub(super) fn lacks(&self, replica: &ReplicaId) -> u64 {
        ENTRY_BYTES * (self.end - self.copies.get(replica).map_or(0, |copy| copy.matched).min(self.end))
    }

    /// Elects, replicates what is written, and completes changes. `is_up` is of the nodes, `is_slow` of their disks.
    pub(super) fn pass(
        &mut self,
        writes: u64,
        is_up: &dyn Fn(&ReplicaId) -> bool,
        is_slow: &dyn Fn(&ReplicaId) -> bool,
    ) {
        let is_there = |copies: &BTreeMap<ReplicaId, Copy>, replica: &ReplicaId| {
            is_up(replica) && copies.get(replica).is_some_and(|copy| copy.snapshot == 0)
        };
        let can_lead = |group: &Self, it: &ReplicaId| group.is_voter(it) && is_there(&group.copies, it);
        if self.leader.is_some_and(|leader| !can_lead(self, &leader)) {
            self.leader = None;
        }
        if self.leader.is_none() && self.is_majority(|voter| is_there(&self.copies, voter)) {
            let able = self.copies.keys().filter(|it| !it.is_witness() && can_lead(self, it));
            self.leader = able.max_by_key(|it| self.copies[it].matched).copied();
            if let Some(leader) = self.leader {
                // A witness that has more brings it up to date first.
                let sources = self.copies.iter().filter(|(it, _)| it.is_witness() && can_lead(self, it));
                let end = sources.map(|(_, copy)| copy.matched).max().unwrap_or(0).max(self.copies[&leader].matched);
                self.copies.get_mut(&leader).expect("it was chosen").matched = end;
                self.end = end;
                assert!(self.end >= self.committed[MEMORY - 1], "what was committed is lost: {self:?}");
                for copy in self.copies.values_mut() {
                    copy.matched = copy.matched.min(self.end);
                    copy.is_told = false;
                }
            }
        }
        let Some(leader) = self.leader else { return };
        self.end += writes;
        let members: Vec<ReplicaId> = [&self.voters[..], &self.outgoing, &self.learners].concat();
        for (replica, copy) in self.copies.iter_mut().filter(|(it, _)| is_up(it) && members.contains(it)) {
            // Its log is brought up to date while it takes its snapshot.
            copy.snapshot = copy.snapshot.saturating_sub(1);
            if *replica == leader || !is_slow(replica) {
                (copy.matched, copy.is_told) = (self.end, true);
            }
        }
        let mut committed = self.committed[MEMORY - 1];
        let marks: Vec<u64> = self.copies.values().map(|copy| copy.matched).collect();
        for mark in marks {
            let has = |it: &ReplicaId| self.copies.get(it).is_some_and(|copy| copy.matched >= mark);
            if mark > committed && self.is_majority(has) {
                committed = mark;
            }
        }
        self.committed.rotate_left(1);
        self.committed[MEMORY - 1] = committed;
        if self.is_majority(|voter| is_there(&self.copies, voter)) {
            self.outgoing.clear();
        }
    }

    pub(super) fn view(&self, leader: ReplicaId, is_up: &dyn Fn(&ReplicaId) -> bool) -> GroupView {
        let mut voters = [&self.voters[..], &self.outgoing].concat();
        voters.sort_unstable();
        voters.dedup();
        let other = |replica: ReplicaId| {
            let copy = self.copies.get(&replica);
            let matched = copy.filter(|copy| copy.is_told).map_or(0, |copy| copy.matched);
            let keeps_up = matched > 0 && matched >= self.committed[0];
            MemberView {
                replica,
                is_heard: copy.is_some() && is_up(&replica),
                matched,
                lag: self.end - matched,
                lag_bytes: ENTRY_BYTES * (self.end - matched),
                keeps_up,
                takes_snapshot: copy.is_some_and(|copy| copy.snapshot > 0),
            }
        };
        let others = voters.iter().chain(&self.learners).filter(|replica| **replica != leader).copied().map(other);
        GroupView {
            id: GroupId(1),
            replica: leader,
            term: 1,
            leader: Some(leader),
            is_serving: true,
            owes_answers: false,
            others: others.collect(),
            voters,
            learners: self.learners.clone(),
            is_changing: !self.outgoing.is_empty(),
            applied: self.end,
            unreplicated_bytes: 0,
            unreachable_by_log: Vec::new(),
            counterpart: None,
        }
    }

    /// The group after a change.
    pub(super) fn changed(&self, changes: &[MemberChange]) -> Self {
        let mut after = self.clone();
        for change in changes {
            let (MemberChange::Voter(id) | MemberChange::Learner(id) | MemberChange::Remove(id)) = change;
            after.voters.retain(|voter| voter != id);
            after.learners.retain(|learner| learner != id);
            match change {
                MemberChange::Voter(id) => after.voters.push(*id),
                MemberChange::Learner(id) => after.learners.push(*id),
                MemberChange::Remove(_) => {}
            }
        }
        let is_simple = changes.len() == 1 || after.voters == self.voters;
        after.outgoing = if is_simple { Vec::new() } else { self.voters.clone() };
        after
    }
}
