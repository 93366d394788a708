//! A second name for a file that RocksDB takes in.
//!
//! RocksDB lets no writer through while it takes in a file, and to copy one of ten gigabytes, and sync the copy, takes half a minute.
//! A file that it may move it only links, and deletes the name that it was given. So it is given a second one: by the first, the file
//! is there for another try. Whether it succeeds or fails, RocksDB writes nothing to the file: the sequence number that the records
//! get is in the manifest.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The name, beside the first one. It is gone when this is dropped.
pub(super) struct SecondName(PathBuf);

impl SecondName {
    /// Links the file.
    ///
    /// # Errors
    /// If the file system has no hard links, or what the system says of the file.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut name = OsString::from(path);
        name.push(".link");
        let second = Self(name.into());
        // One that a crash has left leads to a file of which nobody knows what it is.
        second.remove();
        std::fs::hard_link(path, &second.0)?;
        // RocksDB does it too, but while writers wait: then nothing is left to do.
        File::open(&second.0)?.sync_all()?;
        Ok(second)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "the second name of a snapshot's file is left over");
        }
    }
}

impl Drop for SecondName {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use crate::mutation::encode_put;
    use crate::rocks::table::RocksEngine;
    use crate::{Applied, Engine, RocksConfig, RocksStore};
    use bytes::BytesMut;
    use std::ffi::OsString;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use tempfile::TempDir;
    use tessera_types::{Expiry, RecordKey, StoredValue, UsageScenario, ValueKind};

    fn engine(directory: &Path) -> RocksEngine {
        let store = RocksStore::open(directory, RocksConfig::default()).unwrap();
        let engine = RocksEngine::open(&store, "table", 1).unwrap();
        // No compaction puts another file in the place of the one that was taken in.
        engine.set_scenario(UsageScenario::BulkLoad).unwrap();
        engine
    }

    fn inodes(directory: &Path) -> Vec<u64> {
        let files = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
        files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.ino()).collect()
    }

    fn names(directory: &Path) -> Vec<OsString> {
        std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name()).collect()
    }

    /// Each of them was copied while all writers waited.
    #[test]
    fn a_snapshot_is_linked_and_not_copied_and_may_be_taken_in_again() {
        let directory = TempDir::new().unwrap();
        let [data, snapshots] = ["data", "snapshots"].map(|name| directory.path().join(name));
        let engine = engine(&data);
        let key = RecordKey::new(b"key", b"");
        let mut payload = BytesMut::new();
        let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"value" };
        encode_put(&mut payload, &key, &value);
        engine.write(&[Applied { partition: 0, index: 1, term: 1, payloads: &[payload.freeze()] }]).unwrap();
        std::fs::create_dir(&snapshots).unwrap();
        let snapshot = snapshots.join("snapshot");
        engine.checkpoint(0, &snapshot).unwrap();
        let bytes = std::fs::read(&snapshot).unwrap();
        let inode = std::fs::metadata(&snapshot).unwrap().ino();
        assert!(!inodes(&data).contains(&inode));
        std::fs::write(snapshots.join("snapshot.link"), "left by a crash").unwrap();
        for index in [7, 8] {
            engine.restore(0, &snapshot, index).unwrap();
            assert!(inodes(&data).contains(&inode), "it was copied");
            assert_eq!(names(&snapshots), ["snapshot"]);
            assert_eq!(engine.applied_index(0), index);
            assert!(engine.get(0, &key, &mut |_| ()).unwrap());
        }
        assert!(std::fs::read(&snapshot).unwrap() == bytes, "it was written to");
        // Whoever has taken in a snapshot removes its file.
        std::fs::remove_file(&snapshot).unwrap();
        engine.compact(&|_| ()).unwrap();
        assert!(engine.get(0, &key, &mut |_| ()).unwrap());
    }

    #[test]
    fn what_cannot_be_taken_in_stays_and_nothing_else() {
        let directory = TempDir::new().unwrap();
        let [data, snapshots] = ["data", "snapshots"].map(|name| directory.path().join(name));
        let engine = engine(&data);
        std::fs::create_dir(&snapshots).unwrap();
        let damaged = snapshots.join("damaged");
        std::fs::write(&damaged, "no table of RocksDB").unwrap();
        let inode = std::fs::metadata(&damaged).unwrap().ino();
        for _ in 0..2 {
            assert!(engine.restore(0, &damaged, 7).is_err());
            assert_eq!(names(&snapshots), ["damaged"]);
            assert!(!inodes(&data).contains(&inode));
        }
        assert!(engine.restore(0, &snapshots.join("missing"), 7).is_err());
        assert_eq!(names(&snapshots), ["damaged"]);
    }
}
