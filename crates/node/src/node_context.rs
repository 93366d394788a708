//! What a node has: open tables with their engines, groups, the log, and what it knows of the cluster.

use crate::addresses::Addresses;
use crate::comparison::Comparisons;
use crate::config::NodeConfig;
use crate::data_directory::DataDirectory;
use crate::generation::KnownGenerations;
use crate::known_damage::KnownDamage;
use crate::refused_writes::RefusedWrites;
use crate::replicas::Replicas;
use crate::snapshot::{Incoming, Outgoing, Progress};
use crate::stopping_nodes::StoppingNodes;
use crate::threads::Threads;
use crate::traffic::Traffic;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use tessera_cluster::{Catalog, CatalogRequest, NodeEntry, TableEntry, TableState};
use tessera_consensus::log::RecoveredGroup;
use tessera_consensus::{GroupId, GroupStart, Inbox, SharedLog};
use tessera_engine::{Engine, EngineError, MemoryBudget, MemoryEngine, RocksStore};
use tessera_store::hosting::{
    ClusterClock, ClusterView, HeardClock, Inboxes, Partition, Registry, Tables, WriteCommand, group_of,
    partition_of_group,
};
use tessera_store::{DiskReaders, Store, Table};
use tessera_transport::{Identity, NodeClock, Transport};
use tessera_types::{EngineKind, NodeId, TableId};
use tokio::sync::Notify;

/// What opens tables and hands their partitions to workers.
pub(crate) struct NodeContext {
    pub(crate) store: Store,
    pub(crate) config: NodeConfig,
    pub(crate) directory: DataDirectory,
    pub(crate) log: Arc<SharedLog>,
    pub(crate) registry: Arc<Registry>,
    /// The cluster's time.
    pub(crate) clock: Arc<ClusterClock>,
    pub(crate) inboxes: Arc<Inboxes>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) rocks: Arc<RocksStore>,
    /// What the log held at the start of groups that are not open yet.
    pub(crate) recovered: Mutex<HashMap<GroupId, RecoveredGroup>>,
    pub(crate) identity: Identity,
    pub(crate) transport: Arc<Transport>,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) catalog_inbox: Arc<Inbox<CatalogRequest>>,
    pub(crate) replicas: Replicas,
    pub(crate) addresses: Arc<Addresses>,
    /// Tables whose time has come, until their files are gone.
    pub(crate) purging: Mutex<Vec<Purged>>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// What nodes fetch, as they last said; and whether this one has said something.
    pub(crate) fetches: Mutex<HashMap<NodeId, Vec<(GroupId, Progress)>>>,
    pub(crate) tells_fetches: AtomicBool,
    pub(crate) traffic: Traffic,
    pub(crate) comparisons: Comparisons,
    pub(crate) damage: KnownDamage,
    pub(crate) refused_writes: RefusedWrites,
    pub(crate) elections_won: AtomicU64,
    /// Whether the machine went down before all that was written to the log had been synced.
    pub(crate) has_lost_tail: bool,
    /// Whether that is still to be noted as dealt with.
    pub(crate) owes_renewal: AtomicBool,
    /// Whether the data directory is older than what this node [had](crate::overtaken).
    pub(crate) is_overtaken: bool,
    /// Whether no replica may start yet.
    pub(crate) holds_back: AtomicBool,
    /// From which of the catalogs that the loop hands over on they are the cluster's, not those of before this process began.
    pub(crate) current_from: AtomicU64,
    /// What starts the catalog's group, once that may be.
    pub(crate) catalog_start: Mutex<Option<GroupStart>>,
    pub(crate) generations: KnownGenerations,
    /// When this process began.
    pub(crate) began: Instant,
    pub(crate) must_start_again: Notify,
    pub(crate) stopping: StoppingNodes,
    pub(crate) threads: Threads,
    pub(crate) disk_readers: Arc<DiskReaders>,
    /// Told whenever a partition gets a leader, here or elsewhere.
    pub(crate) leader_news: Arc<Notify>,
}

/// A table whose files are to go.
pub(crate) struct Purged {
    id: TableId,
    table: Arc<Table>,
    /// When to try again what has failed.
    again_at: Option<Instant>,
}

/// How long after the files of a table could not be removed that is tried again.
const REMOVE_AGAIN: Duration = Duration::from_secs(10);

/// A node that has begun hears others sooner.
const KNOWS_TIME: Duration = Duration::from_secs(5);

impl NodeContext {
    /// Takes the cluster's time anew from the clocks of the nodes that the catalog names. Those that never came, or never held anything,
    /// are not missed: if they were, a majority might never be heard, and nothing would expire.
    pub(crate) fn follow_clocks(&self) {
        let catalog = self.view.catalog();
        let (mut clocks, mut new) = (Vec::new(), Vec::new());
        for node in self.others_that_came(&catalog) {
            let heard = |clock: NodeClock| HeardClock { distance: clock.distance, is_recent: clock.is_recent };
            let clock = self.transport.clock(node.id).map(heard);
            if node.is_new { new.extend(clock) } else { clocks.push(clock) }
        }
        self.clock.follow(&clocks, &new);
    }

    fn others_that_came<'a>(&self, catalog: &'a Catalog) -> impl Iterator<Item = &'a NodeEntry> {
        let own = self.identity.node;
        catalog.nodes().filter(move |node| node.id != own && !node.is_expected)
    }

    /// What an operator is told while the cluster's time is not known: who is missed.
    pub(crate) fn lack_of_time(&self) -> Option<String> {
        if self.clock.is_certain() || self.began.elapsed() < KNOWS_TIME {
            return None;
        }
        let catalog = self.view.catalog();
        let is_missed = |node: &&NodeEntry| !node.is_new && self.transport.clock(node.id).is_none();
        let missed = self.others_that_came(&catalog).filter(is_missed);
        let missed = missed.map(|node| format!("{} ({})", node.id, node.site.peer)).collect::<Vec<_>>().join(", ");
        let node = self.identity.node;
        Some(format!(
            "node {node} does not know the cluster's time, since it has not heard a majority of the nodes since it started: nothing \
             expires here meanwhile. Nodes that are missed: {missed}. Start them, or `tessera node remove` those that are gone for good"
        ))
    }

    /// Makes the open tables those of the catalog.
    pub(crate) fn follow(&self, catalog: &Catalog) -> Result<(), EngineError> {
        let before = self.registry.tables();
        let mut opened = Vec::new();
        for entry in catalog.tables() {
            let table = match before.any(entry.id) {
                Some(table) if table.is_current(entry) => table.clone(),
                Some(table) => Arc::new(table.renewed(entry)),
                None => self.open_table(entry)?,
            };
            opened.push((entry, table));
        }
        // A handle that ends must lead to the table that took its place by then: requests under way go there.
        note_successors(&before, &opened);
        for (_, table) in &opened {
            let replaced = before.any(table.id()).filter(|before| !Arc::ptr_eq(before, table));
            replaced.inspect(|replaced| replaced.end());
        }
        let mut tables = Tables::default();
        for (entry, table) in opened {
            table.follow(entry)?;
            tables.insert(&entry.name, entry.state == TableState::Active, table);
        }
        let after = Arc::new(tables);
        self.registry.set(after.clone());
        self.view.set_catalog(Arc::new(catalog.clone()));
        // Groups are started when the registry knows their table: the state machine looks it up there.
        let reconciled = self.reconcile_replicas();
        // Whatever became of that: the next time nobody knows that there were these tables.
        for table in before.open().filter(|table| after.any(table.id()).is_none()) {
            // This node may never have heard that the table was dropped.
            table.end();
            self.purge(table.id(), table);
        }
        reconciled
    }

    fn open_table(&self, entry: &TableEntry) -> Result<Arc<Table>, EngineError> {
        let schema = &entry.schema;
        let engine: Box<dyn Engine> = match schema.engine {
            EngineKind::Memory => {
                let directory = schema.is_persistent().then(|| self.directory.memory_table(entry.id));
                Box::new(MemoryEngine::open(schema.partitions, self.memory.clone(), directory)?)
            }
            EngineKind::Rocksdb => self.rocks.open_table(&column_family(entry.id), schema.partitions)?,
        };
        engine.apply_settings(&entry.settings)?;
        let partitions = (0..schema.partitions)
            .map(|partition| Partition::new(self.inbox_of(entry.id, partition).clone()))
            .collect();
        let limits = Arc::new(self.config.limits.clone());
        Ok(Arc::new(Table::new(entry, engine, partitions, limits, self.clock.clone(), self.identity.node)))
    }

    /// Dials the nodes of the cluster.
    pub(crate) fn dial_peers(&self) {
        self.addresses.dial(&self.view.catalog(), &self.transport);
    }

    pub(crate) fn inbox_of(&self, table: TableId, partition: u32) -> &Arc<Inbox<WriteCommand>> {
        self.inboxes.of(table, partition)
    }

    fn purge(&self, id: TableId, table: &Arc<Table>) {
        if let Err(error) = self.leave_table(id, table) {
            tracing::warn!(table = %table.name(), %error, "replicas of a table that is gone are still written down");
        }
        self.purging.lock().push(Purged { id, table: table.clone(), again_at: None });
    }

    /// Removes the files of purged tables, once nobody writes there any more.
    pub(crate) fn finish_purges(&self) {
        let now = Instant::now();
        let is_due = |Purged { id, table, again_at }: &mut Purged| {
            again_at.is_none_or(|again_at| again_at <= now)
                && (0..table.schema().partitions).all(|partition| !self.replicas.is_written(group_of(*id, partition)))
        };
        let due: Vec<_> = self.purging.lock().extract_if(.., is_due).collect();
        for purged in due {
            let (id, table) = (purged.id, purged.table.name());
            let left = match self.remove_files(&purged) {
                Ok(true) => {
                    tracing::info!(%table, %id, "removed the files of a table that is gone");
                    None
                }
                Ok(false) => Some(purged),
                Err(error) => {
                    tracing::warn!(%table, %error, "files of a table that is gone cannot be removed; trying again");
                    Some(Purged { again_at: Some(now + REMOVE_AGAIN), ..purged })
                }
            };
            self.purging.lock().extend(left);
        }
    }

    /// Returns false if something is in use for some time yet.
    fn remove_files(&self, Purged { id, table, again_at }: &Purged) -> Result<bool, String> {
        let has_failed = again_at.is_some();
        if has_failed {
            // The table is not found by its name any more once RocksDB has failed to drop it, but its files can go all the same.
            if !table.engine().give_back().map_err(|error| error.to_string())? {
                return Ok(false);
            }
        } else if !gives_back(table) {
            return Ok(false);
        }
        match table.schema().engine {
            EngineKind::Rocksdb => self.rocks.drop_table(&column_family(*id)).map_err(|error| error.to_string())?,
            EngineKind::Memory => match std::fs::remove_dir_all(self.directory.memory_table(*id)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.to_string()),
                _ => {}
            },
        }
        Ok(true)
    }

    /// Removes the files of tables that went just before a crash.
    pub(crate) fn remove_left_overs(&self, catalog: &Catalog) -> Result<(), EngineError> {
        for (id, path) in self.directory.memory_tables() {
            if catalog.get(id).is_none() {
                std::fs::remove_dir_all(&path).map_err(EngineError::io(&path))?;
            }
        }
        self.rocks.drop_tables_but(catalog.tables().map(|entry| column_family(entry.id)))
    }

    /// Lets the log forget groups that went just before a crash: of tables that were purged, and of replicas that left.
    pub(crate) fn forget_unknown_groups(&self, catalog: &Catalog) {
        let is_unknown = |group: GroupId| {
            let is_known = partition_of_group(group).is_some_and(|(table, _)| catalog.get(table).is_some());
            !is_known || !self.replicas.is_held(group)
        };
        let groups: Vec<GroupId> = self.recovered.lock().keys().copied().collect();
        groups.into_iter().filter(|group| is_unknown(*group)).for_each(|group| self.forget_recovered(group));
    }
}

/// Whether a table that is gone takes neither disk nor memory once its files are removed. Others may hold it, as idle connections do that
/// have chosen it; otherwise it goes as a whole.
fn gives_back(table: &Arc<Table>) -> bool {
    !table.is_held_elsewhere()
        || table.engine().give_back().unwrap_or_else(|error| {
            tracing::warn!(table = %table.name(), %error, "what a table that is gone takes is held while connections have chosen it");
            true
        })
}

/// Tells tables that were split or truncated which one has taken their place.
fn note_successors(before: &Tables, opened: &[(&TableEntry, Arc<Table>)]) {
    for (entry, successor) in opened.iter().filter(|(entry, _)| entry.state == TableState::Active) {
        let Some(table) = before.numbered(entry.number).filter(|table| table.id() != entry.id) else { continue };
        tracing::info!(table = %table.name(), id = %entry.id, "another table has taken the place of one that was split or truncated");
        table.replace_by(successor.clone());
    }
}

fn column_family(id: TableId) -> String {
    format!("table-{id}")
}

#[cfg(test)]
mod tests {
    use crate::test_node::TestNode;
    use std::time::Instant;
    use tessera_cluster::{CatalogCommand, Site};
    use tessera_store::hosting::group_of;
    use tessera_types::{Durability, EngineKind, NodeId, UnixMillis};

    /// A node that asked to be let in and was never heard of stays in the catalog until it is removed. After the next start of a
    /// node that was alone nothing expired any more.
    #[tokio::test]
    async fn nodes_that_never_came_have_no_say_about_the_time() {
        let node = TestNode::start(|_| {});
        for _ in 0..2 {
            node.change(CatalogCommand::AddNode { site: Site::default(), token: None }).await;
        }
        let node = node.restart(|_| {}, |_| {});
        node.wait_for("the time", |_| node.context.clock.is_certain().then_some(())).await;
    }

    /// Nodes that were heard of for a moment, and were gone before they held anything, once kept everything from expiring after the next
    /// start, and nobody was told. Those that have held something are missed, and named.
    #[tokio::test]
    async fn nodes_that_never_held_anything_have_no_say_about_the_time_and_others_that_are_missed_are_named() {
        let with_nodes_that_are_gone = async |votes: &[u32]| {
            let node = TestNode::start(|_| {});
            for number in 2..=4 {
                let site = Site { peer: format!("host-{number}:1"), ..Site::default() };
                node.change(CatalogCommand::AddNode { site, token: None }).await;
                node.change(CatalogCommand::Arrived { node: NodeId(number), has_vote: false }).await;
                if votes.contains(&number) {
                    node.change(CatalogCommand::Arrived { node: NodeId(number), has_vote: true }).await;
                }
            }
            assert!(node.context.lack_of_time().is_none(), "it was known before");
            node.restart(|_| {}, |_| {})
        };
        for votes in [&[][..], &[3]] {
            let node = with_nodes_that_are_gone(votes).await;
            let is_known = |_: &_| node.context.clock.is_certain().then_some(());
            // Of two the other one is missed.
            if votes.is_empty() {
                node.wait_for("the time", is_known).await;
                assert!(node.context.lack_of_time().is_none());
            } else {
                let told = node.wait_for("that the time is not known", |_| node.context.lack_of_time()).await;
                assert!(told.contains("missed: 3 (host-3:1). Start them, or `tessera node remove`"), "{told}");
            }
        }
    }

    /// What nobody ever started serves nothing that it may not serve.
    #[tokio::test]
    async fn nodes_that_never_came_are_not_named_as_ones_that_do_not_follow() {
        let node = TestNode::start(|_| {});
        node.create_table_in("t", 1, EngineKind::Memory).await;
        node.change(CatalogCommand::AddNode { site: Site::default(), token: None }).await;
        let drop = CatalogCommand::drop("t", UnixMillis::new(u64::MAX));
        let (_, behind) = node.store.change_catalog_and_tell(drop).await.unwrap().unwrap();
        assert_eq!(behind, []);
    }

    /// They stayed until the node was started again.
    #[tokio::test]
    async fn files_of_a_table_that_cannot_be_removed_are_removed_later() {
        let node = TestNode::start(|_| {});
        let table = node.create_durable_table("t", 1, EngineKind::Memory, Durability::Hard).await.id();
        let (context, group) = (&node.context, group_of(table, 0));
        context.replicas.set_clearing(group, true);
        node.change(CatalogCommand::drop("t", UnixMillis::new(1))).await;
        node.change(CatalogCommand::Purge { now: UnixMillis::now() }).await;
        let has_left = || !context.replicas.is_leaving(group) && !context.purging.lock().is_empty();
        node.wait_for("the workers have let go of it", |_| has_left().then_some(())).await;
        let path = context.directory.memory_table(table);
        let aside = path.with_extension("aside");
        std::fs::rename(&path, &aside).unwrap();
        // A file is no directory.
        std::fs::write(&path, "").unwrap();
        context.replicas.set_clearing(group, false);
        let has_failed = || context.purging.lock().iter().any(|purged| purged.again_at.is_some());
        node.wait_for("a failure", |_| has_failed().then_some(())).await;
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        context.purging.lock().iter_mut().for_each(|purged| purged.again_at = Some(Instant::now()));
        let is_removed = || !path.exists() && context.purging.lock().is_empty();
        node.wait_for("its files are removed", |_| is_removed().then_some(())).await;
    }
}
