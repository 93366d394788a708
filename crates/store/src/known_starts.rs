//! Which starts of other nodes were seen: what an earlier one has begun, nobody goes on with.

use parking_lot::RwLock;
use std::collections::HashMap;
use tessera_types::NodeId;

/// The number of the latest start of each node that was seen since this one was started, this one included.
pub(crate) struct KnownStarts(RwLock<HashMap<NodeId, u64>>);

impl KnownStarts {
    /// What is known when this node starts, which is its own start.
    pub(crate) fn new(node: NodeId, start: u64) -> Self {
        Self(RwLock::new(HashMap::from([(node, start)])))
    }

    /// A start of a node was seen. It may be seen several times, and later than one that came after it.
    pub(crate) fn note(&self, node: NodeId, start: u64) {
        let mut known = self.0.write();
        let latest = known.entry(node).or_default();
        *latest = start.max(*latest);
    }

    /// Whether a node was started again after this start of it.
    pub(crate) fn is_over(&self, node: NodeId, start: u64) -> bool {
        self.0.read().get(&node).is_some_and(|latest| start < *latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_over_when_a_later_one_was_seen() {
        let known = KnownStarts::new(NodeId(1), 5);
        assert!(known.is_over(NodeId(1), 4) && !known.is_over(NodeId(1), 5));
        assert!(!known.is_over(NodeId(2), 0), "nothing was seen of it");
        for start in [3, 2] {
            known.note(NodeId(2), start);
            assert!(known.is_over(NodeId(2), 2) && !known.is_over(NodeId(2), 3));
        }
    }
}
