//! Which nodes are alive, as seen by the node that decides.

use std::collections::{BTreeMap, BTreeSet};
use tessera_types::NodeId;

/// How alive a node is, the least alive first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The node was not heard from for so long that its replicas are made anew on other nodes.
    #[default]
    Lost,
    /// The node was not heard from for so long that nothing waits for it.
    Away,
    /// The node was not heard from recently: it may be restarting, or be gone.
    Silent,
    /// The node was heard from recently.
    Here,
    /// The node was heard from for a while without a pause.
    Steady,
}

/// What is known of all nodes. A node that is not named counts as lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    standings: BTreeMap<NodeId, Standing>,
    /// Nodes that reported that they are about to stop, or that want other nodes to lead.
    stopping: BTreeSet<NodeId>,
    /// Nodes that were started again so recently that clients may not have found them yet.
    restarted: BTreeSet<NodeId>,
}

impl Presence {
    /// Nodes that are not named have the default standing.
    pub fn new(standings: impl IntoIterator<Item = (NodeId, Standing)>, stopping: BTreeSet<NodeId>) -> Self {
        Self { standings: standings.into_iter().collect(), stopping, restarted: BTreeSet::new() }
    }

    /// The same, where these nodes were started again recently.
    #[must_use]
    pub fn with_restarted(self, restarted: BTreeSet<NodeId>) -> Self {
        Self { restarted, ..self }
    }

    /// The standing of a node.
    pub fn of(&self, node: NodeId) -> Standing {
        self.standings.get(&node).copied().unwrap_or_default()
    }

    /// Whether a node was heard from recently.
    pub fn is_here(&self, node: NodeId) -> bool {
        self.of(node) >= Standing::Here
    }

    /// Whether a node is alive and not about to stop.
    pub fn may_lead(&self, node: NodeId) -> bool {
        self.is_here(node) && !self.stopping.contains(&node)
    }

    /// Whether a node may lead what another one leads as well as it could.
    pub fn may_lead_again(&self, node: NodeId) -> bool {
        self.may_lead(node) && !self.restarted.contains(&node)
    }

    /// The nodes that are less alive than `standing`.
    pub fn below(&self, standing: Standing, nodes: impl Iterator<Item = NodeId>) -> BTreeSet<NodeId> {
        nodes.filter(|node| self.of(*node) < standing).collect()
    }
}
