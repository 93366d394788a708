//! Collects the digests that replicas send, by slice.

use super::mark::Answer;
use super::verdict::Digests;
use std::collections::HashMap;
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

impl Gather {
    /// With what sends answers to it.
    pub(super) fn new() -> (Sender, Self) {
        let (sender, receiver) = unbounded_channel();
        (sender, Self { receiver, by_slice: HashMap::new() })
    }

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
