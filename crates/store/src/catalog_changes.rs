//! Changing the catalog, from any node.

use crate::catalog_answer::CatalogAnswer;
use crate::catalog_told::what_it_takes_away;
use crate::operation::failed;
use crate::services::number;
use crate::store::Store;
use crate::table::Table;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_cluster::{CATALOG_GROUP, CatalogCommand, CatalogError, CatalogRequest, Changed};
use tessera_engine::ENGINES;
use tessera_transport::RequestFailure;
use tessera_types::{NodeId, RequestError, TableId, TableSettings, UnixMillis};

/// How long is waited for the partitions of a new table.
const CREATED_SERVES: Duration = Duration::from_secs(10);
/// How long a change of the catalog is tried while nobody leads it.
const CATALOG_PATIENCE: Duration = Duration::from_secs(15);
/// Between two tries.
const CATALOG_PAUSE: Duration = Duration::from_millis(50);

/// The version of the protocol between nodes from which on they read all commands of the catalog.
const KNOWS_ALL_COMMANDS: u8 = 7;

/// How long news of a table may take from the node that made it to another one.
const NEWS: Duration = Duration::from_secs(1);
/// A message that told what the catalog's leader had may have been sent so long before it came.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// How long a change of settings is tried again because somebody else's came first. One of all those who try succeeds each
/// time, so how often depends on how many changes there are.
const ALTER_PATIENCE: Duration = Duration::from_secs(15);

/// Why a table was not altered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterError<E> {
    /// The change itself is refused.
    Change(E),
    /// The catalog refused the new settings.
    Catalog(CatalogError),
    /// The catalog could not be asked, or its answer did not arrive.
    Request(RequestError),
}

impl Store {
    /// A table that `find` finds, now or once news of it has come: another node may just have created it. There is none if this node
    /// knows all that the catalog's leader knows when it is asked. If the leader cannot say so, there is none if this node leads the
    /// catalog, or has heard from the leader since.
    pub async fn find_table(&self, find: impl Fn(&Self) -> Option<Arc<Table>>) -> Option<Arc<Table>> {
        let began = Instant::now();
        let found = find(self);
        if found.is_some() || self.is_alone() {
            return found;
        }
        if self.learns_from_leader(NEWS).await {
            return find(self);
        }
        loop {
            let found = find(self);
            if found.is_some() || began.elapsed() >= NEWS || self.knows_the_catalog_of(began) {
                return found;
            }
            tokio::time::sleep(CATALOG_PAUSE).await;
        }
    }

    /// Waits until what was in the catalog when this was called is known here, or for [`NEWS`] if the catalog's leader is not heard.
    pub async fn learn_of_changes(&self) {
        // This waits as for a table that nobody has made.
        let _ = self.find_table(|_| None).await;
    }

    /// Whether what was in the catalog at a time is known here, as far as messages between nodes take no longer than [`UNDER_WAY`].
    fn knows_the_catalog_of(&self, time: Instant) -> bool {
        self.leads_catalog() || self.catalog_age().is_some_and(|age| age + UNDER_WAY <= time.elapsed())
    }

    /// Whether this node leads the catalog, and no other one can.
    pub(crate) fn leads_catalog(&self) -> bool {
        self.catalog_leader() == Some(self.node()) && self.catalog_age().is_some_and(|age| age.is_zero())
    }

    /// Waits until a table that was created is known here and its partitions serve, for a while.
    pub async fn wait_until_served(&self, table: TableId) {
        let served = async {
            while self.table(table).is_none() {
                tokio::time::sleep(CATALOG_PAUSE / 10).await;
            }
            // Those of other tables need not serve: some of them may not for as long as a node is lost.
            while self.leaderless(table) > 0 {
                let opened = self.leader_news().notified();
                let _ = tokio::time::timeout(CATALOG_PAUSE, opened).await;
            }
        };
        let _ = tokio::time::timeout(CREATED_SERVES, served).await;
    }

    /// Changes the catalog and returns what was concerned once the change is durable, and the tables of this node and of the one that
    /// leads the catalog follow it. (This node's only if both speak version 7 of the protocol between nodes.) A change that takes a
    /// name away from a table, or a right from a user, waits for all other nodes too, for a few seconds.
    ///
    /// Cancellation: the change may still be carried out.
    ///
    /// # Errors
    /// The catalog's reason inside, the node's outside.
    pub async fn change_catalog(&self, command: CatalogCommand) -> Result<Result<Changed, CatalogError>, RequestError> {
        Ok(self.change_catalog_and_tell(command).await?.map(|(changed, _)| changed))
    }

    /// Changes the catalog, as [`Self::change_catalog`] does, and also returns which nodes have not said that they know the change, if it takes something away: they may still serve
    /// a table under a name that it had, or let a user do what that one could.
    ///
    /// # Errors
    /// The catalog's reason inside, the node's outside.
    pub async fn change_catalog_and_tell(
        &self,
        command: CatalogCommand,
    ) -> Result<Result<(Changed, Vec<NodeId>), CatalogError>, RequestError> {
        let began = Instant::now();
        let outcome = loop {
            match self.try_to_change_catalog(&command).await {
                Err(RequestError::NotReady) if self.is_removed() => return Err(RequestError::Removed),
                Err(RequestError::NotReady) if began.elapsed() < CATALOG_PATIENCE => {
                    tokio::time::sleep(CATALOG_PAUSE).await;
                }
                other => break other?,
            }
        };
        let changed = match outcome {
            Ok(changed) => changed,
            Err(error) => return Ok(Err(error)),
        };
        let Some(change) = what_it_takes_away(&command) else { return Ok(Ok((changed, Vec::new()))) };
        let behind = self.tell_others().await;
        if !behind.is_empty() {
            let nodes: Vec<String> = behind.iter().map(ToString::to_string).collect();
            let nodes = nodes.join(", ");
            tracing::warn!(change, nodes, "nodes have not said that they know a change of the catalog");
        }
        Ok(Ok((changed, behind)))
    }

    /// Alters a table's settings by `change`, which may be called more than once, and returns when this node knows.
    ///
    /// # Errors
    /// What `change` says, or why it could not be carried out.
    pub async fn alter_table<E>(
        &self,
        name: &str,
        change: impl Fn(&mut TableSettings) -> Result<(), E>,
    ) -> Result<(), AlterError<E>> {
        let began = Instant::now();
        loop {
            let table = self.find_table(|store| store.table_named(name)).await;
            let table = table.ok_or_else(|| AlterError::Catalog(CatalogError::NoSuchTable(name.into())))?;
            let before = (*table.settings()).clone();
            let mut settings = before.clone();
            change(&mut settings).map_err(AlterError::Change)?;
            if settings == before {
                return Ok(());
            }
            let (name, before) = (name.to_string(), Some(before));
            let command = CatalogCommand::Alter { name, settings: settings.clone(), before: before.clone() };
            let outcome = self.change_catalog(command).await.map_err(AlterError::Request)?;
            let is_known = |table: &Arc<Table>| match outcome {
                Ok(_) => *table.settings() == settings,
                // Somebody else was faster.
                Err(_) => Some(&*table.settings()) != before.as_ref(),
            };
            match &outcome {
                Err(CatalogError::AlteredMeanwhile(_)) if began.elapsed() < ALTER_PATIENCE => {}
                Err(error) => return Err(AlterError::Catalog(error.clone())),
                Ok(_) => {}
            }
            self.find_table(|store| store.table_numbered(table.number()).filter(is_known)).await;
            if outcome.is_ok() {
                return Ok(());
            }
        }
    }

    async fn try_to_change_catalog(
        &self,
        command: &CatalogCommand,
    ) -> Result<Result<Changed, CatalogError>, RequestError> {
        match self.catalog_leader() {
            Some(leader) if leader != self.node() => {
                let request = serde_json::to_vec(command).expect("commands have a JSON form");
                match self.transport().request(leader, number::CATALOG, &request).await {
                    Ok(answer) => match serde_json::from_slice::<CatalogAnswer>(&answer) {
                        Ok(answer) => {
                            // Whoever asked looks at the catalog of this node next.
                            if let CatalogAnswer::ChangedAt(_, index) = answer {
                                self.view().progress().has_come_to(index).await;
                            }
                            answer.into()
                        }
                        Err(_) => Err(RequestError::NotReady), // a node that has just started
                    },
                    Err(RequestFailure::NotSent) => Err(RequestError::NotReady),
                    Err(RequestFailure::Lost) => Err(RequestError::Interrupted),
                }
            }
            _ => self.change_catalog_here(command.clone()).await,
        }
    }

    pub(crate) async fn change_catalog_here(
        &self,
        mut command: CatalogCommand,
    ) -> Result<Result<Changed, CatalogError>, RequestError> {
        if let CatalogCommand::Create { absent, .. }
        | CatalogCommand::Split { absent, .. }
        | CatalogCommand::Truncate { absent, .. } = &mut command
        {
            *absent = self.catalog().nodes().map(|node| node.id).filter(|node| !self.is_heard(*node)).collect();
        }
        if let CatalogCommand::Create { settings, .. } = &mut command {
            settings.created_at = Some(UnixMillis::now());
        }
        if let CatalogCommand::Drop { dropped_at, .. } | CatalogCommand::Truncate { dropped_at, .. } = &mut command {
            *dropped_at = Some(UnixMillis::now());
        }
        if let CatalogCommand::Create { schema, .. } = &command
            && !ENGINES.contains(&schema.engine)
        {
            return Ok(Err(CatalogError::NoRocksdb));
        }
        let is_older =
            |node: &NodeId| self.transport().version_with(*node).is_some_and(|version| version < KNOWS_ALL_COMMANDS);
        let older_node = self.catalog().nodes().map(|node| node.id).find(is_older);
        match older_node {
            Some(node) if command.needs_version_7() => return Ok(Err(CatalogError::OlderNode(node))),
            Some(_) => {}
            None => command = command.into_version_7(),
        }
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let reply = Box::new(move |outcome| _ = sender.send(outcome));
        if self.catalog_inbox().submit(CATALOG_GROUP, CatalogRequest { command, reply }).is_err() {
            return Err(RequestError::Busy);
        }
        match receiver.await {
            Ok(outcome) => {
                self.view().progress().caught_up().await;
                outcome.map_err(failed)
            }
            Err(_) => Err(RequestError::Interrupted),
        }
    }
}
