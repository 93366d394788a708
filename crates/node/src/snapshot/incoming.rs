//! Files fetched from other nodes.
//!
//! What was fetched of a file is kept when the process ends, and goes on from there if its leader still offers it.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};
use tessera_consensus::GroupId;
use tessera_types::Pace;
use tokio::task::AbortHandle;

/// Files of an earlier process that nobody has gone on with for so long go.
const LEFT_OVER: Duration = Duration::from_secs(120);
const PREFIX: &str = "from-";

/// How much of a file is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Bytes of the whole file.
    pub of: u64,
}

/// What is being fetched, and what is there and not taken yet.
pub(crate) struct Incoming {
    pub(super) by_group: Mutex<HashMap<GroupId, Fetch>>,
    pub(super) complete: Mutex<HashMap<GroupId, u64>>,
    /// When the next piece may be asked for: all fetches of a node share what it may take.
    pace: Mutex<Pace>,
    /// Files of an earlier process, until when.
    pub(super) left_over: Mutex<(HashSet<u64>, Instant)>,
}

pub(super) struct Fetch {
    pub(super) number: u64,
    pub(super) progress: Progress,
    pub(super) task: Option<AbortHandle>,
}

pub(super) fn file_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

fn number_of(file_name: &OsStr) -> Option<u64> {
    u64::from_str_radix(file_name.to_str()?.strip_prefix(PREFIX)?, 16).ok()
}

impl Incoming {
    /// Finds what an earlier process has left in the directory of snapshots, and removes what is of no use.
    pub(crate) fn after_restart(directory: &Path) -> Self {
        let mut left_over = HashSet::new();
        // If it cannot be read, nothing is known of what is in there, and nothing needed.
        for file in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match number_of(&file.file_name()) {
                Some(number) => _ = left_over.insert(number),
                None => _ = std::fs::remove_file(file.path()),
            }
        }
        Self {
            by_group: Mutex::default(),
            complete: Mutex::default(),
            pace: Mutex::default(),
            left_over: Mutex::new((left_over, Instant::now() + LEFT_OVER)),
        }
    }

    /// Whether this file is being fetched.
    pub(super) fn is_fetching(&self, group: GroupId, number: u64) -> bool {
        self.by_group.lock().get(&group).is_some_and(|fetch| fetch.number == number)
    }

    /// The file is in use: nobody removes it as left over.
    pub(super) fn take(&self, group: GroupId) {
        self.complete.lock().remove(&group);
    }

    pub(super) fn came(&self, group: GroupId, bytes: u64) {
        if let Some(fetch) = self.by_group.lock().get_mut(&group) {
            fetch.progress.bytes = bytes;
        }
    }

    /// How far everything is.
    pub(crate) fn progress(&self) -> Vec<(GroupId, Progress)> {
        self.by_group.lock().iter().map(|(group, fetch)| (*group, fetch.progress)).collect()
    }

    /// Waits until this many bytes more may be taken.
    pub(crate) async fn take_turn(&self, bytes: u64, bytes_per_second: u64) {
        let turn = {
            let mut pace = self.pace.lock();
            let turn = pace.next(Instant::now());
            pace.note(turn, bytes, bytes_per_second);
            turn
        };
        tokio::time::sleep_until(turn.into()).await;
    }
}
