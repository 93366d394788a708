//! Waiting until other nodes know a change of the catalog, for changes that take a name away from a table.
//!
//! A node that does not know yet that a table was dropped goes on serving it, and a node that does not know yet that a table was
//! renamed takes the old name for it, which another table may have by then. So whoever makes such a change is answered when the
//! other nodes follow it, or is told which of them have not said so.

use crate::services::number;
use crate::store::Store;
use std::time::Duration;
use tessera_cluster::CatalogCommand;
use tessera_types::NodeId;

/// How long is waited for another node to say that it follows a change.
const TOLD: Duration = Duration::from_secs(3);

/// What a node answers that follows.
const FOLLOWS: &[u8] = b"follows";

/// Whether nodes that do not know of a change serve what they may not serve any more.
pub(crate) fn takes_a_name_away(command: &CatalogCommand) -> bool {
    matches!(command, CatalogCommand::Drop { .. } | CatalogCommand::Rename { .. })
}

impl Store {
    /// Waits, for [`TOLD`] at most, until the tables of all other nodes are those of the catalog as it is here now. Returns the nodes
    /// that have not said so: those that cannot be reached, and older ones, which do not know the question.
    pub(crate) async fn tell_others(&self) -> Vec<NodeId> {
        let index = self.view().progress().index().to_le_bytes();
        let others: Vec<NodeId> =
            self.catalog().nodes().map(|node| node.id).filter(|node| *node != self.node()).collect();
        let mut asked = tokio::task::JoinSet::new();
        for node in others {
            let store = self.clone();
            asked.spawn(async move {
                let request = store.transport().request(node, number::FOLLOWS, &index);
                let answer = tokio::time::timeout(TOLD, request).await;
                let follows = matches!(answer, Ok(Ok(answer)) if answer == FOLLOWS);
                (!follows).then_some(node)
            });
        }
        let mut behind: Vec<NodeId> = asked.join_all().await.into_iter().flatten().collect();
        behind.sort_unstable();
        behind
    }

    /// What another node is answered that asks whether the tables here are those of the catalog at a log index: it is answered when
    /// they are, and with nothing if that takes too long.
    pub(crate) async fn answer_whether_it_follows(&self, request: &[u8]) -> &'static [u8] {
        let Ok(index) = request.try_into().map(u64::from_le_bytes) else { return &[] };
        if self.view().progress().has_come_to(index).await { FOLLOWS } else { &[] }
    }
}
