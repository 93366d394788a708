//! Going through what a partition has in order to count it.

use super::keys::{hash_position, partition_end, read_record_key, space_range};
use super::table::RocksEngine;
use crate::{EngineError, Visit};
use std::ops::Bound;
use tessera_types::{Space, successor};

impl RocksEngine {
    /// RocksDB passes over deleted records inside one call, in which no visitor could end it: there may be millions of them in the
    /// memtables. So RocksDB itself gives up when it has passed over too many. It does not count records that a deleted range covers. Of
    /// these it passes over those in the same memtable only, so `write_buffer_bytes` bounds them; in files it seeks behind the range.
    pub(super) fn visit_sizes_in(
        &self,
        partition: u32,
        space: Option<Space>,
        most_skipped: u64,
        visit: &mut dyn FnMut(usize) -> Option<Visit>,
    ) -> Result<(), EngineError> {
        let [lower, upper] = match space {
            Some(space) => space_range(partition, space, (Bound::Unbounded, Bound::Unbounded)),
            None => [hash_position(partition, 0).to_vec(), partition_end(partition)],
        };
        let mut options = Self::iterator_options();
        options.set_total_order_seek(true);
        options.set_iterate_lower_bound(lower);
        options.set_iterate_upper_bound(upper);
        options.set_max_skippable_internal_keys(most_skipped);
        options.fill_cache(false);
        let mut iterator = self.store.db.raw_iterator_cf_opt(&self.column_family, options);
        iterator.seek_to_first();
        while let Some((stored, value)) = iterator.item() {
            let Some(step) = visit(stored.len() + value.len()) else { return Ok(()) };
            let mut end = None;
            if step == Visit::NextHashKey && space.is_none() {
                let record = read_record_key(partition, stored).ok_or_else(Self::damaged_key)?;
                if !record.hash_key.is_empty() {
                    end = Some(successor(&stored[..stored.len() - record.sort_key.len()]));
                }
            }
            match end {
                Some(end) => iterator.seek(end),
                None => iterator.next(),
            }
        }
        Ok(iterator.status()?)
    }
}
