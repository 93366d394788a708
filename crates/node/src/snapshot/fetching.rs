//! Fetching files from other nodes.

use super::incoming::{Fetch, Progress, file_name};
use super::{Description, encode_request, measure, path};
use crate::message;
use crate::node_context::NodeContext;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_consensus::GroupId;
use tessera_store::Table;
use tessera_store::hosting::{group_of, number};
use tessera_types::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::task::AbortHandle;

/// Bytes asked for at a time.
const PIECE: u64 = 512 << 10;
/// Between two tries to reach a node that does not answer.
const PAUSE: Duration = Duration::from_millis(200);
/// A file of which nothing has come for so long is given up; if it is still needed, the leader offers it again.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn remove_file(context: &NodeContext, number: u64) {
    if let Ok(path) = path(context, &file_name(number))
        && let Err(error) = std::fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a snapshot's file is left over");
    }
}

impl NodeContext {
    /// Fetches the file of a snapshot, in the place of an earlier one, and tells the group's loop. To be called on the
    /// loop's thread.
    pub(crate) fn fetch_snapshot(self: &Arc<Self>, table: &Arc<Table>, partition: u32, index: u64, file: Description) {
        let group = group_of(table.id(), partition);
        if self.incoming.is_fetching(group, file.number) {
            return;
        }
        self.stop_fetching(group);
        let progress = Progress { bytes: 0, of: file.bytes };
        self.incoming.by_group.lock().insert(group, Fetch { number: file.number, progress, task: None });
        let (context, inbox) = (self.clone(), self.inbox_of(table.id(), partition).clone());
        let name = table.name();
        let task = tokio::spawn(async move {
            let outcome = context.fetch(group, file).await;
            match &outcome {
                Ok(()) => tracing::debug!(table = %name, partition, bytes = file.bytes, "a snapshot is here"),
                Err(error) => tracing::warn!(table = %name, partition, error, "a snapshot cannot be fetched"),
            }
            let mut fetches = context.incoming.by_group.lock();
            if fetches.get(&group).is_some_and(|fetch| fetch.number == file.number) {
                fetches.remove(&group);
            }
            drop(fetches);
            match outcome {
                Ok(()) => _ = context.incoming.complete.lock().insert(group, file.number),
                Err(_) => remove_file(&context, file.number),
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
            match self.transport.request(file.node, number::SNAPSHOT, &request).await.as_deref() {
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

    /// Tells others how far this node is with what it fetches, and that it is done.
    pub(crate) fn tell_fetches(&self) {
        let progress = self.incoming.progress();
        if progress.is_empty() && !self.tells_fetches.swap(false, Ordering::Relaxed) {
            return;
        }
        self.tells_fetches.store(!progress.is_empty(), Ordering::Relaxed);
        let mut payload = BytesMut::new();
        for (group, Progress { bytes, of }) in &progress {
            [group.0, *bytes, *of].iter().for_each(|word| payload.put_u64_le(*word));
        }
        self.fetches.lock().insert(self.identity.node, progress);
        self.transport.broadcast(message::FETCHES, &payload);
    }

    pub(crate) fn on_fetch_progress(&self, node: NodeId, mut payload: Bytes) {
        let mut fetches = Vec::new();
        while let (Ok(group), Ok(bytes), Ok(of)) =
            (payload.try_get_u64_le(), payload.try_get_u64_le(), payload.try_get_u64_le())
        {
            fetches.push((GroupId(group), Progress { bytes, of }));
        }
        self.fetches.lock().insert(node, fetches);
    }
}
