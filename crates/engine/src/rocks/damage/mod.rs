//! Damaged files: what an instance does when a file does not hold what was written to it.
//!
//! **The problem.** One instance holds all tables of a node. RocksDB takes no more writes for any of them once a compaction has met a
//! block with a wrong checksum, since it cannot know that its user has other copies. And it cannot get rid of such a file:
//! what is deleted goes away by compactions, which fail as they read the file, again and again.
//!
//! **The design.** A [listener](reports) lets RocksDB go on, since a compaction that fails has changed nothing, and notes which file
//! is damaged; reads note what they meet as well. Between the file's first and last key are records of some
//! partitions. These count as damaged until their records have been replaced: by a clear, with which a replica ends, or by a
//! snapshot. Both put a range deletion on top of all older records. When no partition is left that has not been
//! replaced, nothing in the file counts any more, and it is dropped without being read, whatever its level.
//!
//! Until then the table is not compacted by RocksDB itself: it would try the same files again every second. Files pile up in
//! level 0 meanwhile, so writers are not slowed down because of them, until there are few again.
//!
//! **Small keys.** A partition's index, flag and times lie before all records, so those of many partitions may be in the file, also
//! of partitions that have no record in it. All of them are known in memory, and are written again as soon as the file is known,
//! so that nothing of them is lost with it. If they cannot be read when a table is opened, the partition counts as one that has
//! applied nothing, which its log contradicts unless it has everything.
//!
//! **Invariants.** A file is dropped only after what replaces its records has been flushed. What a partition has is cleared
//! after the file was noted, or does not count: the file cannot hold anything newer then.
//!
//! What was noted is in memory only. After a restart the next compaction or read finds the file again.

mod known;
mod reports;

pub(super) use known::Damage;
pub(super) use reports::Reports;

use super::keys::{
    applied_index_key, expiries_key, hash_position, partition_end, sort_keys_flag_key, spaces_begin, spaces_end,
};
use super::options::Compacting;
use super::table::{RocksEngine, two_words};
use crate::{Damaged, EngineError};
use known::DamagedFile;
use reports::Place;
use rocksdb::{AsColumnFamilyRef, ErrorKind, WriteBatch, properties};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use tessera_types::UsageScenario;

unsafe extern "C" {
    /// See damage.cc.
    fn tessera_drop_file(column_family: *mut c_void, file: u64) -> i32;
}

impl RocksEngine {
    /// Notes damage that a read has met.
    pub(super) fn noting<T>(&self, partition: u32, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(EngineError::Corruption(reason)) = &outcome {
            self.note_damage(partition, reason);
        }
        outcome
    }

    fn note_damage(&self, partition: u32, reason: &str) {
        if !self.store.reports.note(reason) {
            self.damage.lock().partitions.entry(partition).or_insert_with(|| reason.to_string());
        }
    }

    /// What a read of a small key came to, or what is known in its place if it is damaged.
    pub(super) fn unless_damaged<T>(
        &self,
        partition: u32,
        outcome: Result<T, EngineError>,
        known: T,
    ) -> Result<T, EngineError> {
        match self.noting(partition, outcome) {
            Err(EngineError::Corruption(_)) => Ok(known),
            outcome => outcome,
        }
    }

    pub(super) fn is_damaged_in(&self, partition: u32) -> bool {
        self.damage.lock().reason(partition).is_some()
    }

    /// The damage of the table that is known, whether it is looked after already or not.
    pub(super) fn known_damage(&self) -> Option<String> {
        let found = self.store.reports.of(&self.name, &self.store.db);
        let reported = found.ok()?.into_iter().map(|(_, _, reason)| reason).next();
        reported.or_else(|| self.damage.lock().partitions.values().next().cloned())
    }

    pub(super) fn look_after_damaged_files(&self) -> Result<Vec<Damaged>, EngineError> {
        let reported = self.store.reports.of(&self.name, &self.store.db)?;
        if !reported.is_empty() {
            // First of all: where writers wait for a compaction that fails, nothing else could be done.
            self.set_compacting(Compacting::Stopped)?;
        }
        for (file, place, reason) in reported {
            self.begin_to_replace(file, &place, reason)?;
        }
        self.drop_replaced_files()?;
        self.choose_compacting()?;
        let damage = self.damage.lock();
        let partitions = 0..u32::try_from(self.partitions.len()).expect("a table has few partitions");
        let found =
            partitions.filter_map(|partition| Some(Damaged { partition, reason: damage.reason(partition)?.clone() }));
        Ok(found.collect())
    }

    fn begin_to_replace(&self, file: u64, place: &Place, reason: String) -> Result<(), EngineError> {
        if self.damage.lock().files.contains_key(&file) {
            return Ok(());
        }
        self.write_small_keys_again(place)?;
        // The durable index is asked of files alone.
        self.flush()?;
        let partitions = 0..u32::try_from(self.partitions.len()).expect("a table has few partitions");
        let partitions: BTreeSet<u32> = partitions.filter(|partition| place.overlaps(*partition)).collect();
        tracing::error!(table = %self.name, file, reason, partitions = partitions.len(), "a file is damaged");
        self.damage.lock().files.insert(file, DamagedFile { reason, partitions });
        Ok(())
    }

    /// Writes the small keys that may be in a file.
    fn write_small_keys_again(&self, place: &Place) -> Result<(), EngineError> {
        let mut batch = WriteBatch::default();
        let family = &self.column_family;
        // Nobody writes them meanwhile.
        let _writers_wait = self.store.manifest.write();
        let read = |key: &[u8]| match self.store.db.get_pinned_cf(family, key) {
            Ok(found) => Ok(Some(found.map(|found| found.to_vec()))),
            Err(error) if error.kind() == ErrorKind::Corruption => Ok(None),
            Err(error) => Err(EngineError::from(error)),
        };
        for (partition, state) in (0..).zip(&self.partitions) {
            // What it says counts where it is not readable.
            let known = [
                (applied_index_key(partition), Some(two_words([state.applied.load(Ordering::Acquire), 0]).to_vec())),
                (sort_keys_flag_key(partition), state.may_hold_sort_keys.load(Ordering::Relaxed).then(Vec::new)),
                (expiries_key(partition), Some(two_words(self.expiries(partition).stored()).to_vec())),
            ];
            for (key, known) in known.into_iter().filter(|(key, _)| place.holds(key)) {
                match read(&key)? {
                    Some(None) => {}
                    Some(Some(stored)) => batch.put_cf(family, key, stored),
                    None => match known {
                        Some(known) => batch.put_cf(family, key, known),
                        None => batch.delete_cf(family, key),
                    },
                }
            }
        }
        // A stall must not keep all writers out: it is tried again.
        Ok(self.store.db.write_opt(batch, &self.try_write)?)
    }

    fn drop_replaced_files(&self) -> Result<(), EngineError> {
        let replaced: Vec<u64> = {
            let damage = self.damage.lock();
            damage.files.iter().filter(|(_, file)| file.partitions.is_empty()).map(|(file, _)| *file).collect()
        };
        if replaced.is_empty() {
            return Ok(());
        }
        self.flush()?;
        for file in replaced {
            let dropped = {
                let _writers_wait = self.store.manifest.write();
                // SAFETY: the handle is valid as long as this engine is.
                unsafe { tessera_drop_file(self.column_family.inner().cast(), file) }
            };
            match dropped {
                0 | 1 => {
                    tracing::info!(table = %self.name, file, "the damaged file is dropped: its records have been replaced")
                }
                2 => continue, // a compaction reads it, and will fail
                _ => return Err(EngineError::Rocksdb(format!("file {file} could not be dropped"))),
            }
            self.store.reports.forget(file);
            self.damage.lock().files.remove(&file);
            // Only this makes RocksDB look at its files anew.
            let scenario = self.damage.lock().scenario;
            self.set_options(scenario, Compacting::Stopped)?;
        }
        Ok(())
    }

    fn choose_compacting(&self) -> Result<(), EngineError> {
        let (has_files, before) = {
            let damage = self.damage.lock();
            (!damage.files.is_empty(), damage.compacting)
        };
        let is_full = || {
            let files = self.store.db.property_int_value_cf(&self.column_family, properties::num_files_at_level(0));
            let slowdown = u64::try_from(self.store.config.level0_slowdown_trigger).unwrap_or(0);
            files.ok().flatten().is_some_and(|files| files >= slowdown)
        };
        let after = match before {
            _ if has_files => Compacting::Stopped,
            Compacting::Stopped => Compacting::CatchingUp,
            Compacting::CatchingUp if is_full() => Compacting::CatchingUp,
            _ => Compacting::Normally,
        };
        self.set_compacting(after)
    }

    fn set_compacting(&self, compacting: Compacting) -> Result<(), EngineError> {
        let (scenario, before) = {
            let damage = self.damage.lock();
            (damage.scenario, damage.compacting)
        };
        if compacting == before {
            return Ok(());
        }
        // Those who wait in RocksDB hold it, and may wait for nothing but this.
        let _writers_wait = self.store.manifest.try_write();
        self.set_options(scenario, compacting)
    }

    pub(super) fn set_scenario(&self, scenario: UsageScenario) -> Result<(), EngineError> {
        let compacting = self.damage.lock().compacting;
        let _writers_wait = self.store.manifest.write();
        self.set_options(scenario, compacting)
    }

    fn set_options(&self, scenario: UsageScenario, compacting: Compacting) -> Result<(), EngineError> {
        let options = self.store.config.compaction_options(scenario, compacting);
        let options: Vec<_> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.store.db.set_options_cf(&self.column_family, &options)?;
        let mut damage = self.damage.lock();
        (damage.scenario, damage.compacting) = (scenario, compacting);
        Ok(())
    }

    /// Makes sure that nothing which files hold of a partition without records counts. Its small keys stay.
    pub(super) fn discard_records(&self, partition: u32) -> Result<(), EngineError> {
        let mut batch = WriteBatch::default();
        let family = &self.column_family;
        batch.delete_range_cf(family, hash_position(partition, 0).to_vec(), partition_end(partition));
        batch.delete_range_cf(family, spaces_begin(partition), spaces_end(partition));
        let _manifest = self.store.manifest.read();
        self.replace_records(partition);
        let written = self.store.db.write_opt(batch, &self.write);
        self.replace_records(partition);
        written?;
        self.damage.lock().replaced(partition);
        Ok(())
    }
}

impl Place {
    /// Whether a key is in the range of the file.
    fn holds(&self, key: &[u8]) -> bool {
        let [first, last] = &self.range;
        (&first[..]..=&last[..]).contains(&key)
    }

    /// Whether the file may hold records of a partition.
    fn overlaps(&self, partition: u32) -> bool {
        let [first, last] = &self.range;
        let records = [hash_position(partition, 0).to_vec(), partition_end(partition)];
        let spaces = [spaces_begin(partition), spaces_end(partition)];
        [records, spaces].iter().any(|[begin, end]| begin <= last && first < end)
    }
}

#[cfg(test)]
mod tests;
