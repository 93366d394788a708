use crate::test_node::TestNode;
use bytes::BytesMut;
use std::sync::atomic::Ordering;
use tessera_cluster::CatalogCommand;
use tessera_engine::{Applied, mutation};
use tessera_types::{
    Durability, EngineKind, Expiry, Model, Partitioner, ReadMode, RecordKey, RequestError, StoredValue, TableSchema,
    TableSettings, UnixMillis,
};

fn put(key: &RecordKey<'_>, value: &[u8]) -> bytes::Bytes {
    let mut payload = BytesMut::new();
    mutation::encode_put(&mut payload, key, &StoredValue { expiry: Expiry::NEVER, is_field: false, payload: value });
    payload.freeze()
}

#[tokio::test]
async fn a_read_waits_for_what_was_acknowledged_before_it_also_if_that_is_applied_while_it_reads() {
    let node = TestNode::start(|_| ());
    let schema = TableSchema {
        engine: EngineKind::Rocksdb, // its visitors may write
        partitions: 1,
        partitioner: Partitioner::default(),
        model: Model::default(),
        durability: Durability::Soft,
        replicas: 1,
    };
    node.change(CatalogCommand::Create {
        name: "t".into(),
        schema,
        settings: TableSettings::default(),
        absent: Default::default(),
    })
    .await;
    let table = node
        .wait_for("the table serves", |store| store.table_named("t").filter(|table| table.known_leader(0).is_some()));
    let table = table.await;
    let key = RecordKey::new(b"key", b"");
    let apply = |value: &[u8]| {
        let index = table.engine.applied_index(0) + 1;
        table.engine.write(&[Applied { partition: 0, index, payloads: &[put(&key, value)] }]).unwrap();
        index
    };
    apply(b"old");
    // From here on the record cache has it, so that visitors hold nothing of the engine's.
    assert_eq!(table.read(&key, ReadMode::Single, UnixMillis::now(), &mut |_| ()), Ok(true));

    let acknowledged = table.engine.applied_index(0) + 1;
    table.partitions[0].answered_early.store(acknowledged, Ordering::Release);
    let mut found = Vec::new();
    let outcome = table.read(&key, ReadMode::Single, UnixMillis::now(), &mut |value| {
        found = value.payload.to_vec();
        assert_eq!(apply(b"new"), acknowledged);
    });
    assert!(outcome == Err(RequestError::NotReady) || found == b"new", "{outcome:?} with {:?}", found.escape_ascii());
    if table.engine.applied_index(0) < acknowledged {
        apply(b"new");
    }
    let outcome = table.read(&key, ReadMode::Single, UnixMillis::now(), &mut |value| found = value.payload.to_vec());
    assert_eq!((outcome, &found[..]), (Ok(true), &b"new"[..]));
}
