//! Who leads a partition, as far as this node knows.
//!
//! News of leaders comes from the group itself, where a replica is here, and from the leaders, who tell every node. It may come
//! late, so the greater term wins. But terms only compare within one life of a group: a table that keeps nothing on disk
//! starts again, at term 1, when its replicas have forgotten. Two things tell the lives apart:
//!
//! - The catalog gives every replica a greater incarnation than all before it, and a group that starts again has new replicas. So
//!   a leader with a lower incarnation than the group's first members is one of an earlier life: it is forgotten when the catalog
//!   names new first members, and not believed any more.
//! - A replica that is alone starts again as itself. What a leader says about itself counts, also if its term is lower than it was.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_types::{NodeId, ReplicaId};

/// The leader of a partition, as far as this node knows.
#[derive(Default)]
pub struct KnownLeader {
    /// The term above 32 bits of the leader's node; zero is nobody. Changed under the lock below only.
    word: AtomicU64,
    incarnations: Mutex<Incarnations>,
}

#[derive(Default)]
struct Incarnations {
    /// The least of the group's first members, witnesses aside.
    first: u32,
    leader: u32,
}

fn word(term: u64, node: NodeId) -> u64 {
    term << 32 | u64::from(node.0)
}

impl KnownLeader {
    /// Its term and its node; zeros if none is known.
    pub fn get(&self) -> (u64, NodeId) {
        let word = self.word.load(Ordering::Relaxed);
        // The low half.
        (word >> 32, NodeId(word as u32))
    }

    /// As [`Self::get`], with the replica.
    pub fn replica(&self) -> (u64, ReplicaId) {
        let incarnations = self.incarnations.lock();
        let (term, node) = self.get();
        (term, ReplicaId { node, incarnation: incarnations.leader })
    }

    /// A replica leads, or led, in this term.
    pub fn heard(&self, term: u64, leader: ReplicaId) {
        let mut known = self.incarnations.lock();
        let is_of_this_life = leader.incarnation >= known.first;
        let is_itself = leader.node == self.get().1 && leader.incarnation >= known.leader;
        if is_of_this_life && (is_itself || word(term, leader.node) > self.word.load(Ordering::Relaxed)) {
            known.leader = leader.incarnation;
            self.word.store(word(term, leader.node), Ordering::Relaxed);
        }
    }

    /// The group's first members are these.
    pub fn began_with(&self, initial_members: &[ReplicaId]) {
        let incarnations =
            initial_members.iter().filter(|member| !member.is_witness()).map(|member| member.incarnation);
        let Some(first) = incarnations.min() else { return };
        let mut known = self.incarnations.lock();
        known.first = first;
        if known.leader < first {
            known.leader = 0;
            self.word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(node: u32, incarnation: u32) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation }
    }

    #[test]
    fn the_greater_term_wins() {
        let leader = KnownLeader::default();
        leader.began_with(&[replica(1, 5), replica(2, 6), ReplicaId::new_witness(NodeId(3), 7)]);
        assert_eq!(leader.get(), (0, NodeId(0)));
        leader.heard(3, replica(1, 5));
        leader.heard(2, replica(2, 6)); // late
        assert_eq!(leader.replica(), (3, replica(1, 5)));
        leader.heard(4, replica(2, 6));
        assert_eq!(leader.get(), (4, NodeId(2)));
        leader.began_with(&[replica(1, 5), replica(2, 6)]); // as before
        assert_eq!(leader.get(), (4, NodeId(2)));
    }

    #[test]
    fn a_group_that_begins_anew_has_a_leader_of_a_lower_term() {
        let leader = KnownLeader::default();
        leader.began_with(&[replica(1, 5), replica(3, 6)]);
        leader.heard(30, replica(3, 6));
        leader.heard(1, replica(2, 9));
        assert_eq!(leader.get(), (30, NodeId(3)), "the catalog does not say yet that there is another life");
        leader.began_with(&[replica(1, 8), replica(2, 9)]);
        assert_eq!(leader.get(), (0, NodeId(0)));
        leader.heard(1, replica(2, 9));
        leader.heard(30, replica(3, 6)); // it does not know yet
        leader.heard(30, replica(2, 5)); // from before, on its way for long
        assert_eq!(leader.replica(), (1, replica(2, 9)));
    }

    #[test]
    fn a_replica_that_was_alone_begins_anew_as_itself() {
        let leader = KnownLeader::default();
        leader.began_with(&[replica(1, 5)]);
        leader.heard(30, replica(1, 5));
        leader.heard(1, replica(1, 5));
        leader.heard(2, replica(2, 6)); // it has handed over to another one
        assert_eq!(leader.get(), (2, NodeId(2)));
    }
}
