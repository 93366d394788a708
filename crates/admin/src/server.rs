//! What all requests share.

mod record_counter;

use crate::failure::Failure;
use crate::query_sessions::QuerySessions;
use crate::scrape::Scrape;
use record_counter::RecordCounter;
use std::sync::Arc;
use tessera_access::{Authenticator, Token};
use tessera_cluster::{CatalogCommand, Changed};
use tessera_node::Node;
use tessera_store::{Store, TableStatistics};
use tessera_types::RequestError;

/// Lines of Prometheus text that other parts of the process add to `/metrics`.
pub type ExtraMetrics = Arc<dyn Fn(&mut Scrape) + Send + Sync>;

/// Which doors of a node are open to whom now, in words.
pub type Doors = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The admin face of a node.
#[derive(Clone)]
pub struct AdminServer {
    pub(crate) node: Node,
    pub(crate) token: Option<Token>,
    pub(crate) authenticator: Arc<Authenticator>,
    /// Names under which requests may come.
    pub(crate) hosts: Arc<[String]>,
    /// Which doors of the node are open to whom, in words.
    pub(crate) doors: Doors,
    pub(crate) extra_metrics: ExtraMetrics,
    pub(crate) queries: Option<Arc<dyn QuerySessions>>,
    pub(crate) record_counter: RecordCounter,
}

impl AdminServer {
    /// If there is a `token`, or `admin` has a password, requests other than health checks need the token as bearer token, or the name and
    /// the password of a user who may administer the cluster. All requests must name an address, `localhost`, or one of the names in
    /// `hosts` as their host. `doors` says which doors of the node are open to whom.
    pub fn new(
        node: Node,
        token: Option<Token>,
        authenticator: Arc<Authenticator>,
        hosts: Vec<String>,
        doors: Doors,
        extra_metrics: ExtraMetrics,
    ) -> Self {
        let (hosts, record_counter) = (hosts.into(), RecordCounter::default());
        Self { node, token, authenticator, hosts, doors, extra_metrics, queries: None, record_counter }
    }

    /// Has queries of drivers in browsers carried out.
    #[must_use]
    pub fn with_queries(self, queries: Arc<dyn QuerySessions>) -> Self {
        Self { queries: Some(queries), ..self }
    }

    pub(crate) fn store(&self) -> &Store {
        self.node.store()
    }

    pub(crate) fn table_statistics(&self, name: &str) -> Result<TableStatistics, Failure> {
        let tables = self.store().statistics().tables;
        let found = tables.into_iter().find(|table| table.name == name);
        found.ok_or_else(|| RequestError::NoSuchTable(name.into()).into())
    }

    pub(crate) async fn change(&self, command: CatalogCommand) -> Result<Changed, Failure> {
        let is_new = matches!(command, CatalogCommand::Create { .. } | CatalogCommand::Recall { .. });
        let changed = self.store().change_catalog(command).await??;
        // Whoever created or recalled a table wants to use it.
        if let (Changed::Table(table), true) = (&changed, is_new) {
            self.store().wait_until_served(*table).await;
        }
        Ok(changed)
    }
}
