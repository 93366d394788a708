//! A partition's records on their way to another node.
//!
//! The leader [writes](offering) them into a file, as the engine's checkpoint of one instant, and offers its [`Description`].
//! Only a [few](outgoing) files of a node wait to be fetched. Who needs them [fetches](incoming) the file piece by piece, no
//! faster than the node may, goes on where it was when the connection breaks or the process is started again, compares the
//! checksum, and only then replaces its own records.

mod fetching;
mod incoming;
mod offering;
mod outgoing;

use crate::node_context::NodeContext;
use bytes::Buf;
pub(crate) use incoming::Incoming;
pub use incoming::Progress;
pub(crate) use outgoing::Outgoing;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use tessera_engine::{Applied, EngineError};
use tessera_store::Table;
use tessera_store::hosting::group_of;
use tessera_types::NodeId;

/// What a leader offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// Where the file is, and its random number there.
    node: NodeId,
    number: u64,
    bytes: u64,
    /// CRC-32C of the whole.
    checksum: u32,
}

impl Description {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a description has a JSON form")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// Length and checksum of a file.
fn measure(path: &Path) -> std::io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let (mut length, mut checksum, mut block) = (0, 0, vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok((length, checksum));
        }
        length += read as u64;
        checksum = crc32c::crc32c_append(checksum, &block[..read]);
    }
}

/// The path of a file that is of use to this process only.
fn path(context: &NodeContext, name: &str) -> Result<std::path::PathBuf, EngineError> {
    let directory = context.directory.snapshots();
    fs::create_dir_all(&directory).map_err(EngineError::io(&directory))?;
    Ok(directory.join(name))
}

/// Between two tries to replace a partition's records.
const PAUSE: Duration = Duration::from_secs(1);

/// Replaces a partition's records by those of a file, which reflects the log up to `index`. They are on disk when this
/// returns. While it cannot be done, for want of memory or space, the replica is of no use, and it is tried again, as long as
/// the replica is not to go.
pub(crate) fn replace_records(context: &NodeContext, table: &Table, partition: u32, index: u64, file: Description) {
    let state = table.partition(partition);
    state.set_readable(false);
    state.begin_change();
    let group = group_of(table.id(), partition);
    context.incoming.take(group);
    let replace = || {
        table.engine().restore(partition, &path(context, &incoming::file_name(file.number))?, index)?;
        // Nothing of it rests on this node's log; the log of who wrote the file was synced before it could be fetched.
        table.engine().make_durable(partition, &|| Ok(()))
    };
    let is_replaced = try_again(context, table, partition, replace);
    // Whoever watched a key when this node led does not know what others wrote to it since.
    state.watched().touch_all();
    state.end_change();
    state.set_readable(is_replaced);
    fetching::remove_file(context, file.number);
}

/// Takes a partition's records, as they are, for those of a log up to `index`. That is on disk when this returns, as far as it
/// [can be](replace_records).
pub(crate) fn keep_records(context: &NodeContext, table: &Table, partition: u32, index: u64) {
    let (applied, name) = (table.engine().applied_index(partition), table.name());
    tracing::warn!(table = %name, partition, applied, index, "no replica has what was written in between any more; power failed on all");
    try_again(context, table, partition, || {
        // The log was told the term of that index before.
        table.engine().write(&[Applied { partition, index, term: 0, payloads: &[] }])?;
        table.engine().make_durable(partition, &|| Ok(()))
    });
}

/// Returns whether it was done. It is not if it cannot be, or the replica is to go.
fn try_again(context: &NodeContext, table: &Table, partition: u32, work: impl Fn() -> Result<(), EngineError>) -> bool {
    while !context.replicas.is_leaving(group_of(table.id(), partition)) {
        match work() {
            Ok(()) => return true,
            Err(error) if error.is_damage() => {
                // It will not get better. Without the records that the group counts on, the replica is set aside.
                tracing::error!(table = %table.name(), partition, %error, "a snapshot is damaged");
                return false;
            }
            Err(error) => {
                tracing::error!(table = %table.name(), partition, %error, "a snapshot cannot be taken; trying again");
                std::thread::sleep(PAUSE);
            }
        }
    }
    false
}

/// A request for a piece of a file: its number, where the piece begins, and how many bytes are wanted at most.
fn encode_request(number: u64, offset: u64, bytes: u64) -> Vec<u8> {
    [number, offset, bytes].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn decode_request(mut request: &[u8]) -> Option<(u64, u64, u64)> {
    let mut next = || request.try_get_u64_le().ok();
    Some((next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::TestNode;
    use std::time::Instant;
    use tessera_consensus::SharedLog;
    use tessera_types::{Durability, EngineKind};

    fn write_snapshot(node: &TestNode, table: &Table) -> (u64, Description) {
        let (slot, _writing) = node.context.outgoing.begin(group_of(table.id(), 0), Instant::now()).unwrap();
        node.context.write_snapshot(table, 0, slot).unwrap()
    }

    /// A node may have watched a key when it led, and lead again by a snapshot that has what others wrote meanwhile.
    #[tokio::test]
    async fn records_that_are_replaced_count_as_written_to_those_who_watch_them() {
        let node = TestNode::start(|_| {});
        let table = node.create_table("t", 1).await;
        let (index, file) = write_snapshot(&node, &table);
        let watch = table.watch(b"k");
        assert!(!watch.is_touched());
        let place = |name: &str| path(&node.context, name).unwrap();
        fs::copy(place(&format!("to-{:016x}", file.number)), place(&incoming::file_name(file.number))).unwrap();
        replace_records(&node.context, &table, 0, index, file);
        assert!(watch.is_touched());
    }

    /// Who takes a snapshot has what it holds on disk at once. It once was on nobody else's disk: after a power failure one replica
    /// had the effects of entries that the others had lost.
    #[tokio::test]
    async fn what_a_snapshot_holds_is_in_the_log_on_disk_before_anybody_can_fetch_it() {
        let memory = tempfile::TempDir::new().unwrap();
        let node = TestNode::start(|config| {
            config.soft_sync_interval = Duration::from_secs(3_600);
            config.staging_directory = Some(memory.path().to_owned());
        });
        let table = node.create_durable_table("t", 1, EngineKind::Memory, Durability::Soft).await;
        node.store.clear(&table, 0..1).await.unwrap();
        let (index, _) = write_snapshot(&node, &table);
        // A power failure takes what is in memory only.
        let staged = fs::read_dir(memory.path()).unwrap().map(|file| file.unwrap().path());
        staged.for_each(|path| fs::remove_file(path).unwrap());
        let logged = SharedLog::read(&node.context.directory.log()).unwrap();
        let last = logged[&group_of(table.id(), 0)].entries.back().unwrap().index;
        assert!(last >= index, "the log on disk ends at {last}, and the snapshot's index is {index}");
    }
}
