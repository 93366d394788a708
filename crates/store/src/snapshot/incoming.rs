//! Files fetched from other nodes.

use super::{Description, encode_request, measure, path};
use crate::host::Host;
use crate::peers;
use crate::table::{Table, group_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
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

/// How much of a file is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub bytes: u64,
    pub of: u64,
}

/// What is being fetched, and what is there and not taken yet.
#[derive(Default)]
pub(crate) struct Incoming {
    by_group: Mutex<HashMap<GroupId, Fetch>>,
    complete: Mutex<HashMap<GroupId, u64>>,
    /// When the next piece may be asked for: all fetches of a node share what it may take.
    next: Mutex<Option<Instant>>,
}

struct Fetch {
    number: u64,
    progress: Progress,
    task: Option<AbortHandle>,
}

pub(super) fn file_name(number: u64) -> String {
    format!("from-{number:016x}")
}

pub(super) fn remove_file(host: &Host, number: u64) {
    if let Ok(path) = path(host, &file_name(number))
        && let Err(error) = std::fs::remove_file(&path)
    {
        tracing::warn!(path = %path.display(), %error, "a snapshot's file is left over");
    }
}

/// Removes the file, unless it is complete.
struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // It may not have been begun.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Incoming {
    /// Whether this file is being fetched.
    fn is_fetching(&self, group: GroupId, number: u64) -> bool {
        self.by_group.lock().get(&group).is_some_and(|fetch| fetch.number == number)
    }

    /// The file is in use: nobody removes it as left over.
    pub(super) fn take(&self, group: GroupId) {
        self.complete.lock().remove(&group);
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
            if outcome.is_ok() {
                host.incoming.complete.lock().insert(group, file.number);
            }
            inbox.fetched(group, index, outcome.is_ok());
        });
        if let Some(fetch) = self.incoming.by_group.lock().get_mut(&group).filter(|fetch| fetch.number == file.number) {
            fetch.task = Some(task.abort_handle());
        }
    }

    /// Ends what is being fetched for a group, and removes what was.
    pub(crate) fn stop_fetching(&self, group: GroupId) {
        if let Some(task) = self.incoming.by_group.lock().remove(&group).and_then(|fetch| fetch.task) {
            task.abort();
        }
        if let Some(number) = self.incoming.complete.lock().remove(&group) {
            remove_file(self, number);
        }
    }

    async fn fetch(&self, group: GroupId, file: Description) -> Result<(), String> {
        let path = path(self, &file_name(file.number)).map_err(|error| error.to_string())?;
        let in_file = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut unfinished = Unfinished(Some(path.clone()));
        let mut out = tokio::fs::File::create(&path).await.map_err(in_file)?;
        let (mut offset, mut heard) = (0, Instant::now());
        while offset < file.bytes {
            let wanted = PIECE.min(file.bytes - offset);
            self.incoming.take_turn(wanted, self.config.move_bytes_per_second).await;
            let request = encode_request(file.number, offset, wanted);
            match self.transport.request(file.node, peers::SNAPSHOT, &request).await.as_deref() {
                Ok([piece @ .., _]) if !piece.is_empty() => {
                    out.write_all(piece).await.map_err(in_file)?;
                    offset += piece.len() as u64;
                    heard = Instant::now();
                    if let Some(fetch) = self.incoming.by_group.lock().get_mut(&group) {
                        fetch.progress.bytes = offset;
                    }
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
        unfinished.0 = None;
        Ok(())
    }
}
