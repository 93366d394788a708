//! The memory engine: records in memory, found by hash, ordered by sort key inside a hash key.
//!
//! Per partition one lock over one [`index::Index`] and the ordered [`spaces`]; applying the log is the only regular writer. With a directory the
//! engine keeps checkpoints there, which bound the log of tables that must survive a restart; without one nothing is
//! ever written.

mod budget;
mod checkpoint;
mod digest;
mod doomed;
mod durability;
mod index;
mod partition;
mod record;
mod reflected;
mod segment;
mod slot;
mod spaces;

use crate::{
    Applied, Digest, Engine, EngineError, EngineStatistics, KeyRange, Order, PageLimit, Position, Slice, SortKeyRange,
    Visit,
};
pub use budget::{MemoryBudget, MemoryConfig};
use durability::Durability;
use partition::Partition;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tessera_types::{RecordKey, Space, TableSettings, UnixMillis, WhenFull};

/// A table in memory.
pub struct MemoryEngine {
    partitions: Vec<Partition>,
    /// In the order of the partitions.
    durability: Vec<Durability>,
    budget: Arc<MemoryBudget>,
    evict_when_full: AtomicBool,
    /// Where checkpoints live; `None` for tables that keep nothing on disk.
    directory: Option<PathBuf>,
}

impl MemoryEngine {
    /// Opens a table of `partitions` partitions. With a `directory`, loads the checkpoints found there. A partition whose
    /// checkpoint is damaged begins empty, with index 0: whoever has its log sees whether that still has everything.
    ///
    /// # Errors
    /// If the directory cannot be used or a checkpoint cannot be read.
    pub fn open(partitions: u32, budget: Arc<MemoryBudget>, directory: Option<PathBuf>) -> Result<Self, EngineError> {
        let durability = (0..partitions).map(|_| Durability::default()).collect();
        let partitions = (0..partitions).map(|_| Partition::new(budget.clone())).collect();
        let engine = Self { partitions, durability, budget, evict_when_full: AtomicBool::new(false), directory };
        if let Some(directory) = &engine.directory {
            fs::create_dir_all(directory).map_err(EngineError::io(directory))?;
            for (number, (partition, durability)) in engine.partitions.iter().zip(&engine.durability).enumerate() {
                let path = checkpoint_path(directory, number);
                if path.exists() {
                    match durability.open(partition, &path) {
                        Err(error) if error.is_damage() => {
                            tracing::error!(%error, "a checkpoint is damaged; it is kept under another name, and the partition begins empty");
                            partition.clear();
                            fs::rename(&path, path.with_extension("damaged")).map_err(EngineError::io(&path))?;
                        }
                        outcome => outcome?,
                    }
                }
            }
        }
        Ok(engine)
    }

    fn partition(&self, number: u32) -> &Partition {
        &self.partitions[number as usize]
    }

    fn durability(&self, number: u32) -> &Durability {
        &self.durability[number as usize]
    }
}

fn checkpoint_path(directory: &Path, partition: usize) -> PathBuf {
    directory.join(format!("partition-{partition:05}.checkpoint"))
}

impl Engine for MemoryEngine {
    fn get(&self, partition: u32, key: &RecordKey<'_>, visit: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError> {
        Ok(self.partition(partition).get(key, visit))
    }

    fn multi_get(
        &self,
        reads: &[(u32, RecordKey<'_>)],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        partition::multi_get(&self.partitions, reads, visit);
        Ok(())
    }

    fn scan_hash_key(
        &self,
        partition: u32,
        key: &RecordKey<'_>,
        range: SortKeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), EngineError> {
        self.partition(partition).scan_hash_key(key, range, order, visit);
        Ok(())
    }

    fn scan(
        &self,
        partition: u32,
        from: &Position,
        limit: PageLimit,
        visit: &mut dyn FnMut(RecordKey<'_>, &[u8]) -> Visit,
    ) -> Result<Option<Position>, EngineError> {
        Ok(self.partition(partition).scan(from, limit, visit))
    }

    fn get_in(
        &self,
        partition: u32,
        space: Space,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, EngineError> {
        Ok(self.partition(partition).get_in(space, key, visit))
    }

    fn scan_space(
        &self,
        partition: u32,
        space: Space,
        range: KeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        self.partition(partition).scan_space(space, range, order, visit);
        Ok(())
    }

    fn next_space(&self, partition: u32, from: Space) -> Result<Option<Space>, EngineError> {
        Ok(self.partition(partition).next_space(from))
    }

    fn write(&self, applied: &[Applied<'_>]) -> Result<(), EngineError> {
        let evict = self.evict_when_full.load(Ordering::Relaxed);
        for applied in applied {
            let partition = self.partition(applied.partition);
            partition.apply(applied)?;
            if evict {
                partition.evict();
            }
        }
        Ok(())
    }

    fn may_hold_sort_keys(&self, partition: u32) -> bool {
        self.partition(partition).may_hold_sort_keys()
    }

    fn applied_index(&self, partition: u32) -> u64 {
        self.partition(partition).reflected.applied()
    }

    fn settled_from(&self, partition: u32) -> u64 {
        self.partition(partition).reflected.settled_from()
    }

    fn durable_index(&self, partition: u32) -> Result<u64, EngineError> {
        Ok(self.durability(partition).index())
    }

    fn make_durable(&self, number: u32, log_synced: &dyn Fn() -> Result<(), String>) -> Result<(), EngineError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let path = checkpoint_path(directory, number as usize);
        self.durability(number).make_durable(self.partition(number), &path, log_synced)
    }

    fn checkpoint(&self, partition: u32, path: &Path) -> Result<u64, EngineError> {
        self.durability(partition).checkpoint(self.partition(partition), path)
    }

    fn restore(&self, partition: u32, path: &Path, index: u64) -> Result<(), EngineError> {
        self.durability(partition).restore(self.partition(partition), path, index)
    }

    fn digest(&self, partition: u32, slice: &Slice) -> Digest {
        Digest::Done(self.partition(partition).digest(slice))
    }

    fn spare_bytes(&self) -> Option<u64> {
        // A table that evicts is never full: it makes room as it applies.
        (!self.evict_when_full.load(Ordering::Relaxed)).then(|| self.budget.spare_bytes())
    }

    fn time(&self, partition: u32) -> UnixMillis {
        self.partition(partition).expiries().time()
    }

    fn next_expiry(&self, partition: u32) -> Option<UnixMillis> {
        self.partition(partition).expiries().next()
    }

    fn remove_expired(&self, partition: u32) -> usize {
        let partition = self.partition(partition);
        let _ = (0..doomed::STEPS).find(|_| !partition.free_doomed());
        partition.remove_expired()
    }

    fn apply_settings(&self, settings: &TableSettings) -> Result<(), EngineError> {
        self.evict_when_full.store(settings.when_full == WhenFull::Evict, Ordering::Relaxed);
        Ok(())
    }

    fn compact(&self, _on_progress: &dyn Fn(f64)) -> Result<(), EngineError> {
        Ok(())
    }

    fn share_up_to(&self, partition: u32, space: Space, key: &[u8]) -> Result<f64, EngineError> {
        Ok(self.partition(partition).share_up_to(space, key))
    }

    fn give_back(&self) -> Result<bool, EngineError> {
        self.partitions.iter().for_each(Partition::clear);
        Ok(true)
    }

    fn hash_keys(&self, partition: u32) -> Option<u64> {
        Some(self.partition(partition).hash_keys())
    }

    fn partition_bytes(&self, partition: u32) -> u64 {
        self.partition(partition).bytes()
    }

    fn statistics(&self) -> EngineStatistics {
        let mut statistics = EngineStatistics { hash_keys: Some(0), ..Default::default() };
        for partition in &self.partitions {
            partition.add_to(&mut statistics);
        }
        if let Some(directory) = &self.directory {
            let files = fs::read_dir(directory).into_iter().flatten().flatten();
            statistics.disk_bytes = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
        }
        statistics
    }
}
