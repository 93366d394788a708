//! Writing what a log's entries come to.

use super::keys::{applied_index_key, hash_position, partition_end, sort_keys_flag_key, write_record_key};
use super::record_cache::{Change, Place, RecordCache};
use super::table::{KEY, RocksEngine};
use crate::mutation::{self, Mutation};
use crate::{Applied, Engine, EngineError};
use rocksdb::{WriteBatch, WriteOptions};
use std::sync::atomic::Ordering;

impl RocksEngine {
    /// All records of a partition are about to be replaced, or have been: to be called before and after. In between the record
    /// cache is not used for the partition, and afterwards it knows nothing of it.
    pub(super) fn replace_records(&self, partition: u32) {
        self.state(partition).epoch.fetch_add(1, Ordering::AcqRel);
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
        let mut batch = WriteBatch::default();
        let family = &self.column_family;
        let mut newly_hold_sort_keys = Vec::new();
        let (mut written, mut cleared) = (Vec::new(), Vec::new());
        KEY.with_borrow_mut(|stored_key| {
            for applied in applied {
                let partition = applied.partition;
                let mut holds_sort_keys = false;
                for payload in applied.payloads {
                    for mutation in mutation::decode(payload) {
                        match mutation? {
                            Mutation::Put { key, value } => {
                                holds_sort_keys |= !key.sort_key.is_empty()
                                    || tessera_types::StoredValue::decode(value).is_none_or(|stored| stored.is_field);
                                write_record_key(stored_key, partition, &key);
                                written.push(Change { partition, key, value: Some(value) });
                                batch.put_cf(family, &stored_key, value);
                            }
                            Mutation::Delete { key } => {
                                write_record_key(stored_key, partition, &key);
                                written.push(Change { partition, key, value: None });
                                batch.delete_cf(family, &stored_key);
                            }
                            Mutation::Clear => {
                                cleared.push(partition);
                                batch.delete_range_cf(
                                    family,
                                    hash_position(partition, 0).to_vec(),
                                    partition_end(partition),
                                );
                            }
                        }
                    }
                }
                if holds_sort_keys && !self.may_hold_sort_keys(partition) {
                    batch.put_cf(family, sort_keys_flag_key(partition), b"");
                    newly_hold_sort_keys.push(partition);
                }
                batch.put_cf(family, applied_index_key(partition), applied.index.to_le_bytes());
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
        for applied in applied {
            self.state(applied.partition).applied.store(applied.index, Ordering::Release);
        }
        Ok(())
    }
}
