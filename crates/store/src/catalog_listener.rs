//! Opens and closes tables as the catalog says.

use crate::host::Host;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_cluster::{CATALOG_GROUP, Catalog, CatalogListener};
use tessera_types::NodeId;

/// Keeps the node's tables in step with the catalog.
pub(crate) struct OpenTables(pub(crate) Arc<Host>);

impl CatalogListener for OpenTables {
    fn changed(&mut self, catalog: &Catalog) -> Result<(), String> {
        self.0.follow(catalog).map_err(|error| error.to_string())
    }

    fn saved(&mut self, index: u64) {
        self.0.catalog_inbox.durable(CATALOG_GROUP, index);
    }

    fn leader(&mut self, node: NodeId) {
        self.0.catalog_leader.store(node.0, Ordering::Relaxed);
    }

    fn set_aside(&mut self, reason: &str) {
        tracing::error!(reason, "the catalog's replica here is set aside: this node hears of no changes any more");
        self.0.replicas.set_aside(CATALOG_GROUP, reason);
    }

    fn caught_up(&mut self, catalog: &Catalog) {
        self.0.forget_unknown_groups(catalog);
    }
}
