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

/// What a change takes away, in words, if nodes that do not know of it serve what they may not serve any more: a table under a name
/// that it has lost, or somebody who may do less by now.
pub(crate) fn what_it_takes_away(command: &CatalogCommand) -> Option<String> {
    use CatalogCommand::{Alter, AlterUser, CreateUser, Drop, DropDatabase, DropUser, Grant, Rename};
    Some(match command {
        Drop { name, .. } => format!("table {name} was dropped"),
        Rename { name, to } => format!("table {name} was renamed to {to}"),
        DropDatabase { name } => format!("database {name} was dropped"),
        DropUser { name } => format!("user {name} was dropped"),
        AlterUser { name, .. } => format!("user {name} has another password, or none"),
        // Writes would pass by the hook.
        Alter { name, settings, before } => {
            let has_other_hook = before.as_ref().is_none_or(|before| before.write_hook != settings.write_hook);
            return has_other_hook.then(|| format!("table {name} has another write hook, or none"));
        }
        // Clients that have not logged in are this user, who could do everything as long as there was none of this name.
        CreateUser { name, .. } if name == "default" => format!("user {name} was made"),
        Grant { user, changes, .. } if changes.values().any(|decision| *decision != Some(true)) => {
            format!("user {user} may do less")
        }
        _ => return None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::{TableSettings, UnixMillis};

    #[test]
    fn what_is_taken_away_is_said_in_words() {
        let taken = |command: CatalogCommand| what_it_takes_away(&command);
        let drop = CatalogCommand::drop("feeds", UnixMillis::new(1));
        assert_eq!(taken(drop).as_deref(), Some("table feeds was dropped"));
        let password = CatalogCommand::AlterUser { name: "ada".into(), password: None };
        assert_eq!(taken(password).as_deref(), Some("user ada has another password, or none"));
        let alter = |before: Option<TableSettings>| CatalogCommand::Alter {
            name: "feeds".into(),
            settings: TableSettings { default_ttl_seconds: 5, ..TableSettings::default() },
            before,
        };
        assert_eq!(taken(alter(Some(TableSettings::default()))), None);
        assert_eq!(taken(alter(None)).as_deref(), Some("table feeds has another write hook, or none"));
    }
}
