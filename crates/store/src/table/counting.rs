//! How many records a table has.

use super::Table;
use crate::errors::request_error;
use std::sync::Arc;
use std::time::Instant;
use tessera_engine::{EngineError, PageLimit, Position, Visit};
use tessera_types::{Model, ReadMode, RecordKey, RequestError, Space};

/// So many records of a partition at most are counted where somebody asks how many there are.
const COUNTED: PageLimit = PageLimit { records: 10_000, bytes: 16 << 20 };
/// So many of a whole table are looked at, about, to find out that it has many more, and how many.
const SAMPLED: usize = 64_000;
/// So many deleted and overwritten records that lie one behind the other are passed over at most where a few are counted, which takes some
/// milliseconds. It is enough for a partition whose [few](COUNTED) records were written twice and deleted.
const SKIPPED: u64 = 50_000;

impl Table {
    /// How many hash keys a partition has. Where the engine does not count them, [a few](COUNTED) are counted now, which may wait
    /// for the disk; how many more there are is estimated by how far in the order of hashes these go.
    ///
    /// # Errors
    /// [`RequestError::NotReady`] if this node does not serve the partition; what the engine reports.
    pub fn hash_keys(&self, partition: u32) -> Result<u64, RequestError> {
        let readable = self.check_serving(partition, ReadMode::Single)?;
        let keys = match self.engine.hash_keys(partition) {
            Some(keys) => keys,
            None => self.count_few(partition)?,
        };
        self.check_lease(partition, ReadMode::Single, readable)?;
        Ok(keys)
    }

    /// How many records, or documents, the replicas on this node have, expired ones included; or, with [`Visit::NextHashKey`] as `step`, how
    /// many hash keys. `None` if they are not counted, since
    /// - a partition has more than [a few](COUNTED), or all together have more than `in_all`,
    /// - or more [deleted ones](SKIPPED) lie between two,
    /// - or `until` has come: the work ends then, but for one step,
    /// - or, of a read [from the caches](tessera_engine::from_caches), these do not have them. Any other read may wait for the disk.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn count_few_here(&self, step: Visit, in_all: PageLimit, until: Instant) -> Result<Option<u64>, RequestError> {
        let space = (self.schema.model == Model::Document).then_some(Space::DOCUMENTS);
        self.count_few_in(space, step, in_all, until)
    }

    /// As [`Self::count_few_here`], of several tables. Each one has an equal share of the time that is left when its turn comes, so that no
    /// table keeps those after it from being counted. What cannot be read is not counted.
    pub fn count_few_of(tables: &[Arc<Self>], step: Visit, in_all: PageLimit, until: Instant) -> Vec<Option<u64>> {
        let mut left = u32::try_from(tables.len()).unwrap_or(u32::MAX);
        let count = |table: &Arc<Self>| {
            let now = Instant::now();
            let share = until.saturating_duration_since(now) / left.max(1);
            left = left.saturating_sub(1);
            table.count_few_here(step, in_all, now + share).ok().flatten()
        };
        tables.iter().map(count).collect()
    }

    /// Whether it is known without a look that no replica here has a record or a document.
    pub(crate) fn is_known_to_be_empty_here(&self) -> bool {
        self.filled_here().next().is_none()
    }

    /// The partitions that may have records here. Where there is no replica, no entry of a log is applied.
    fn filled_here(&self) -> impl Iterator<Item = u32> {
        let may_hold = move |partition: &u32| {
            self.engine.applied_index(*partition) > 0 && !self.engine.is_known_to_be_empty(*partition)
        };
        (0..self.schema.partitions).filter(may_hold)
    }

    fn count_few_in(
        &self,
        space: Option<Space>,
        step: Visit,
        mut in_all: PageLimit,
        until: Instant,
    ) -> Result<Option<u64>, RequestError> {
        let (mut count, mut is_full) = (0, false);
        for partition in self.filled_here() {
            if Instant::now() >= until {
                return Ok(None);
            }
            let (mut of_partition, mut is_partition_full, mut is_cut) = (COUNTED, false, false);
            // Where each hash key has one record, going to the next record is the faster way to the next hash key.
            let step = if self.engine.may_hold_sort_keys(partition) { step } else { Visit::NextRecord };
            let visit = &mut |bytes: usize| {
                // The time is asked for at each: the engine may have passed over many deleted ones on its way to it.
                is_cut = is_full || is_partition_full || Instant::now() >= until;
                if is_cut {
                    return None;
                }
                count += 1;
                is_partition_full = !of_partition.take_bytes(bytes);
                is_full = !in_all.take_bytes(bytes);
                Some(step)
            };
            match self.engine.visit_sizes(partition, space, SKIPPED, visit) {
                Err(EngineError::WouldWait) => return Ok(None),
                visited => visited.map_err(request_error)?,
            }
            if is_cut {
                return Ok(None);
            }
        }
        Ok(Some(count))
    }

    /// About which share of a partition's records in a space have keys up to and including this one, 0 to 1. It takes time, and may wait for
    /// the disk.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn share_up_to(&self, partition: u32, space: Space, key: &[u8]) -> Result<f64, RequestError> {
        self.engine.share_up_to(partition, space, key).map_err(request_error)
    }

    fn count_few(&self, partition: u32) -> Result<u64, RequestError> {
        let sampled = (SAMPLED / self.schema.partitions as usize).clamp(250, COUNTED.records);
        let keys = self.count_some(partition, PageLimit { records: sampled, ..COUNTED })?;
        // Those that are not many more are worth a closer look.
        let is_large = sampled == COUNTED.records || keys > 2 * COUNTED.records as u64;
        if keys <= sampled as u64 || is_large { Ok(keys) } else { self.count_some(partition, COUNTED) }
    }

    /// The hash keys of a partition, counted from its beginning; of those beyond the limit it is known only that hashes are spread evenly.
    fn count_some(&self, partition: u32, limit: PageLimit) -> Result<u64, RequestError> {
        let mut keys: u64 = 0;
        let visit = &mut |_: RecordKey<'_>, _: &[u8]| {
            keys += 1;
            Visit::NextHashKey
        };
        let rest = self.engine.scan(partition, &Position::START, limit, visit).map_err(request_error)?;
        let Some(rest) = rest else { return Ok(keys) };
        let all = (u128::from(keys) << 64) / u128::from(rest.hash().max(1));
        // There is one more at least.
        Ok(u64::try_from(all).unwrap_or(u64::MAX).max(keys + 1))
    }
}

#[cfg(test)]
mod tests;
