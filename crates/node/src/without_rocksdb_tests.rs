//! What a build without RocksDB does with tables on RocksDB.

use crate::config::NodeConfig;
use crate::data_directory::DataDirectory;
use crate::node::Node;
use crate::open_error::OpenError;
use crate::test_node::TestNode;
use std::net::TcpListener;
use tessera_cluster::{Catalog, CatalogCommand, CatalogError, CatalogFile, Site};
use tessera_types::{
    ClusterId, Durability, EngineKind, Model, NodeId, Partitioner, ReplicaId, TableSchema, TableSettings,
};

#[tokio::test]
async fn no_such_table_is_created_and_the_default_one_is_in_memory() {
    let node = TestNode::start(|_| {});
    let default = node.store.table_named("default").unwrap();
    assert_eq!((default.schema().engine, default.schema().durability), (EngineKind::Memory, Durability::Hard));
    let schema = TableSchema {
        engine: EngineKind::Rocksdb,
        partitions: 1,
        partitioner: Partitioner::default(),
        model: Model::default(),
        primary_key: None,
        durability: Durability::Hard,
        replicas: 1,
    };
    let create = |name: &str, schema| CatalogCommand::Create {
        name: name.into(),
        schema,
        settings: TableSettings::default(),
        absent: Default::default(),
    };
    let refused = node.store.change_catalog(create("t", schema.clone())).await.unwrap();
    assert_eq!(refused, Err(CatalogError::NoRocksdb));
    assert!(node.store.table_named("t").is_none());
    let schema = TableSchema { engine: EngineKind::Memory, ..schema };
    node.store.change_catalog(create("t", schema)).await.unwrap().unwrap();
}

/// Nothing is converted or written down: a build that has RocksDB finds what it left.
#[test]
fn a_data_directory_with_such_a_table_is_refused() {
    let root = tempfile::TempDir::new().unwrap();
    let directory = DataDirectory::open(root.path()).unwrap();
    let catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    CatalogFile { applied_index: 0, catalog }.save(&directory.catalog()).unwrap();
    let own = ReplicaId { node: NodeId(1), incarnation: 0 };
    crate::identity::save_recovered(&directory.identity(), ClusterId(7), own).unwrap();
    let (log, rocksdb) = (directory.log(), directory.rocksdb());
    drop(directory);
    let config = NodeConfig::new(root.path());
    let error = Node::open(config, TcpListener::bind("127.0.0.1:0").unwrap()).map(|_| ()).unwrap_err();
    assert!(matches!(&error, OpenError::NoRocksdb(table) if table == "default"), "{error}");
    assert_eq!(error.to_string(), "table 'default' is on RocksDB, and this build has no RocksDB engine");
    assert!(!log.exists() && !rocksdb.exists());
}
