//! What a node knows of comparisons.

use super::asked::Asked;
use super::gather::{Gather, Sender};
use super::mark::Answer;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_consensus::GroupId;
use tessera_store::Table;
use tessera_store::hosting::group_of;
use tessera_types::{NodeId, UnixMillis};

/// What a node knows of comparisons.
#[derive(Default)]
pub(crate) struct Comparisons {
    /// Where the answers of the one under way here go.
    gathering: Mutex<Option<(u64, Sender)>>,
    pub(super) asked: Mutex<Asked>,
    /// Told when something was asked for.
    pub(super) wake: tokio::sync::Notify,
    /// Partitions whose replicas differ, in words, as their leaders told.
    pub(super) differences: Mutex<BTreeMap<GroupId, String>>,
    /// When partitions were last compared whole, as their leaders told since this node started.
    pub(super) compared: Mutex<HashMap<GroupId, UnixMillis>>,
    differences_found: AtomicU64,
}

impl Comparisons {
    /// Takes the answers of the only comparison that is under way here.
    pub(super) fn gather(&self, comparison: u64) -> Gather {
        let (sender, gather) = Gather::new();
        *self.gathering.lock() = Some((comparison, sender));
        gather
    }

    pub(crate) fn hear_digest(&self, from: NodeId, payload: Bytes) {
        if let Some(answer) = Answer::decode(payload) {
            self.note_digest(from, answer);
        }
    }

    pub(super) fn note_digest(&self, from: NodeId, answer: Answer) {
        if let Some((comparison, sender)) = &*self.gathering.lock()
            && *comparison == answer.comparison
        {
            // Nobody waits any more if it cannot be sent.
            let _ = sender.send((from, answer));
        }
    }

    pub(super) fn count_difference(&self) {
        self.differences_found.fetch_add(1, Ordering::Relaxed);
    }

    /// What is known of comparisons of a table: partitions that differ, in words, and when the one that was compared least
    /// lately was, if all were since this node started.
    pub(crate) fn compared_of(&self, table: &Table) -> (Vec<String>, Option<UnixMillis>) {
        let groups = || (0..table.schema().partitions).map(|partition| group_of(table.id(), partition));
        let differences = self.differences.lock();
        let words = groups().filter_map(|group| differences.get(&group).cloned()).collect();
        let compared = self.compared.lock();
        let times: Option<Vec<_>> = groups().map(|group| compared.get(&group).copied()).collect();
        (words, times.and_then(|times| times.into_iter().min()))
    }

    /// Slices in which this node found replicas to differ.
    pub(crate) fn differences_found(&self) -> u64 {
        self.differences_found.load(Ordering::Relaxed)
    }
}
