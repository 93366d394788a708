//! Writing files that other nodes fetch, and giving them out.

use super::outgoing::{OnDisk, Outgo};
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
use tokio::sync::OwnedSemaphorePermit;

/// A file that nobody has fetched from for so long goes.
const UNUSED: Duration = Duration::from_secs(60);
/// A file from which nobody begins to fetch goes sooner, since files of other groups may wait for it. Raft sends an offer again
/// after five seconds without an answer, so it is sent three times by then.
const UNCLAIMED: Duration = Duration::from_secs(15);
/// Most bytes of a piece.
const PIECE: u64 = 1 << 20;

impl NodeContext {
    /// Writes the records of a partition as of some log index, which is returned, into a file that takes one of the
    /// [slots](super::Outgoing::begin). Blocks.
    pub(crate) fn write_snapshot(
        &self,
        table: &Table,
        partition: u32,
        slot: OwnedSemaphorePermit,
    ) -> Result<(u64, Description), EngineError> {
        let number = rand::random();
        // What is written of it goes on any error.
        let on_disk = OnDisk(path(self, &format!("to-{number:016x}"))?);
        let path = &on_disk.0;
        let index = table.engine().checkpoint(partition, path)?;
        let (bytes, checksum) = measure(path).map_err(EngineError::io(path))?;
        let file = Arc::new(File::open(path).map_err(EngineError::io(path))?);
        if table.schema().is_persistent() {
            // The file may hold effects of entries after its index. Whoever takes it has them on disk at once, so they must not be
            // lost here: a power failure would leave them on that one replica only.
            self.log.wait_synced().map_err(|error| EngineError::LogNotSynced(error.to_string()))?;
        }
        let group = group_of(table.id(), partition);
        let outgo =
            Outgo { group, file, bytes, until: Instant::now() + UNCLAIMED, slot: Some(slot), _on_disk: on_disk };
        // Another replica may still be fetching the one before.
        self.outgoing.files.lock().insert(number, outgo);
        Ok((index, Description { node: self.identity.node, number, bytes, checksum }))
    }

    /// Reads a piece of a file; nothing if the file is not there. Blocks.
    pub(crate) fn read_piece(&self, request: &[u8]) -> Bytes {
        let Some((number, offset, bytes)) = decode_request(request) else { return Bytes::new() };
        let file = self.outgoing.files.lock().get_mut(&number).map(|outgo| {
            outgo.until = Instant::now() + UNUSED;
            if offset.saturating_add(bytes.min(PIECE)) >= outgo.bytes {
                // With its last piece another file may be written. This one stays for whoever asks for a piece again.
                drop(outgo.slot.take());
            }
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

    /// Removes files that are not fetched, or no longer. Their groups make others when they need them.
    pub(crate) fn drop_unused_snapshots(&self) {
        let now = Instant::now();
        self.outgoing.forget_pauses(now);
        let mut files = self.outgoing.files.lock();
        let is_unused = |outgo: &Outgo| now >= outgo.until;
        for outgo in files.values().filter(|outgo| is_unused(outgo)) {
            if let Some((table, partition)) = partition_of_group(outgo.group) {
                self.inbox_of(table, partition).forget_snapshot(outgo.group);
            }
        }
        files.retain(|_, outgo| !is_unused(outgo));
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode_request;
    use super::super::outgoing::{FILES_AT_ONCE, PAUSE};
    use super::*;
    use crate::machine::PartitionsMachine;
    use crate::test_node::TestNode;
    use std::fs;
    use tessera_consensus::{GroupId, StateMachine};
    use tessera_engine::{Applied, mutation};
    use tessera_types::{EngineKind, Expiry, RecordKey, StoredValue, ValueKind};

    fn files_on_disk(node: &TestNode) -> usize {
        fs::read_dir(node.context.directory.snapshots()).unwrap().count()
    }

    /// What is offered and not fetched to its end: the files' numbers and lengths, and their groups.
    fn unfetched(node: &TestNode) -> Vec<(u64, u64, GroupId)> {
        let files = node.context.outgoing.files.lock();
        let unfetched = files.iter().filter(|(_, outgo)| outgo.slot.is_some());
        unfetched.map(|(number, outgo)| (*number, outgo.bytes, outgo.group)).collect()
    }

    /// Each try once left what it had written, and the next one followed at once, until the disk was full.
    #[tokio::test]
    async fn a_snapshot_that_cannot_be_written_leaves_no_file_and_is_not_tried_again_at_once() {
        let node = TestNode::start(|_| {});
        let table = node.create_table_in("t", 1, EngineKind::Rocksdb).await;
        let mut payload = BytesMut::new();
        for number in 0..400u32 {
            // It does not compress, so there are many blocks.
            let noise: [u8; 500] = std::array::from_fn(|_| rand::random());
            let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &noise };
            mutation::encode_put(&mut payload, &RecordKey::new(&number.to_be_bytes(), b""), &value);
        }
        let index = table.engine().applied_index(0);
        table.engine().write(&[Applied { partition: 0, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
        table.engine().make_durable(0, &|| Ok(())).unwrap();
        let mut damaged = 0;
        for path in fs::read_dir(node.context.directory.rocksdb()).unwrap().map(|file| file.unwrap().path()) {
            let mut bytes = fs::read(&path).unwrap_or_default();
            if path.extension().is_some_and(|extension| extension == "sst") && bytes.len() > 100_000 {
                // Among the records: what a snapshot begins with can still be read.
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(&path, bytes).unwrap();
                damaged += 1;
            }
        }
        assert_eq!(damaged, 1);
        let (outgoing, group) = (&node.context.outgoing, group_of(table.id(), 0));
        for _ in 0..=FILES_AT_ONCE {
            let (slot, writing) = outgoing.begin(group, Instant::now() + PAUSE).expect("earlier tries hold no slot");
            let error = node.context.write_snapshot(&table, 0, slot).unwrap_err();
            assert!(error.is_damage(), "{error}");
            assert!(outgoing.begin(group, Instant::now() + PAUSE).is_none(), "it is still being written");
            drop(writing);
            assert!(outgoing.begin(group, Instant::now()).is_none(), "it failed just now");
            assert_eq!(files_on_disk(&node), 0);
        }
    }

    /// A leader once wrote a file for every group at once when a node came back.
    #[tokio::test]
    async fn a_node_offers_a_few_files_at_once_and_those_of_all_groups_in_the_end() {
        let node = TestNode::start(|_| {});
        let table = node.create_table("t", 16).await;
        let mut machine = PartitionsMachine::new(node.context.clone());
        let mut waiting: Vec<GroupId> = (0..16).map(|partition| group_of(table.id(), partition)).collect();
        while !waiting.is_empty() {
            // As at each pass of the loop.
            waiting.iter().for_each(|group| assert_eq!(machine.snapshot(*group), None));
            let expected = waiting.len().min(FILES_AT_ONCE);
            let look = || Some(unfetched(&node)).filter(|offered| offered.len() == expected);
            let offered = node.wait_for("offers of files", |_| look()).await;
            waiting.iter().for_each(|group| assert_eq!(machine.snapshot(*group), None));
            assert_eq!(node.context.outgoing.slots.available_permits(), FILES_AT_ONCE - expected);
            for (number, bytes, group) in offered {
                let piece = node.context.read_piece(&encode_request(number, 0, bytes));
                assert_eq!(piece.len() as u64, bytes + 1, "all of it, and the byte that ends a piece");
                waiting.retain(|other| *other != group);
            }
            assert_eq!(unfetched(&node), []);
        }
    }

    #[tokio::test]
    async fn a_file_that_nobody_fetches_gives_way_to_those_of_other_groups() {
        let node = TestNode::start(|_| {});
        let table = node.create_table("t", 8).await;
        let outgoing = &node.context.outgoing;
        for partition in (0..8).take(FILES_AT_ONCE) {
            let (slot, _writing) = outgoing.begin(group_of(table.id(), partition), Instant::now()).unwrap();
            node.context.write_snapshot(&table, partition, slot).unwrap();
        }
        let other = group_of(table.id(), 7);
        assert!(outgoing.begin(other, Instant::now()).is_none());
        outgoing.files.lock().values_mut().for_each(|outgo| outgo.until = Instant::now());
        node.context.drop_unused_snapshots();
        assert_eq!(files_on_disk(&node), 0);
        assert!(outgoing.begin(other, Instant::now()).is_some());
    }
}
