use crate::mutation::{encode_clear, encode_put};
use crate::rocks::table::RocksEngine;
use crate::{Applied, Damaged, Engine, EngineError, PageLimit, Position, RocksConfig, RocksStore};
use bytes::BytesMut;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tessera_types::{Expiry, RecordKey, StoredValue, ValueKind};

const PARTITIONS: u32 = 8;
const RECORDS: u32 = 100;
const LIMIT: Duration = Duration::from_secs(30);

/// A table with the same records in each partition.
struct Fixture {
    engine: RocksEngine,
    store: Arc<RocksStore>,
}

impl Fixture {
    fn open(directory: &Path) -> Self {
        Self::open_with(directory, RocksConfig::default())
    }

    fn open_with(directory: &Path, config: RocksConfig) -> Self {
        let config =
            RocksConfig { target_file_bytes: 64 << 10, level0_compaction_trigger: 2, record_cache_bytes: 0, ..config };
        let store = RocksStore::open(directory, config).unwrap();
        Self { engine: RocksEngine::open(&store, "table", PARTITIONS).unwrap(), store }
    }

    fn new(directory: &Path) -> Self {
        let fixture = Self::open(directory);
        (0..PARTITIONS).for_each(|partition| fixture.write(partition, 7));
        fixture.flush();
        fixture
    }

    fn write(&self, partition: u32, index: u64) {
        let mut payload = BytesMut::new();
        for number in 0..RECORDS {
            let value = value_of(number);
            let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &value };
            encode_put(&mut payload, &RecordKey::new(&number.to_be_bytes(), b""), &stored);
        }
        self.engine.write(&[Applied { partition, index, term: 3, payloads: &[payload.freeze()] }]).unwrap();
    }

    fn clear(&self, partition: u32) {
        let mut payload = BytesMut::new();
        encode_clear(&mut payload);
        self.engine.write(&[Applied { partition, index: 0, term: 0, payloads: &[payload.freeze()] }]).unwrap();
    }

    fn flush(&self) {
        self.engine.make_durable(0, &|| Ok(())).unwrap();
    }

    /// How many records a partition has, all of which are right.
    fn records(&self, partition: u32) -> Result<usize, EngineError> {
        let page = self.engine.read_page(partition, &Position::START, PageLimit::of_records(10_000))?;
        for (key, stored) in page.records() {
            let number = u32::from_be_bytes(key.hash_key.try_into().unwrap());
            assert_eq!(StoredValue::decode(stored).unwrap().payload, value_of(number));
        }
        Ok(page.records().count())
    }

    /// The files at a level, by number, in the order of their keys.
    fn files(&self, is_level: impl Fn(i32) -> bool) -> Vec<u64> {
        let mut files = self.store.db.live_files().unwrap();
        files.retain(|file| is_level(file.level));
        files.sort_by_key(|file| file.start_key.clone());
        files.iter().map(|file| file.name.trim_matches(|it: char| !it.is_ascii_digit()).parse().unwrap()).collect()
    }

    fn damaged(&self) -> Vec<u32> {
        let damaged = self.engine.look_after_damage().unwrap();
        damaged.iter().map(|Damaged { partition, .. }| *partition).collect()
    }

    /// Drops the partitions' records, so that what holds them is dropped too.
    fn heal(&self, file: u64) {
        for partition in self.damaged() {
            self.clear(partition);
            assert!(!self.engine.is_damaged(partition));
        }
        let began = Instant::now();
        while self.files(|_| true).contains(&file) {
            assert!(began.elapsed() < LIMIT, "the file is still there");
            assert_eq!(self.damaged(), []);
        }
        self.engine.compact(&|_| ()).unwrap();
        assert_eq!(self.damaged(), []);
    }
}

/// What does not compress, so that there are many blocks.
fn value_of(number: u32) -> Vec<u8> {
    let mut state = u64::from(number) + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..500).map(|_| next()).collect()
}

fn flip(directory: &Path, file: u64, at: impl Fn(usize) -> usize) {
    let path = directory.join(format!("{file:06}.sst"));
    let mut bytes = std::fs::read(&path).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
}

#[test]
fn a_compaction_that_meets_damage_names_the_partitions_and_all_others_go_on() {
    let directory = TempDir::new().unwrap();
    let fixture = Fixture::new(directory.path());
    fixture.engine.compact(&|_| ()).unwrap();
    let files = fixture.files(|level| level > 0);
    assert!(files.len() > 4, "{files:?}");
    let file = files[files.len() / 2];
    flip(directory.path(), file, |len| len / 2);
    assert_eq!(fixture.damaged(), [], "nobody has read it");
    // RocksDB compacts by itself.
    let began = Instant::now();
    let mut index = 8;
    while fixture.damaged().is_empty() {
        assert!(began.elapsed() < LIMIT, "no compaction has met it");
        (0..PARTITIONS).for_each(|partition| fixture.write(partition, index));
        fixture.flush();
        index += 1;
    }
    let damaged = fixture.damaged();
    assert!(damaged.len() < PARTITIONS as usize, "{damaged:?}");
    assert!(fixture.engine.look_after_damage().unwrap()[0].reason.contains(&format!("{file:06}.sst")));
    // It is not tried again and again.
    let flushed = fixture.files(|level| level == 0);
    (0..PARTITIONS).for_each(|partition| fixture.write(partition, index));
    fixture.flush();
    assert!(flushed.iter().all(|file| fixture.files(|level| level == 0).contains(file)), "it is compacted");
    for partition in 0..PARTITIONS {
        fixture.write(partition, index + 1);
    }
    fixture.flush();
    for partition in (0..PARTITIONS).filter(|partition| !damaged.contains(partition)) {
        assert_eq!(fixture.records(partition).unwrap(), RECORDS as usize, "partition {partition}");
    }
    assert!(matches!(fixture.engine.compact(&|_| ()), Err(EngineError::Corruption(_))), "who asks is told");

    fixture.heal(file);
    let check = |fixture: &Fixture| {
        for partition in 0..PARTITIONS {
            let is_damaged = damaged.contains(&partition);
            let expected = if is_damaged { (0, 0) } else { (RECORDS as usize, index + 1) };
            let found = (fixture.records(partition).unwrap(), fixture.engine.applied_index(partition));
            assert_eq!(found, expected, "partition {partition}");
        }
    };
    check(&fixture);
    drop(fixture);
    check(&Fixture::open(directory.path()));
}

#[test]
fn a_damaged_file_of_level_0_is_dropped_once_snapshots_have_replaced_its_records() {
    let directory = TempDir::new().unwrap();
    let sound = Fixture::new(&directory.path().join("sound"));
    let path = directory.path().join("damaged");
    let fixture = Fixture::new(&path);
    let [file] = fixture.files(|_| true)[..] else { panic!("one file") };
    assert_eq!(fixture.files(|level| level == 0), [file]);
    // The byte lies in the first block, where the small keys are.
    flip(&path, file, |_| 20);
    assert!(matches!(fixture.engine.compact(&|_| ()), Err(EngineError::Corruption(_))));
    assert_eq!(fixture.damaged(), (0..PARTITIONS).collect::<Vec<_>>());
    assert_eq!(fixture.engine.applied_index(3), 7);
    for partition in 0..PARTITIONS - 1 {
        let snapshot = directory.path().join(format!("snapshot-{partition}"));
        let index = sound.engine.checkpoint(partition, &snapshot).unwrap();
        fixture.engine.restore(partition, &snapshot, index).unwrap();
        assert_eq!(fixture.damaged(), (partition + 1..PARTITIONS).collect::<Vec<_>>());
    }
    assert!(fixture.files(|_| true).contains(&file), "a partition still needs it");
    fixture.engine.discard(PARTITIONS - 1).unwrap();
    assert_eq!(fixture.engine.applied_index(PARTITIONS - 1), 7, "its small keys stay");
    fixture.heal(file);
    drop(fixture);
    let fixture = Fixture::open(&path);
    for partition in 0..PARTITIONS {
        let expected = if partition == PARTITIONS - 1 { 0 } else { RECORDS as usize };
        assert_eq!(fixture.records(partition).unwrap(), expected);
        assert_eq!(fixture.engine.applied_index(partition), 7);
    }
}

#[test]
fn what_reads_and_snapshots_meet_is_noted_as_well() {
    let directory = TempDir::new().unwrap();
    let fixture = Fixture::new(directory.path());
    let [file] = fixture.files(|_| true)[..] else { panic!("one file") };
    flip(directory.path(), file, |len| len / 2);
    let is_hit = |partition: &u32| fixture.records(*partition).is_err();
    assert!((0..PARTITIONS).any(|partition| is_hit(&partition)));
    assert_eq!(fixture.damaged().len(), PARTITIONS as usize);
    fixture.heal(file);

    fixture.write(1, 8);
    fixture.flush();
    let newest = fixture.files(|_| true).into_iter().max().unwrap();
    flip(directory.path(), newest, |len| len / 2);
    assert!(fixture.engine.checkpoint(1, &directory.path().join("snapshot")).is_err());
    assert!(fixture.damaged().contains(&1));
}

/// Then nothing tells how far the partitions are, and the table is opened all the same.
#[test]
fn a_table_whose_small_keys_are_damaged_is_opened_as_one_that_has_applied_nothing() {
    let directory = TempDir::new().unwrap();
    let fixture = Fixture::new(directory.path());
    let [file] = fixture.files(|_| true)[..] else { panic!("one file") };
    drop(fixture);
    flip(directory.path(), file, |_| 20);
    let fixture = Fixture::open(directory.path());
    assert_eq!(fixture.engine.applied_index(5), 0);
    assert_eq!(fixture.engine.applied_term(5).unwrap(), None);
    assert_eq!(fixture.damaged().len(), PARTITIONS as usize);
    assert_eq!(fixture.engine.durable_index(5).unwrap(), 0, "that is on the disk from here on");
}

/// A compaction that fails does not make room in level 0, for which writers wait.
#[test]
fn writers_do_not_wait_for_compactions_that_fail() {
    let directory = TempDir::new().unwrap();
    let config = RocksConfig { level0_slowdown_trigger: 3, level0_stop_trigger: 4, ..RocksConfig::default() };
    let fixture = Fixture::open_with(directory.path(), config);
    (0..PARTITIONS).for_each(|partition| fixture.write(partition, 7));
    fixture.flush();
    fixture.engine.compact(&|_| ()).unwrap();
    let files = fixture.files(|level| level > 0);
    flip(directory.path(), files[files.len() / 2], |len| len / 2);
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 8..20 {
                (0..PARTITIONS).for_each(|partition| fixture.write(partition, index));
                fixture.flush();
            }
            sender.send(()).unwrap();
        });
        let began = Instant::now();
        while done.recv_timeout(Duration::from_millis(50)).is_err() {
            assert!(began.elapsed() < LIMIT, "writers wait");
            fixture.damaged();
        }
    });
    assert!(fixture.files(|level| level == 0).len() > 4);
    assert!(!fixture.damaged().is_empty());
}

/// Then RocksDB cannot tell what there is.
#[test]
fn a_file_whose_end_is_damaged_keeps_the_instance_from_opening_and_is_named() {
    let directory = TempDir::new().unwrap();
    let fixture = Fixture::new(directory.path());
    let [file] = fixture.files(|_| true)[..] else { panic!("one file") };
    drop(fixture);
    flip(directory.path(), file, |len| len - 4);
    let Err(error) = RocksStore::open(directory.path(), RocksConfig::default()) else { panic!("it opens") };
    assert!(error.is_damage() && error.to_string().contains(&format!("{file:06}.sst")), "{error}");
}
