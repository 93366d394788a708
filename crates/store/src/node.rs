//! The store of one node: its tables, engines, log and workers.

use crate::catalog_listener::OpenTables;
use crate::config::StoreConfig;
use crate::data_directory::{DataDirectory, DataDirectoryError};
use crate::machine::{Operation, PartitionsMachine, Ticket, Verdict, WriteCommand, sync_for};
use crate::maintenance::Maintenance;
use crate::peers::{self, CatalogAnswer, GroupMessages, PeerHandler, ServeFace};
use crate::replicas::Replicas;
use crate::statistics::{self, StoreStatistics};
use crate::table::{Partition, Table, group_of};
use crate::{driver, identity};
use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tessera_cluster::{
    CATALOG_GROUP, Catalog, CatalogCommand, CatalogError, CatalogFile, CatalogMachine, CatalogRequest, Changed,
    TableEntry, TableState, catalog_replica,
};
use tessera_consensus::log::{LogBatch, LogRecord, RecoveredGroup};
use tessera_consensus::{GroupId, GroupSettings, GroupStart, Inbox, LogConfig, LogError, LogStatus, SharedLog, Worker};
use tessera_engine::{Engine, EngineError, MemoryBudget, MemoryEngine, RocksStore};
use tessera_transport::{Identity, RequestFailure, Transport};
use tessera_types::{ClusterId, Durability, EngineKind, NodeId, RequestError, TableId, TableSchema, UnixMillis};

/// The tables that can be reached, swapped as a whole when the catalog changes.
#[derive(Default)]
pub(crate) struct Registry {
    tables: ArcSwap<Tables>,
}

#[derive(Clone, Default)]
struct Tables {
    by_id: BTreeMap<TableId, Arc<Table>>,
    by_name: HashMap<String, Arc<Table>>,
    /// Every open table, dropped ones that can be recalled included.
    open: BTreeMap<TableId, Arc<Table>>,
}

impl Registry {
    pub(crate) fn any(&self, id: TableId) -> Option<Arc<Table>> {
        self.tables.load().open.get(&id).cloned()
    }

    pub(crate) fn open_tables(&self) -> Vec<Arc<Table>> {
        self.tables.load().open.values().cloned().collect()
    }
}

/// What opens tables and hands their partitions to workers.
pub(crate) struct Host {
    pub(crate) config: StoreConfig,
    pub(crate) directory: DataDirectory,
    pub(crate) log: Arc<SharedLog>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) inboxes: Vec<Arc<Inbox<WriteCommand>>>,
    pub(crate) memory: Arc<MemoryBudget>,
    rocks: Arc<RocksStore>,
    /// What the log held at the start of groups that are not open yet.
    pub(crate) recovered: Mutex<HashMap<GroupId, RecoveredGroup>>,
    pub(crate) identity: Identity,
    pub(crate) transport: Arc<Transport>,
    /// The catalog as this node knows it, and whether it names no other node.
    pub(crate) catalog: ArcSwap<Catalog>,
    pub(crate) is_alone: AtomicBool,
    pub(crate) catalog_inbox: Arc<Inbox<CatalogRequest>>,
    /// The node that leads the catalog's group, as far as this one knows; zero is none.
    pub(crate) catalog_leader: AtomicU32,
    pub(crate) replicas: Replicas,
    /// Nodes that said that they stop: nobody asks them to lead.
    pub(crate) stopping: Mutex<HashSet<NodeId>>,
    /// Told whenever a partition gets a leader, here or elsewhere.
    pub(crate) opened: tokio::sync::Notify,
    /// Carries out what clients asked other nodes.
    pub(crate) face: OnceLock<ServeFace>,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{0}: {1}")]
    File(&'static str, std::io::Error),
    #[error("the cluster does not let this node in: {0}")]
    Join(String),
    #[error("the connections between nodes cannot be set up: {0}")]
    Transport(std::io::Error),
}

impl Host {
    /// Makes the open tables those of the catalog.
    pub(crate) fn follow(&self, catalog: &Catalog) -> Result<(), EngineError> {
        let mut tables = Tables::default();
        let before = self.registry.tables.load_full();
        for entry in catalog.tables() {
            let table = match before.open.get(&entry.id) {
                Some(table) => table.clone(),
                None => self.open_table(entry)?,
            };
            let is_dropped = entry.state != TableState::Active;
            if *table.settings.load_full() != entry.settings || *table.name.load_full() != entry.name {
                table.engine.apply_settings(&entry.settings)?;
                table.settings.store(Arc::new(entry.settings.clone()));
                table.name.store(Arc::new(entry.name.clone()));
            }
            table.is_dropped.store(is_dropped, Ordering::Release);
            if !is_dropped {
                tables.by_id.insert(entry.id, table.clone());
                tables.by_name.insert(entry.name.clone(), table.clone());
            }
            tables.open.insert(entry.id, table);
        }
        let after = Arc::new(tables);
        self.registry.tables.store(after.clone());
        self.catalog.store(Arc::new(catalog.clone()));
        self.is_alone.store(catalog.nodes().count() <= 1, Ordering::Relaxed);
        // Groups are started when the registry knows their table: the state machine looks it up there.
        self.settle_replicas(false)?;
        for (id, table) in before.open.iter().filter(|(id, _)| !after.open.contains_key(id)) {
            self.purge(*id, table);
        }
        Ok(())
    }

    fn open_table(&self, entry: &TableEntry) -> Result<Arc<Table>, EngineError> {
        let schema = &entry.schema;
        let engine: Box<dyn Engine> = match schema.engine {
            EngineKind::Memory => {
                let directory = schema.is_persistent().then(|| self.directory.memory_table(entry.id));
                Box::new(MemoryEngine::open(schema.partitions, self.memory.clone(), directory)?)
            }
            EngineKind::Rocksdb => Box::new(self.rocks.open_table(&column_family(entry.id), schema.partitions)?),
        };
        engine.apply_settings(&entry.settings)?;
        let partitions = (0..schema.partitions)
            .map(|partition| Partition::new(self.inbox_of(entry.id, partition).clone()))
            .collect();
        Ok(Arc::new(Table {
            id: entry.id,
            schema: schema.clone(),
            limits: Arc::new(self.config.limits.clone()),
            name: ArcSwap::from_pointee(entry.name.clone()),
            settings: ArcSwap::from_pointee(entry.settings.clone()),
            engine,
            partitions,
            is_dropped: AtomicBool::new(false),
            node: self.identity.node,
        }))
    }

    pub(crate) fn worker_of(&self, table: TableId, partition: u32) -> usize {
        (table.0 as usize + partition as usize) % self.inboxes.len()
    }

    pub(crate) fn inbox_of(&self, table: TableId, partition: u32) -> &Arc<Inbox<WriteCommand>> {
        &self.inboxes[self.worker_of(table, partition)]
    }

    /// Tells other nodes that this one leads a partition.
    pub(crate) fn tell_leads(&self, table: &Table, partition: u32) {
        let (term, _) = table.partitions[partition as usize].leader();
        let message = [group_of(table.id, partition).0.to_le_bytes(), term.to_le_bytes()].concat();
        self.transport.broadcast(peers::LEADS, &message);
    }

    /// A table's schema as it is now: the number of replicas may have been altered.
    pub(crate) fn schema(&self, table: &Table) -> TableSchema {
        self.catalog.load().get(table.id).map_or_else(|| table.schema.clone(), |entry| entry.schema.clone())
    }

    fn purge(&self, id: TableId, table: &Arc<Table>) {
        if let Err(error) = self.leave_table(id, table) {
            tracing::warn!(table = %table.name.load(), %error, "a dropped table's replicas are still written down");
        }
        let outcome = match table.schema.engine {
            EngineKind::Rocksdb => self.rocks.drop_table(&column_family(id)).map_err(|error| error.to_string()),
            EngineKind::Memory => match std::fs::remove_dir_all(self.directory.memory_table(id)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
                _ => Ok(()),
            },
        };
        match outcome {
            Ok(()) => tracing::info!(table = %table.name.load(), number = %id, "purged a dropped table"),
            Err(error) => tracing::warn!(table = %table.name.load(), %error, "files of a dropped table are left over"),
        }
    }

    /// Groups of tables that were purged just before a crash.
    pub(crate) fn forget_unknown_groups(&self) {
        let records: Vec<_> = self.recovered.lock().drain().map(|(group, _)| LogRecord::Removed { group }).collect();
        self.log.submit(LogBatch { records, ..Default::default() });
    }
}

/// How long the answer to a change of the catalog waits for the partitions that it started.
const CREATED_SERVES: Duration = Duration::from_secs(10);

/// The node that founds a cluster.
const FIRST_NODE: NodeId = NodeId(1);

/// Who this node is: as it was before, or a newcomer to a cluster, or the first of a new one.
fn establish_identity(
    config: &StoreConfig,
    directory: &DataDirectory,
    runtime: &tokio::runtime::Runtime,
) -> Result<Identity, OpenError> {
    let failed = |error| OpenError::File("node.json", error);
    if let Some(identity) = identity::load(&directory.identity()).map_err(failed)? {
        return Ok(identity);
    }
    let (identity, catalog) = if config.join.is_empty() {
        (identity::of_new_cluster(), Catalog::of_new_cluster(config.addresses.clone()))
    } else {
        let welcome = runtime.block_on(identity::join(&config.join, &config.addresses)).map_err(OpenError::Join)?;
        (Identity { cluster: welcome.cluster, node: welcome.node }, welcome.catalog)
    };
    // The catalog first: without identity it counts for nothing.
    let file = CatalogFile { applied_index: 0, catalog };
    file.save(&directory.catalog()).map_err(|error| OpenError::File("catalog.json", error))?;
    identity::save(&directory.identity(), identity).map_err(failed)?;
    tracing::info!(cluster = %identity.cluster, node = %identity.node, "this node has an identity now");
    Ok(identity)
}

fn column_family(id: TableId) -> String {
    format!("table-{id}")
}

/// How long a change of the catalog is tried while nobody leads it.
const CATALOG_PATIENCE: Duration = Duration::from_secs(15);
/// Between two tries.
const CATALOG_PAUSE: Duration = Duration::from_millis(50);

/// The store of one node. Cheap to clone; [`Store::shut_down`] ends it.
#[derive(Clone)]
pub struct Store {
    pub(crate) host: Arc<Host>,
    maintenance: Arc<Maintenance>,
}

/// The loop of one worker, to be run on the thread that also runs its core's connections.
pub struct StoreWorker {
    partitions: Worker<PartitionsMachine>,
    /// The first worker also drives the catalog.
    catalog: Option<Worker<CatalogMachine<OpenTables>>>,
    /// And has the connections to other nodes on its thread: most of what comes there is for the loop.
    peers: Option<(Arc<Transport>, std::net::TcpListener)>,
}

impl StoreWorker {
    /// Runs until [`Store::shut_down`].
    pub async fn run(self) {
        if let Some((transport, listener)) = self.peers {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => _ = tokio::spawn(transport.serve(listener)),
                Err(error) => tracing::error!(%error, "other nodes cannot be heard"),
            }
        }
        match self.catalog {
            Some(catalog) => _ = tokio::join!(self.partitions.run(), catalog.run()),
            None => self.partitions.run().await,
        }
    }
}

impl Store {
    /// Opens the data directory and recovers what is in it, or joins a cluster first. The store serves once its workers
    /// run; see [`Self::wait_until_serving`]. Other nodes are heard on `listener`, on a thread of its own.
    ///
    /// # Errors
    /// If the directory cannot be used or holds damaged data, or the cluster does not let the node in.
    pub fn open(config: StoreConfig, listener: std::net::TcpListener) -> Result<(Self, Vec<StoreWorker>), OpenError> {
        assert!(config.workers > 0, "a store has at least one worker");
        let directory = DataDirectory::open(&config.data_directory)?;
        // What was left of snapshots is of no use, and may be missing.
        let _ = std::fs::remove_dir_all(directory.snapshots());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(OpenError::Transport)?;
        let identity = establish_identity(&config, &directory, &runtime)?;
        let file = CatalogFile::load(&directory.catalog()).map_err(|error| OpenError::File("catalog.json", error))?;
        let file = file.unwrap_or_default();
        let log_config = LogConfig {
            segment_bytes: config.log_segment_bytes,
            soft_sync_interval: config.soft_sync_interval,
            ..LogConfig::default()
        };
        let (log, mut recovered) = SharedLog::open(&directory.log(), &log_config)?;
        let rocks = RocksStore::open(&directory.rocksdb(), config.rocksdb.clone())?;
        let handler = Arc::new(PeerHandler::default());
        let transport = Transport::new(identity, handler.clone());
        let recovered_catalog = recovered.remove(&CATALOG_GROUP).unwrap_or_default();
        let replicas =
            Replicas::load(&directory.replicas()).map_err(|error| OpenError::File("replicas.json", error))?;
        let host = Arc::new(Host {
            memory: Arc::new(MemoryBudget::new(&config.memory)),
            inboxes: (0..config.workers).map(|_| Inbox::new(config.queued_writes)).collect(),
            registry: Arc::default(),
            recovered: Mutex::new(recovered),
            config,
            directory,
            log: log.clone(),
            rocks,
            identity,
            transport: transport.clone(),
            catalog: ArcSwap::from_pointee(file.catalog.clone()),
            is_alone: AtomicBool::new(true),
            catalog_inbox: Inbox::new(10_000),
            catalog_leader: AtomicU32::new(0),
            replicas,
            stopping: Mutex::default(),
            opened: tokio::sync::Notify::new(),
            face: OnceLock::new(),
        });
        let founder = catalog_replica(FIRST_NODE);
        let settings = GroupSettings {
            persistent: true,
            applied: file.applied_index,
            replica: host.own_catalog_replica(),
            founders: if identity.node == FIRST_NODE { vec![founder] } else { Vec::new() },
        };
        host.catalog_inbox.start(GroupStart { id: CATALOG_GROUP, settings, recovered: recovered_catalog });
        host.follow(&file.catalog)?;

        let messages = Arc::new(GroupMessages(transport.clone()));
        let mut workers: Vec<_> = host
            .inboxes
            .iter()
            .map(|inbox| {
                let machine = PartitionsMachine::new(host.clone());
                let worker = Worker::new(machine, inbox.clone(), Some(log.clone()));
                StoreWorker { partitions: worker.with_transport(messages.clone()), catalog: None, peers: None }
            })
            .collect();
        let limits = host.config.limits.clone();
        let machine = CatalogMachine::new(host.directory.catalog(), file, limits, OpenTables(host.clone()));
        let catalog = Worker::new(machine, host.catalog_inbox.clone(), Some(log));
        workers[0].catalog = Some(catalog.with_transport(messages));
        workers[0].peers = Some((transport, listener));
        let maintenance = Maintenance::start(host.clone());
        let store = Self { host, maintenance: Arc::new(maintenance) };
        let _ = handler.store.set(store.clone());
        let driver = store.clone();
        let run = move || runtime.block_on(driver::run(driver));
        std::thread::Builder::new().name("driver".into()).spawn(run).map_err(OpenError::Transport)?;
        Ok((store, workers))
    }

    /// Waits until every partition serves, or `timeout` is over. Returns whether they all do.
    pub async fn wait_until_serving(&self, timeout: Duration) -> bool {
        let all = async {
            loop {
                let opened = self.host.opened.notified();
                if self.is_serving() {
                    return;
                }
                // The pause covers a table that appears between the check and the wait.
                let _ = tokio::time::timeout(Duration::from_millis(50), opened).await;
            }
        };
        tokio::time::timeout(timeout, all).await.is_ok()
    }

    /// Whether every partition of every table has a leader, here or on another node.
    pub fn is_serving(&self) -> bool {
        let tables = self.host.registry.tables.load();
        let led = |table: &Arc<Table>| (0..table.schema.partitions).all(|at| table.known_leader(at).is_some());
        !tables.by_id.is_empty() && tables.by_id.values().all(led)
    }

    pub fn table(&self, id: TableId) -> Option<Arc<Table>> {
        self.host.registry.tables.load().by_id.get(&id).cloned()
    }

    pub fn table_named(&self, name: &str) -> Option<Arc<Table>> {
        self.host.registry.tables.load().by_name.get(name).cloned()
    }

    /// Active tables by number.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.host.registry.tables.load().by_id.values().cloned().collect()
    }

    /// Has an operation that only reads carried out by the partitions' loops, confirmed by a majority of each partition's
    /// replicas: linearizable whatever clocks do.
    pub fn read_confirmed(
        &self,
        table: &Table,
        operation: &Arc<dyn Operation>,
        partitions: impl IntoIterator<Item = u32>,
    ) {
        for (part, partition) in partitions.into_iter().enumerate() {
            let ticket = Ticket::new(operation.clone(), part);
            let command = WriteCommand { sync: false, confirm: true, ticket };
            if let Err((command, error)) = table.submit(partition, command) {
                command.ticket.answer(Err(error));
            }
        }
    }

    /// The catalog as this node knows it.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.host.catalog.load_full()
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.host.identity.node
    }

    pub fn cluster(&self) -> ClusterId {
        self.host.identity.cluster
    }

    /// The node that leads the catalog, as far as this one knows.
    pub fn catalog_leader(&self) -> Option<NodeId> {
        Some(NodeId(self.host.catalog_leader.load(Ordering::Relaxed))).filter(|node| node.0 != 0)
    }

    /// Whether this node is the only one of its cluster.
    pub fn is_alone(&self) -> bool {
        self.host.is_alone.load(Ordering::Relaxed)
    }

    /// How long ago another node was last heard of.
    pub fn silence(&self, node: NodeId) -> Option<Duration> {
        self.host.transport.silence(node)
    }

    /// Replicas on this node.
    pub fn replicas_held(&self) -> usize {
        self.host.replicas_held()
    }

    /// Has requests that clients made to other nodes carried out here.
    pub fn serve_face(&self, serve: ServeFace) {
        assert!(self.host.face.set(serve).is_ok(), "one face forwards");
    }

    /// Has another node carry out what a client asked this one.
    ///
    /// # Errors
    /// Whether it may have been carried out.
    pub async fn ask_face(&self, node: NodeId, request: &[u8]) -> Result<Bytes, RequestFailure> {
        self.host.transport.request(node, peers::FACE, request).await
    }

    /// Waits until a partition may have got a leader, or a lease, or `pause` has passed.
    pub async fn another_leader(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.host.opened.notified()).await;
    }

    /// Sends each part of an operation to its partition: the first to `partitions[0]`, and so on. It is answered on its
    /// own, also when this refuses it.
    ///
    /// Cancellation: none; once sent, an operation runs to its end.
    pub fn write(
        &self,
        table: &Table,
        durability: Option<Durability>,
        operation: &Arc<dyn Operation>,
        partitions: impl IntoIterator<Item = u32>,
    ) {
        let is_backlogged = table.schema.is_persistent() && self.host.log.is_backlogged();
        let admitted =
            sync_for(table, durability).and_then(|sync| if is_backlogged { Err(RequestError::Busy) } else { Ok(sync) });
        for (part, partition) in partitions.into_iter().enumerate() {
            let ticket = Ticket::new(operation.clone(), part);
            match &admitted {
                Err(error) => ticket.answer(Err(error.clone())),
                Ok(sync) => {
                    if let Err((command, error)) =
                        table.submit(partition, WriteCommand { sync: *sync, confirm: false, ticket })
                    {
                        command.ticket.answer(Err(error));
                    }
                }
            }
        }
    }

    /// Changes the catalog and returns what was concerned once the change is durable and carried out here.
    ///
    /// Cancellation: the change may still be carried out.
    ///
    /// # Errors
    /// The catalog's reason inside, the node's outside.
    pub async fn change_catalog(&self, command: CatalogCommand) -> Result<Result<Changed, CatalogError>, RequestError> {
        let began = Instant::now();
        loop {
            match self.try_to_change_catalog(&command).await {
                Err(RequestError::NotReady) if began.elapsed() < CATALOG_PATIENCE => {
                    tokio::time::sleep(CATALOG_PAUSE).await;
                }
                Ok(Ok(changed)) => {
                    if let (Changed::Table(id), CatalogCommand::Create { .. }) = (changed, &command) {
                        // Whoever created a table wants to use it here.
                        while self.table(id).is_none() && began.elapsed() < CATALOG_PATIENCE {
                            tokio::time::sleep(CATALOG_PAUSE / 10).await;
                        }
                        self.wait_until_serving(CREATED_SERVES).await;
                    }
                    return Ok(Ok(changed));
                }
                other => return other,
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
                match self.host.transport.request(leader, peers::CATALOG, &request).await {
                    Ok(answer) => match serde_json::from_slice::<CatalogAnswer>(&answer) {
                        Ok(answer) => answer.into(),
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
        command: CatalogCommand,
    ) -> Result<Result<Changed, CatalogError>, RequestError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let reply = Box::new(move |outcome| _ = sender.send(outcome));
        if self.host.catalog_inbox.submit(CATALOG_GROUP, CatalogRequest { command, reply }).is_err() {
            return Err(RequestError::Busy);
        }
        match receiver.await {
            Ok(outcome) => outcome.map_err(crate::machine::request_error),
            Err(_) => Err(RequestError::Interrupted),
        }
    }

    /// When records of a table dropped now are purged.
    pub fn purge_time(&self) -> UnixMillis {
        let retention = u64::try_from(self.host.config.drop_retention.as_millis()).unwrap_or(u64::MAX);
        let now = UnixMillis::now();
        now.checked_add_millis(retention).unwrap_or(UnixMillis::new(u64::MAX))
    }

    /// Deletes all records of partitions that this node leads, one after the other.
    ///
    /// # Errors
    /// The first partition's that failed; others may be empty already.
    pub async fn clear(&self, table: &Arc<Table>, partitions: Range<u32>) -> Result<(), RequestError> {
        let (sender, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
        let operation: Arc<dyn Operation> = Arc::new(Clear { sender });
        self.write(table, None, &operation, partitions.clone());
        for _ in partitions {
            outcomes.recv().await.unwrap_or(Err(RequestError::Interrupted))?;
        }
        Ok(())
    }

    /// Deletes all records of a table, partition by partition, wherever they are led.
    ///
    /// # Errors
    /// The first partition's that failed; others may be empty already.
    pub async fn truncate(&self, table: &Arc<Table>) -> Result<(), RequestError> {
        let mut by_node: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for partition in 0..table.schema.partitions {
            let node = table.known_leader(partition).ok_or(RequestError::NotReady)?;
            by_node.entry(node).or_default().push(partition);
        }
        for (node, partitions) in by_node {
            if node == self.node() {
                for partition in partitions {
                    self.clear(table, partition..partition + 1).await?;
                }
                continue;
            }
            let request = serde_json::to_vec(&(table.id, partitions)).expect("numbers have a JSON form");
            match self.host.transport.request(node, peers::CLEAR, &request).await {
                Ok(answer) if &answer[..] == b"ok" => {}
                Ok(answer) => return Err(RequestError::Engine(String::from_utf8_lossy(&answer).into_owned())),
                Err(RequestFailure::NotSent) => return Err(RequestError::NotReady),
                Err(RequestFailure::Lost) => return Err(RequestError::Interrupted),
            }
        }
        Ok(())
    }

    /// Compacts a table's files on this node. Blocks for as long as that takes.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn compact(&self, table: &Table) -> Result<(), RequestError> {
        table.engine.compact().map_err(crate::table::request_error)
    }

    pub fn log_status(&self) -> LogStatus {
        self.host.log.status()
    }

    pub fn statistics(&self) -> StoreStatistics {
        statistics::gather(&self.host)
    }

    /// Stops taking writes, makes durable what was taken, and closes the files. Workers end by themselves.
    pub fn shut_down(&self) {
        self.maintenance.stop();
        for inbox in &self.host.inboxes {
            inbox.stop();
        }
        self.host.catalog_inbox.stop();
    }

    /// The rest of [`Self::shut_down`], once the workers have ended.
    pub fn close(&self) {
        self.host.log.close();
        self.host.rocks.shut_down();
    }
}

struct Clear {
    sender: tokio::sync::mpsc::UnboundedSender<Result<(), RequestError>>,
}

impl Operation for Clear {
    fn evaluate(&self, _part: usize, transaction: &mut crate::Transaction<'_>) -> Verdict {
        transaction.clear();
        Verdict::Commit
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        let _ = self.sender.send(outcome);
    }
}
