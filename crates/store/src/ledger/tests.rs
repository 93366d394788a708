//! A partition's part in transactions, with its log entry by entry.

use super::{Asked, Evaluator, LedgerStep, OnTables, PartitionLedger, PartitionName};
use crate::ledger::FaceOperation;
use crate::ledger::data::IntendedWrites;
use crate::operation::{Operation, Verdict};
use crate::overlay::Overlay;
use crate::test_table::TestTable;
use crate::transaction::{Times, Transaction};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tessera_engine::{Applied, ENGINES};
use tessera_transaction::{Access, Age, Answer, Decide, Entry, Intent, Outcome, Prepare, Request, TransactionId};
use tessera_types::{
    EngineKind, Expiry, NodeId, ReadMode, RecordKey, RequestError, Space, TableId, UnixMillis, ValueKind,
};

fn now() -> UnixMillis {
    UnixMillis::new(1_000_000)
}

const ANCHOR: PartitionName = PartitionName { table: TableId(9), partition: 3 };

/// Puts "key value", and replies what was there.
struct Puts;

impl Evaluator for Puts {
    fn evaluate(&self, operation: &Bytes, transaction: &mut Transaction<'_>) -> Result<Bytes, Bytes> {
        let at = operation.iter().position(|byte| *byte == b' ').expect("a key and a value");
        let (key, value) = (&operation[..at], &operation[at + 1..]);
        let failed = |error: RequestError| Bytes::from(error.to_string());
        let before = transaction.get(key, b"").map_err(failed)?;
        if value == b"refuse" {
            return Err(Bytes::from_static(b"refused"));
        }
        transaction.put(key, b"", value, Expiry::NEVER, ValueKind::Plain).map_err(failed)?;
        Ok(before.map(|record| record.value).unwrap_or_default())
    }
}

/// Puts a document "key value" when the intent is resolved, with the last one that was put before.
#[derive(Default)]
struct Documents {
    took_effect: Mutex<Vec<Bytes>>,
}

const LAST: &[u8] = b"last";

impl Evaluator for Documents {
    fn evaluate(&self, operation: &Bytes, transaction: &mut Transaction<'_>) -> Result<Bytes, Bytes> {
        let failed = |error: RequestError| Bytes::from(error.to_string());
        self.carry_out(operation, transaction).map_err(failed)?;
        Ok(Bytes::new())
    }

    fn defers(&self) -> bool {
        true
    }

    fn carry_out(&self, operation: &Bytes, transaction: &mut Transaction<'_>) -> Result<(), RequestError> {
        let at = operation.iter().position(|byte| *byte == b' ').expect("a key and a value");
        let last = transaction.get_in(Space::INDEXES, LAST)?.unwrap_or_default();
        let value = [&operation[at + 1..], b" after ", &last[..]].concat();
        transaction.put_in_unchecked(Space::DOCUMENTS, &operation[..at], &value);
        transaction.put_in_unchecked(Space::INDEXES, LAST, &operation[at + 1..]);
        Ok(())
    }

    fn has_taken_effect(&self, _table: TableId, _partition: u32, operation: &Bytes) {
        self.took_effect.lock().push(operation.clone());
    }
}

/// A partition that leads, with the entries that are not applied yet.
struct Loop {
    table: TestTable,
    evaluator: Arc<dyn Evaluator>,
    overlay: Overlay,
    payload: BytesMut,
    proposed: VecDeque<(u64, Bytes)>,
    index: u64,
}

/// What a command came to.
#[derive(Debug, PartialEq, Eq)]
enum Ran {
    Logged,
    Unchanged,
    Held(TransactionId),
}

impl Loop {
    fn new(engine: EngineKind) -> Self {
        let table = TestTable::open(engine);
        table.partition(0).ledger().restore(table.engine(), 0).unwrap();
        let (overlay, payload) = (Overlay::default(), BytesMut::new());
        Self { table, evaluator: Arc::new(Puts), overlay, payload, proposed: VecDeque::new(), index: 0 }
    }

    fn ledger(&self) -> &PartitionLedger {
        self.table.partition(0).ledger()
    }

    fn run(&mut self, evaluate: impl FnOnce(&mut Transaction<'_>) -> Verdict) -> Ran {
        let times = Times::of_leader(now(), UnixMillis::new(0), true);
        let mut transaction = Transaction::new(&self.table, 0, times, &self.overlay, &mut self.payload);
        let verdict = evaluate(&mut transaction);
        if let Some(holder) = transaction.take_holder() {
            transaction.abandon();
            return Ran::Held(holder);
        }
        if verdict == Verdict::Abandon {
            transaction.abandon();
            return Ran::Unchanged;
        }
        let changes = transaction.into_changes();
        changes.enter(&mut self.overlay, &self.payload);
        Ran::Logged
    }

    fn propose(&mut self) {
        self.index += 1;
        let payload = self.payload.split().freeze();
        self.overlay.proposed(self.index, payload.clone());
        self.ledger().proposed(self.index);
        self.proposed.push_back((self.index, payload));
    }

    fn apply(&mut self) {
        let (index, payload) = self.proposed.pop_front().expect("an entry");
        let payloads = [payload];
        let applied = Applied { partition: 0, index, term: 1, payloads: &payloads };
        self.table.engine().write(&[applied]).unwrap();
        self.overlay.applied(index);
        self.ledger().applied(index);
    }

    /// What a request is answered once its entry is applied.
    fn ask(&mut self, request: Request<OnTables>) -> Answer<OnTables> {
        let (ran, answer) = self.evaluate(Asked::Request(request));
        if ran == Ran::Logged {
            self.propose();
            self.apply();
        }
        answer
    }

    fn evaluate(&mut self, asked: Asked) -> (Ran, Answer<OnTables>) {
        let (step, mut answer) = LedgerStep::new(asked, Some(self.evaluator.clone()));
        let ran = self.run(|transaction| step.evaluate(0, transaction));
        step.answer(0, Ok(()));
        (ran, answer.try_recv().expect("it was answered").unwrap())
    }

    /// What a reader finds, who does not go through the loop.
    fn read(&self, key: &str) -> Result<Option<String>, RequestError> {
        let mut found = None;
        self.table.read(&RecordKey::new(key.as_bytes(), b""), ReadMode::Single, now(), &mut |stored| {
            found = Some(String::from_utf8_lossy(stored.payload).into_owned());
        })?;
        Ok(found)
    }

    fn put(&mut self, key: &str, value: &str) -> Ran {
        self.run(|transaction| {
            let put = transaction.put(key.as_bytes(), b"", value.as_bytes(), Expiry::NEVER, ValueKind::Plain);
            if put.is_ok() { Verdict::Commit } else { Verdict::Abandon }
        })
    }

    /// Another replica leads, with what was applied.
    fn change_leader(&mut self) {
        assert!(self.proposed.is_empty());
        self.overlay = Overlay::default();
        self.table.partition(0).stop_leading();
        assert!(!self.ledger().has_locks());
        self.ledger().restore(self.table.engine(), 0).unwrap();
        self.table.partition(0).lead();
        self.table.partition(0).serve();
    }
}

fn id(sequence: u64) -> TransactionId {
    TransactionId { node: NodeId(1), generation: 1, sequence }
}

fn age(sequence: u64) -> Age {
    Age { began_millis: sequence, first: id(sequence) }
}

fn operation(text: &str) -> FaceOperation {
    FaceOperation { service: 9, operation: Bytes::copy_from_slice(text.as_bytes()) }
}

fn locks(text: &str) -> Vec<(Bytes, Access)> {
    let key = text.split(' ').next().unwrap_or_default();
    vec![(Bytes::copy_from_slice(key.as_bytes()), Access::Exclusive)]
}

fn prepare(sequence: u64, text: &str) -> Request<OnTables> {
    let (id, age) = (id(sequence), age(sequence));
    Request::Prepare(Prepare { id, age, settled: 0, anchor: ANCHOR, locks: locks(text), operation: operation(text) })
}

fn decide(sequence: u64, text: &str) -> Request<OnTables> {
    let (id, age, participants) = (id(sequence), age(sequence), vec![ANCHOR]);
    Request::Decide(Decide { id, age, settled: 0, locks: locks(text), operation: operation(text), participants })
}

fn prepared(reply: &str) -> Answer<OnTables> {
    Answer::Prepared(Bytes::copy_from_slice(reply.as_bytes()))
}

#[test]
fn readers_wait_until_what_was_resolved_is_applied_and_writers_until_it_is_evaluated() {
    for engine in ENGINES.iter().copied() {
        let mut partition = Loop::new(engine);
        assert_eq!(partition.put("k", "1"), Ran::Logged);
        partition.propose();
        partition.apply();
        assert_eq!(partition.ask(prepare(5, "k 2")), prepared("1"));
        assert_eq!(partition.read("k"), Err(RequestError::NotReady));
        assert_eq!(partition.read("other"), Ok(None));
        assert_eq!(partition.put("k", "3"), Ran::Held(id(5)));
        assert_eq!(partition.put("other", "3"), Ran::Logged);
        partition.propose();
        partition.apply();
        // The older one waits, the younger one gives way.
        assert_eq!(partition.evaluate(Asked::Request(prepare(4, "k 4"))).0, Ran::Held(id(5)));
        assert!(matches!(partition.ask(prepare(6, "k 4")), Answer::Busy(holder) if holder.id == id(5)));
        let (ran, answer) = partition.evaluate(Asked::Request(Request::Resolve(id(5), Outcome::Committed)));
        assert_eq!((ran, answer), (Ran::Logged, Answer::Resolved));
        assert_eq!(partition.read("k"), Err(RequestError::NotReady), "what is on its way is not to be seen here yet");
        partition.propose();
        // Writers go on: they see what is on its way.
        assert_eq!(partition.put("k", "5"), Ran::Logged);
        partition.propose();
        assert_eq!(partition.read("k"), Err(RequestError::NotReady));
        partition.apply();
        assert_eq!(partition.read("k"), Ok(Some("2".into())));
        partition.apply();
        assert_eq!(partition.read("k"), Ok(Some("5".into())));
        assert!(!partition.ledger().has_locks());
        // Late messages change nothing.
        assert_eq!(partition.ask(prepare(5, "k 9")), Answer::Over);
        assert_eq!(partition.ask(Request::Resolve(id(5), Outcome::Committed)), Answer::Resolved);
        assert_eq!(partition.read("k"), Ok(Some("5".into())));
    }
}

#[test]
fn the_next_leader_has_intents_and_decisions() {
    for engine in ENGINES.iter().copied() {
        let mut partition = Loop::new(engine);
        assert_eq!(partition.ask(prepare(1, "k 1")), prepared(""));
        assert_eq!(partition.ask(prepare(2, "l 1")), prepared(""));
        assert_eq!(partition.ask(decide(3, "m 1")), Answer::Committed(Some(Bytes::new())));
        partition.change_leader();
        assert_eq!((partition.read("k"), partition.read("m")), (Err(RequestError::NotReady), Ok(Some("1".into()))));
        assert_eq!(partition.put("l", "3"), Ran::Held(id(2)));
        assert_eq!(partition.ask(prepare(1, "k 1")), prepared(""), "it is not evaluated again");
        assert_eq!(partition.ask(decide(3, "m 9")), Answer::Committed(Some(Bytes::new())));
        assert_eq!(partition.ask(Request::Recover(id(4))), Answer::Aborted);
        assert_eq!(partition.ask(Request::Resolve(id(1), Outcome::Committed)), Answer::Resolved);
        assert_eq!(partition.ask(Request::Resolve(id(2), Outcome::Aborted)), Answer::Resolved);
        partition.change_leader();
        assert_eq!(partition.ask(decide(4, "m 9")), Answer::Aborted, "that was promised");
        assert_eq!((partition.read("k"), partition.read("l")), (Ok(Some("1".into())), Ok(None)));
        assert_eq!(partition.read("m"), Ok(Some("1".into())));
        assert!(!partition.ledger().has_locks());
    }
}

#[test]
fn a_refused_part_leaves_nothing() {
    let mut partition = Loop::new(EngineKind::Memory);
    let refused = || Answer::Refused(Bytes::from_static(b"refused"));
    assert_eq!(partition.ask(prepare(1, "k refuse")), refused());
    assert_eq!(partition.ask(decide(1, "k refuse")), refused());
    assert!(!partition.ledger().has_locks());
    assert_eq!(partition.put("k", "1"), Ran::Logged);
}

#[test]
fn clearing_a_partition_waits_for_intents_and_leaves_what_was_decided() {
    for engine in ENGINES.iter().copied() {
        let mut partition = Loop::new(engine);
        let clear = |transaction: &mut Transaction<'_>| {
            transaction.clear();
            Verdict::Commit
        };
        assert_eq!(partition.ask(prepare(1, "k 1")), prepared(""));
        assert_eq!(partition.ask(decide(2, "l 1")), Answer::Committed(Some(Bytes::new())));
        assert_eq!(partition.run(clear), Ran::Held(id(1)));
        // Others that came one after the other once kept it waiting for ever.
        assert_eq!(partition.ask(prepare(3, "m 1")), Answer::Over);
        assert_eq!(partition.ask(Request::Resolve(id(1), Outcome::Committed)), Answer::Resolved);
        assert_eq!(partition.run(clear), Ran::Logged);
        partition.propose();
        partition.apply();
        partition.change_leader();
        assert_eq!((partition.read("k"), partition.read("l")), (Ok(None), Ok(None)));
        assert_eq!(partition.ask(prepare(1, "k 1")), Answer::Over);
        assert_eq!(partition.ask(decide(2, "l 1")), Answer::Committed(Some(Bytes::new())));
        assert_eq!(partition.read("l"), Ok(None), "it is not done again");
    }
}

#[test]
fn a_partition_that_is_to_be_sealed_takes_nothing_new_and_waits_for_what_it_has() {
    let mut partition = Loop::new(EngineKind::Memory);
    assert_eq!(partition.ask(prepare(1, "k 1")), prepared(""));
    assert_eq!(partition.ask(decide(2, "l 1")), Answer::Committed(Some(Bytes::new())));
    assert!(!partition.ledger().may_be_sealed());
    assert_eq!(partition.ask(prepare(3, "m 1")), Answer::Over);
    assert_eq!(partition.ask(decide(4, "m 1")), Answer::Aborted);
    assert_eq!(partition.ask(Request::Resolve(id(1), Outcome::Committed)), Answer::Resolved);
    assert!(!partition.ledger().may_be_sealed(), "a participant may still ask about the commit");
    assert_eq!(partition.evaluate(Asked::Forget(id(2))).0, Ran::Logged);
    assert!(partition.ledger().may_be_sealed());
    partition.propose();
    partition.apply();
    partition.change_leader();
    assert_eq!(partition.ask(decide(4, "m 1")), Answer::Aborted);
    assert_eq!(partition.ask(prepare(5, "m 1")), prepared(""), "another leader knows of no seal");
}

/// What was logged there once stood behind a seal that was on its way, or was forgotten when the partition was reopened.
#[test]
fn a_partition_that_does_not_serve_takes_no_intents_and_decides_nothing() {
    let mut partition = Loop::new(EngineKind::Memory);
    assert_eq!(partition.ask(prepare(1, "k 1")), prepared(""));
    partition.table.partition(0).stop_serving();
    for request in [prepare(2, "l 1"), decide(3, "m 1"), Request::Recover(id(4)), prepare(1, "k 1")] {
        let (step, mut answer) = LedgerStep::new(Asked::Request(request.clone()), Some(partition.evaluator.clone()));
        assert_eq!(partition.run(|transaction| step.evaluate(0, transaction)), Ran::Unchanged);
        step.answer(0, Ok(()));
        assert_eq!(answer.try_recv().unwrap(), Err(RequestError::NotReady), "{request:?}");
    }
    // A replica that is about to go, and leads, applies what was decided elsewhere.
    assert_eq!(partition.ask(Request::Resolve(id(1), Outcome::Committed)), Answer::Resolved);
    partition.table.partition(0).serve();
    assert_eq!(partition.read("k"), Ok(Some("1".into())));
    assert_eq!(partition.ask(decide(4, "m 1")), Answer::Committed(Some(Bytes::new())), "no abort was promised");
}

/// One that does not know what it has may have intents.
#[test]
fn a_partition_whose_ledger_was_not_read_is_not_sealed() {
    let table = TestTable::open(EngineKind::Memory);
    let ledger = table.partition(0).ledger();
    assert!(!ledger.is_restored() && !ledger.may_be_sealed());
    ledger.restore(table.engine(), 0).unwrap();
    assert!(ledger.is_restored() && ledger.may_be_sealed());
    table.partition(0).stop_leading();
    assert!(!ledger.is_restored());
}

#[test]
fn a_face_that_defers_writes_when_the_intent_is_resolved_whoever_leads_then() {
    for engine in ENGINES.iter().copied() {
        let mut partition = Loop::new(engine);
        let documents = Arc::new(Documents::default());
        partition.evaluator = documents.clone();
        let put = |partition: &mut Loop, operation: &'static str| {
            let ran = partition.run(|transaction| {
                let put = transaction.put_in(Space::DOCUMENTS, operation.as_bytes(), b"plain");
                let put = put.and_then(|()| transaction.put_in(Space::INDEXES, LAST, operation.as_bytes()));
                if put.is_ok() { Verdict::Commit } else { Verdict::Abandon }
            });
            if ran == Ran::Logged {
                partition.propose();
                partition.apply();
            }
            ran
        };
        let read = |partition: &Loop, key: &'static str| {
            let transaction = Transaction::read_only(&partition.table, 0, ReadMode::Single, now())?;
            transaction.get_in(Space::DOCUMENTS, key.as_bytes())
        };
        assert_eq!(partition.ask(prepare(1, "k 1")), prepared(""));
        assert_eq!(partition.ask(prepare(2, "l 2")), prepared(""));
        assert_eq!(read(&partition, "k"), Err(RequestError::NotReady), "the transaction may have committed");
        assert_eq!(put(&mut partition, "k"), Ran::Held(id(1)));
        assert_eq!(put(&mut partition, "m"), Ran::Logged);
        assert!(documents.took_effect.lock().is_empty());
        partition.change_leader();
        // Whoever changes what intents depend on waits for all of them, and no new ones come.
        let no_intents = |partition: &mut Loop| {
            partition.run(|transaction| match transaction.await_no_intents() {
                Ok(()) => Verdict::Commit,
                Err(_) => Verdict::Abandon,
            })
        };
        assert_eq!(no_intents(&mut partition), Ran::Held(id(1)));
        assert_eq!(partition.ask(prepare(3, "n 3")), Answer::Over);
        assert_eq!(partition.ask(Request::Resolve(id(1), Outcome::Committed)), Answer::Resolved);
        assert_eq!(read(&partition, "k"), Ok(Some(Bytes::from_static(b"1 after m"))));
        assert_eq!(*documents.took_effect.lock(), [Bytes::from_static(b"k 1")]);
        assert_eq!(partition.ask(Request::Resolve(id(2), Outcome::Aborted)), Answer::Resolved);
        assert_eq!(read(&partition, "l"), Ok(None));
        assert_eq!(no_intents(&mut partition), Ran::Logged);
        assert_eq!(partition.ask(prepare(4, "n 4")), prepared(""));
        assert_eq!(documents.took_effect.lock().len(), 1);
    }
}

/// A part of a transaction has found a record alive, and is applied while somebody reads: it changes no record before the transaction commits,
/// and may let this one live on.
#[test]
fn what_a_transaction_holds_since_a_read_began_is_not_hidden() {
    const END: u64 = 10_000_000_000_000;
    for engine in ENGINES.iter().copied() {
        let mut partition = Loop::new(engine);
        let expiry = Expiry::at_key(Some(UnixMillis::new(END)));
        let ran = partition.run(|transaction| {
            transaction.put(b"stays", b"", b"1", Expiry::NEVER, ValueKind::Plain).unwrap();
            transaction.put(b"ends", b"", b"1", expiry, ValueKind::Plain).unwrap();
            Verdict::Commit
        });
        assert_eq!(ran, Ran::Logged);
        partition.propose();
        partition.apply();
        let writes = IntendedWrites::Operation(operation("ends 2"));
        let (locks, reply) = (locks("ends 2"), Bytes::new());
        let intent = Intent { anchor: ANCHOR, age: age(5), locks, writes, reply };
        let entry = Entry::Prepare { id: id(5), settled: 0, intent };
        let keys = [RecordKey::new(b"stays", b""), RecordKey::new(b"ends", b"")];
        let later = UnixMillis::new(END + 1);
        let outcome = partition.table.read_many(&keys, ReadMode::Single, later, &mut |at, found| {
            if at == 0 {
                partition.ledger().log(&entry);
            }
            assert!(found.is_some(), "it was hidden, though the transaction may let it live on");
        });
        assert_eq!(outcome, Err(RequestError::NotReady));
    }
}
