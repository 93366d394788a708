//! Digesting a slice of a partition's records, from a snapshot, so that nobody waits for the disk meanwhile.

use super::keys::{
    hash_position, partition_end, read_record_key, read_space_key, slice_position, space_key, spaces_end,
};
use super::store::RocksStore;
use super::table::RocksEngine;
use crate::digest::Digester;
use crate::{Digest, Engine, EngineError, Slice, SliceDigest};
use rocksdb::{BoundColumnFamily, DB, DBRawIteratorWithThreadMode, ReadOptions, SnapshotWithThreadMode};
use std::sync::Arc;
use tessera_types::{Space, UnixMillis};

/// The records as they were when it was made. The first two are dropped before the instance that they belong to.
struct Pinned {
    snapshot: SnapshotWithThreadMode<'static, DB>,
    column_family: Arc<BoundColumnFamily<'static>>,
    store: Arc<RocksStore>,
}

impl RocksEngine {
    pub(super) fn begin_digest(&self, partition: u32, slice: Slice) -> Digest {
        let snapshot = self.store.db.snapshot();
        // SAFETY: the snapshot borrows from the instance in `store`. Both are in one value, which drops the snapshot first and
        // gives it to nobody, so the instance outlives it.
        let snapshot = unsafe {
            std::mem::transmute::<SnapshotWithThreadMode<'_, DB>, SnapshotWithThreadMode<'static, DB>>(snapshot)
        };
        let time = self.time(partition);
        let pinned = Pinned { snapshot, column_family: self.column_family.clone(), store: self.store.clone() };
        Digest::Later(Box::new(move || {
            pinned.digest(partition, &slice, time).inspect_err(|error| {
                if let EngineError::Corruption(reason) = error {
                    pinned.store.reports.note(reason);
                }
            })
        }))
    }
}

impl Pinned {
    fn digest(&self, partition: u32, slice: &Slice, time: UnixMillis) -> Result<SliceDigest, EngineError> {
        let mut digester = Digester::new(slice, time);
        let goes_on = match slice.first_in_space() {
            Some(_) => true,
            None => self.add_records(partition, slice, &mut digester)?,
        };
        if goes_on {
            let (space, key) = slice.first_in_space().unwrap_or((Space(0), b""));
            self.add_spaces(partition, &space_key(partition, space, key), &mut digester)?;
        }
        Ok(digester.finish())
    }

    /// Returns whether the slice goes on behind the records.
    fn add_records(&self, partition: u32, slice: &Slice, digester: &mut Digester<'_>) -> Result<bool, EngineError> {
        let mut iterator = self.iterate(partition_end(partition));
        match slice.from.is_empty() {
            true => iterator.seek(hash_position(partition, 0)),
            false => iterator.seek(slice_position(partition, &slice.from)),
        }
        while let Some((stored, value)) = iterator.item() {
            let key = read_record_key(partition, stored).ok_or_else(RocksEngine::damaged_key)?;
            if !digester.add(&key, value) {
                return Ok(false);
            }
            iterator.next();
        }
        iterator.status()?;
        Ok(true)
    }

    fn add_spaces(&self, partition: u32, from: &[u8], digester: &mut Digester<'_>) -> Result<(), EngineError> {
        let mut iterator = self.iterate(spaces_end(partition));
        iterator.seek(from);
        while let Some((stored, value)) = iterator.item() {
            let (space, key) = read_space_key(partition, stored).ok_or_else(RocksEngine::damaged_key)?;
            if !digester.add_in(space, key, value) {
                break;
            }
            iterator.next();
        }
        Ok(iterator.status()?)
    }

    fn iterate(&self, upper: Vec<u8>) -> DBRawIteratorWithThreadMode<'_, DB> {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        options.set_total_order_seek(true);
        // What clients ask for is to stay in the cache.
        options.fill_cache(false);
        options.set_iterate_upper_bound(upper);
        self.store.db.raw_iterator_cf_opt(&self.column_family, options)
    }
}
