//! Nodes that others are to lead for.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tessera_types::NodeId;

/// A node whose disk takes no writes says so twice a second, and one that stops is gone within this time. What was said longer ago does not count
/// any more: the word that a node stays may have been lost.
const LAPSE: Duration = Duration::from_secs(30);

/// Nodes that have said that they stop, or that their disks take no writes: nobody asks them to lead.
#[derive(Default)]
pub(crate) struct StoppingNodes(Mutex<HashMap<NodeId, Instant>>);

impl StoppingNodes {
    pub(crate) fn note(&self, node: NodeId) {
        self.0.lock().insert(node, Instant::now());
    }

    pub(crate) fn forget(&self, node: NodeId) {
        self.0.lock().remove(&node);
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.0.lock().get(&node).is_some_and(|said| said.elapsed() < LAPSE)
    }

    pub(crate) fn all<C: FromIterator<NodeId>>(&self) -> C {
        let nodes = self.0.lock();
        nodes.iter().filter(|(_, said)| said.elapsed() < LAPSE).map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_counts_until_it_takes_its_word_back_or_has_not_said_it_for_long() {
        let (stopping, node) = (StoppingNodes::default(), NodeId(1));
        assert!(!stopping.contains(node));
        stopping.note(node);
        assert!(stopping.contains(node));
        assert_eq!(stopping.all::<Vec<_>>(), [node]);
        let long_ago = Instant::now().checked_sub(LAPSE).expect("the machine has run for longer");
        stopping.0.lock().insert(node, long_ago);
        assert!(!stopping.contains(node) && stopping.all::<Vec<_>>().is_empty());
        stopping.note(node);
        stopping.forget(node);
        assert!(!stopping.contains(node));
    }
}
