use super::steps::{self, Step};
use crate::test_node::TestNode;
use bytes::BytesMut;
use std::sync::Arc;
use tessera_cluster::{CatalogCommand, CopyReport, CopyState};
use tessera_engine::{ENGINES, mutation};
use tessera_store::{Store, Table};
use tessera_types::{Expiry, Partitioner, RecordKey, Space, StoredValue, ValueKind};

const PARTITIONS: u32 = 2;
/// Whoever takes a record of this size as his turn makes the next one wait for two seconds.
const RECORD_BYTES: usize = 200_000;
const BYTES_PER_SECOND: u64 = 100_000;

/// A table with a large record in each partition.
async fn create_table(node: &TestNode) -> Arc<Table> {
    let table = node.create_table("t", PARTITIONS).await;
    for partition in 0..PARTITIONS {
        let keys = (0..).map(|number: u32| number.to_le_bytes());
        let hash_key = keys.into_iter().find(|key| table.partition_of(&RecordKey::new(key, b"")) == partition);
        let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &[7; RECORD_BYTES] };
        let mut record = BytesMut::new();
        mutation::encode_put(&mut record, &RecordKey::new(&hash_key.unwrap(), b""), &value);
        steps::send(&node.context, &table, partition, 0, &Step::Take(record.freeze())).await.unwrap();
    }
    table
}

/// A node that led once, and waited for its turn since, says that it begins and finds then that it does not lead any more.
#[tokio::test]
async fn a_copier_that_has_caught_up_begins_anew_when_it_was_overtaken_by_one_that_ended() {
    let node = TestNode::start(|config| config.move_bytes_per_second = BYTES_PER_SECOND);
    let table = create_table(&node).await;
    node.change(CatalogCommand::Split { name: "t".into(), partitions: 2 * PARTITIONS, absent: Default::default() })
        .await;
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

/// A document is placed by its key, what indexes hold of it goes with it, and what a partition keeps about itself stays.
#[tokio::test]
async fn documents_and_index_entries_are_split_by_where_they_belong() {
    const DOCUMENTS: u32 = 2_500;
    let node = TestNode::start(|_| {});
    let index = Space(Space::FIRST_INDEX.0);
    let entry = |key: &[u8]| [b"secondary", key, &[9, 0]].concat();
    let change = |key: &[u8]| [&7_u64.to_be_bytes()[..], key].concat();
    for engine in ENGINES.iter().copied() {
        let name = format!("in-{engine}");
        let table = node.create_table_in(&name, PARTITIONS, engine).await;
        let keys: Vec<Vec<u8>> = (0..DOCUMENTS).map(|number| number.to_string().into_bytes()).collect();
        let mut written = vec![BytesMut::new(); PARTITIONS as usize];
        for key in &keys {
            let partition = Space::DOCUMENTS.partition_of(key, Partitioner::Crc64, PARTITIONS).unwrap();
            let out = &mut written[partition as usize];
            mutation::encode_put_in(out, Space::DOCUMENTS, key, b"document");
            mutation::encode_put_in(out, index, &entry(key), b"");
            mutation::encode_put_in(out, Space::INDEXES, b"list", b"of indexes");
            mutation::encode_put_in(out, Space::CHANGES, &change(key), b"change");
        }
        for (partition, payload) in (0..).zip(written) {
            steps::send(&node.context, &table, partition, 0, &Step::Take(payload.freeze())).await.unwrap();
        }
        node.change(CatalogCommand::Split {
            name: name.clone(),
            partitions: 2 * PARTITIONS,
            absent: Default::default(),
        })
        .await;
        let split =
            |store: &Store| store.table_named(&name).filter(|table| table.schema().partitions == 2 * PARTITIONS);
        let table = node.wait_for("the table is split", split).await;
        for key in &keys {
            let partition = Space::DOCUMENTS.partition_of(key, Partitioner::Crc64, 2 * PARTITIONS).unwrap();
            for at in 0..2 * PARTITIONS {
                let is_there = |space, key: &[u8]| table.engine().get_in(at, space, key, &mut |_| ()).unwrap();
                assert_eq!(is_there(Space::DOCUMENTS, key), at == partition);
                assert_eq!(is_there(index, &entry(key)), at == partition);
                assert!(is_there(Space::INDEXES, b"list"), "both new partitions know of the indexes");
                assert_eq!(is_there(Space::CHANGES, &change(key)), at == partition);
                assert!(!is_there(Space::SYSTEM, mutation::SEAL));
            }
        }
    }
}
