//! Files fetched from other nodes.
//!
//! What was fetched of a file is kept when the process ends, and goes on from there if its leader still offers it.

use super::{Description, encode_request, measure, path};
use crate::host::Host;
use crate::peers;
use crate::table::{Table, group_of};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_consensus::GroupId;
use tokio::io::AsyncWriteExt;
use tokio::task::AbortHandle;

/// Bytes asked for at a time.
const PIECE: u64 = 512 << 10;
/// Between two tries to reach a node that does not answer.
const PAUSE: Duration = Duration::from_millis(200);
/// A file of which nothing has come for so long is given up; if it is still needed, the leader offers it again.
const PATIENCE: Duration = Duration::from_secs(30);
/// Files of an earlier process that nobody has gone on with for so long go.
const LEFT_OVER: Duration = Duration::from_secs(120);
const PREFIX: &str = "from-";

/// How much of a file is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub bytes: u64,
    pub of: u64,
}

/// What is being fetched, and what is there and not taken yet.
pub(crate) struct Incoming {
    by_group: Mutex<HashMap<GroupId, Fetch>>,
    complete: Mutex<HashMap<GroupId, u64>>,
    /// When the next piece may be asked for: all fetches of a node share what it may take.
    next: Mutex<Option<Instant>>,
    /// Files of an earlier process, until when.
    left_over: Mutex<(HashSet<u64>, Instant)>,
}

struct Fetch {
    number: u64,
    progress: Progress,
    task: Option<AbortHandle>,
}

pub(super) fn file_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

fn number_of(file_name: &OsStr) -> Option<u64> {
    u64::from_str_radix(file_name.to_str()?.strip_prefix(PREFIX)?, 16).ok()
}

pub(super) fn remove_file(host: &Host, number: u64) {
    if let Ok(path) = path(host, &file_name(number))
        && let Err(error) = std::fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a snapshot's file is left over");
    }
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
            next: Mutex::default(),
            left_over: Mutex::new((left_over, Instant::now() + LEFT_OVER)),
        }
    }

    /// Whether this file is being fetched.
    fn is_fetching(&self, group: GroupId, number: u64) -> bool {
        self.by_group.lock().get(&group).is_some_and(|fetch| fetch.number == number)
    }

    /// The file is in use: nobody removes it as left over.
    pub(super) fn take(&self, group: GroupId) {
        self.complete.lock().remove(&group);
    }

    fn came(&self, group: GroupId, bytes: u64) {
        if let Some(fetch) = self.by_group.lock().get_mut(&group) {
            fetch.progress.bytes = bytes;
        }
    }

    /// How far everything is.
    pub(crate) fn progress(&self) -> Vec<(GroupId, Progress)> {
        self.by_group.lock().iter().map(|(group, fetch)| (*group, fetch.progress)).collect()
    }

    /// Waits until so many bytes more may be taken.
    pub(crate) async fn take_turn(&self, bytes: u64, bytes_per_second: u64) {
        let now = Instant::now();
        let turn = {
            let mut next = self.next.lock();
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64));
            turn
        };
        tokio::time::sleep_until(turn.into()).await;
    }
}

impl Host {
    /// Fetches the file of a snapshot, in the place of an earlier one, and tells the group's loop. To be called on the
    /// loop's thread.
    pub(crate) fn fetch_snapshot(self: &Arc<Self>, table: &Arc<Table>, partition: u32, index: u64, file: Description) {
        let group = group_of(table.id, partition);
        if self.incoming.is_fetching(group, file.number) {
            return;
        }
        self.stop_fetching(group);
        let progress = Progress { bytes: 0, of: file.bytes };
        self.incoming.by_group.lock().insert(group, Fetch { number: file.number, progress, task: None });
        let (host, inbox) = (self.clone(), table.partitions[partition as usize].inbox.clone());
        let name = table.name.load_full();
        let task = tokio::spawn(async move {
            let outcome = host.fetch(group, file).await;
            match &outcome {
                Ok(()) => tracing::debug!(table = %name, partition, bytes = file.bytes, "a snapshot is here"),
                Err(error) => tracing::warn!(table = %name, partition, error, "a snapshot cannot be fetched"),
            }
            let mut fetches = host.incoming.by_group.lock();
            if fetches.get(&group).is_some_and(|fetch| fetch.number == file.number) {
                fetches.remove(&group);
            }
            drop(fetches);
            match outcome {
                Ok(()) => _ = host.incoming.complete.lock().insert(group, file.number),
                Err(_) => remove_file(&host, file.number),
            }
            inbox.fetched(group, index, outcome.is_ok());
        });
        if let Some(fetch) = self.incoming.by_group.lock().get_mut(&group).filter(|fetch| fetch.number == file.number) {
            fetch.task = Some(task.abort_handle());
        }
    }

    /// Ends what is being fetched for a group, and removes what was.
    pub(crate) fn stop_fetching(&self, group: GroupId) {
        if let Some(fetch) = self.incoming.by_group.lock().remove(&group) {
            fetch.task.inspect(AbortHandle::abort);
            remove_file(self, fetch.number);
        }
        if let Some(number) = self.incoming.complete.lock().remove(&group) {
            remove_file(self, number);
        }
    }

    /// Removes files of an earlier process that nobody went on with.
    pub(crate) fn drop_left_over_fetches(&self) {
        let mut left_over = self.incoming.left_over.lock();
        if Instant::now() >= left_over.1 {
            left_over.0.drain().for_each(|number| remove_file(self, number));
        }
    }

    async fn fetch(&self, group: GroupId, file: Description) -> Result<(), String> {
        let path = path(self, &file_name(file.number)).map_err(|error| error.to_string())?;
        let in_file = |error: std::io::Error| format!("{}: {error}", path.display());
        self.incoming.left_over.lock().0.remove(&file.number);
        let mut out = tokio::fs::File::options().create(true).append(true).open(&path).await.map_err(in_file)?;
        let mut offset = out.metadata().await.map_err(in_file)?.len();
        if offset > 0 {
            tracing::info!(path = %path.display(), offset, of = file.bytes, "fetching a snapshot goes on where it was");
            self.incoming.came(group, offset);
        }
        let mut heard = Instant::now();
        while offset < file.bytes {
            let wanted = PIECE.min(file.bytes - offset);
            self.incoming.take_turn(wanted, self.config.move_bytes_per_second).await;
            let request = encode_request(file.number, offset, wanted);
            match self.transport.request(file.node, peers::SNAPSHOT, &request).await.as_deref() {
                Ok([piece @ .., _]) if !piece.is_empty() => {
                    out.write_all(piece).await.map_err(in_file)?;
                    offset += piece.len() as u64;
                    heard = Instant::now();
                    self.incoming.came(group, offset);
                }
                Ok(_) => return Err(format!("node {} does not have it any more", file.node)),
                Err(_) if heard.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
                Err(_) => return Err(format!("node {} does not answer", file.node)),
            }
        }
        out.sync_all().await.map_err(in_file)?;
        drop(out);
        let whole = path.clone();
        let found = tokio::task::spawn_blocking(move || measure(&whole)).await.map_err(|error| error.to_string())?;
        if found.map_err(in_file)? != (file.bytes, file.checksum) {
            return Err("what came is not what was sent".into());
        }
        Ok(())
    }
}
