//! How many records a table has.

use super::Table;
use crate::errors::request_error;
use std::ops::Bound;
use tessera_engine::{Order, PageLimit, Position, Visit};
use tessera_types::{Model, ReadMode, RecordKey, RequestError, Space};

/// So many records of a partition at most are counted where somebody asks how many there are.
const COUNTED: PageLimit = PageLimit { records: 10_000, bytes: 16 << 20 };
/// So many of a whole table are looked at, about, to find out that it has many more, and how many.
const SAMPLED: usize = 64_000;

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

    /// How many records, or documents, the replicas on this node have, expired ones included, if each partition has only [a few](COUNTED), and
    /// all together have `in_all` at most. It may wait for the disk.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn count_few_here(&self, in_all: u64) -> Result<Option<u64>, RequestError> {
        let mut counted = 0;
        let may_hold = |partition: &u32| !self.engine.is_known_to_be_empty(*partition);
        for partition in (0..self.schema.partitions).filter(may_hold) {
            let is_cut = match self.schema.model {
                Model::Kv => {
                    let visit = &mut |_: RecordKey<'_>, _: &[u8]| {
                        counted += 1;
                        Visit::NextRecord
                    };
                    self.engine.scan(partition, &Position::START, COUNTED, visit).map_err(request_error)?.is_some()
                }
                Model::Document => {
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    let found = self.engine.read_space(partition, Space::DOCUMENTS, all, Order::Ascending, COUNTED);
                    let page = found.map_err(request_error)?;
                    counted += page.records().len() as u64;
                    page.is_cut
                }
            };
            if is_cut || counted > in_all {
                return Ok(None);
            }
        }
        Ok(Some(counted))
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
