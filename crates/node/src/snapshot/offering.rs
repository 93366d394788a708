//! Writing files that other nodes fetch, and giving them out.

use super::outgoing::Outgo;
use super::{Description, decode_request, measure, path};
use crate::node_context::NodeContext;
use bytes::{BufMut, Bytes, BytesMut};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_engine::EngineError;
use tessera_store::Table;
use tessera_store::hosting::{group_of, partition_of_group};

/// A file that nobody has fetched from for so long goes.
const UNUSED: Duration = Duration::from_secs(60);
/// Most bytes of a piece.
const PIECE: u64 = 1 << 20;

impl NodeContext {
    /// Writes the records of a partition as of some log index, which is returned. Blocks.
    pub(crate) fn write_snapshot(&self, table: &Table, partition: u32) -> Result<(u64, Description), EngineError> {
        let number = rand::random();
        let path = path(self, &format!("to-{number:016x}"))?;
        let index = table.engine().checkpoint(partition, &path)?;
        let (bytes, checksum) = measure(&path).map_err(EngineError::io(&path))?;
        let file = Arc::new(File::open(&path).map_err(EngineError::io(&path))?);
        // The file goes with this if it is not offered.
        let outgo = Outgo { group: group_of(table.id(), partition), path, file, used: Instant::now() };
        if table.schema().is_persistent() {
            // The file may hold effects of entries after its index. Whoever takes it has them on disk at once, so they must not be
            // lost here: a power failure would leave them on that one replica only.
            self.log.wait_synced().map_err(|error| EngineError::LogNotSynced(error.to_string()))?;
        }
        // Another replica may still be fetching the one before.
        self.outgoing.files.lock().insert(number, outgo);
        Ok((index, Description { node: self.identity.node, number, bytes, checksum }))
    }

    /// Reads a piece of a file; nothing if the file is not there. Blocks.
    pub(crate) fn read_piece(&self, request: &[u8]) -> Bytes {
        let Some((number, offset, bytes)) = decode_request(request) else { return Bytes::new() };
        let file = self.outgoing.files.lock().get_mut(&number).map(|outgo| {
            outgo.used = Instant::now();
            outgo.file.clone()
        });
        let Some(file) = file else { return Bytes::new() };
        let mut piece = BytesMut::zeroed(bytes.min(PIECE) as usize);
        match file.read_at(&mut piece, offset) {
            Ok(read) => {
                piece.truncate(read);
                piece.put_u8(1); // never empty
                piece.freeze()
            }
            Err(error) => {
                tracing::warn!(%error, "a snapshot's file cannot be read");
                Bytes::new()
            }
        }
    }

    /// Removes files that are no longer fetched. Their groups make others when they need them.
    pub(crate) fn drop_unused_snapshots(&self) {
        let mut files = self.outgoing.files.lock();
        let is_unused = |outgo: &Outgo| outgo.used.elapsed() >= UNUSED;
        for outgo in files.values().filter(|outgo| is_unused(outgo)) {
            if let Some((table, partition)) = partition_of_group(outgo.group) {
                self.inbox_of(table, partition).forget_snapshot(outgo.group);
            }
        }
        files.retain(|_, outgo| !is_unused(outgo));
    }
}
