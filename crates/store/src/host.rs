//! What a node has: open tables with their engines, groups, the log, and what it knows of the cluster.

use crate::addresses::Addresses;
use crate::admission::Gate;
use crate::clock::ClusterClock;
use crate::comparison::Comparisons;
use crate::config::StoreConfig;
use crate::data_directory::DataDirectory;
use crate::disk_readers::DiskReaders;
use crate::generation::KnownGenerations;
use crate::lease::Lease;
use crate::operation::WriteCommand;
use crate::peers::{self, ServeFace};
use crate::replicas::Replicas;
use crate::snapshot::{Incoming, Outgoing, Progress};
use crate::table::{Partition, Table, group_of, partition_of_group};
use crate::threads::Threads;
use crate::traffic::Traffic;
use arc_swap::ArcSwap;
use bytes::BytesMut;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tessera_cluster::{Catalog, CatalogRequest, TableEntry, TableState};
use tessera_consensus::log::RecoveredGroup;
use tessera_consensus::{GroupId, GroupStart, Inbox, SharedLog};
use tessera_engine::{Engine, EngineError, MemoryBudget, MemoryEngine, RocksStore};
use tessera_transport::{Identity, Transport};
use tessera_types::{EngineKind, NodeId, TableId, TableNumber, TableSchema};

/// The tables that can be reached, swapped as a whole when the catalog changes.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) tables: ArcSwap<Tables>,
}

#[derive(Clone, Default)]
pub(crate) struct Tables {
    pub(crate) by_id: BTreeMap<TableId, Arc<Table>>,
    pub(crate) by_number: BTreeMap<TableNumber, Arc<Table>>,
    pub(crate) by_name: HashMap<String, Arc<Table>>,
    /// Every open table, with those that grow and those that can be recalled.
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
    /// The cluster's time.
    pub(crate) clock: Arc<ClusterClock>,
    pub(crate) inboxes: Vec<Arc<Inbox<WriteCommand>>>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) rocks: Arc<RocksStore>,
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
    /// Whether this node was [removed](crate::removed) from the cluster.
    pub(crate) is_removed: AtomicBool,
    /// When the catalog here was last known to be what its leader had.
    pub(crate) catalog_as_of: Lease,
    /// Whether the catalog here is no older than this start of the node. Before that members are left as they are: what the
    /// node knows may have been given up since.
    pub(crate) knows_catalog: AtomicBool,
    pub(crate) replicas: Replicas,
    pub(crate) addresses: Addresses,
    /// Tables whose time has come, until their files are gone.
    pub(crate) purging: Mutex<Vec<(TableId, Arc<Table>)>>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// What nodes fetch, as they last said; and whether this one has said something.
    pub(crate) fetches: Mutex<HashMap<NodeId, Vec<(GroupId, Progress)>>>,
    pub(crate) tells_fetches: AtomicBool,
    pub(crate) traffic: Traffic,
    pub(crate) comparisons: Comparisons,
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
    pub(crate) must_start_again: tokio::sync::Notify,
    /// Nodes that said that they stop: nobody asks them to lead.
    pub(crate) stopping: Mutex<HashSet<NodeId>>,
    pub(crate) threads: Threads,
    pub(crate) disk_readers: DiskReaders,
    /// Told whenever a partition gets a leader, here or elsewhere.
    pub(crate) opened: tokio::sync::Notify,
    /// What serves the requests of each [`Face`](peers::Face) that came to other nodes.
    pub(crate) faces: [OnceLock<ServeFace>; 3],
}

impl Host {
    /// Takes the cluster's time anew from the clocks of the nodes that the catalog names.
    pub(crate) fn follow_clocks(&self) {
        let catalog = self.catalog.load();
        let others = catalog.nodes().filter(|node| node.id != self.identity.node);
        let distances: Vec<_> = others.map(|node| self.transport.clock_distance(node.id)).collect();
        self.clock.follow(&distances);
    }

    /// Makes the open tables those of the catalog.
    pub(crate) fn follow(&self, catalog: &Catalog) -> Result<(), EngineError> {
        let mut tables = Tables::default();
        let before = self.registry.tables.load_full();
        for entry in catalog.tables() {
            let table = match before.open.get(&entry.id) {
                Some(table) => table.clone(),
                None => self.open_table(entry)?,
            };
            if *table.settings.load_full() != entry.settings || *table.name.load_full() != entry.name {
                table.engine.apply_settings(&entry.settings)?;
                table.gate.set(&entry.settings.admission);
                table.settings.store(Arc::new(entry.settings.clone()));
                table.name.store(Arc::new(entry.name.clone()));
            }
            if *table.indexes.load_full() != entry.indexes {
                table.indexes.store(Arc::new(entry.indexes.clone()));
            }
            for (partition, placement) in table.partitions.iter().zip(&entry.placement) {
                partition.leader.began_with(&placement.founders);
            }
            table.is_dropped.store(entry.is_dropped(), Ordering::Release);
            table.is_splitting.store(entry.split.is_some(), Ordering::Release);
            if entry.state == TableState::Active {
                tables.by_id.insert(entry.id, table.clone());
                tables.by_number.insert(entry.number, table.clone());
                tables.by_name.insert(entry.name.clone(), table.clone());
            }
            tables.open.insert(entry.id, table);
        }
        for (_, split) in before.by_id.iter().filter(|(id, _)| !tables.open.contains_key(id)) {
            if let Some(successor) = tables.by_number.get(&split.number) {
                tracing::info!(table = %split.name.load(), id = %successor.id, "the table was split");
                let _ = split.successor.set(successor.clone());
                split.is_dropped.store(true, Ordering::Release);
            }
        }
        let after = Arc::new(tables);
        self.registry.tables.store(after.clone());
        self.catalog.store(Arc::new(catalog.clone()));
        self.is_alone.store(catalog.nodes().count() <= 1, Ordering::Relaxed);
        // Groups are started when the registry knows their table: the state machine looks it up there.
        self.settle_replicas()?;
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
        let gate = Gate::default();
        gate.set(&entry.settings.admission);
        Ok(Arc::new(Table {
            id: entry.id,
            number: entry.number,
            schema: schema.clone(),
            limits: Arc::new(self.config.limits.clone()),
            name: ArcSwap::from_pointee(entry.name.clone()),
            settings: ArcSwap::from_pointee(entry.settings.clone()),
            indexes: ArcSwap::from_pointee(entry.indexes.clone()),
            gate,
            engine,
            partitions,
            is_dropped: AtomicBool::new(false),
            is_splitting: AtomicBool::new(false),
            successor: OnceLock::new(),
            compaction: Mutex::default(),
            clock: self.clock.clone(),
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
        let mut message = BytesMut::new();
        peers::put_leader(&mut message, table, partition);
        self.transport.broadcast(peers::LEADS, &message);
    }

    /// A table's schema as it is now: the number of replicas may have been altered.
    pub(crate) fn schema(&self, table: &Table) -> TableSchema {
        self.catalog.load().get(table.id).map_or_else(|| table.schema.clone(), |entry| entry.schema.clone())
    }

    fn purge(&self, id: TableId, table: &Arc<Table>) {
        if let Err(error) = self.leave_table(id, table) {
            tracing::warn!(table = %table.name.load(), %error, "replicas of a table that is gone are still written down");
        }
        self.purging.lock().push((id, table.clone()));
    }

    /// Removes the files of purged tables, once no worker has anything to write there any more.
    pub(crate) fn finish_purges(&self) {
        let is_left = |(id, table): &mut (TableId, Arc<Table>)| {
            (0..table.schema.partitions).all(|partition| !self.replicas.is_leaving(group_of(*id, partition)))
        };
        let left: Vec<_> = self.purging.lock().extract_if(.., is_left).collect();
        left.iter().for_each(|(id, table)| self.remove_files(*id, table));
    }

    fn remove_files(&self, id: TableId, table: &Table) {
        let outcome = match table.schema.engine {
            EngineKind::Rocksdb => self.rocks.drop_table(&column_family(id)).map_err(|error| error.to_string()),
            EngineKind::Memory => match std::fs::remove_dir_all(self.directory.memory_table(id)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
                _ => Ok(()),
            },
        };
        match outcome {
            Ok(()) => tracing::info!(table = %table.name.load(), %id, "removed the files of a table that is gone"),
            Err(error) => {
                tracing::warn!(table = %table.name.load(), %error, "files of a table that is gone are left over")
            }
        }
    }

    /// Removes the files of RocksDB tables that went just before a crash.
    pub(crate) fn remove_left_overs(&self, catalog: &Catalog) -> Result<(), EngineError> {
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

fn column_family(id: TableId) -> String {
    format!("table-{id}")
}
