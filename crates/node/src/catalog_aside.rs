//! The catalog's replica here cannot go on, since its log and its state do not fit together, or it lacks what it had acknowledged.
//! It is [set aside](tessera_consensus::StateMachine::set_aside), and another one takes its place, with another number.
//!
//! Those that lead the catalog let the old replica go before the new one comes. Here these steps are on disk one after the other, so that the
//! new one begins with nothing of the old one's, and begins once, whenever the process ends: the new one is named and marked as
//! one that has still to begin; the log forgets the old one; the mark goes; the new one starts, and gets the catalog as a snapshot. A
//! start that finds the mark goes on from there.

use crate::identity;
use crate::node_context::NodeContext;
use crate::status_query::query_status;
use tessera_cluster::CATALOG_GROUP;
use tessera_consensus::log::RecoveredGroup;
use tessera_consensus::{GroupSettings, GroupStart};
use tessera_types::ReplicaId;

impl NodeContext {
    /// Has another replica of the catalog take the place of one that is set aside, if the cluster gives this node one now.
    pub(crate) async fn replace_catalog_that_is_aside(&self) {
        if !self.replicas.is_aside(CATALOG_GROUP) {
            return;
        }
        let Some(replica) = self.ask_for_catalog_replica().await else { return };
        if let Err(error) = self.begin_catalog_anew(replica).await {
            tracing::warn!(error, %replica, "another replica of the catalog cannot begin here yet; trying again");
        }
    }

    async fn begin_catalog_anew(&self, replica: ReplicaId) -> Result<(), String> {
        let save = |is_to_begin: bool| {
            let path = self.directory.identity();
            identity::save_catalog_replica(&path, replica, is_to_begin).map_err(|error| error.to_string())
        };
        save(true)?;
        self.catalog_inbox.remove(CATALOG_GROUP);
        // When the loop answers, it has told the log.
        query_status(&self.catalog_inbox).await;
        let log = self.log.clone();
        let synced = tokio::task::spawn_blocking(move || log.wait_synced()).await;
        synced.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        save(false)?;
        self.replicas.is_replaced(CATALOG_GROUP);
        let settings = GroupSettings {
            persistent: true,
            synced: true,
            applied: 0,
            applied_term: None,
            replica,
            initial_members: Vec::new(),
        };
        self.catalog_inbox.start(GroupStart { id: CATALOG_GROUP, settings, recovered: RecoveredGroup::default() });
        tracing::info!(%replica, "another replica of the catalog takes the place of the one that was set aside");
        Ok(())
    }
}
