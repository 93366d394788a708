use super::steps::{self, Step};
use crate::{Store, StoreConfig, Table};
use bytes::BytesMut;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_cluster::{CatalogCommand, CopyReport, CopyState};
use tessera_engine::mutation;
use tessera_types::{
    Durability, EngineKind, Expiry, Model, Partitioner, RecordKey, StoredValue, TableSchema, TableSettings,
};

const PARTITIONS: u32 = 2;
/// Whoever takes a record of this size as his turn makes the next one wait for two seconds.
const RECORD_BYTES: usize = 200_000;
const BYTES_PER_SECOND: u64 = 100_000;
const LIMIT: Duration = Duration::from_secs(60);

/// A node of its own that copies slowly.
struct Node {
    store: Store,
    worker: Option<std::thread::JoinHandle<()>>,
    _data: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        let data = tempfile::TempDir::new().unwrap();
        let config =
            StoreConfig { workers: 1, move_bytes_per_second: BYTES_PER_SECOND, ..StoreConfig::new(data.path()) };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (store, workers) = Store::open(config, listener).unwrap();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            workers.into_iter().for_each(|worker| runtime.block_on(worker.run()));
        };
        Self { store, worker: Some(std::thread::spawn(run)), _data: data }
    }

    /// A table with a large record in each partition.
    async fn create_table(&self) -> Arc<Table> {
        let schema = TableSchema {
            engine: EngineKind::Memory,
            partitions: PARTITIONS,
            partitioner: Partitioner::default(),
            model: Model::default(),
            durability: Durability::None,
            replicas: 1,
        };
        self.change(CatalogCommand::Create { name: "t".into(), schema, settings: TableSettings::default() }).await;
        assert!(self.store.wait_until_serving(LIMIT).await);
        let table = self.store.table_named("t").unwrap();
        for partition in 0..PARTITIONS {
            let keys = (0..).map(|number: u32| number.to_le_bytes());
            let hash_key = keys.into_iter().find(|key| table.partition_of(&RecordKey::new(key, b"")) == partition);
            let value = StoredValue { expiry: Expiry::NEVER, is_field: false, payload: &[7; RECORD_BYTES] };
            let mut record = BytesMut::new();
            mutation::encode_put(&mut record, &RecordKey::new(&hash_key.unwrap(), b""), &value);
            steps::send(&self.store, &table, partition, 0, &Step::Take(record.freeze())).await.unwrap();
        }
        table
    }

    async fn change(&self, command: CatalogCommand) {
        self.store.change_catalog(command).await.unwrap().unwrap();
    }

    async fn wait_for<T>(&self, what: &str, look: impl Fn(&Store) -> Option<T>) -> T {
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

impl Drop for Node {
    fn drop(&mut self) {
        self.store.shut_down();
        let _ = self.worker.take().map(std::thread::JoinHandle::join);
        self.store.close();
    }
}

/// A node that led once, and waited for its turn since, says that it begins and finds then that it does not lead any more.
#[tokio::test]
async fn a_copier_that_has_caught_up_begins_anew_when_it_was_overtaken_by_one_that_ended() {
    let node = Node::start();
    let table = node.create_table().await;
    node.change(CatalogCommand::Split { name: "t".into(), partitions: 2 * PARTITIONS }).await;
    let caught_up = |store: &Store| {
        let catalog = store.catalog();
        let copies = &catalog.get(table.id())?.split.as_ref()?.copies;
        copies.iter().position(|state| matches!(state, CopyState::CaughtUp(_)))
    };
    let partition = node.wait_for("the first partition is copied", caught_up).await as u32;
    let report = CopyReport::Begun;
    node.change(CatalogCommand::Copy { table: table.id(), partition, attempt: 1, report }).await;
    let split = |store: &Store| store.table_named("t").filter(|table| table.schema().partitions == 2 * PARTITIONS);
    node.wait_for("the table is split", split).await;
}
