//! A node of its own, for tests.

use crate::node_context::NodeContext;
use crate::{Node, NodeConfig};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_cluster::CatalogCommand;
use tessera_store::{Store, Table};
use tessera_types::{Durability, EngineKind, Model, Partitioner, TableSchema, TableSettings};

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct TestNode {
    pub(crate) store: Store,
    pub(crate) context: Arc<NodeContext>,
    pub(crate) node: Node,
    worker: Option<std::thread::JoinHandle<()>>,
    data: tempfile::TempDir,
}

impl TestNode {
    pub(crate) fn start(configure: impl FnOnce(&mut NodeConfig)) -> Self {
        Self::start_with(tempfile::TempDir::new().unwrap(), configure)
    }

    /// Ends, and starts again with what `change` makes of a copy of the data directory: some threads of a node end with the
    /// process only, and keep its lock as long.
    pub(crate) fn restart(mut self, change: impl FnOnce(&Path), configure: impl FnOnce(&mut NodeConfig)) -> Self {
        self.end();
        let data = tempfile::TempDir::new().unwrap();
        copy(self.data.path(), data.path());
        change(data.path());
        Self::start_with(data, configure)
    }

    fn end(&mut self) {
        self.node.shut_down();
        let _ = self.worker.take().map(std::thread::JoinHandle::join);
        self.node.close();
    }

    fn start_with(data: tempfile::TempDir, configure: impl FnOnce(&mut NodeConfig)) -> Self {
        let mut config = NodeConfig { workers: 1, ..NodeConfig::new(data.path()) };
        configure(&mut config);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (node, workers) = Node::open(config, listener).unwrap();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            workers.into_iter().for_each(|worker| runtime.block_on(worker.run()));
        };
        Self {
            store: node.store().clone(),
            context: node.context.clone(),
            node,
            worker: Some(std::thread::spawn(run)),
            data,
        }
    }

    /// A memory table.
    pub(crate) async fn create_table(&self, name: &str, partitions: u32) -> Arc<Table> {
        self.create_table_in(name, partitions, EngineKind::Memory).await
    }

    pub(crate) async fn create_table_in(&self, name: &str, partitions: u32, engine: EngineKind) -> Arc<Table> {
        let durability = if engine == EngineKind::Memory { Durability::None } else { Durability::Soft };
        self.create_durable_table(name, partitions, engine, durability).await
    }

    pub(crate) async fn create_durable_table(
        &self,
        name: &str,
        partitions: u32,
        engine: EngineKind,
        durability: Durability,
    ) -> Arc<Table> {
        let schema = TableSchema {
            engine,
            partitions,
            partitioner: Partitioner::default(),
            model: Model::default(),
            primary_key: None,
            durability,
            replicas: 1,
        };
        self.change(CatalogCommand::Create {
            name: name.into(),
            schema,
            settings: TableSettings::default(),
            absent: Default::default(),
        })
        .await;
        assert!(self.store.wait_until_serving(LIMIT).await);
        self.store.table_named(name).unwrap()
    }

    pub(crate) async fn change(&self, command: CatalogCommand) {
        self.store.change_catalog(command).await.unwrap().unwrap();
    }

    pub(crate) async fn wait_for<T>(&self, what: &str, look: impl Fn(&Store) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            match look(&self.store) {
                Some(found) => return found,
                None => assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.end();
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
