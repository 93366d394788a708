//! Nodes with the Redis face inside the test's process, for what must be brought about exactly.

use crate::server::{RedisConfig, RedisServer};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tessera_access::{Authenticator, Users};
use tessera_cluster::{CatalogCommand, Site};
use tessera_node::{Node, NodeConfig};
use tessera_store::{Store, Table};
use tessera_types::{Durability, EngineKind, Model, Partitioner, TableSchema, TableSettings};

const LIMIT: Duration = Duration::from_secs(60);

/// A node, until dropped.
pub(crate) struct TestNode {
    pub(crate) store: Store,
    pub(crate) node: Node,
    pub(crate) server: Arc<RedisServer>,
    peer: String,
    worker: Option<JoinHandle<()>>,
    _data: tempfile::TempDir,
}

/// Settings with which tests run, if they care for none.
pub(crate) fn config() -> RedisConfig {
    RedisConfig {
        max_clients: 1_000,
        write_timeout: Duration::from_secs(10),
        client_memory: tessera_face::ClientMemory::new(0),
        slow_log_micros: -1,
        slow_log_entries: 128,
        authenticator: Arc::new(Authenticator::new(Users::new(Vec::new()))),
        transactions_over_partitions: true,
        databases: 0,
        port: 0,
    }
}

/// Waits until `look` finds something.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Some(found) => return found,
            None => assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

impl TestNode {
    /// Starts the first node of a cluster, or one that joins `first`.
    pub(crate) fn start(first: Option<&Self>, redis: RedisConfig) -> Self {
        Self::start_with(first, redis, |_| {})
    }

    pub(crate) fn start_with(
        first: Option<&Self>,
        redis: RedisConfig,
        configure: impl FnOnce(&mut NodeConfig),
    ) -> Self {
        let data = tempfile::TempDir::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let peer = listener.local_addr().unwrap().to_string();
        let mut config = NodeConfig {
            workers: 1,
            site: Site { peer: peer.clone(), ..Site::default() },
            join: first.map(|first| first.peer.clone()).into_iter().collect(),
            ..NodeConfig::new(data.path())
        };
        configure(&mut config);
        // It waits for the cluster to let it in, on a runtime of its own.
        let opened = std::thread::spawn(move || Node::open(config, listener).unwrap());
        let (node, workers) = opened.join().unwrap();
        let store = node.store().clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            workers.into_iter().for_each(|worker| runtime.block_on(worker.run()));
        };
        let server = RedisServer::start(store.clone(), redis, None);
        Self { store, node, server, peer, worker: Some(std::thread::spawn(run)), _data: data }
    }

    /// A table with one replica of each partition, which serves.
    pub(crate) async fn create_table(&self, name: &str, engine: EngineKind, partitions: u32) -> Arc<Table> {
        self.create_replicated_table(name, engine, partitions, 1).await
    }

    pub(crate) async fn create_replicated_table(
        &self,
        name: &str,
        engine: EngineKind,
        partitions: u32,
        replicas: u8,
    ) -> Arc<Table> {
        let schema = TableSchema {
            engine,
            partitions,
            partitioner: Partitioner::RedisSlots,
            model: Model::default(),
            primary_key: None,
            durability: if engine == EngineKind::Memory { Durability::None } else { Durability::Soft },
            replicas,
        };
        let create = CatalogCommand::Create {
            name: name.into(),
            schema,
            settings: TableSettings::default(),
            absent: Default::default(),
        };
        self.store.change_catalog(create).await.unwrap().unwrap();
        self.table(name).await
    }

    /// The table, once this node knows who leads its partitions.
    pub(crate) async fn table(&self, name: &str) -> Arc<Table> {
        wait_for("the table serves", || {
            let table = self.store.table_named(name)?;
            (0..table.schema().partitions).all(|at| table.known_leader(at).is_some()).then_some(table)
        })
        .await
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.node.shut_down();
        let _ = self.worker.take().map(JoinHandle::join);
        self.node.close();
    }
}
