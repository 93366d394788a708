//! What a simulated machine remembers.

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
    pub(super) numbers: Vec<u64>,
}

impl State {
    pub(super) fn to_snapshot(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }
}

impl Disk {
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
            }
            LogRecord::Members { index, members, .. } => self.log.members = (index, members),
            LogRecord::Removed { .. } => unreachable!("replicas are removed with their disk"),
        }
    }
}
