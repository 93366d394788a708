use crate::overlay::Overlay;
use crate::test_table::TestTable;
use crate::transaction::Times;
use crate::{Table, Transaction};
use bytes::BytesMut;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tessera_consensus::Moment;
use tessera_engine::{Applied, Engine, MemoryBudget, MemoryConfig, MemoryEngine, PageLimit, Position, Visit, mutation};
use tessera_types::{EngineKind, Expiry, ReadMode, RecordKey, RequestError, StoredValue, UnixMillis, ValueKind};

fn put(key: &RecordKey<'_>, value: &[u8]) -> bytes::Bytes {
    let mut payload = BytesMut::new();
    mutation::encode_put(
        &mut payload,
        key,
        &StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: value },
    );
    payload.freeze()
}

#[test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
fn a_read_waits_for_what_was_acknowledged_before_it_also_if_that_is_applied_while_it_reads() {
    // Its visitors may write.
    let table = TestTable::open(EngineKind::Rocksdb);
    let key = RecordKey::new(b"key", b"");
    let apply = |value: &[u8]| {
        let index = table.engine.applied_index(0) + 1;
        table.engine.write(&[Applied { partition: 0, index, term: 1, payloads: &[put(&key, value)] }]).unwrap();
        index
    };
    apply(b"old");
    // From here on the record cache has it, so that visitors hold nothing of the engine's.
    assert_eq!(table.read(&key, ReadMode::Single, UnixMillis::now(), &mut |_| ()), Ok(true));

    let acknowledged = table.engine.applied_index(0) + 1;
    table.partitions[0].note_leader_acked(acknowledged);
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

/// A checkpoint that was written beside a writer, with its log index, which is lower than that of its latest effects.
fn checkpoint_beside_a_writer(path: &Path) -> u64 {
    let open = || {
        let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }));
        MemoryEngine::open(1, budget, None).unwrap()
    };
    let (engine, copy) = (open(), open());
    // So many that it takes a while to write them.
    for number in 0..20_000u32 {
        let entry = put(&RecordKey::new(&number.to_be_bytes(), b""), b"value");
        engine.write(&[Applied { partition: 0, index: 1, term: 1, payloads: &[entry] }]).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = |index: u64| {
            let entry = put(&RecordKey::new(b"key", b""), &index.to_be_bytes());
            engine.write(&[Applied { partition: 0, index, term: 1, payloads: &[entry] }]).unwrap();
        };
        let is_over = &is_over;
        scope.spawn(move || (2..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(write));
        loop {
            let index = engine.checkpoint(0, path).unwrap();
            copy.restore(0, path, index).unwrap();
            if copy.settled_from(0) > index {
                is_over.store(true, Ordering::Relaxed);
                return index;
            }
        }
    })
}

#[test]
fn outdated_reads_do_not_go_back_after_a_checkpoint_is_loaded() {
    let table = TestTable::open(EngineKind::Memory);
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("checkpoint");
    let index = checkpoint_beside_a_writer(&path);
    table.engine.restore(0, &path, index).unwrap();
    let settled = table.engine.settled_from(0);
    assert!(settled > index);

    let key = RecordKey::new(b"key", b"");
    let read = || table.read(&key, ReadMode::Outdated, UnixMillis::now(), &mut |_| ());
    for applied in index..settled {
        assert_eq!(read(), Err(RequestError::NotReady), "applied {applied} of {settled}");
        assert_eq!((table.reader_of(0, ReadMode::Outdated), table.lag(0)), (table.leader_of(0), None));
        let entry = put(&key, &applied.to_be_bytes());
        table.engine.write(&[Applied { partition: 0, index: applied + 1, term: 1, payloads: &[entry] }]).unwrap();
    }
    assert_eq!(read(), Ok(true));

    // After a restart, what was known to be committed has to be applied again.
    table.partitions[0].start_replica(settled + 1, true);
    assert_eq!(read(), Err(RequestError::NotReady));
    table.engine.write(&[Applied { partition: 0, index: settled + 1, term: 1, payloads: &[] }]).unwrap();
    assert_eq!(read(), Ok(true));
}

/// A read that waits for the disk may take so long that another replica leads meanwhile, and this one again afterwards.
#[test]
fn what_was_read_while_the_replica_stopped_answering_does_not_count() {
    let table = TestTable::open(EngineKind::Memory);
    let (key, other) = (RecordKey::new(b"key", b""), RecordKey::new(b"other", b""));
    let entries = [put(&key, b"1"), put(&other, b"2")];
    table.engine.write(&[Applied { partition: 0, index: 1, term: 1, payloads: &entries }]).unwrap();
    let (partition, now) = (&table.partitions[0], UnixMillis::now());
    let lead_again = || {
        partition.stop_leading();
        partition.lead();
        partition.serve();
    };
    for reads in [ReadMode::Single, ReadMode::Outdated] {
        let interrupt = || match reads {
            ReadMode::Outdated => [false, true].into_iter().for_each(|is_readable| partition.set_readable(is_readable)),
            _ => lead_again(),
        };
        assert_eq!(table.read(&key, reads, now, &mut |_| interrupt()), Err(RequestError::NotReady));
        assert_eq!(table.read(&key, reads, now, &mut |_| ()), Ok(true));
        let many = |visit: &mut dyn FnMut()| table.read_many(&[key, other], reads, now, &mut |_, _| visit());
        assert_eq!(many(&mut || interrupt()), Err(RequestError::NotReady));
        assert_eq!(many(&mut || ()), Ok(()));
        let transaction = Transaction::read_only(&table, 0, reads, now).unwrap();
        assert!(transaction.get(b"key", b"").unwrap().is_some());
        assert_eq!(transaction.check_lease(), Ok(()));
        interrupt();
        assert_eq!(transaction.check_lease(), Err(RequestError::NotReady));
    }
    let limit = PageLimit::of_records(10);
    let scan = |visit: &mut dyn FnMut()| {
        table.scan(0, &Position::START, limit, now, &mut |_, _| {
            visit();
            Visit::NextRecord
        })
    };
    assert_eq!(scan(&mut || lead_again()).err(), Some(RequestError::NotReady));
    assert!(scan(&mut || ()).is_ok());
}

/// The record under `a` ends at this time.
const END: u64 = 10_000_000_000_000;

fn put_ending(key: &RecordKey<'_>) -> bytes::Bytes {
    let mut payload = BytesMut::new();
    let expiry = Expiry::at_key(Some(UnixMillis::new(END)));
    mutation::encode_put(&mut payload, key, &StoredValue { expiry, kind: ValueKind::Plain, payload: b"value" });
    payload.freeze()
}

/// Evaluates a write of the key's partition by a clock that shows `now`. Returns whether it has found the record, and what it came to.
fn evaluate(table: &Table, overlay: &mut Overlay, now: u64, key: &RecordKey<'_>) -> (bool, BytesMut) {
    let mut payload = BytesMut::new();
    let (now, told) = (UnixMillis::new(now), table.engine.time(0));
    let now = table.partitions[0].expiry_fence().begin_write(now, overlay.judged_from().unwrap_or(now));
    let times = Times::of_leader(now, told, true);
    let mut transaction = Transaction::new(table, 0, times, overlay, &mut payload);
    let found = transaction.get(key.hash_key, key.sort_key).unwrap().is_some();
    transaction.put(key.hash_key, key.sort_key, b"value", Expiry::NEVER, ValueKind::Plain).unwrap();
    let changes = transaction.into_changes();
    changes.enter(overlay, &payload);
    table.partitions[0].expiry_fence().set_in_flight(overlay.judged_from());
    (found, payload)
}

/// A command that had found a record alive and gave it a longer life was on its way to the disk. Who read the record by then, when its former end had come, saw
/// none, and afterwards it was there again.
#[test]
fn what_a_write_on_its_way_has_found_alive_is_not_hidden() {
    let table = TestTable::open(EngineKind::Memory);
    let (a, b) = (RecordKey::new(b"a", b""), RecordKey::new(b"b", b""));
    table.engine.write(&[Applied { partition: 0, index: 1, term: 1, payloads: &[put_ending(&a)] }]).unwrap();
    let mut overlay = Overlay::default();
    let (is_found, payload) = evaluate(&table, &mut overlay, END - 1, &a);
    assert!(is_found);

    let (single, now) = (ReadMode::Single, UnixMillis::new(END + 1));
    let refused = Err(RequestError::NotReady);
    assert_eq!(table.read(&a, single, now, &mut |_| ()), refused);
    assert_eq!(table.read_many(&[b, a], single, now, &mut |_, _| ()), Err(RequestError::NotReady));
    let scan =
        || table.scan(0, &Position::START, PageLimit::of_records(10), now, &mut |_, _| Visit::NextRecord).map(|_| ());
    assert_eq!(scan(), Err(RequestError::NotReady));
    let read_only = || {
        let transaction = Transaction::read_only(&table, 0, single, now).unwrap();
        let found = transaction.get(b"a", b"").unwrap().is_some();
        transaction.check_lease().map(|()| found)
    };
    assert_eq!(read_only(), refused);
    // The partition's loop reads it. Whoever tried again with a later time would find something new that is not settled each time.
    let at_one_instant =
        table.read_instant(0, single, now, |transaction| transaction.get(b"a", b"").map(|found| found.is_some()));
    assert_eq!(at_one_instant, Ok(None));
    assert_eq!(table.read(&b, single, now, &mut |_| ()), Ok(false), "nobody waits for others' records");

    let apply = |overlay: &mut Overlay, index: u64, payload: BytesMut| {
        let payload = payload.freeze();
        overlay.proposed(index, payload.clone());
        table.partitions[0].begin_change();
        table.engine.write(&[Applied { partition: 0, index, term: 1, payloads: &[payload] }]).unwrap();
        table.partitions[0].end_change();
        overlay.applied(index);
        table.partitions[0].expiry_fence().set_in_flight(overlay.judged_from());
    };
    apply(&mut overlay, 2, payload);
    assert_eq!(table.read(&a, single, now, &mut |_| ()), Ok(true));
    assert_eq!(read_only(), Ok(true));
    assert_eq!(scan(), Ok(()));
}

/// The loop takes the time once for all commands of a pass: one that is judged later than somebody has read goes by the reader's time.
#[test]
fn a_write_finds_nothing_alive_that_a_reader_has_hidden() {
    let table = TestTable::open(EngineKind::Memory);
    let (a, b) = (RecordKey::new(b"a", b""), RecordKey::new(b"b", b""));
    let entries = [put_ending(&a), put_ending(&b)];
    table.engine.write(&[Applied { partition: 0, index: 1, term: 1, payloads: &entries }]).unwrap();
    let mut overlay = Overlay::default();
    let now = UnixMillis::new(END + 1);
    assert_eq!(table.read(&a, ReadMode::Single, now, &mut |_| ()), Ok(false));
    let (is_found, _) = evaluate(&table, &mut overlay, END - 1, &a);
    assert!(!is_found);
    // What is on its way was judged after the end of the other one.
    assert_eq!(table.read(&b, ReadMode::Single, now, &mut |_| ()), Ok(false));
}

/// The write is applied while somebody reads the record as it was before.
#[test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
fn what_was_found_alive_and_applied_during_a_read_is_not_hidden_either() {
    // Its visitors may write.
    let table = TestTable::open(EngineKind::Rocksdb);
    let (a, b) = (RecordKey::new(b"a", b""), RecordKey::new(b"b", b""));
    let entries = [put(&b, b"value"), put_ending(&a)];
    table.engine.write(&[Applied { partition: 0, index: 1, term: 1, payloads: &entries }]).unwrap();
    let now = UnixMillis::new(END + 1);
    // From here on the record cache has it, so that visitors hold nothing of the engine's.
    assert_eq!(table.read(&b, ReadMode::Single, UnixMillis::new(1), &mut |_| ()), Ok(true));
    let mut is_written = false;
    let outcome = table.read_many(&[b, a], ReadMode::Single, now, &mut |at, found| {
        if at == 0 && !is_written {
            is_written = true;
            let mut overlay = Overlay::default();
            let (is_found, payload) = evaluate(&table, &mut overlay, END - 1, &a);
            assert!(is_found);
            table.partitions[0].begin_change();
            let payloads = &[payload.freeze()];
            table.engine.write(&[Applied { partition: 0, index: 2, term: 1, payloads }]).unwrap();
            table.partitions[0].end_change();
            table.partitions[0].expiry_fence().set_in_flight(None);
        }
        assert!(at == 0 || found.is_some(), "it was hidden, though it lives on");
    });
    assert!(matches!(outcome, Ok(()) | Err(RequestError::NotReady)), "{outcome:?}");
}

/// Clients from before a split were once taken for ones that know of it as soon as the table was truncated.
#[test]
fn a_table_that_is_truncated_was_split_when_it_was() {
    let tables = [1, 2, 2].map(|partitions| TestTable::with_partitions(EngineKind::Memory, partitions));
    let [before, split, emptied] = &tables;
    split.replace_by(emptied.shared());
    assert_eq!(emptied.split_heard(), None, "the node may have started since");
    let emptied = TestTable::with_partitions(EngineKind::Memory, 2);
    before.replace_by(split.shared());
    let heard = split.split_heard();
    assert!(heard.is_some());
    split.replace_by(emptied.shared());
    assert_eq!((emptied.split_heard(), split.split_heard()), (heard, heard));
    // Who calls what it held by the number that it is recalled under has learned that, and the number of its partitions, since.
    assert_eq!(split.renewed(&split.entry).split_heard(), None);
}

/// The builder of indexes waited for a partition whose leader was cut off, and other partitions waited for the builder.
#[test]
fn what_is_on_its_way_is_not_waited_for_without_a_lease() {
    let table = TestTable::open(EngineKind::Memory);
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
    assert!(table.may_settle(0, later) && !table.may_settle(0, now));
    table.partitions[0].set_lease(Some(Moment::now()));
    assert!(!table.may_settle(0, later), "its lease has ended");
    table.partitions[0].set_lease(None);
    assert!(table.may_settle(0, later));
    table.partitions[0].stop_serving();
    assert!(!table.may_settle(0, later));
}
