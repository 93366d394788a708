use super::options;
use proptest::prelude::*;
use rocksdb::{DB, DBRawIteratorWithThreadMode, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Flush,
    /// Keeps what there is now to be read later.
    Snapshot,
}

/// Keys that often share their first bytes, are shorter than what the tree looks at, or are at its edges.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![Just(0), Just(1), Just(127), Just(128), Just(255), any::<u8>()];
    prop_oneof![
        1 => prop::collection::vec(byte(), 0..4),
        4 => prop::collection::vec(byte(), 1..6).prop_map(|rest| [&[1, 0, 3][..], &rest].concat()),
        2 => (0..3u8, 0..3u8, prop::collection::vec(byte(), 0..8)).prop_map(|(kind, partition, rest)| {
            [&[kind, 0, partition][..], &rest].concat()
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let write = (key(), prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..40)));
    prop_oneof![
        20 => prop::collection::vec(write, 1..20).prop_map(Step::Write),
        1 => Just(Step::Flush),
        1 => Just(Step::Snapshot),
    ]
}

fn open(directory: &TempDir) -> DB {
    let mut options: Options = options().unwrap();
    options.create_if_missing(true);
    DB::open(&options, directory.path()).unwrap()
}

fn without_wal() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}

fn at(iterator: &DBRawIteratorWithThreadMode<'_, DB>) -> Option<(Vec<u8>, Vec<u8>)> {
    iterator.item().map(|(key, value)| (key.to_vec(), value.to_vec()))
}

fn owned((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

/// Reads in every way, around every key of `places` too.
fn check(db: &DB, read: impl Fn() -> ReadOptions, records: &Records, places: &[Vec<u8>]) {
    let mut iterator = db.raw_iterator_opt(read());
    iterator.seek_to_first();
    let forwards: Vec<_> = std::iter::from_fn(|| at(&iterator).inspect(|_| iterator.next())).collect();
    assert_eq!(forwards, records.iter().map(owned).collect::<Vec<_>>());
    iterator.seek_to_last();
    let backwards: Vec<_> = std::iter::from_fn(|| at(&iterator).inspect(|_| iterator.prev())).collect();
    assert_eq!(backwards, records.iter().rev().map(owned).collect::<Vec<_>>());
    for place in places {
        iterator.seek(place);
        assert_eq!(at(&iterator), records.range(place.clone()..).next().map(owned), "from {place:?}");
        if iterator.valid() {
            iterator.prev();
            assert_eq!(at(&iterator), records.range(..place.clone()).next_back().map(owned), "before {place:?}");
        }
        iterator.seek_for_prev(place);
        assert_eq!(at(&iterator), records.range(..=place.clone()).next_back().map(owned), "to {place:?}");
        assert_eq!(db.get_opt(place, &read()).unwrap(), records.get(place).cloned());
    }
    iterator.status().unwrap();
    let found = db.multi_get_opt(places, &read());
    for (place, found) in places.iter().zip(found) {
        assert_eq!(found.unwrap(), records.get(place).cloned());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_was_written_is_read_in_order(steps in prop::collection::vec(step(), 1..60), others in prop::collection::vec(key(), 20)) {
        let directory = TempDir::new().unwrap();
        let db = open(&directory);
        let (mut records, mut places) = (Records::new(), others);
        let mut snapshots = Vec::new();
        for step in steps {
            match step {
                Step::Write(writes) => {
                    let mut batch = WriteBatch::default();
                    for (key, value) in writes {
                        places.push(key.clone());
                        match value {
                            Some(value) => {
                                batch.put(&key, &value);
                                records.insert(key, value);
                            }
                            None => {
                                batch.delete(&key);
                                records.remove(&key);
                            }
                        }
                    }
                    db.write_opt(batch, &without_wal()).unwrap();
                }
                Step::Flush => db.flush_opt(&FlushOptions::default()).unwrap(),
                Step::Snapshot => snapshots.push((db.snapshot(), records.clone())),
            }
        }
        check(&db, ReadOptions::default, &records, &places);
        for (snapshot, records) in &snapshots {
            let read = || {
                let mut options = ReadOptions::default();
                options.set_snapshot(snapshot);
                options
            };
            check(&db, read, records, &places);
        }
    }
}

/// Threads write at the same time, and memtables change under them, with more and fewer bits each time.
#[test]
fn writers_and_readers_do_not_wait_for_each_other() {
    const WRITERS: u32 = 4;
    const WRITES: u32 = 30_000;
    let directory = TempDir::new().unwrap();
    let mut options = options().unwrap();
    options.create_if_missing(true);
    options.set_write_buffer_size(1 << 20);
    let db = DB::open(&options, directory.path()).unwrap();
    let key = |writer: u32, number: u32| {
        let spread = (number * WRITERS + writer).wrapping_mul(0x9e37_79b1).to_be_bytes();
        [&[1, 0, (number % 5) as u8][..], &spread].concat()
    };
    let (db, key) = (&db, &key);
    std::thread::scope(|scope| {
        let write = |writer| {
            scope.spawn(move || {
                for number in 0..WRITES {
                    db.put_opt(key(writer, number), number.to_be_bytes(), &without_wal()).unwrap();
                    let earlier = number / 2;
                    assert_eq!(db.get(key(writer, earlier)).unwrap().unwrap(), earlier.to_be_bytes());
                }
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let mut iterator = db.raw_iterator();
            iterator.seek_to_first();
            let mut last = Vec::new();
            while let Some(key) = iterator.key() {
                assert!(last.as_slice() < key);
                last = key.to_vec();
                iterator.next();
            }
            iterator.status().unwrap();
        }
    });
    let mut iterator = db.raw_iterator();
    iterator.seek_to_first();
    let found = std::iter::from_fn(|| iterator.valid().then(|| iterator.next())).count();
    assert_eq!(found, (WRITERS * WRITES) as usize);
}

/// Both find nothing yet where their keys belong.
#[test]
fn two_writers_may_be_the_first_at_the_same_time() {
    const PLACES: u16 = 20_000;
    let directory = TempDir::new().unwrap();
    let mut options = options().unwrap();
    options.create_if_missing(true);
    options.set_unordered_write(true);
    let db = DB::open(&options, directory.path()).unwrap();
    let key = |place: u16, writer: u8| [&[1][..], &place.to_be_bytes(), &[7, writer]].concat();
    let arrived = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (db, arrived) = (&db, &arrived);
            scope.spawn(move || {
                for place in 0..PLACES {
                    arrived.fetch_add(1, Ordering::AcqRel);
                    while arrived.load(Ordering::Acquire) < 2 * (u32::from(place) + 1) {
                        std::hint::spin_loop();
                    }
                    db.put_opt(key(place, writer), b"", &without_wal()).unwrap();
                }
            });
        }
    });
    for place in 0..PLACES {
        for writer in 0..2 {
            assert!(db.get(key(place, writer)).unwrap().is_some(), "{place} of {writer}");
        }
    }
}

#[test]
fn a_database_of_rocksdbs_own_memtable_is_opened_and_back() {
    let directory = TempDir::new().unwrap();
    let mut own = Options::default();
    own.create_if_missing(true);
    DB::open(&own, directory.path()).unwrap().put(b"a", b"1").unwrap();
    open(&directory).put(b"b", b"2").unwrap();
    let db = DB::open(&own, directory.path()).unwrap();
    assert_eq!((db.get(b"a").unwrap().unwrap(), db.get(b"b").unwrap().unwrap()), (b"1".to_vec(), b"2".to_vec()));
}
