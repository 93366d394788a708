//! Opens and closes tables as the catalog says.

use crate::node::Host;
use std::sync::Arc;
use tessera_cluster::{Catalog, CatalogListener};

/// Keeps the node's tables in step with the catalog.
pub(crate) struct OpenTables(pub(crate) Arc<Host>);

impl CatalogListener for OpenTables {
    fn changed(&mut self, catalog: &Catalog) -> Result<(), String> {
        self.0.follow(catalog).map_err(|error| error.to_string())
    }

    fn caught_up(&mut self, _catalog: &Catalog) {
        self.0.forget_unknown_groups();
    }
}
