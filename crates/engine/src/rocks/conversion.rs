//! What format 5 had in the place of the system's space.

use super::keys::{applied_index_key, former_seal, partition_of_meta, space_key};
use super::store::RocksStore;
use crate::EngineError;
use crate::mutation::SEAL;
use rocksdb::{AsColumnFamilyRef, DB, DEFAULT_COLUMN_FAMILY_NAME, FlushOptions, ReadOptions, WriteBatch, WriteOptions};
use tessera_types::{Limits, Space, StoredValue};

/// Puts the record that ends a partition, which format 5 had among the records, into the system's space, if there is one.
pub(super) fn move_former_seal(
    db: &DB,
    family: &impl AsColumnFamilyRef,
    partition: u32,
    batch: &mut WriteBatch,
) -> Result<bool, EngineError> {
    let former = former_seal(partition);
    let Some(stored) = db.get_pinned_cf(family, &former)? else { return Ok(false) };
    let damaged = || EngineError::Corruption("the record that ends a partition is no stored value".into());
    let value = StoredValue::decode(&stored).ok_or_else(damaged)?.payload;
    batch.put_cf(family, space_key(partition, Space::SYSTEM, SEAL), value);
    batch.delete_cf(family, former);
    Ok(true)
}

impl RocksStore {
    /// Makes what format 5 wrote what this version reads, durably. It may be done again if it was not finished.
    ///
    /// # Errors
    /// If the files cannot be read or written.
    pub fn convert_from_format_5(&self) -> Result<(), EngineError> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        for name in self.opened_with.iter().filter(|name| *name != DEFAULT_COLUMN_FAMILY_NAME) {
            let Some(family) = self.db.cf_handle(name) else { continue };
            let mut read = ReadOptions::default();
            read.set_total_order_seek(true);
            let mut iterator = self.db.raw_iterator_cf_opt(&family, read);
            let mut batch = WriteBatch::default();
            let mut next = Some(0);
            while let Some(from) = next {
                iterator.seek(applied_index_key(from));
                let Some(partition) = iterator.key().and_then(partition_of_meta) else { break };
                move_former_seal(&self.db, &family, partition, &mut batch)?;
                next = Some(partition + 1).filter(|next| *next < Limits::PARTITIONS_CEILING);
            }
            iterator.status()?;
            if !batch.is_empty() {
                self.db.write_opt(batch, &options)?;
                let mut flush = FlushOptions::default();
                flush.set_wait(true);
                self.db.flush_cf_opt(&family, &flush)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocks::table::RocksEngine;
    use crate::{Applied, Engine, PageLimit, Position, RocksConfig};
    use std::sync::Arc;

    const SEALED: [u32; 2] = [1, 3];

    fn open(directory: &std::path::Path) -> Arc<RocksStore> {
        RocksStore::open(directory, RocksConfig::default()).unwrap()
    }

    /// Writes what format 5 wrote where partitions had ended.
    fn write_former(store: &Arc<RocksStore>) {
        let engine = RocksEngine::open(store, "table", 4).unwrap();
        for partition in 0..4 {
            engine.write(&[Applied { partition, index: 1, term: 1, payloads: &[] }]).unwrap();
        }
        for partition in SEALED {
            store.db.put_cf_opt(&engine.column_family, former_seal(partition), [0], &engine.write).unwrap();
        }
        engine.make_durable(0, &|| Ok(())).unwrap();
    }

    fn check_converted(store: &Arc<RocksStore>) {
        let engine = RocksEngine::open(store, "table", 4).unwrap();
        for partition in 0..4 {
            let is_sealed = engine.get_in(partition, Space::SYSTEM, SEAL, &mut |_| ()).unwrap();
            assert_eq!(is_sealed, SEALED.contains(&partition), "partition {partition}");
            let page = engine.read_page(partition, &Position::START, PageLimit::of_records(10)).unwrap();
            assert_eq!(page.records().count(), 0, "partition {partition}");
            assert_eq!(engine.applied_index(partition), 1);
        }
    }

    #[test]
    fn the_ends_of_partitions_of_format_5_are_converted_and_that_may_be_begun_again() {
        let directory = tempfile::TempDir::new().unwrap();
        write_former(&open(directory.path()));
        let store = open(directory.path());
        store.convert_from_format_5().unwrap();
        store.convert_from_format_5().unwrap();
        check_converted(&store);
        drop(store);
        // What is converted is on the disk: RocksDB has no log of its own here.
        check_converted(&open(directory.path()));
    }

    #[test]
    fn a_snapshot_of_format_5_is_taken_in_with_the_end_of_its_partition() {
        let directory = tempfile::TempDir::new().unwrap();
        let store = open(&directory.path().join("former"));
        write_former(&store);
        let engine = RocksEngine::open(&store, "table", 4).unwrap();
        let path = directory.path().join("checkpoint");
        engine.checkpoint(3, &path).unwrap();
        let other = open(&directory.path().join("other"));
        let other = RocksEngine::open(&other, "table", 4).unwrap();
        other.restore(3, &path, 1).unwrap();
        assert!(other.get_in(3, Space::SYSTEM, SEAL, &mut |_| ()).unwrap());
        let page = other.read_page(3, &Position::START, PageLimit::of_records(10)).unwrap();
        assert_eq!(page.records().count(), 0);
    }
}
