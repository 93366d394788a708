//! Expiry with clocks that are wrong, against a model: two replicas of a partition, one in each engine, one of which leads.

use super::{Times, Transaction};
use crate::Table;
use crate::overlay::Overlay;
use crate::test_table::TestTable;
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use tessera_engine::{Applied, DEFAULT_ENGINE, PageLimit, Position, Visit};
use tessera_types::{EngineKind, Expiry, StoredValue, UnixMillis, ValueKind};

/// Far in the future, so that nothing has expired by the clock of this machine.
const BEGIN: u64 = 10_000_000_000_000;
const HOUR: u64 = 3_600_000;
const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];
const FIELDS: [&[u8]; 2] = [b"", b"f"];

type Key = (usize, usize);
/// Value and expiry.
type Model = BTreeMap<Key, (u8, Option<u64>)>;

#[derive(Clone, Debug)]
enum Step {
    Put(Key, u8, Option<u64>),
    PutIfAbsent(Key, u8, Option<u64>),
    /// Deletes what it sees.
    Delete(Key),
    /// Deletes what it sees of a hash key, and puts the record without a sort key.
    PutOver(usize, u8),
    Read,
    Tick(u64),
    /// Sets the clock of a replica's node so far from the truth.
    SetClock(usize, i64),
    ChangeLeader,
    /// The replica that does not lead applies what it lacks.
    CatchUp,
    RemoveExpired(usize),
    /// The replica that does not lead loses its records, and gets the other's from its checkpoint.
    Replace,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (0..KEYS.len(), 0..FIELDS.len());
    let lives = || prop::option::of(prop_oneof![1..2_000u64, Just(HOUR), Just(3 * HOUR)]);
    let hour = HOUR.cast_signed();
    let off = prop_oneof![Just(0), Just(-2 * hour), Just(2 * hour), -1_500..1_500i64];
    prop_oneof![
        6 => (key(), any::<u8>(), lives()).prop_map(|(key, value, lives)| Step::Put(key, value, lives)),
        4 => (key(), any::<u8>(), lives()).prop_map(|(key, value, lives)| Step::PutIfAbsent(key, value, lives)),
        6 => key().prop_map(Step::Delete),
        2 => (0..KEYS.len(), any::<u8>()).prop_map(|(key, value)| Step::PutOver(key, value)),
        2 => Just(Step::Read),
        3 => prop_oneof![1..1_500u64, Just(HOUR / 2)].prop_map(Step::Tick),
        6 => (0..2usize, off).prop_map(|(node, off)| Step::SetClock(node, off)),
        6 => Just(Step::ChangeLeader),
        2 => Just(Step::CatchUp),
        2 => (0..2usize).prop_map(Step::RemoveExpired),
        1 => Just(Step::Replace),
    ]
}

struct World<'a> {
    tables: [&'a Table; 2],
    directory: &'a Path,
    leader: usize,
    /// The truth, and how far each node's clock is from it.
    time: u64,
    off: [i64; 2],
    log: Vec<Bytes>,
    /// How many entries each replica has applied, and the log index of the last one before the first of them.
    applied: [usize; 2],
    began: [u64; 2],
    model: Model,
}

impl World<'_> {
    fn apply(&mut self, replica: usize) {
        while let Some(payload) = self.log.get(self.applied[replica]) {
            self.applied[replica] += 1;
            let index = self.began[replica] + self.applied[replica] as u64;
            let payloads = std::slice::from_ref(payload);
            self.tables[replica].engine.write(&[Applied { partition: 0, index, term: 1, payloads }]).unwrap();
        }
    }

    /// Has the leader evaluate, and log what that comes to. Returns at what time that was.
    fn evaluate(&mut self, run: impl FnOnce(&mut Transaction<'_>)) -> u64 {
        let table = self.tables[self.leader];
        let clock = UnixMillis::new(self.time.strict_add_signed(self.off[self.leader]));
        let times = Times::of_leader(clock, table.engine.time(0), true);
        let (overlay, mut payload) = (Overlay::default(), BytesMut::new());
        let mut transaction = Transaction::new(table, 0, times, &overlay, &mut payload);
        run(&mut transaction);
        if !transaction.into_changes().is_empty() {
            self.log.push(payload.freeze());
            self.apply(self.leader);
        }
        times.now.get()
    }

    fn forget(&mut self, time: u64) {
        self.model.retain(|_, (_, end)| end.is_none_or(|end| end > time));
    }

    fn take(&mut self, step: Step) {
        let see = |transaction: &Transaction<'_>, (key, field): Key| {
            transaction.get(KEYS[key], FIELDS[field]).unwrap().map(|record| record.value[0])
        };
        let put = |transaction: &mut Transaction<'_>, (key, field): Key, value: u8, lives: Option<u64>| {
            let end = lives.map(|lives| transaction.now().checked_add_millis(lives).unwrap());
            transaction.put(KEYS[key], FIELDS[field], &[value], Expiry::at_key(end), ValueKind::Plain).unwrap();
        };
        match step {
            Step::Put(key, value, lives) => {
                let now = self.evaluate(|transaction| put(transaction, key, value, lives));
                self.model.insert(key, (value, lives.map(|lives| now + lives)));
            }
            Step::PutIfAbsent(key, value, lives) => {
                let mut seen = None;
                let now = self.evaluate(|transaction| {
                    seen = see(transaction, key);
                    if seen.is_none() {
                        put(transaction, key, value, lives);
                    }
                });
                let expected = self.model.get(&key).filter(|(_, end)| end.is_none_or(|end| end > now));
                assert_eq!(seen, expected.map(|(value, _)| *value));
                if seen.is_none() {
                    self.model.insert(key, (value, lives.map(|lives| now + lives)));
                }
            }
            Step::Delete(key) => {
                self.evaluate(|transaction| {
                    if see(transaction, key).is_some() {
                        transaction.delete(KEYS[key.0], FIELDS[key.1]).unwrap();
                    }
                });
                self.model.remove(&key);
            }
            Step::PutOver(key, value) => {
                self.evaluate(|transaction| {
                    for (sort_key, _) in transaction.scan_all(KEYS[key]).unwrap() {
                        transaction.delete(KEYS[key], &sort_key).unwrap();
                    }
                    put(transaction, (key, 0), value, None);
                });
                self.model.retain(|(other, _), _| *other != key);
                self.model.insert((key, 0), (value, None));
            }
            Step::Read => {
                let mut seen = Vec::new();
                let addresses = || (0..KEYS.len()).flat_map(|key| (0..FIELDS.len()).map(move |field| (key, field)));
                let now = self.evaluate(|transaction| seen = addresses().map(|key| see(transaction, key)).collect());
                let live = |key| self.model.get(&key).filter(|(_, end)| end.is_none_or(|end| end > now));
                let expected: Vec<_> = addresses().map(|key| live(key).map(|(value, _)| *value)).collect();
                assert_eq!(seen, expected);
            }
            Step::Tick(millis) => self.time += millis,
            Step::SetClock(node, off) => self.off[node] = off,
            Step::ChangeLeader => {
                self.leader = 1 - self.leader;
                self.apply(self.leader);
                self.take(Step::Read);
            }
            Step::CatchUp => self.apply(1 - self.leader),
            Step::RemoveExpired(replica) => {
                let engine = &self.tables[replica].engine;
                engine.compact(&|_| {}).unwrap();
                (0..10).for_each(|_| _ = engine.remove_expired(0));
            }
            Step::Replace => self.replace(),
        }
        // What the log says has expired is gone for all that come later, whatever their clocks say.
        let told = self.tables[self.leader].engine.time(0).get();
        self.forget(told);
    }

    /// Snapshots are of one engine; between two they stand for a checkpoint and the log since.
    fn replace(&mut self) {
        let replica = 1 - self.leader;
        let (engine, path) = (&self.tables[replica].engine, self.directory.join("checkpoint"));
        let _ = std::fs::remove_file(&path);
        let index = engine.checkpoint(0, &path).unwrap();
        // Entries of before the checkpoint are applied once more.
        self.apply(replica);
        let engine = &self.tables[replica].engine;
        engine.restore(0, &path, index).unwrap();
        self.applied[replica] = usize::try_from(index - self.began[replica]).unwrap();
    }

    fn records(&self, replica: usize) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let engine = &self.tables[replica].engine;
        let (time, mut records) = (engine.time(0), Vec::new());
        engine
            .scan(0, &Position::START, PageLimit { records: usize::MAX, bytes: usize::MAX }, &mut |key, value| {
                if StoredValue::decode(value).unwrap().is_live(time) {
                    records.push((key.hash_key.to_vec(), key.sort_key.to_vec(), value.to_vec()));
                }
                Visit::NextRecord
            })
            .unwrap();
        records
    }
}

/// Whatever the clocks of the two nodes do, whoever leads sees what was acknowledged until its time is over, and never again
/// what was deleted or taken for expired by a write; and both replicas have the same records after the same log.
#[test]
fn replicas_agree_on_what_has_expired_whatever_their_clocks_say() {
    let tables = [EngineKind::Memory, DEFAULT_ENGINE].map(TestTable::open);
    let directory = tempfile::TempDir::new().unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(150));
    runner
        .run(&prop::collection::vec(step(), 1..100), |steps| {
            let mut blank = BytesMut::new();
            tessera_engine::mutation::encode_clear(&mut blank);
            let began = [0, 1].map(|replica| tables[replica].engine.applied_index(0));
            let mut world = World {
                tables: [&tables[0], &tables[1]],
                directory: directory.path(),
                leader: 0,
                time: BEGIN,
                off: [0, 0],
                log: vec![blank.freeze()],
                applied: [0, 0],
                began,
                model: Model::new(),
            };
            world.apply(0);
            world.apply(1);
            steps.into_iter().for_each(|step| world.take(step));
            world.take(Step::Read);
            world.apply(0);
            world.apply(1);
            assert_eq!(tables[0].engine.time(0), tables[1].engine.time(0));
            assert_eq!(world.records(0), world.records(1));
            Ok(())
        })
        .unwrap();
}
