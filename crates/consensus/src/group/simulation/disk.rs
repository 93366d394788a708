//! What a simulated machine remembers.

use super::world::numbers;
use crate::log::{LogRecord, RecoveredGroup};

/// What a disk holds of the group: the log, and the state machine's last checkpoint.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) log: RecoveredGroup,
    pub(super) checkpoint: State,
    /// Written and not fsynced yet, with the ready that waits for that.
    pub(super) unsynced: Vec<(Vec<LogRecord>, Option<u64>)>,
}

/// The state machine: the numbers that were written, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    pub(super) applied: u64,
    /// The term of that entry; zero after a snapshot, whose term the log was told.
    pub(super) term: u64,
    pub(super) numbers: Vec<u64>,
}

impl State {
    /// Takes a snapshot; an empty one leaves the numbers as they are.
    pub(super) fn replace(&mut self, index: u64, snapshot: &[u8]) {
        (self.applied, self.term) = (index, 0);
        if !snapshot.is_empty() {
            self.numbers = numbers(snapshot);
        }
    }

    pub(super) fn to_snapshot(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }
}

impl Disk {
    /// All that was written is on disk. Returns the last ready that waited for that.
    pub(super) fn sync(&mut self) -> Option<u64> {
        let mut last = None;
        for (records, number) in std::mem::take(&mut self.unsynced) {
            records.into_iter().for_each(|record| self.write(record));
            last = number.or(last);
        }
        last
    }

    pub(super) fn write(&mut self, record: LogRecord) {
        match record {
            LogRecord::Entries { entries, .. } => {
                let first = entries[0].index;
                self.log.entries.retain(|entry| entry.index < first);
                self.log.entries.extend(entries);
            }
            LogRecord::State { state, .. } => self.log.state = state,
            LogRecord::Truncated { index, term, .. } => {
                self.log.truncated = (index, term);
                self.log.entries.retain(|entry| entry.index > index);
            }
            LogRecord::Restored { index, term, .. } => {
                self.log.truncated = (index, term);
                self.log.entries.clear();
                self.log.restoring = None;
            }
            LogRecord::Restoring { snapshot, .. } => self.log.restoring = Some(snapshot),
            LogRecord::Members { index, members, .. } => self.log.members = (index, members),
            LogRecord::Removed { .. } => unreachable!("replicas are removed with their disk"),
        }
    }
}
