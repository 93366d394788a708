//! What every face calls, and how a node's store opens and ends.

use crate::addresses::Addresses;
use crate::catalog_follower::{CatalogFollower, CatalogNews};
use crate::comparison::Comparisons;
use crate::config::StoreConfig;
use crate::data_directory::{DataDirectory, DataDirectoryError};
use crate::disk_readers::DiskReaders;
use crate::generation::KnownGenerations;
use crate::host::Host;
use crate::lease::Lease;
use crate::machine::PartitionsMachine;
use crate::maintenance::Maintenance;
use crate::operation::{Operation, Ticket, WriteCommand, WriteOptions, sync_for};
use crate::peers::{Face, GroupMessages, PeerHandler, ServeFace};
use crate::replicas::{Aside, Replicas};
use crate::router::{Envelope, Outcomes};
use crate::snapshot::{Incoming, Outgoing, Progress};
use crate::statistics::{self, StoreStatistics};
use crate::table::{Table, group_of, partition_of_group};
use crate::threads::{self, Threads};
use crate::traffic::{PartitionTraffic, Traffic};
use crate::{boot, driver, identity, overtaken, presence, recovery};
use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tessera_cluster::{CATALOG_GROUP, Catalog, CatalogFile, CatalogMachine, catalog_replica as catalog_replica_of};
use tessera_consensus::log::{LogBatch, LogRecord, RecoveredGroup};
use tessera_consensus::{GroupSettings, GroupStart, Inbox, LogConfig, LogError, LogStatus, SharedLog, Worker};
use tessera_engine::{EngineError, MemoryBudget, RocksStore};
use tessera_transport::Transport;
use tessera_types::{Acks, ClusterId, NodeId, RequestError, TableId, TableNumber, UnixMillis};

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
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

/// The store of one node. Cheap to clone; [`Store::shut_down`] ends it.
#[derive(Clone)]
pub struct Store {
    pub(crate) host: Arc<Host>,
    maintenance: Arc<Maintenance>,
    pub(crate) catalog_follower: Arc<CatalogFollower>,
}

/// The loop of one worker, to be run on the thread that also runs its core's connections.
pub struct StoreWorker {
    partitions: Worker<PartitionsMachine>,
    /// The first worker also drives the catalog.
    catalog: Option<Worker<CatalogMachine<CatalogNews>>>,
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
        let mut directory = DataDirectory::open(&config.data_directory)?;
        let runtime = threads::runtime().map_err(OpenError::Thread)?;
        let mut identity = identity::establish(&config, &directory, &runtime)?;
        let file = CatalogFile::load(&directory.catalog()).map_err(|error| OpenError::File("catalog.json", error))?;
        let mut file = file.unwrap_or_default();
        let log_config = LogConfig {
            segment_bytes: config.log_segment_bytes,
            soft_sync_interval: config.soft_sync_interval,
            staging_directory: config.staging_directory.clone(),
            ..LogConfig::default()
        };
        let has_lost_tail = SharedLog::has_lost_staged(&directory.log())
            .and_then(|has_lost| boot::begin(&directory.boot(), has_lost))
            .map_err(|error| OpenError::File("boot.json", error))?;
        let failed = |error| OpenError::File("generation.json", error);
        let count_others = |catalog: &Catalog| catalog.nodes().filter(|node| node.id != identity.node).count();
        let mut others = count_others(&file.catalog);
        let start = overtaken::begin(&directory, config.accept_older_data, others == 0).map_err(failed)?;
        let (log, mut recovered) = SharedLog::open(&directory.log(), &log_config)?;
        if !start.is_overtaken
            && let Some(recovery) = recovery::due(&directory, &identity)?
        {
            file = recovery::carry_out(&directory, &identity, &recovery, &log, &mut recovered)?;
            others = count_others(&file.catalog);
            identity.cluster = recovery.cluster;
        }
        identity.generation = start.generation;
        let generations =
            KnownGenerations::load(&directory.peers()).map_err(|error| OpenError::File("peers.json", error))?;
        let rocks = RocksStore::open(&directory.rocksdb(), config.rocksdb.clone())?;
        if directory.is_of_format_5() {
            // The log and the checkpoints of memory tables are read as they are.
            rocks.convert_from_format_5()?;
            directory.note_converted()?;
            tracing::info!("the data directory was of format 5 and has been converted");
        }
        let handler = Arc::new(PeerHandler::default());
        let transport = Transport::new(identity, config.secret.clone(), handler.clone());
        let mut recovered_catalog = recovered.remove(&CATALOG_GROUP).unwrap_or_default();
        let own = directory.identity();
        let failed = |error| OpenError::File("node.json", error);
        let catalog_replica = identity::load_catalog_replica(&own).map_err(failed)?;
        let is_catalog_to_begin = identity::is_catalog_to_begin(&own).map_err(failed)?;
        if start.is_overtaken || is_catalog_to_begin {
            // As if it had just joined: it knows tables and nodes of an earlier time, and what it voted counts for nothing.
            file.applied_index = 0;
            file.save(&directory.catalog()).map_err(|error| OpenError::File("catalog.json", error))?;
            log.submit(LogBatch { records: vec![LogRecord::Removed { group: CATALOG_GROUP }], ..Default::default() });
            recovered_catalog = RecoveredGroup::default();
        }
        if is_catalog_to_begin {
            log.wait_synced()?;
            identity::save_catalog_replica(&own, catalog_replica, false).map_err(failed)?;
        }
        let founder = catalog_replica_of(identity::FIRST_NODE);
        let settings = GroupSettings {
            persistent: true,
            synced: true,
            applied: file.applied_index,
            applied_term: None,
            replica: catalog_replica,
            founders: if catalog_replica == founder && !start.is_overtaken { vec![founder] } else { Vec::new() },
        };
        let catalog_start = GroupStart { id: CATALOG_GROUP, settings, recovered: recovered_catalog };
        let replicas =
            Replicas::load(&directory.replicas()).map_err(|error| OpenError::File("replicas.json", error))?;
        let disk_readers = DiskReaders::new(config.rocksdb.read_threads);
        let host = Arc::new(Host {
            memory: Arc::new(MemoryBudget::new(&config.memory)),
            inboxes: (0..config.workers).map(|_| Inbox::new(config.queued_writes)).collect(),
            registry: Arc::default(),
            clock: Arc::default(),
            recovered: Mutex::new(recovered),
            config,
            incoming: Incoming::after_restart(&directory.snapshots()),
            directory,
            log: log.clone(),
            rocks,
            identity,
            transport: transport.clone(),
            catalog: ArcSwap::from_pointee(file.catalog.clone()),
            is_alone: AtomicBool::new(true),
            catalog_inbox: Inbox::new(10_000),
            catalog_leader: AtomicU32::new(0),
            is_removed: AtomicBool::new(false),
            catalog_as_of: Lease::default(),
            knows_catalog: AtomicBool::new(false),
            replicas,
            addresses: Addresses::default(),
            purging: Mutex::default(),
            outgoing: Outgoing::default(),
            fetches: Mutex::default(),
            tells_fetches: AtomicBool::new(false),
            traffic: Traffic::default(),
            comparisons: Comparisons::default(),
            elections_won: AtomicU64::new(0),
            has_lost_tail,
            owes_renewal: AtomicBool::new(has_lost_tail || start.is_overtaken),
            is_overtaken: start.is_overtaken,
            holds_back: AtomicBool::new(true),
            current_from: AtomicU64::new(u64::MAX),
            catalog_start: Mutex::new(Some(catalog_start)),
            generations,
            must_start_again: tokio::sync::Notify::new(),
            stopping: Mutex::default(),
            threads: Threads::default(),
            disk_readers,
            opened: tokio::sync::Notify::new(),
            faces: Default::default(),
        });
        if others == 0 && !start.is_overtaken {
            host.take_part();
        }
        host.follow(&file.catalog)?;
        host.follow_clocks();
        host.remove_left_overs(&file.catalog)?;

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
        let catalog_follower = CatalogFollower::start(host.clone()).map_err(OpenError::Thread)?;
        let news = CatalogNews { host: host.clone(), follower: catalog_follower.clone() };
        let machine = CatalogMachine::new(file, limits, news);
        let catalog = Worker::new(machine, host.catalog_inbox.clone(), Some(log));
        workers[0].catalog = Some(catalog.with_transport(messages));
        workers[0].peers = Some((transport, listener));
        let maintenance = Maintenance::start(host.clone()).map_err(OpenError::Thread)?;
        let store = Self { host, maintenance: Arc::new(maintenance), catalog_follower };
        let _ = handler.store.set(store.clone());
        let driver = store.clone();
        let run = move || runtime.block_on(driver::run(driver));
        std::thread::Builder::new().name("driver".into()).spawn(run).map_err(OpenError::Thread)?;
        Ok((store, workers))
    }

    /// Waits until this node knows what tables there are. One that has just joined does not.
    pub async fn wait_until_tables_are_known(&self) {
        while !self.host.knows_catalog.load(Ordering::Relaxed) && self.host.registry.tables.load().by_id.is_empty() {
            let opened = self.host.opened.notified();
            let _ = tokio::time::timeout(Duration::from_millis(50), opened).await;
        }
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
        !self.is_removed() && !tables.by_id.is_empty() && tables.by_id.values().all(led)
    }

    /// Partitions without a leader, of any table that is open here, one that takes what another is split into among them.
    pub fn leaderless(&self, id: TableId) -> usize {
        let Some(table) = self.host.registry.any(id) else { return 0 };
        (0..table.schema.partitions).filter(|partition| table.known_leader(*partition).is_none()).count()
    }

    pub fn table(&self, id: TableId) -> Option<Arc<Table>> {
        self.host.registry.tables.load().by_id.get(&id).cloned()
    }

    pub fn table_numbered(&self, number: TableNumber) -> Option<Arc<Table>> {
        self.host.registry.tables.load().by_number.get(&number).cloned()
    }

    pub fn table_named(&self, name: &str) -> Option<Arc<Table>> {
        self.host.registry.tables.load().by_name.get(name).cloned()
    }

    /// Active tables by number.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.host.registry.tables.load().by_number.values().cloned().collect()
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
            let command = WriteCommand { sync: false, early: false, begins_entry: false, confirm: true, ticket };
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

    /// How old the catalog that this node knows may be. `None` if the node has not heard since its start what the catalog's leader has.
    pub fn catalog_age(&self) -> Option<Duration> {
        let as_of = &self.host.catalog_as_of;
        (!as_of.is_unset()).then(|| as_of.ago())
    }

    /// Whether this node is the only one of its cluster.
    pub fn is_alone(&self) -> bool {
        self.host.is_alone.load(Ordering::Relaxed)
    }

    /// How long ago another node was last heard of.
    pub fn silence(&self, node: NodeId) -> Option<Duration> {
        self.host.transport.silence(node)
    }

    /// Whether a node is this one, or was heard of lately.
    pub fn is_heard(&self, node: NodeId) -> bool {
        node == self.node() || self.silence(node).is_some_and(|silence| silence < presence::QUIET)
    }

    /// What a partition holds and is asked, if its leader has told that lately.
    pub fn traffic_of(&self, table: TableId, partition: u32) -> Option<PartitionTraffic> {
        self.host.traffic_of(table, partition)
    }

    /// How far nodes are with fetching a partition's records.
    pub fn fetches(&self, table: TableId, partition: u32) -> Vec<(NodeId, Progress)> {
        let group = group_of(table, partition);
        let fetches = self.host.fetches.lock();
        let of_node = |(node, fetches): (&NodeId, &Vec<_>)| {
            fetches.iter().find(|(fetched, _)| *fetched == group).map(|(_, progress)| (*node, *progress))
        };
        fetches.iter().filter_map(of_node).collect()
    }

    /// Replicas on this node that cannot go on since their log and their state do not fit together, in words.
    pub fn set_aside(&self) -> Vec<String> {
        let describe = |(group, _, Aside { reason, .. })| match partition_of_group(group) {
            Some((table, partition)) => {
                let name = self.host.registry.any(table).map(|table| table.name.load_full());
                let name = name.map_or_else(|| table.to_string(), |name| name.to_string());
                format!("table {name}: partition {partition} on this node is set aside: {reason}")
            }
            None => format!(
                "the catalog on this node is set aside: {reason}. Another one takes its place as soon as the other nodes can agree to that"
            ),
        };
        self.host.replicas.all_aside().into_iter().map(describe).collect()
    }

    /// Replicas on this node.
    pub fn replicas_held(&self) -> usize {
        self.host.replicas_held()
    }

    /// Has requests that clients made to other nodes carried out here, as long as the face's server is there.
    pub fn serve_face<S: Send + Sync + 'static>(
        &self,
        face: Face,
        server: &Arc<S>,
        serve: impl Fn(Arc<S>, Bytes) -> Outcomes + Send + Sync + 'static,
    ) {
        let serving = Arc::downgrade(server);
        let serve: ServeFace = Arc::new(move |request| match serving.upgrade() {
            Some(server) => serve(server, request),
            None => Box::pin(std::future::ready(Envelope::default())),
        });
        assert!(self.host.faces[face as usize].set(serve).is_ok(), "there is one of each face");
    }

    /// Sends each part of an operation to its partition: the first to `partitions[0]`, and so on. It is answered on its
    /// own, also when this refuses it.
    ///
    /// Cancellation: none; once sent, an operation runs to its end.
    pub fn write(
        &self,
        table: &Table,
        options: WriteOptions,
        operation: &Arc<dyn Operation>,
        partitions: impl IntoIterator<Item = u32>,
    ) {
        let early = options.acks.unwrap_or(table.settings.load().acks) == Acks::Single;
        let is_backlogged = table.schema.is_persistent() && self.host.log.is_backlogged();
        let admitted = sync_for(table, options.durability)
            .and_then(|sync| if is_backlogged { Err(RequestError::Busy) } else { Ok(sync) });
        for (part, partition) in partitions.into_iter().enumerate() {
            let ticket = Ticket::new(operation.clone(), part);
            match &admitted {
                Err(error) => ticket.answer(Err(error.clone())),
                Ok(sync) => {
                    let command = WriteCommand { sync: *sync, early, begins_entry: false, confirm: false, ticket };
                    if let Err((command, error)) = table.submit(partition, command) {
                        command.ticket.answer(Err(error));
                    }
                }
            }
        }
    }

    /// The time by which records expire: not this node's clock, but the median of the clocks of all nodes.
    pub fn now(&self) -> UnixMillis {
        self.host.clock.now()
    }

    /// When records of a table dropped now are purged.
    pub fn purge_time(&self) -> UnixMillis {
        let retention = u64::try_from(self.host.config.drop_retention.as_millis()).unwrap_or(u64::MAX);
        let now = UnixMillis::now();
        now.checked_add_millis(retention).unwrap_or(UnixMillis::new(u64::MAX))
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
        self.catalog_follower.stop();
        for inbox in &self.host.inboxes {
            inbox.stop();
        }
        self.host.catalog_inbox.stop();
    }

    /// The rest of [`Self::shut_down`], once the workers have ended.
    pub fn close(&self) {
        self.host.log.close();
        if self.host.log.status() == LogStatus::Ok
            && let Err(error) = boot::end(&self.host.directory.boot())
        {
            tracing::warn!(%error, "the clean end is not written down");
        }
        self.host.disk_readers.close();
        self.host.rocks.shut_down();
    }
}
