//! How many records a table has.

use super::Table;
use crate::errors::request_error;
use std::ops::Bound;
use tessera_engine::{Order, PageLimit, Position, Visit};
use tessera_types::{Model, ReadMode, RecordKey, RequestError, Space};

/// So many records of a partition at most are counted where somebody asks how many there are.
const COUNTED: PageLimit = PageLimit { records: 10_000, bytes: 16 << 20 };

impl Table {
    /// How many hash keys a partition has. Where the engine does not count them, [a few](COUNTED) are counted now, which may wait
    /// for the disk; of more, it is the partition's share of an estimate for the node.
    ///
    /// # Errors
    /// [`RequestError::NotReady`] if this node does not serve the partition; what the engine reports.
    pub fn hash_keys(&self, partition: u32) -> Result<u64, RequestError> {
        let readable = self.check_serving(partition, ReadMode::Single)?;
        let keys = match self.engine.hash_keys(partition) {
            Some(keys) => keys,
            None => self.count_few(partition)?.unwrap_or_else(|| self.estimated_records()),
        };
        self.check_lease(partition, ReadMode::Single, readable)?;
        Ok(keys)
    }

    /// How many records, or documents, the replicas on this node have, expired ones included, if each partition has only [a few](COUNTED).
    /// It may wait for the disk.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn count_few_here(&self) -> Result<Option<u64>, RequestError> {
        let mut counted = 0;
        for partition in 0..self.schema.partitions {
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
            if is_cut {
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

    fn count_few(&self, partition: u32) -> Result<Option<u64>, RequestError> {
        let mut keys = 0;
        let visit = &mut |_: RecordKey<'_>, _: &[u8]| {
            keys += 1;
            Visit::NextHashKey
        };
        let rest = self.engine.scan(partition, &Position::START, COUNTED, visit).map_err(request_error)?;
        Ok(rest.is_none().then_some(keys))
    }

    /// There are more than those that were counted.
    fn estimated_records(&self) -> u64 {
        let filled = (0..self.schema.partitions).filter(|at| self.engine.applied_index(*at) > 0).count() as u64;
        (self.engine.statistics().records / filled.max(1)).max(COUNTED.records as u64)
    }
}
