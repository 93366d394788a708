//! Reading the ordered spaces of a partition.

use super::keys::{read_space_key, space_key, space_range, spaces_end};
use super::table::RocksEngine;
use crate::read_tier::is_caches_only;
use crate::statistics::share;
use crate::{EngineError, KeyRange, Order};
use rocksdb::{DB, DBRawIteratorWithThreadMode};
use std::ops::Bound;
use tessera_types::Space;

/// Of a space that has less in files, records are counted to tell a share of it. RocksDB's estimate is off by some blocks.
const MANY_BYTES: u64 = 4 << 20;

impl RocksEngine {
    pub(super) fn read_in(
        &self,
        partition: u32,
        space: Space,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, EngineError> {
        let stored_key = space_key(partition, space, key);
        let value = self.store.db.get_pinned_cf_opt(&self.column_family, stored_key, self.read_options())?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    pub(super) fn read_many_in(
        &self,
        partition: u32,
        space: Space,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        // RocksDB's way to read several keys in one call reads blocks from the disk whatever tier it is told to read.
        if is_caches_only() || keys.len() == 1 {
            for (at, key) in keys.iter().enumerate() {
                if !self.read_in(partition, space, key, &mut |value| visit(at, Some(value)))? {
                    visit(at, None);
                }
            }
            return Ok(());
        }
        let stored: Vec<_> = keys.iter().map(|key| space_key(partition, space, key)).collect();
        let values = self.store.db.batched_multi_get_cf_opt(&self.column_family, &stored, false, &self.read);
        for (at, value) in values.into_iter().enumerate() {
            visit(at, value?.as_deref());
        }
        Ok(())
    }

    fn iterate(&self, lower: &[u8], upper: Vec<u8>) -> DBRawIteratorWithThreadMode<'_, DB> {
        let mut options = Self::iterator_options();
        options.set_total_order_seek(true);
        options.set_iterate_lower_bound(lower);
        options.set_iterate_upper_bound(upper);
        self.store.db.raw_iterator_cf_opt(&self.column_family, options)
    }

    pub(super) fn visit_space(
        &self,
        partition: u32,
        space: Space,
        range: KeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        let [lower, upper] = space_range(partition, space, range);
        if lower >= upper {
            return Ok(());
        }
        let mut iterator = self.iterate(&lower, upper);
        match order {
            Order::Ascending => iterator.seek_to_first(),
            Order::Descending => iterator.seek_to_last(),
        }
        while let Some((stored, value)) = iterator.item() {
            let (_, key) = read_space_key(partition, stored).ok_or_else(Self::damaged_key)?;
            if !visit(key, value) {
                break;
            }
            match order {
                Order::Ascending => iterator.next(),
                Order::Descending => iterator.prev(),
            }
        }
        Ok(iterator.status()?)
    }

    /// One iterator for all ranges. Where it comes to rest says which ranges there is nothing in.
    pub(super) fn visit_ranges(
        &self,
        partition: u32,
        space: Space,
        ranges: &[KeyRange<'_>],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        let stored = |range: &KeyRange<'_>| space_range(partition, space, *range);
        let (Some(first), Some(last)) = (ranges.first().map(stored), ranges.last().map(stored)) else { return Ok(()) };
        let [lowest, _] = first;
        let [_, highest] = last;
        if lowest >= highest {
            return Ok(());
        }
        let mut iterator = self.iterate(&lowest, highest);
        let mut is_placed = false;
        for [lower, upper] in ranges.iter().map(stored) {
            // Whatever lies before it was visited, or lies between two ranges.
            if !is_placed || iterator.key().is_some_and(|at| at < &lower[..]) {
                iterator.seek(&lower);
                is_placed = true;
            }
            while let Some((at, value)) = iterator.item().filter(|(at, _)| *at < &upper[..]) {
                let (_, key) = read_space_key(partition, at).ok_or_else(Self::damaged_key)?;
                if !visit(key, value) {
                    return Ok(iterator.status()?);
                }
                iterator.next();
            }
            if !iterator.valid() {
                break;
            }
        }
        Ok(iterator.status()?)
    }

    /// By the bytes in files, of which an index tells where keys are; what is not flushed yet is not in them. If these are few, records are
    /// counted.
    pub(super) fn share_of_space(&self, partition: u32, space: Space, key: &[u8]) -> Result<f64, EngineError> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let [begin, end] = space_range(partition, space, all);
        let [_, behind] = space_range(partition, space, (Bound::Unbounded, Bound::Included(key)));
        let ranges = [&behind, &end].map(|end| rocksdb::Range::new(&begin, end));
        let bytes = self.store.db.get_approximate_sizes_cf(&self.column_family, &ranges);
        if let [before, all] = bytes[..]
            && all >= MANY_BYTES
        {
            return Ok(share(before, all));
        }
        let (mut before, mut counted) = (0, 0);
        self.visit_space(partition, space, all, Order::Ascending, &mut |at, _| {
            before += u64::from(at <= key);
            counted += 1;
            true
        })?;
        Ok(share(before, counted))
    }

    pub(super) fn first_space(&self, partition: u32, from: Space) -> Result<Option<Space>, EngineError> {
        let mut iterator = self.iterate(&space_key(partition, from, b""), spaces_end(partition));
        iterator.seek_to_first();
        let found = iterator.key().map(|stored| read_space_key(partition, stored).ok_or_else(Self::damaged_key));
        let space = found.transpose()?.map(|(space, _)| space);
        iterator.status()?;
        Ok(space)
    }
}
