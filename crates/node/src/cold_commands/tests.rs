use crate::NodeConfig;
use crate::test_node::TestNode;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tessera_store::hosting::group_of;
use tessera_store::{Operation, Store, Table, Transaction, Verdict, WriteOptions};
use tessera_types::{EngineKind, Expiry, RecordKey, RequestError, ValueKind};

const LONG: Duration = Duration::from_secs(30);
const KEYS: u32 = 2_000;

/// Who has found how many bytes, in the order in which that took effect.
type Found = Arc<Mutex<Vec<(Vec<u8>, usize)>>>;

/// Appends to a record, or replaces it without a look at it.
struct Change {
    key: Vec<u8>,
    reads: bool,
    evaluated: AtomicU32,
    found: Found,
    answer: mpsc::Sender<Result<(), RequestError>>,
}

impl Operation for Change {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        self.evaluated.fetch_add(1, Ordering::SeqCst);
        let mut value = Vec::new();
        if self.reads {
            match transaction.get(&self.key, b"") {
                Ok(record) => value.extend(record.into_iter().flat_map(|record| record.value.to_vec())),
                Err(_) => return Verdict::Abandon,
            }
        }
        self.found.lock().push((self.key.clone(), value.len()));
        value.push(b'x');
        transaction.put(&self.key, b"", &value, Expiry::NEVER, ValueKind::Plain).unwrap();
        Verdict::Commit
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        let _ = self.answer.send(outcome);
    }
}

struct Sent {
    change: Arc<Change>,
    answer: mpsc::Receiver<Result<(), RequestError>>,
}

impl Sent {
    fn answer(&self) -> Result<(), RequestError> {
        self.answer.recv_timeout(LONG).expect("an answer")
    }

    fn is_waiting(&self) -> bool {
        self.answer.try_recv() == Err(mpsc::TryRecvError::Empty)
    }
}

struct Sender {
    table: Arc<Table>,
    found: Found,
}

impl Sender {
    fn send(&self, store: &Store, key: &[u8], reads: bool) -> Sent {
        let (sender, answer) = mpsc::channel();
        let (evaluated, found) = (AtomicU32::new(0), self.found.clone());
        let change = Arc::new(Change { key: key.to_vec(), reads, evaluated, found, answer: sender });
        let operation: Arc<dyn Operation> = change.clone();
        let partition = self.table.partition_of(&RecordKey::new(key, b""));
        store.write(&self.table, WriteOptions::default(), &operation, [partition]);
        Sent { change, answer }
    }
}

fn configure(config: &mut NodeConfig) {
    config.rocksdb.read_threads = 1;
    config.rocksdb.record_cache_bytes = 0;
}

/// A node with records on the disk of which no cache has any, and the keys of each of two partitions, far from each other.
async fn cold() -> (TestNode, Sender, [Vec<Vec<u8>>; 2]) {
    let node = TestNode::start(configure);
    let table = node.create_table_in("t", 2, EngineKind::Rocksdb).await;
    let sender = Sender { table: table.clone(), found: Arc::default() };
    let keys: Vec<Vec<u8>> = (0..KEYS).map(|number| number.to_string().repeat(300).into_bytes()).collect();
    let sent: Vec<Sent> = keys.iter().map(|key| sender.send(&node.store, key, false)).collect();
    sent.iter().for_each(|sent| assert_eq!(sent.answer(), Ok(())));
    (0..2).for_each(|partition| table.engine().make_durable(partition, &|| Ok(())).unwrap());
    let node = node.restart(|_| (), configure);
    assert!(node.store.wait_until_serving(LONG).await);
    let table = node.store.table_named("t").unwrap();
    let of_partition = |partition| {
        let mut keys: Vec<Vec<u8>> = keys.clone();
        keys.retain(|key| table.partition_of(&RecordKey::new(key, b"")) == partition);
        // In the order in which they are stored. The first block was read when the partition was opened.
        keys.sort_by_key(|key| RecordKey::new(key, b"").hash());
        keys.into_iter().skip(100).step_by(100).collect()
    };
    let keys = [of_partition(0), of_partition(1)];
    (node, Sender { table, found: Arc::default() }, keys)
}

/// Keeps the only thread that reads from the disk busy until the sender is dropped.
fn occupy(store: &Store) -> mpsc::Sender<()> {
    let (go_on, wait) = mpsc::channel::<()>();
    store.disk_readers().begin(move || _ = wait.recv_timeout(LONG)).unwrap();
    go_on
}

#[tokio::test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
async fn commands_wait_in_order_for_what_the_disk_has_and_other_partitions_go_on() {
    let (node, sender, [keys, others]) = cold().await;
    let go_on = occupy(&node.store);
    let send = |key: &[u8], reads| sender.send(&node.store, key, reads);
    let appends = [send(&keys[0], true), send(&keys[1], true), send(&keys[0], true)];
    let replaces = [send(&keys[1], false), send(&keys[0], false)];
    // Other partitions go on.
    assert_eq!(send(&others[0], false).answer(), Ok(()));
    assert!(appends.iter().chain(&replaces).all(Sent::is_waiting));
    assert_eq!(*sender.found.lock(), [(others[0].clone(), 0)]);

    drop(go_on);
    appends.iter().chain(&replaces).for_each(|sent| assert_eq!(sent.answer(), Ok(())));
    let key = |at: usize| keys[at].clone();
    let in_order = [(others[0].clone(), 0), (key(0), 1), (key(1), 1), (key(0), 2), (key(1), 0), (key(0), 0)];
    assert_eq!(*sender.found.lock(), in_order);
    let evaluated = |sent: &Sent| sent.change.evaluated.load(Ordering::SeqCst);
    let times: Vec<u32> = appends.iter().chain(&replaces).map(evaluated).collect();
    // What the first two lack is read for each, and nothing is evaluated before its turn.
    assert_eq!(times, [2, 2, 1, 1, 1]);
}

#[tokio::test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
async fn commands_that_wait_are_refused_when_their_partition_goes_or_the_node_stops() {
    let (node, sender, [keys, others]) = cold().await;
    let go_on = occupy(&node.store);
    let send = |key: &[u8], reads| sender.send(&node.store, key, reads);
    let of_partition = |keys: &[Vec<u8>]| [send(&keys[0], true), send(&keys[1], true), send(&keys[2], false)];
    let (going, staying) = (of_partition(&keys), of_partition(&others));
    node.context.inboxes.all()[0].remove(group_of(sender.table.id(), 0));
    going.iter().for_each(|sent| assert_eq!(sent.answer(), Err(RequestError::NotReady), "they may be tried elsewhere"));
    assert!(staying.iter().all(Sent::is_waiting));
    node.node.shut_down();
    staying.iter().for_each(|sent| assert_eq!(sent.answer(), Err(RequestError::ShuttingDown)));
    assert!(sender.found.lock().is_empty());
    drop(go_on);
}
