//! Checks that all replicas of a partition have the same records.
//!
//! **The problem.** Replicas apply the same log, so they have the same records, unless something is wrong: a defect, a disk that
//! gives back something else than was written, memory that forgets. Nobody notices until another replica leads, or a reader of
//! outdated records finds something strange. Digests taken at different times differ because of writes, and digests of snapshots of whole
//! partitions cost a second copy of what changes meanwhile.
//!
//! **The design.** The leader walks through its partition ([`walk`]) in slices of some hundred kilobytes. For each it puts a [`mark`]
//! into the partition's log; every replica that applies the mark's entry digests its own records of that slice right then
//! ([`replica`]), so all do it at the same log index, and sends the digest to the leader. A slice ends where a number of
//! records or bytes is reached, so what a replica does at one time is bounded whatever it holds, and where the next slice begins is
//! part of what is compared. A few slices are on their way at a time, and a rate bounds how many.
//!
//! A slice that differs is compared again, as of a later entry; only if it still differs it counts. What is found is logged, counted and
//! told to all nodes, so that each can show it. A replica that differs from what a majority of all voters agrees on is
//! replaced by a new one, which gets a snapshot; a leader that stands alone hands over first. Then the
//! partition is compared again. Where there is no such majority nobody can tell who is right, and it is left to the operator.
//!
//! **What is not compared.** Records that had ended, since replicas remove them in their own time. Tables that evict, since
//! each replica does that on its own. Witnesses, since they have no records.
//!
//! **Invariants.** A mark changes nothing, so it does no harm wherever else it is applied: after a restart, by a replica that
//! was not asked to take part, or when the leader has given up. An answer names its comparison and slice, so that it counts for no
//! other one.

mod asked;
mod comparisons;
mod gather;
mod mark;
mod mending;
mod outcome;
mod replica;
mod requests;
mod schedule;
mod verdict;
mod walk;

pub(crate) use comparisons::Comparisons;
pub use outcome::{Comparison, ComparisonOutcome, Difference, PartitionComparison, ReplicaDigest};
pub(crate) use replica::{apply_marked, take_part};
pub(crate) use requests::{answer, compare};
pub(crate) use schedule::run;

use crate::message;
use crate::node_context::NodeContext;
use serde::{Deserialize, Serialize};
use tessera_consensus::GroupId;
use tessera_store::hosting::partition_of_group;
use tessera_types::UnixMillis;

/// What leaders tell all nodes.
#[derive(Serialize, Deserialize)]
struct Told {
    group: u64,
    /// In words; `None` if its replicas are equal.
    difference: Option<String>,
    ended: UnixMillis,
}

impl NodeContext {
    /// Tells all nodes what a comparison came to, where that says something about all replicas.
    fn tell_compared(&self, group: GroupId, difference: Option<String>) {
        self.tell(&Told { group: group.0, difference, ended: UnixMillis::now() });
    }

    fn tell(&self, told: &Told) {
        let encoded = serde_json::to_vec(told).expect("words have a JSON form");
        self.transport.broadcast(message::COMPARED, &encoded);
        self.note_compared(told);
    }

    fn note_compared(&self, told: &Told) {
        let group = GroupId(told.group);
        self.comparisons.compared.lock().insert(group, told.ended);
        let mut differences = self.comparisons.differences.lock();
        match &told.difference {
            Some(words) => _ = differences.insert(group, words.clone()),
            None => _ = differences.remove(&group),
        }
    }

    pub(crate) fn hear_compared(&self, payload: &[u8]) {
        // A node of another version may say it in another way.
        if let Ok(told) = serde_json::from_slice(payload) {
            self.note_compared(&told);
        }
    }

    /// Reminds all nodes of differences in what this one leads: one that started meanwhile has not heard of them.
    pub(crate) fn tell_differences(&self) {
        self.forget_gone();
        let differences = self.comparisons.differences.lock().clone();
        for (group, words) in differences.into_iter().filter(|(group, _)| self.serves(*group)) {
            let ended = self.comparisons.compared.lock().get(&group).copied().unwrap_or_else(UnixMillis::now);
            self.tell(&Told { group: group.0, difference: Some(words), ended });
        }
    }

    fn serves(&self, group: GroupId) -> bool {
        let state = partition_of_group(group).and_then(|(table, partition)| {
            Some(self.registry.any(table)?.partitions().get(partition as usize)?.is_serving())
        });
        state == Some(true)
    }

    /// Forgets tables that there are no more.
    fn forget_gone(&self) {
        let tables = self.registry.tables();
        let is_there =
            |group: &GroupId| partition_of_group(*group).is_some_and(|(table, _)| tables.active_by_id(table).is_some());
        self.comparisons.differences.lock().retain(|group, _| is_there(group));
        self.comparisons.compared.lock().retain(|group, _| is_there(group));
    }
}
