//! What is known of a table's damage.

use super::super::options::Compacting;
use std::collections::{BTreeMap, BTreeSet};
use tessera_types::UsageScenario;

/// What is known of a table's damage.
#[derive(Default)]
pub(in crate::rocks) struct Damage {
    pub(super) files: BTreeMap<u64, DamagedFile>,
    /// Partitions whose records are not as they should be where RocksDB names no file, and what was found.
    pub(super) partitions: BTreeMap<u32, String>,
    /// The scenario that the table's settings ask for.
    pub(super) scenario: UsageScenario,
    pub(super) compacting: Compacting,
}

/// A file that was found to be damaged.
pub(super) struct DamagedFile {
    pub(super) reason: String,
    /// Partitions that may have records in it which still count.
    pub(super) partitions: BTreeSet<u32>,
}

impl Damage {
    /// All records of these partitions have been replaced.
    pub(in crate::rocks) fn replaced(&mut self, partition: u32) {
        self.partitions.remove(&partition);
        self.files.values_mut().for_each(|file| _ = file.partitions.remove(&partition));
    }

    /// What is wrong with the records of a partition, if anything is.
    pub(super) fn reason(&self, partition: u32) -> Option<&String> {
        let in_file = || self.files.values().find(|file| file.partitions.contains(&partition)).map(|file| &file.reason);
        self.partitions.get(&partition).or_else(in_file)
    }
}
