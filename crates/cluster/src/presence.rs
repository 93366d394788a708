//! Which nodes are there, as the node knows that decides.

use std::collections::{BTreeMap, BTreeSet};
use tessera_types::NodeId;

/// How much a node is there, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Not heard of for so long that what it held is made anew elsewhere.
    #[default]
    Lost,
    /// Not heard of for so long that nothing waits for it.
    Away,
    /// Not heard of lately: it may have been started again, or be gone.
    Silent,
    /// Heard of lately.
    Here,
    /// Heard of for a while without a pause: it did not just come to go again.
    Steady,
}

/// What is known of all nodes. One that is not named is not known, and counts as lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    standings: BTreeMap<NodeId, Standing>,
    /// Nodes that said that they stop, or that want others to lead.
    stopping: BTreeSet<NodeId>,
}

impl Presence {
    pub fn new(standings: impl IntoIterator<Item = (NodeId, Standing)>, stopping: BTreeSet<NodeId>) -> Self {
        Self { standings: standings.into_iter().collect(), stopping }
    }

    pub fn of(&self, node: NodeId) -> Standing {
        self.standings.get(&node).copied().unwrap_or_default()
    }

    /// Whether a node was heard of lately.
    pub fn is_here(&self, node: NodeId) -> bool {
        self.of(node) >= Standing::Here
    }

    /// Whether a node is there, and means to stay.
    pub fn may_lead(&self, node: NodeId) -> bool {
        self.is_here(node) && !self.stopping.contains(&node)
    }

    /// Nodes that are less than so much there.
    pub fn below(&self, standing: Standing, nodes: impl Iterator<Item = NodeId>) -> BTreeSet<NodeId> {
        nodes.filter(|node| self.of(*node) < standing).collect()
    }
}
