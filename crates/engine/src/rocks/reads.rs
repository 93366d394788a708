//! Records from RocksDB, and what the record cache knows of them.

use super::keys::{read_record_key, write_record_key};
use super::record_cache::{Found, Place};
use super::table::{KEY, RocksEngine};
use crate::{Engine as _, EngineError, Order, SortKeyRange, Visit};
use rocksdb::DBPinnableSlice;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use tessera_types::{RecordKey, successor};

impl RocksEngine {
    /// Where the record cache has a hash key.
    pub(super) fn place(&self, partition: u32, hash: u64) -> Place {
        let epoch = self.state(partition).epoch.load(Ordering::Acquire);
        Place { table: self.number, partition, epoch, hash }
    }

    pub(super) fn read_record(
        &self,
        partition: u32,
        key: &RecordKey<'_>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, EngineError> {
        KEY.with_borrow_mut(|stored_key| {
            write_record_key(stored_key, partition, key);
            let value = self.store.db.get_pinned_cf_opt(&self.column_family, &stored_key, self.read_options())?;
            Ok(value.map(|value| visit(&value)).is_some())
        })
    }

    /// What the record cache knows about a record; a reservation is for one under the empty sort key.
    pub(super) fn look(&self, partition: u32, key: &RecordKey<'_>) -> Found<'_> {
        let Some(cache) = &self.store.records else { return Found::Taken };
        let place = self.place(partition, key.hash());
        let found = if key.sort_key.is_empty() {
            cache.get_or_reserve(place, key.hash_key)
        } else {
            cache.get(place, key.hash_key).map_or(Found::Taken, Found::Records)
        };
        match found {
            Found::Records(records) if records.value_of(key).is_none() => Found::Taken,
            found => found,
        }
    }

    /// Reads several records one by one, in order: RocksDB's way to read several in one call reads blocks from the disk whatever
    /// tier it is told to read.
    pub(super) fn multi_get_from_caches(
        &self,
        reads: &[(u32, RecordKey<'_>)],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        let mut would_wait = false;
        for (at, (partition, key)) in reads.iter().enumerate() {
            match self.get(*partition, key, &mut |value| visit(at, Some(value))) {
                Ok(true) => {}
                Ok(false) => visit(at, None),
                Err(EngineError::WouldWait) => would_wait = true,
                Err(error) => return Err(error),
            }
        }
        if would_wait { Err(EngineError::WouldWait) } else { Ok(()) }
    }

    /// What the record cache does not know, from RocksDB in one call.
    pub(super) fn read_unknown(
        &self,
        reads: &[(u32, RecordKey<'_>)],
        found: &[Found<'_>],
    ) -> Vec<Result<Option<DBPinnableSlice<'_>>, rocksdb::Error>> {
        let unknown = reads.iter().zip(found).filter(|(_, found)| !matches!(found, Found::Records(_)));
        let keys = unknown.map(|((partition, key), _)| {
            let mut stored = Vec::with_capacity(16 + key.hash_key.len() + key.sort_key.len());
            write_record_key(&mut stored, *partition, key);
            stored
        });
        let keys: Vec<_> = keys.collect();
        self.store.db.batched_multi_get_cf_opt(&self.column_family, &keys, false, &self.read)
    }

    /// The records of a hash key in a range, from RocksDB.
    pub(super) fn read_records(
        &self,
        partition: u32,
        key: &RecordKey<'_>,
        (from, to): SortKeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), EngineError> {
        let stored_key = |sort_key: &[u8]| {
            let mut stored = Vec::new();
            write_record_key(&mut stored, partition, &RecordKey::with_hash(key.hash(), key.hash_key, sort_key));
            stored
        };
        let prefix = stored_key(b"");
        let just_after = |mut stored: Vec<u8>| {
            stored.push(0);
            stored
        };
        let lower = match from {
            Bound::Unbounded => prefix.clone(),
            Bound::Included(sort_key) => stored_key(sort_key),
            Bound::Excluded(sort_key) => just_after(stored_key(sort_key)),
        };
        let upper = match to {
            Bound::Unbounded => successor(&prefix),
            Bound::Included(sort_key) => just_after(stored_key(sort_key)),
            Bound::Excluded(sort_key) => stored_key(sort_key),
        };
        if lower >= upper {
            return Ok(());
        }
        let mut options = Self::iterator_options();
        options.set_prefix_same_as_start(true);
        options.set_iterate_lower_bound(lower.clone());
        options.set_iterate_upper_bound(upper.clone());
        let mut iterator = self.store.db.raw_iterator_cf_opt(&self.column_family, options);
        match order {
            Order::Ascending => iterator.seek(&lower),
            Order::Descending => iterator.seek_for_prev(&upper),
        }
        while let Some((stored, value)) = iterator.item() {
            let record = self.noting(partition, read_record_key(partition, stored).ok_or_else(Self::damaged_key))?;
            if visit(record.sort_key, value) == Visit::NextHashKey {
                break;
            }
            match order {
                Order::Ascending => iterator.next(),
                Order::Descending => iterator.prev(),
            }
        }
        self.noting(partition, iterator.status().map_err(EngineError::from))
    }
}
