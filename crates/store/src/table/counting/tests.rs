use super::*;
use crate::test_table::TestTable;
use bytes::BytesMut;
use std::time::Duration;
use tessera_engine::{Applied, ENGINES, mutation};
use tessera_types::{EngineKind, Expiry, StoredValue, ValueKind};

const NO_LIMIT: PageLimit = PageLimit { records: usize::MAX, bytes: usize::MAX };

/// A time that does not come while a test runs.
fn never() -> Instant {
    Instant::now() + Duration::from_secs(1_000_000)
}

/// Applies a log entry.
fn write(table: &Table, encode: impl FnOnce(&mut BytesMut)) {
    let mut payload = BytesMut::new();
    encode(&mut payload);
    let index = table.engine.applied_index(0) + 1;
    table.engine.write(&[Applied { partition: 0, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
}

fn put(payload: &mut BytesMut, hash_key: &[u8], sort_key: &[u8]) {
    let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"value" };
    mutation::encode_put(payload, &RecordKey::new(hash_key, sort_key), &stored);
}

fn delete(payload: &mut BytesMut, hash_key: &[u8]) {
    mutation::encode_delete(payload, &RecordKey::new(hash_key, b""));
}

/// Puts keys with these numbers, a thousand at a time, and deletes them.
fn put_and_delete(table: &Table, numbers: std::ops::Range<u32>) {
    for first in numbers.clone().step_by(1_000) {
        let some = || (first..numbers.end.min(first + 1_000)).map(u32::to_be_bytes);
        write(table, |payload| some().for_each(|key| put(payload, &key, b"")));
        write(table, |payload| some().for_each(|key| delete(payload, &key)));
    }
}

fn count(table: &Table, step: Visit) -> Option<u64> {
    table.count_few_here(step, NO_LIMIT, never()).unwrap()
}

#[test]
fn a_small_table_is_counted_exactly() {
    for engine in ENGINES {
        let table = TestTable::open(*engine);
        assert_eq!(count(&table, Visit::NextRecord), Some(0), "{engine:?}");
        write(&table, |payload| [b"a", b"b", b"c"].into_iter().for_each(|key| put(payload, key, b"")));
        write(&table, |payload| put(payload, b"a", b""));
        write(&table, |payload| delete(payload, b"b"));
        let counted = || [Visit::NextRecord, Visit::NextHashKey].map(|step| count(&table, step));
        assert_eq!(counted(), [Some(2), Some(2)], "{engine:?}");
        write(&table, |payload| [b"x", b"y", b"z"].into_iter().for_each(|field| put(payload, b"hash", field)));
        assert_eq!(counted(), [Some(5), Some(3)], "{engine:?}");
        write(&table, mutation::encode_clear);
        assert_eq!(counted(), [Some(0), Some(0)], "{engine:?}");
    }
}

#[test]
fn documents_are_counted_and_nothing_beside_them() {
    for engine in ENGINES {
        let table = TestTable::open(*engine);
        write(&table, |payload| {
            put(payload, b"no document", b"");
            for number in 0..3_000u32 {
                mutation::encode_put_in(payload, Space::DOCUMENTS, &number.to_be_bytes(), &[0; 100]);
                mutation::encode_put_in(payload, Space::CHANGES, &number.to_be_bytes(), b"");
                mutation::encode_put_in(payload, Space::FIRST_INDEX, &number.to_be_bytes(), b"");
            }
            mutation::encode_delete_in(payload, Space::DOCUMENTS, &7u32.to_be_bytes());
        });
        let documents = |limit| table.count_few_in(Some(Space::DOCUMENTS), Visit::NextRecord, limit, never()).unwrap();
        assert_eq!(documents(NO_LIMIT), Some(2_999), "{engine:?}");
        assert_eq!(documents(PageLimit::of_records(100)), None, "{engine:?}");
    }
}

#[test]
fn more_than_a_few_are_not_counted() {
    for engine in ENGINES {
        let table = TestTable::open(*engine);
        let put_some = |numbers: std::ops::Range<u32>| {
            write(&table, |payload| numbers.for_each(|number| put(payload, &number.to_be_bytes(), b"")));
        };
        put_some(0..10);
        let counted = |limit, until| table.count_few_here(Visit::NextRecord, limit, until).unwrap();
        assert_eq!(counted(PageLimit { records: 10, ..NO_LIMIT }, never()), Some(10), "{engine:?}");
        assert_eq!(counted(PageLimit { records: 9, ..NO_LIMIT }, never()), None, "{engine:?}");
        assert_eq!(counted(PageLimit { bytes: 50, ..NO_LIMIT }, never()), None, "{engine:?}");
        // The time is over.
        assert_eq!(counted(NO_LIMIT, Instant::now()), None, "{engine:?}");
        let few = u32::try_from(COUNTED.records).unwrap();
        put_some(10..few);
        assert_eq!(counted(NO_LIMIT, never()), Some(u64::from(few)), "{engine:?}");
        put_some(few..few + 1);
        assert_eq!(counted(NO_LIMIT, never()), None, "{engine:?}");
        let empty = TestTable::open(*engine);
        let tables = [empty.shared(), table.shared()];
        assert_eq!(Table::count_few_of(&tables, Visit::NextRecord, NO_LIMIT, never()), [Some(0), None], "{engine:?}");
    }
}

/// RocksDB once passed over a million of deleted locks each time that somebody asked for INFO, on the thread that served everybody.
#[test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
fn a_count_does_not_pass_over_deleted_records_without_end() {
    let table = TestTable::open(EngineKind::Rocksdb);
    // An emptied small table does not show what was deleted.
    put_and_delete(&table, 0..10_000);
    assert_eq!(count(&table, Visit::NextRecord), Some(0));
    put_and_delete(&table, 10_000..200_000);
    assert_eq!(count(&table, Visit::NextRecord), None);
    assert_eq!(count(&table, Visit::NextHashKey), None);
    // Any other read goes on to the end.
    let page = table.engine.read_page(0, &Position::START, PageLimit::of_records(1)).unwrap();
    assert_eq!(page.records().count(), 0);
    write(&table, mutation::encode_clear);
    assert_eq!(count(&table, Visit::NextRecord), Some(0));
}

#[test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
fn what_is_known_to_be_empty_is_known_without_a_count() {
    let table = TestTable::open(EngineKind::Rocksdb);
    assert!(table.is_known_to_be_empty_here(), "there is no replica");
    write(&table, |payload| put(payload, b"a", b""));
    assert!(!table.is_known_to_be_empty_here());
    write(&table, mutation::encode_clear);
    assert!(table.is_known_to_be_empty_here());
    assert_eq!(
        table.count_few_here(Visit::NextRecord, NO_LIMIT, Instant::now()),
        Ok(Some(0)),
        "though the time is over"
    );
}
