//! Waiting until other nodes know a change of the catalog, or until this one knows what others have changed.
//!
//! A node that does not know yet that a table was dropped goes on serving it, a node that does not know yet that a table was
//! renamed takes the old name for it, which another table may have by then, and a node that does not know yet that a user has lost a right
//! goes on letting that user do what needs it. A node that does not know yet of a write hook lets writes pass by it. So whoever makes such a change is answered when the
//! other nodes follow it, or is told which of them have not said so.

use crate::services::number;
use crate::store::Store;
use bytes::Bytes;
use std::time::Duration;
use tessera_cluster::{CatalogCommand, NodeEntry};
use tessera_types::NodeId;

/// How long is waited for another node to say that it follows a change.
const TOLD: Duration = Duration::from_secs(3);

/// What a node answers that follows.
const FOLLOWS: &[u8] = b"follows";

/// Whether nodes that do not know of a change serve what they may not serve any more: a table under a name that it has lost, or
/// somebody who may do less by now.
pub(crate) fn takes_something_away(command: &CatalogCommand) -> bool {
    use CatalogCommand::{Alter, AlterUser, CreateUser, Drop, DropDatabase, DropUser, Grant, Rename};
    match command {
        Drop { .. } | Rename { .. } | DropDatabase { .. } | DropUser { .. } | AlterUser { .. } => true,
        // Writes would pass by the hook.
        Alter { settings, before, .. } => before.as_ref().is_none_or(|before| before.write_hook != settings.write_hook),
        // Clients that have not logged in are this user, who could do everything as long as there was none of this name.
        CreateUser { name, .. } => name == "default",
        Grant { changes, .. } => changes.values().any(|decision| *decision != Some(true)),
        _ => false,
    }
}

impl Store {
    /// Waits, for [`TOLD`] at most, until the tables of all other nodes are those of the catalog as it is here now. Returns the nodes
    /// that have not said so: those that cannot be reached, and older ones, which do not know the question. Nodes that
    /// never came are not asked: they serve nothing.
    pub(crate) async fn tell_others(&self) -> Vec<NodeId> {
        let index = self.view().progress().index().to_le_bytes();
        let catalog = self.catalog();
        let came = |node: &&NodeEntry| !node.is_expected || self.transport().silence(node.id).is_some();
        let others = catalog.nodes().filter(|node| node.id != self.node()).filter(came);
        let others: Vec<NodeId> = others.map(|node| node.id).collect();
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

    /// Waits, for `patience` at most, until this node knows what the catalog's leader knew when it was asked. Returns whether it does: it
    /// does not if the leader cannot be reached, may not be the leader any more, or is an older node, which does not know the question.
    pub(crate) async fn learns_from_leader(&self, patience: Duration) -> bool {
        let learns = async {
            let leader = self.catalog_leader()?;
            let index = if leader == self.node() {
                self.answer_catalog_index()
            } else {
                self.transport().request(leader, number::CATALOG_INDEX, &[]).await.ok()?
            };
            let index = u64::from_le_bytes(index.as_ref().try_into().ok()?);
            Some(self.view().progress().has_come_to(index).await)
        };
        tokio::time::timeout(patience, learns).await == Ok(Some(true))
    }

    /// What another node is answered that asks how far this one knows the catalog; empty if this one is not sure to lead it.
    pub(crate) fn answer_catalog_index(&self) -> Bytes {
        match self.leads_catalog() {
            true => Bytes::copy_from_slice(&self.view().progress().index().to_le_bytes()),
            false => Bytes::new(),
        }
    }

    /// What another node is answered that asks whether the tables here are those of the catalog at a log index: it is answered when
    /// they are, and with nothing if that takes too long.
    pub(crate) async fn answer_whether_it_follows(&self, request: &[u8]) -> &'static [u8] {
        let Ok(index) = request.try_into().map(u64::from_le_bytes) else { return &[] };
        if self.view().progress().has_come_to(index).await { FOLLOWS } else { &[] }
    }
}
