//! Writing what a log's entries come to.

use super::keys::{
    applied_index_key, expiries_key, hash_position, partition_end, sort_keys_flag_key, space_range, spaces_begin,
    spaces_end, write_record_key, write_space_key,
};
use super::record_cache::{Change, Place, RecordCache};
use super::table::{KEY, RocksEngine, two_words};
use crate::expiries::Noted;
use crate::mutation::{self, Mutation};
use crate::{Applied, Engine, EngineError};
use bytes::Bytes;
use rocksdb::{WriteBatch, WriteOptions};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use tessera_types::{Space, StoredValue, ValueKind, successor};

/// Bytes of a batch beside the payloads, about: what is noted of a partition, and what keys are longer than in payloads.
const BATCH_HEAD_BYTES: usize = 512;

impl RocksEngine {
    /// All records of a partition are about to be replaced, or have been: to be called before and after. In between the record
    /// cache is not used for the partition, and afterwards it knows nothing of it.
    pub(super) fn replace_records(&self, partition: u32) {
        let state = self.state(partition);
        state.epoch.fetch_add(1, Ordering::AcqRel);
        state.is_empty.store(false, Ordering::Relaxed);
    }

    /// Tells the record cache that hash keys are about to be written, or have been.
    fn tell_cache(&self, written: &[Change<'_>], tell: impl Fn(&RecordCache, Place, &[Change<'_>])) {
        if let Some(cache) = &self.store.records {
            for changes in written.chunk_by(Change::is_beside) {
                tell(cache, self.place(changes[0].partition, changes[0].key.hash()), changes);
            }
        }
    }

    pub(super) fn write_with(&self, applied: &[Applied<'_>], options: &WriteOptions) -> Result<(), EngineError> {
        // The batch has room for all from the beginning; it would be copied several times while it grows.
        let bytes_of =
            |applied: &Applied<'_>| BATCH_HEAD_BYTES + applied.payloads.iter().map(Bytes::len).sum::<usize>();
        let mut batch = WriteBatch::with_capacity_bytes(applied.iter().map(bytes_of).sum());
        let family = &self.column_family;
        let (mut newly_hold_sort_keys, mut empty) = (Vec::new(), Vec::new());
        let (mut written, mut cleared, mut emptied, mut noted_by) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        KEY.with_borrow_mut(|stored_key| {
            for applied in applied {
                let partition = applied.partition;
                let mut holds_sort_keys = false;
                let mut is_empty = self.state(partition).is_empty.load(Ordering::Relaxed);
                let mut noted = None;
                for payload in applied.payloads {
                    for mutation in mutation::decode(payload) {
                        match mutation? {
                            Mutation::Put { key, value } => {
                                is_empty = false;
                                if value.first().is_none_or(|&flags| flags != 0) {
                                    let stored = StoredValue::decode(value);
                                    stored.inspect(|stored| noted.get_or_insert_with(Noted::default).put(stored));
                                    holds_sort_keys |=
                                        stored.is_none_or(|stored| stored.kind == ValueKind::UnnamedField);
                                }
                                holds_sort_keys |= !key.sort_key.is_empty();
                                write_record_key(stored_key, partition, &key);
                                written.push(Change { partition, key, value: Some(value) });
                                batch.put_cf(family, &stored_key, value);
                            }
                            Mutation::Delete { key } => {
                                write_record_key(stored_key, partition, &key);
                                written.push(Change { partition, key, value: None });
                                batch.delete_cf(family, &stored_key);
                            }
                            Mutation::DeleteHashKey { key } => {
                                write_record_key(stored_key, partition, &key);
                                // Rare enough for the cache to forget the partition.
                                cleared.push(partition);
                                batch.delete_range_cf(family, stored_key.to_vec(), successor(stored_key));
                            }
                            Mutation::Time(time) => noted.get_or_insert_with(Noted::default).time(time),
                            Mutation::Clear => {
                                noted.get_or_insert_with(Noted::default).clear();
                                is_empty = true;
                                cleared.push(partition);
                                emptied.push(partition);
                                batch.delete_range_cf(
                                    family,
                                    hash_position(partition, 0).to_vec(),
                                    partition_end(partition),
                                );
                                batch.delete_range_cf(family, spaces_begin(partition), spaces_end(partition));
                            }
                            Mutation::Mark { .. } => {}
                            Mutation::PutIn { space, key, value } => {
                                is_empty &= space != Space::DOCUMENTS;
                                write_space_key(stored_key, partition, space, key);
                                batch.put_cf(family, &stored_key, value);
                            }
                            Mutation::DeleteIn { space, key } => {
                                write_space_key(stored_key, partition, space, key);
                                batch.delete_cf(family, &stored_key);
                            }
                            Mutation::DropSpace { space } => {
                                let [begin, end] = space_range(partition, space, (Bound::Unbounded, Bound::Unbounded));
                                batch.delete_range_cf(family, begin, end);
                            }
                        }
                    }
                }
                empty.retain(|other| *other != partition);
                if is_empty {
                    empty.push(partition);
                } else if self.state(partition).is_empty.load(Ordering::Relaxed) {
                    self.state(partition).is_empty.store(false, Ordering::Relaxed);
                }
                if holds_sort_keys && !self.may_hold_sort_keys(partition) {
                    batch.put_cf(family, sort_keys_flag_key(partition), b"");
                    newly_hold_sort_keys.push(partition);
                }
                if let Some(noted) = noted {
                    if let Some(changed) = self.expiries(partition).changed_by(&noted) {
                        batch.put_cf(family, expiries_key(partition), two_words(changed));
                    }
                    noted_by.push((partition, noted));
                }
                batch.put_cf(family, applied_index_key(partition), two_words([applied.index, applied.term]));
            }
            Ok::<(), EngineError>(())
        })?;
        let tell = |holds| {
            for partition in &newly_hold_sort_keys {
                self.state(*partition).may_hold_sort_keys.store(holds, Ordering::Relaxed);
            }
        };
        // Nobody may find a record that the flag says is not there; a write that fails leaves neither.
        tell(true);
        cleared.sort_unstable();
        cleared.dedup();
        cleared.iter().for_each(|partition| self.replace_records(*partition));
        self.tell_cache(&written, |cache, place, _| cache.begin_write(place));
        let outcome = self.store.db.write_opt(batch, options);
        let is_known = outcome.is_ok();
        self.tell_cache(&written, |cache, place, changes| {
            if is_known {
                cache.update(place, changes)
            } else {
                cache.forget(place)
            }
            cache.end_write(place);
        });
        cleared.iter().for_each(|partition| self.replace_records(*partition));
        outcome.inspect_err(|_| tell(false))?;
        emptied.iter().for_each(|partition| self.damage.lock().replaced(*partition));
        empty.iter().for_each(|partition| self.state(*partition).is_empty.store(true, Ordering::Relaxed));
        noted_by.iter().for_each(|(partition, noted)| self.expiries(*partition).take(noted));
        for applied in applied {
            self.state(applied.partition).applied.store(applied.index, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::mutation::encode_put;
    use crate::rocks::table::RocksEngine;
    use crate::{Applied, Engine, RocksConfig, RocksStore};
    use bytes::BytesMut;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use tessera_types::{Expiry, RecordKey, StoredValue, ValueKind};

    #[test]
    fn who_may_not_wait_does_not_wait_for_the_manifest() {
        let directory = tempfile::TempDir::new().unwrap();
        let store = RocksStore::open(directory.path(), RocksConfig::default()).unwrap();
        let engine = RocksEngine::open(&store, "table", 1).unwrap();
        let key = RecordKey::new(b"key", b"");
        let payload = |value: &[u8]| {
            let mut payload = BytesMut::new();
            encode_put(
                &mut payload,
                &key,
                &StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: value },
            );
            [payload.freeze()]
        };
        engine.write(&[Applied { partition: 0, index: 1, term: 1, payloads: &payload(b"first") }]).unwrap();

        // The disk takes its time over the manifest: a table is created, altered or dropped, or a snapshot is taken in.
        let disk = store.manifest.write();
        let second = payload(b"second");
        let entries = [Applied { partition: 0, index: 2, term: 1, payloads: &second }];
        assert!(!engine.try_write(&entries).unwrap(), "it would have waited");
        assert!(engine.get(0, &key, &mut |_| ()).unwrap(), "readers go on");
        let (sender, done) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(engine.write(&entries)).unwrap());
            assert!(done.recv_timeout(Duration::from_millis(50)).is_err(), "who may wait waits");
            drop(disk);
            done.recv().unwrap().unwrap();
        });
        assert_eq!(engine.applied_index(0), 2);
    }

    /// After a power failure the log may lack what RocksDB has, and then nothing else tells the term.
    #[test]
    fn a_partition_remembers_the_term_of_its_last_entry() {
        let directory = tempfile::TempDir::new().unwrap();
        let open = || RocksStore::open(directory.path(), RocksConfig::default()).unwrap();
        let store = open();
        let engine = RocksEngine::open(&store, "table", 3).unwrap();
        engine.write(&[Applied { partition: 0, index: 1, term: 1, payloads: &[] }]).unwrap();
        let applied = [(0, 7, 3), (1, 9, 0)];
        let applied = applied.map(|(partition, index, term)| Applied { partition, index, term, payloads: &[] });
        engine.write(&applied).unwrap();
        let snapshot = directory.path().join("snapshot");
        assert_eq!(engine.checkpoint(0, &snapshot).unwrap(), 7);
        engine.restore(0, &snapshot, 7).unwrap();
        assert_eq!(engine.applied_term(0).unwrap(), Some(3), "a snapshot knows it too");
        // What a version before this one wrote.
        let key = super::applied_index_key(2);
        store.db.put_cf_opt(&engine.column_family, key, 5u64.to_le_bytes(), &engine.write).unwrap();
        engine.make_durable(0, &|| Ok(())).unwrap();
        drop(engine);
        drop(store);
        let store = open();
        let engine = RocksEngine::open(&store, "table", 3).unwrap();
        let known =
            [0, 1, 2].map(|partition| (engine.applied_index(partition), engine.applied_term(partition).unwrap()));
        assert_eq!(known, [(7, Some(3)), (9, None), (5, None)]);
    }
}
