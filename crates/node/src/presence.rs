//! Which nodes are there, as this node hears of them.

use crate::node_context::NodeContext;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tessera_cluster::{Presence, Standing};
use tessera_store::hosting::QUIET;
use tessera_types::NodeId;

/// For how long a node must have been heard of without a pause before others rely on it.
const STEADY: Duration = Duration::from_secs(2);
/// How long what is meant for a node waits for it. It is enough for a node to be started again.
const AWAY: Duration = Duration::from_secs(10);

/// What the driver remembers of nodes from round to round.
pub(crate) struct Watch {
    began: Instant,
    /// Since when nodes have been heard of without a pause.
    since: HashMap<NodeId, Instant>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), since: HashMap::new() }
    }

    /// To be asked in each round: a node that is not heard of between two times is missed.
    pub(crate) fn look(&mut self, context: &NodeContext) -> Presence {
        let catalog = context.view.catalog();
        let nodes: Vec<NodeId> = catalog.nodes().map(|node| node.id).collect();
        self.since.retain(|node, _| nodes.contains(node));
        let lead_again_after = context.config.lead_again_after;
        let is_restarted = |node: &NodeId| context.generations.was_started_again_within(*node, lead_again_after);
        let restarted = nodes.iter().copied().filter(is_restarted).collect();
        let standings = nodes.into_iter().map(|node| (node, self.standing(context, node)));
        let stopping = context.stopping.all();
        Presence::new(standings.collect::<Vec<_>>(), stopping).with_restarted(restarted)
    }

    fn standing(&mut self, context: &NodeContext, node: NodeId) -> Standing {
        if node == context.identity.node {
            return Standing::Steady;
        }
        let heard = context.transport.silence(node);
        if heard.is_some_and(|silence| silence < QUIET) {
            let since = self.since.entry(node).or_insert_with(Instant::now);
            return if since.elapsed() >= STEADY { Standing::Steady } else { Standing::Here };
        }
        self.since.remove(&node);
        let silence = heard.unwrap_or(self.began.elapsed());
        if silence >= context.config.replace_after {
            Standing::Lost
        } else if silence >= AWAY {
            Standing::Away
        } else {
            Standing::Silent
        }
    }
}
