use super::steps::{self, Step};
use crate::test_node::TestNode;
use crate::{Store, Table};
use bytes::BytesMut;
use std::sync::Arc;
use tessera_cluster::{CatalogCommand, CopyReport, CopyState};
use tessera_engine::mutation;
use tessera_types::{Expiry, RecordKey, StoredValue};

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
        let value = StoredValue { expiry: Expiry::NEVER, is_field: false, payload: &[7; RECORD_BYTES] };
        let mut record = BytesMut::new();
        mutation::encode_put(&mut record, &RecordKey::new(&hash_key.unwrap(), b""), &value);
        steps::send(&node.store, &table, partition, 0, &Step::Take(record.freeze())).await.unwrap();
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
