//! Collects the digests that replicas send, by slice.

use super::Comparisons;
use super::mark::Answer;
use super::verdict::Digests;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tessera_engine::SliceDigest;
use tessera_types::{NodeId, ReplicaId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(super) type Sender = UnboundedSender<(NodeId, Answer)>;

/// Takes the answers of one comparison.
pub(super) struct Gather {
    receiver: UnboundedReceiver<(NodeId, Answer)>,
    by_slice: HashMap<u32, HashMap<NodeId, SliceDigest>>,
}

impl Comparisons {
    /// Takes the answers of the only comparison that is under way here.
    pub(super) fn gather(&self, comparison: u64) -> Gather {
        let (sender, receiver) = unbounded_channel();
        *self.gathering.lock() = Some((comparison, sender));
        Gather { receiver, by_slice: HashMap::new() }
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
}

impl Gather {
    /// Waits until these replicas have answered for a slice. Returns whether they have in time.
    pub(super) async fn until(&mut self, number: u32, replicas: &[ReplicaId], patience: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let here = self.by_slice.get(&number);
            if replicas.iter().all(|replica| here.is_some_and(|here| here.contains_key(&replica.node))) {
                return true;
            }
            let Ok(Some((node, answer))) = tokio::time::timeout_at(deadline, self.receiver.recv()).await else {
                return false;
            };
            if let Some(digest) = answer.digest {
                self.by_slice.entry(answer.number).or_default().entry(node).or_insert(digest);
            }
        }
    }

    pub(super) fn of(&self, number: u32, replica: ReplicaId) -> Option<SliceDigest> {
        self.by_slice.get(&number)?.get(&replica.node).cloned()
    }

    /// What these replicas have answered for a slice, which is over with that.
    pub(super) fn take(&mut self, number: u32, replicas: &[ReplicaId]) -> Digests {
        let mut here = self.by_slice.remove(&number).unwrap_or_default();
        replicas.iter().filter_map(|replica| Some((*replica, here.remove(&replica.node)?))).collect()
    }
}
