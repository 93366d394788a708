//! Tables without a node, for tests: this node leads and serves their partitions, of which there is one as a rule, for ever.

use crate::clock::ClusterClock;
use crate::partition::Partition;
use crate::table::Table;
use std::ops::Deref;
use std::sync::Arc;
use tessera_cluster::{Catalog, CatalogCommand, Changed, Site, TableEntry};
use tessera_consensus::Inbox;
use tessera_engine::{Engine, MemoryBudget, MemoryConfig, MemoryEngine, RocksConfig, RocksStore};
use tessera_types::{Durability, EngineKind, Limits, Model, NodeId, Partitioner, TableSchema, TableSettings};

pub(crate) struct TestTable {
    table: Arc<Table>,
    /// What the catalog says of it.
    pub(crate) entry: TableEntry,
    /// What its engine needs as long as it lives.
    _rocks: Option<(Arc<RocksStore>, tempfile::TempDir)>,
}

impl TestTable {
    pub(crate) fn open(engine: EngineKind) -> Self {
        Self::with_partitions(engine, 1)
    }

    pub(crate) fn with_partitions(engine: EngineKind, partitions: u32) -> Self {
        let durability = if engine == EngineKind::Memory { Durability::None } else { Durability::Soft };
        let schema = TableSchema {
            engine,
            partitions,
            partitioner: Partitioner::default(),
            model: Model::default(),
            primary_key: None,
            durability,
            replicas: 1,
        };
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let create = CatalogCommand::Create {
            name: "t".into(),
            schema,
            settings: TableSettings::default(),
            absent: Default::default(),
        };
        let Changed::Table(id) = catalog.apply(&create, &Limits::default()).unwrap() else { panic!("a table") };
        let entry = catalog.get(id).unwrap().clone();
        let (engine, rocks): (Box<dyn Engine>, _) = match engine {
            EngineKind::Memory => {
                let budget = Arc::new(MemoryBudget::new(&MemoryConfig::default()));
                (Box::new(MemoryEngine::open(partitions, budget, None).unwrap()), None)
            }
            EngineKind::Rocksdb => {
                let directory = tempfile::TempDir::new().unwrap();
                let rocks = RocksStore::open(directory.path(), RocksConfig::default()).unwrap();
                (rocks.open_table("t", partitions).unwrap(), Some((rocks, directory)))
            }
        };
        let led = |_| {
            let partition = Partition::new(Inbox::<()>::new(1));
            partition.start_replica(0, true);
            partition.lead();
            partition.serve();
            partition.set_lease(None);
            partition
        };
        let all = (0..partitions).map(led).collect();
        let clock = Arc::new(ClusterClock::default());
        clock.follow(&[], &[]);
        let table = Table::new(&entry, engine, all, Arc::new(Limits::default()), clock, NodeId(1));
        Self { table: Arc::new(table), entry, _rocks: rocks }
    }

    /// The table of an engine that needs nothing else.
    pub(crate) fn shared(&self) -> Arc<Table> {
        self.table.clone()
    }
}

impl Deref for TestTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}
