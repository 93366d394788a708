//! The store of one node: its tables, engines, log and workers.

use crate::catalog_listener::OpenTables;
use crate::config::StoreConfig;
use crate::data_directory::{DataDirectory, DataDirectoryError};
use crate::machine::{Operation, PartitionsMachine, Ticket, Verdict, WriteCommand, sync_for};
use crate::maintenance::Maintenance;
use crate::statistics::{self, StoreStatistics};
use crate::table::{Partition, Table, group_of};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tessera_cluster::{
    CATALOG_GROUP, Catalog, CatalogCommand, CatalogError, CatalogFile, CatalogMachine, CatalogRequest, TableEntry,
    TableState,
};
use tessera_consensus::log::{LogBatch, LogRecord, RecoveredGroup};
use tessera_consensus::{GroupId, GroupSettings, GroupStart, Inbox, LogConfig, LogError, LogStatus, SharedLog, Worker};
use tessera_engine::{Engine, EngineError, MemoryBudget, MemoryEngine, RocksStore};
use tessera_types::{Durability, EngineKind, RequestError, TableId, UnixMillis};

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
    recovered: Mutex<HashMap<GroupId, RecoveredGroup>>,
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
    #[error("catalog.json: {0}")]
    Catalog(std::io::Error),
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
        // Groups are started when the registry knows their table: the state machine looks it up there.
        for (id, table) in after.open.iter().filter(|(id, _)| !before.open.contains_key(id)) {
            self.start_groups(*id, table);
        }
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
            .map(|partition| Partition {
                inbox: self.inbox_of(entry.id, partition).clone(),
                watched: Arc::default(),
                is_serving: AtomicBool::new(false),
                reads: AtomicU64::new(0),
                writes: AtomicU64::new(0),
                version: AtomicU64::new(0),
            })
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
        }))
    }

    fn inbox_of(&self, table: TableId, partition: u32) -> &Arc<Inbox<WriteCommand>> {
        &self.inboxes[(table.0 as usize + partition as usize) % self.inboxes.len()]
    }

    fn start_groups(&self, id: TableId, table: &Arc<Table>) {
        let mut recovered = self.recovered.lock();
        for partition in 0..table.schema.partitions {
            let group = group_of(id, partition);
            let persistent = table.schema.is_persistent();
            let settings = GroupSettings::alone(persistent, table.engine.applied_index(partition));
            let recovered = recovered.remove(&group).unwrap_or_default();
            self.inbox_of(id, partition).start(GroupStart { id: group, settings, recovered });
        }
    }

    fn purge(&self, id: TableId, table: &Arc<Table>) {
        for partition in 0..table.schema.partitions {
            table.partitions[partition as usize].is_serving.store(false, Ordering::Release);
            self.inbox_of(id, partition).remove(group_of(id, partition));
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

fn column_family(id: TableId) -> String {
    format!("table-{id}")
}

/// The store of one node. Cheap to clone; [`Store::shut_down`] ends it.
#[derive(Clone)]
pub struct Store {
    host: Arc<Host>,
    catalog: Arc<Inbox<CatalogRequest>>,
    opened: Arc<tokio::sync::Notify>,
    maintenance: Arc<Maintenance>,
}

/// The loop of one worker, to be run on the thread that also runs its core's connections.
pub struct StoreWorker {
    partitions: Worker<PartitionsMachine>,
    /// The first worker also drives the catalog.
    catalog: Option<Worker<CatalogMachine<OpenTables>>>,
}

impl StoreWorker {
    /// Runs until [`Store::shut_down`].
    pub async fn run(self) {
        match self.catalog {
            Some(catalog) => _ = tokio::join!(self.partitions.run(), catalog.run()),
            None => self.partitions.run().await,
        }
    }
}

impl Store {
    /// Opens the data directory and recovers what is in it. The store serves once its workers run; see
    /// [`Self::wait_until_serving`].
    ///
    /// # Errors
    /// If the directory cannot be used or holds damaged data.
    pub fn open(config: StoreConfig) -> Result<(Self, Vec<StoreWorker>), OpenError> {
        assert!(config.workers > 0, "a store has at least one worker");
        let directory = DataDirectory::open(&config.data_directory)?;
        let file = CatalogFile::load(&directory.catalog()).map_err(OpenError::Catalog)?;
        let log_config = LogConfig {
            segment_bytes: config.log_segment_bytes,
            soft_sync_interval: config.soft_sync_interval,
            ..LogConfig::default()
        };
        let (log, mut recovered) = SharedLog::open(&directory.log(), &log_config)?;
        let rocks = RocksStore::open(&directory.rocksdb(), config.rocksdb.clone())?;
        let catalog_inbox = Inbox::new(1_000);
        let settings = GroupSettings::alone(true, file.applied_index);
        let recovered_catalog = recovered.remove(&CATALOG_GROUP).unwrap_or_default();
        catalog_inbox.start(GroupStart { id: CATALOG_GROUP, settings, recovered: recovered_catalog });
        let host = Arc::new(Host {
            memory: Arc::new(MemoryBudget::new(&config.memory)),
            inboxes: (0..config.workers).map(|_| Inbox::new(config.queued_writes)).collect(),
            registry: Arc::default(),
            recovered: Mutex::new(recovered),
            config,
            directory,
            log: log.clone(),
            rocks,
        });
        host.follow(&file.catalog)?;

        let opened = Arc::new(tokio::sync::Notify::new());
        let mut workers: Vec<_> = host
            .inboxes
            .iter()
            .map(|inbox| {
                let machine = PartitionsMachine::new(host.registry.clone(), opened.clone());
                StoreWorker { partitions: Worker::new(machine, inbox.clone(), Some(log.clone())), catalog: None }
            })
            .collect();
        let limits = host.config.limits.clone();
        let machine = CatalogMachine::new(host.directory.catalog(), file, limits, OpenTables(host.clone()));
        workers[0].catalog = Some(Worker::new(machine, catalog_inbox.clone(), Some(log)));
        let maintenance = Maintenance::start(host.clone(), catalog_inbox.clone());
        Ok((Self { host, catalog: catalog_inbox, opened, maintenance: Arc::new(maintenance) }, workers))
    }

    /// Waits until every partition serves, or `timeout` is over. Returns whether they all do.
    pub async fn wait_until_serving(&self, timeout: Duration) -> bool {
        let all = async {
            loop {
                let opened = self.opened.notified();
                if self.is_serving() {
                    return;
                }
                // The pause covers a table that appears between the check and the wait.
                let _ = tokio::time::timeout(Duration::from_millis(50), opened).await;
            }
        };
        tokio::time::timeout(timeout, all).await.is_ok()
    }

    /// Whether every partition of every table serves.
    pub fn is_serving(&self) -> bool {
        let tables = self.host.registry.tables.load();
        tables.by_id.values().flat_map(|table| &table.partitions).all(|state| state.is_serving.load(Ordering::Acquire))
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

    /// The catalog's entries as they are on disk, dropped tables included.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn catalog(&self) -> std::io::Result<Vec<TableEntry>> {
        Ok(CatalogFile::load(&self.host.directory.catalog())?.catalog.tables().cloned().collect())
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
                    if let Err((command, error)) = table.submit(partition, WriteCommand { sync: *sync, ticket }) {
                        command.ticket.answer(Err(error));
                    }
                }
            }
        }
    }

    /// Changes the catalog and returns the table concerned once the change is durable and carried out here.
    ///
    /// Cancellation: the change may still be carried out.
    ///
    /// # Errors
    /// The catalog's reason inside, the node's outside.
    pub async fn change_catalog(
        &self,
        command: CatalogCommand,
    ) -> Result<Result<Option<TableId>, CatalogError>, RequestError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let reply = Box::new(move |outcome| _ = sender.send(outcome));
        if self.catalog.submit(CATALOG_GROUP, CatalogRequest { command, reply }).is_err() {
            return Err(RequestError::Busy);
        }
        match receiver.await {
            Ok(Ok(outcome)) => {
                // Whoever created a table wants to use it: its groups serve a moment later.
                self.wait_until_serving(CREATED_SERVES).await;
                Ok(outcome)
            }
            Ok(Err(tessera_consensus::Failure::NotServing)) => Err(RequestError::NotReady),
            Ok(Err(tessera_consensus::Failure::DiskFull)) => Err(RequestError::DiskFull),
            Ok(Err(tessera_consensus::Failure::DiskFailed(error))) => Err(RequestError::DiskFailed(error)),
            Ok(Err(tessera_consensus::Failure::ShuttingDown)) => Err(RequestError::ShuttingDown),
            Ok(Err(tessera_consensus::Failure::Interrupted)) | Err(_) => Err(RequestError::Interrupted),
        }
    }

    /// When records of a table dropped now are purged.
    pub fn purge_time(&self) -> UnixMillis {
        let retention = u64::try_from(self.host.config.drop_retention.as_millis()).unwrap_or(u64::MAX);
        let now = UnixMillis::now();
        now.checked_add_millis(retention).unwrap_or(UnixMillis::new(u64::MAX))
    }

    /// Deletes all records of a table, partition by partition.
    ///
    /// # Errors
    /// The first partition's that failed; others may be empty already.
    pub async fn truncate(&self, table: &Arc<Table>) -> Result<(), RequestError> {
        let (sender, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
        let partitions = 0..table.schema.partitions;
        let operation: Arc<dyn Operation> = Arc::new(Clear { sender });
        self.write(table, None, &operation, partitions.clone());
        for _ in partitions {
            outcomes.recv().await.unwrap_or(Err(RequestError::Interrupted))?;
        }
        Ok(())
    }

    /// Compacts a table's files. Blocks for as long as that takes.
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
        self.catalog.stop();
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
