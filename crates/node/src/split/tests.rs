use super::resume::{Resume, resume_stopped};
use super::steps::{self, Step};
use crate::test_node::TestNode;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tessera_cluster::{Catalog, CatalogCommand, CopyReport, CopyState};
use tessera_engine::{ENGINES, mutation};
use tessera_store::hosting::{Partition, group_of};
use tessera_store::{
    Access, Evaluator, Operation, Store, Table, Transacted, Transaction, TransactionPart, Verdict, WriteOptions,
};
use tessera_types::{
    Expiry, Limits, NodeId, Partitioner, RecordKey, RequestError, Space, StoredValue, UnixMillis, ValueKind,
};
use tokio::sync::oneshot;

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

/// Does something to a partition in its loop, and keeps the loop from going on.
pub(super) struct HoldsLoop {
    act: fn(&Partition),
    began: Mutex<Option<oneshot::Sender<()>>>,
    end: Mutex<mpsc::Receiver<()>>,
}

/// The loop goes on when this is dropped.
pub(super) struct Held {
    began: Option<oneshot::Receiver<()>>,
    _end: mpsc::Sender<()>,
}

impl HoldsLoop {
    /// Returns when the loop is held.
    pub(super) async fn begin(node: &TestNode, table: &Table, partition: u32, act: fn(&Partition)) -> Held {
        let mut held = Self::queue(node, table, partition, act);
        held.began.take().unwrap().await.unwrap();
        held
    }

    fn queue(node: &TestNode, table: &Table, partition: u32, act: fn(&Partition)) -> Held {
        let ((sender, began), (held, end)) = (oneshot::channel(), mpsc::channel());
        let holds: Arc<dyn Operation> = Arc::new(Self { act, began: Mutex::new(Some(sender)), end: Mutex::new(end) });
        node.store.write(table, WriteOptions::default(), &holds, [partition]);
        Held { began: Some(began), _end: held }
    }
}

impl Operation for HoldsLoop {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        (self.act)(transaction.partition_state());
        if let Some(began) = self.began.lock().take() {
            let _ = began.send(());
            let _ = self.end.lock().recv();
        }
        Verdict::Abandon
    }

    fn seals_or_reopens(&self) -> bool {
        true
    }

    fn answer(&self, _part: usize, _outcome: Result<(), RequestError>) {}
}

/// Puts a key with itself as its value.
struct Puts;

const SERVICE: u8 = 200;
const LIMIT: Duration = Duration::from_secs(60);

impl Evaluator for Puts {
    fn evaluate(&self, key: &Bytes, transaction: &mut Transaction<'_>) -> Result<Bytes, Bytes> {
        transaction
            .put(key, b"", key, Expiry::NEVER, ValueKind::Plain)
            .map_err(|error| Bytes::from(error.to_string()))?;
        Ok(Bytes::new())
    }
}

fn in_an_hour() -> UnixMillis {
    UnixMillis::new(UnixMillis::now().get() + 3_600_000)
}

fn key_of(table: &Table, partition: u32) -> Bytes {
    let is_there = |key: &[u8; 4]| table.partition_of(&RecordKey::new(key, b"")) == partition;
    Bytes::copy_from_slice(&(0u32..).map(u32::to_le_bytes).find(is_there).unwrap())
}

fn part(table: &Arc<Table>, partition: u32) -> TransactionPart {
    let key = key_of(table, partition);
    let locks = vec![(key.clone(), Access::Exclusive)];
    TransactionPart { table: table.clone(), partition, durability: None, locks, operation: key }
}

/// Whether what [`part`] puts is there.
fn is_put(table: &Table, partition: u32) -> bool {
    table.engine().get(partition, &RecordKey::new(&key_of(table, partition), b""), &mut |_| ()).unwrap()
}

/// Intents and decisions that were on their way when the partition was reopened were once forgotten: what was acknowledged was lost. And requests were
/// let in before the loop had reopened it.
#[tokio::test]
async fn a_partition_of_a_recalled_table_is_reopened_by_its_loop_and_forgets_nothing() {
    let node = TestNode::start(|_| {});
    let puts = Arc::new(Puts);
    node.store.evaluate_for(SERVICE, &puts);
    node.create_table("t", PARTITIONS).await;
    let number = node.store.truncate("t", in_an_hour()).await.unwrap().unwrap();
    node.change(CatalogCommand::Recall { number, to: Some("before".into()) }).await;
    let table = node.wait_for("the table", |store| store.table_named("before")).await;
    let state = table.partition(1);
    let all_serve = |_: &Store| table.partitions().iter().all(Partition::is_serving).then_some(());
    node.wait_for("the recalled table serves", all_serve).await;

    // All of this is evaluated in one pass, so nothing is applied in between.
    let held = HoldsLoop::begin(&node, &table, 1, |_| ()).await;
    let writes = state.meter().counts().writes;
    let (store, parts) = (node.store.clone(), vec![part(&table, 0), part(&table, 1)]);
    let transacting = tokio::spawn(async move { store.transact(SERVICE, parts, Instant::now() + LIMIT).await });
    let is_asked = |_: &Store| (state.meter().counts().writes > writes).then_some(());
    node.wait_for("the participant is asked to prepare", is_asked).await;
    let stops = HoldsLoop::queue(&node, &table, 1, Partition::stop_serving);
    let resume: Arc<dyn Operation> = Arc::new(Resume::new(&node.context, group_of(table.id(), 1)));
    node.store.write(&table, WriteOptions::default(), &resume, [1]);
    drop((held, stops));
    assert!(matches!(transacting.await.unwrap(), Transacted::Committed(_)));
    let are_put = |_: &Store| (is_put(&table, 0) && is_put(&table, 1)).then_some(());
    node.wait_for("what was acknowledged", are_put).await;

    let held = HoldsLoop::begin(&node, &table, 1, |state| {
        state.stop_serving();
        state.change_capture().seal();
    })
    .await;
    resume_stopped(&node.context);
    assert!(state.change_capture().refuses_requests(), "the loop has not reopened it yet");
    drop(held);
    node.wait_for("it serves again", all_serve).await;
    assert!(!state.change_capture().refuses_requests());
}

/// A partition whose ledger could not be read when its leader was elected once stayed closed until another replica led it.
#[tokio::test]
async fn a_partition_that_could_not_be_read_is_looked_at_again() {
    let node = TestNode::start(|_| {});
    let table = node.create_table("t", PARTITIONS).await;
    let state = table.partition(1);
    let held = HoldsLoop::begin(&node, &table, 1, |state| {
        state.stop_leading();
        state.lead();
        state.change_capture().seal();
    })
    .await;
    assert!(state.is_leading() && !state.is_serving() && !state.ledger().is_restored());
    drop(held);
    // The node's driver looks at it, too.
    resume_stopped(&node.context);
    node.wait_for("it serves again", |_| state.is_serving().then_some(())).await;
    assert!(state.ledger().is_restored() && !state.change_capture().refuses_requests());
}

/// Puts, and once, where a part is prepared, keeps the anchor's table from deciding.
struct PutsBeforeDecision {
    anchor: Arc<Table>,
    has_stopped: AtomicBool,
}

impl Evaluator for PutsBeforeDecision {
    fn evaluate(&self, key: &Bytes, transaction: &mut Transaction<'_>) -> Result<Bytes, Bytes> {
        if transaction.table().id() != self.anchor.id() && !self.has_stopped.swap(true, Ordering::Relaxed) {
            self.anchor.partition(0).stop_serving();
        }
        Puts.evaluate(key, transaction)
    }
}

/// The catalog as of when a table had been truncated.
fn with_truncated(catalog: &Catalog, name: &str) -> Catalog {
    let mut dropped = catalog.clone();
    dropped.apply(&CatalogCommand::drop(name, in_an_hour()), &Limits::default()).unwrap();
    let json = serde_json::to_string(&dropped).unwrap();
    let truncated = json.replace(r#""is":"dropped""#, r#""is":"dropped","was_truncated":true"#);
    serde_json::from_str(&truncated).unwrap()
}

/// A node that had not heard of a recall once dropped intents of transactions that were then committed in the recalled table.
#[tokio::test]
async fn an_intent_is_kept_as_long_as_the_table_of_its_anchor_may_have_been_recalled() {
    /// Intents are looked after when they are 0.7 seconds old.
    const LOOKED_AFTER: Duration = Duration::from_secs(2);
    let node = TestNode::start(|_| {});
    let (anchor, other) = (node.create_table("anchor", 1).await, node.create_table("other", 1).await);
    let evaluator = Arc::new(PutsBeforeDecision { anchor: anchor.clone(), has_stopped: AtomicBool::new(false) });
    node.store.evaluate_for(SERVICE, &evaluator);
    let (store, parts) = (node.store.clone(), vec![part(&anchor, 0), part(&other, 0)]);
    let transacting = tokio::spawn(async move { store.transact(SERVICE, parts, Instant::now() + LIMIT).await });
    let open = |store: &Store| store.statistics().transactions.open;
    node.wait_for("the participant has prepared", |store| (open(store) == 1).then_some(())).await;

    // As if the anchor's table had been truncated and recalled before, and this node had heard of the truncation only.
    let (view, now) = (&node.context.view, node.context.view.catalog());
    view.set_catalog_leader(NodeId(0));
    view.set_catalog(Arc::new(with_truncated(&now, "anchor")));
    assert!(node.store.catalog().get(anchor.id()).unwrap().is_sealed());
    let began = Instant::now();
    let is_over = |store: &Store| (open(store) == 0 || began.elapsed() >= LOOKED_AFTER).then_some(());
    node.wait_for("the intent is looked after", is_over).await;
    assert_eq!(open(&node.store), 1, "nobody knows yet whether it is committed");

    view.set_catalog(now);
    view.set_catalog_leader(node.store.node());
    anchor.partition(0).serve();
    assert!(matches!(transacting.await.unwrap(), Transacted::Committed(_)));
    node.wait_for("all of it", |_| (is_put(&anchor, 0) && is_put(&other, 0)).then_some(())).await;
}

/// Where the catalog's leader says that the table was not recalled, nobody waits for a decision.
#[tokio::test]
async fn an_intent_is_dropped_when_it_is_certain_that_the_table_of_its_anchor_has_ended() {
    let node = TestNode::start(|_| {});
    let (anchor, other) = (node.create_table("anchor", 1).await, node.create_table("other", 1).await);
    let evaluator = Arc::new(PutsBeforeDecision { anchor: anchor.clone(), has_stopped: AtomicBool::new(false) });
    node.store.evaluate_for(SERVICE, &evaluator);
    let (store, parts) = (node.store.clone(), vec![part(&anchor, 0), part(&other, 0)]);
    let transacting = tokio::spawn(async move { store.transact(SERVICE, parts, Instant::now() + LIMIT).await });
    let open = |store: &Store| store.statistics().transactions.open;
    node.wait_for("the participant has prepared", |store| (open(store) == 1).then_some(())).await;
    let now = node.context.view.catalog();
    node.context.view.set_catalog(Arc::new(with_truncated(&now, "anchor")));
    node.wait_for("the intent is dropped", |store| (open(store) == 0).then_some(())).await;
    transacting.abort();
}
