//! How a node opens its data directory, and begins.

use crate::catalog_follower::{CatalogFollower, CatalogNews};
use crate::comparison::Comparisons;
use crate::config::NodeConfig;
use crate::conversion::{convert_log, convert_records};
use crate::data_directory::DataDirectory;
use crate::generation::KnownGenerations;
use crate::known_damage::KnownDamage;
use crate::machine::PartitionsMachine;
use crate::maintenance::Maintenance;
use crate::node::Node;
use crate::node_context::NodeContext;
use crate::open_error::OpenError;
use crate::peers::{GroupMessages, PeerHandler};
use crate::refused_writes::RefusedWrites;
use crate::replicas::Replicas;
use crate::snapshot::{Incoming, Outgoing};
use crate::stopping_nodes::StoppingNodes;
use crate::threads::{self, Threads};
use crate::traffic::Traffic;
use crate::worker::NodeWorker;
use crate::{boot, driver, identity, overtaken, recovery};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;
use tessera_cluster::{CATALOG_GROUP, Catalog, CatalogFile, CatalogMachine, catalog_replica as catalog_replica_of};
use tessera_consensus::log::{LogBatch, LogRecord, RecoveredGroup};
use tessera_consensus::{GroupSettings, GroupStart, Inbox, LogConfig, SharedLog, Worker};
use tessera_engine::{ENGINES, MemoryBudget, RocksStore};
use tessera_store::hosting::{ClusterClock, ClusterView, Inboxes, Registry, StoreParts};
use tessera_store::{DiskReaders, Store};
use tessera_transport::Transport;
use tokio::sync::Notify;

impl Node {
    /// Opens the data directory and recovers what is in it, or joins a cluster first. The node serves once its workers
    /// run; see [`Store::wait_until_serving`]. Other nodes are heard on `listener`, on a thread of its own.
    ///
    /// # Errors
    /// If the directory cannot be used or holds damaged data, or the cluster does not let the node in.
    pub fn open(config: NodeConfig, listener: std::net::TcpListener) -> Result<(Self, Vec<NodeWorker>), OpenError> {
        assert!(config.workers > 0, "a node has at least one worker");
        let mut directory = DataDirectory::open(&config.data_directory)?;
        let runtime = threads::runtime().map_err(OpenError::Thread)?;
        let mut identity = identity::establish(&config, &directory, &runtime)?;
        let file = CatalogFile::load(&directory.catalog()).map_err(|error| OpenError::File("catalog.json", error))?;
        let mut file = file.unwrap_or_default();
        if let Some(table) = file.catalog.tables().find(|table| !ENGINES.contains(&table.schema.engine)) {
            return Err(OpenError::NoRocksdb(table.name.clone()));
        }
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
        convert_log(&mut directory)?;
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
        convert_records(&mut directory, &rocks)?;
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
            initial_members: if catalog_replica == founder && !start.is_overtaken { vec![founder] } else { Vec::new() },
        };
        let catalog_start = GroupStart { id: CATALOG_GROUP, settings, recovered: recovered_catalog };
        let replicas =
            Replicas::load(&directory.replicas()).map_err(|error| OpenError::File("replicas.json", error))?;
        let view = Arc::new(ClusterView::new(file.catalog.clone()));
        let (registry, clock, leader_news): (Arc<Registry>, Arc<ClusterClock>, Arc<Notify>) = Default::default();
        let memory = Arc::new(MemoryBudget::new(&config.memory));
        let catalog_inbox = Inbox::new(10_000);
        let disk_readers = Arc::new(DiskReaders::new(config.rocksdb.read_threads));
        let inboxes = Arc::new(Inboxes::new(config.workers, config.queued_writes));
        let store = Store::new(StoreParts {
            identity,
            registry: registry.clone(),
            view: view.clone(),
            clock: clock.clone(),
            transport: transport.clone(),
            log: log.clone(),
            memory: memory.clone(),
            rocks: rocks.clone(),
            disk_readers: disk_readers.clone(),
            catalog_inbox: catalog_inbox.clone(),
            inboxes: inboxes.clone(),
            leader_news: leader_news.clone(),
            drop_retention: config.drop_retention,
        });
        let context = Arc::new(NodeContext {
            store,
            memory,
            inboxes,
            registry,
            clock,
            recovered: Mutex::new(recovered),
            config,
            incoming: Incoming::after_restart(&directory.snapshots()),
            directory,
            log: log.clone(),
            rocks,
            identity,
            transport: transport.clone(),
            view,
            catalog_inbox,
            leader_news,
            replicas,
            addresses: Arc::default(),
            purging: Mutex::default(),
            outgoing: Outgoing::default(),
            fetches: Mutex::default(),
            tells_fetches: AtomicBool::new(false),
            traffic: Traffic::default(),
            comparisons: Comparisons::default(),
            damage: KnownDamage::default(),
            refused_writes: RefusedWrites::default(),
            elections_won: AtomicU64::new(0),
            has_lost_tail,
            owes_renewal: AtomicBool::new(has_lost_tail || start.is_overtaken),
            is_overtaken: start.is_overtaken,
            holds_back: AtomicBool::new(true),
            current_from: AtomicU64::new(u64::MAX),
            catalog_start: Mutex::new(Some(catalog_start)),
            generations,
            began: Instant::now(),
            must_start_again: Notify::new(),
            stopping: StoppingNodes::default(),
            threads: Threads::default(),
            disk_readers,
        });
        if others == 0 && !start.is_overtaken {
            context.take_part();
        }
        context.follow(&file.catalog)?;
        context.follow_clocks();
        context.remove_left_overs(&file.catalog)?;

        let messages = Arc::new(GroupMessages(transport.clone()));
        let mut workers: Vec<_> = context
            .inboxes
            .all()
            .iter()
            .map(|inbox| {
                let machine = PartitionsMachine::new(context.clone());
                let worker = Worker::new(machine, inbox.clone(), Some(log.clone()));
                NodeWorker { partitions: worker.with_transport(messages.clone()), catalog: None, peers: None }
            })
            .collect();
        let limits = context.config.limits.clone();
        let catalog_follower = CatalogFollower::start(context.clone()).map_err(OpenError::Thread)?;
        let news = CatalogNews { context: context.clone(), follower: catalog_follower.clone() };
        let machine = CatalogMachine::new(file, limits, news);
        let catalog = Worker::new(machine, context.catalog_inbox.clone(), Some(log));
        workers[0].catalog = Some(catalog.with_transport(messages));
        workers[0].peers = Some((transport, listener));
        let maintenance = Maintenance::start(context.clone()).map_err(OpenError::Thread)?;
        let _ = handler.context.set(context.clone());
        let driven = context.clone();
        let run = move || runtime.block_on(driver::run(driven));
        std::thread::Builder::new().name("driver".into()).spawn(run).map_err(OpenError::Thread)?;
        Ok((Self { context, maintenance: Arc::new(maintenance), catalog_follower }, workers))
    }
}
