//! The files of a table that is gone while somebody holds it.
//!
//! RocksDB keeps the files of a dropped column family until the last handle of it is gone, and a connection that has chosen a table holds
//! one, also when it is idle for days. So the files are dropped before the column family is. `DeleteFilesInRange` leaves out level 0.

use super::table::RocksEngine;
use crate::EngineError;
use rocksdb::AsColumnFamilyRef;
use std::ffi::c_void;

unsafe extern "C" {
    /// See dropping.cc.
    fn tessera_drop_files(column_family: *mut c_void) -> i64;
}

impl RocksEngine {
    /// Drops all files of the table. Returns false if compactions read some of them.
    pub(super) fn drop_files(&self) -> Result<bool, EngineError> {
        let left = {
            let _writers_wait = self.store.manifest.write();
            // SAFETY: the handle is valid as long as this engine is.
            unsafe { tessera_drop_files(self.column_family.inner().cast()) }
        };
        match left {
            0 => Ok(true),
            1.. => Ok(false),
            _ => Err(EngineError::Rocksdb(format!("the files of {} could not be dropped", self.name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutation::{encode_clear, encode_put};
    use crate::{Applied, Engine, PageLimit, Position, RocksConfig, RocksStore};
    use bytes::BytesMut;
    use std::path::Path;
    use std::time::{Duration, Instant};
    use tempfile::TempDir;
    use tessera_types::{Expiry, RecordKey, StoredValue, ValueKind};

    const LIMIT: Duration = Duration::from_secs(30);

    fn write(engine: &RocksEngine, index: u64) {
        write_unflushed(engine, index);
        engine.flush().unwrap();
    }

    fn write_unflushed(engine: &RocksEngine, index: u64) {
        let mut payload = BytesMut::new();
        let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &[7; 1000] };
        for number in 0..100_u32 {
            encode_put(&mut payload, &RecordKey::new(&number.to_be_bytes(), b""), &stored);
        }
        engine.write(&[Applied { partition: 0, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
    }

    fn records(engine: &RocksEngine) -> usize {
        engine.read_page(0, &Position::START, PageLimit::of_records(1000)).unwrap().records().count()
    }

    fn files(directory: &Path) -> usize {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".sst")).count()
    }

    #[test]
    fn the_files_of_a_table_that_somebody_holds_are_deleted_whatever_their_level() {
        let directory = TempDir::new().unwrap();
        let store = RocksStore::open(directory.path(), RocksConfig::default()).unwrap();
        let kept = RocksEngine::open(&store, "kept", 1).unwrap();
        write(&kept, 1);
        for levels in [vec![0], vec![0, 1]] {
            let held = RocksEngine::open(&store, "held", 1).unwrap();
            if levels.len() > 1 {
                write(&held, 1);
                held.compact(&|_| ()).unwrap();
            }
            write(&held, 2);
            let found = store.db.live_files().unwrap();
            let found = found.iter().filter(|file| file.column_family_name == "held" && file.level > 0);
            assert_eq!(found.count() > 0, levels.len() > 1);
            assert_eq!(records(&held), 100);
            let began = Instant::now();
            // What RocksDB does by itself may keep them for a moment. One is that of the other table.
            while !held.give_back().unwrap() || files(directory.path()) > 1 {
                assert!(began.elapsed() < LIMIT, "files are left");
            }
            assert_eq!(files(directory.path()), 1);
            assert_eq!(records(&held), 0);
            store.drop_table("held").unwrap();
            assert_eq!(records(&held), 0, "whoever reads what does not count finds nothing");
        }
        assert_eq!(records(&kept), 100);
        drop(kept);
        drop(store);
        let store = RocksStore::open(directory.path(), RocksConfig::default()).unwrap();
        assert_eq!(records(&RocksEngine::open(&store, "kept", 1).unwrap()), 100);
        assert!(store.db.cf_handle("held").is_none());
    }

    /// RocksDB once took no write of any table any more.
    #[test]
    fn a_write_to_a_table_that_is_gone_comes_to_nothing_and_harms_no_other() {
        let directory = TempDir::new().unwrap();
        let store = RocksStore::open(directory.path(), RocksConfig::default()).unwrap();
        let [kept, held] = ["kept", "held"].map(|name| RocksEngine::open(&store, name, 1).unwrap());
        write(&held, 1);
        store.drop_table("held").unwrap();
        write_unflushed(&held, 2);
        let mut clear = BytesMut::new();
        encode_clear(&mut clear);
        held.write(&[Applied { partition: 0, index: 0, term: 0, payloads: &[clear.freeze()] }]).unwrap();
        held.discard_records(0).unwrap();
        write(&kept, 1);
        assert_eq!(records(&kept), 100);
        let held_again = RocksEngine::open(&store, "held", 1).unwrap();
        assert_eq!((records(&held_again), held_again.applied_index(0)), (0, 0));
        write(&held_again, 1);
        assert_eq!(records(&held_again), 100);
    }
}
