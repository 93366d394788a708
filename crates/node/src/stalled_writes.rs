//! What is committed on its way into engines.
//!
//! A worker's loop writes what the engine takes at once. RocksDB makes writers wait while its flushes and compactions catch
//! up, for as long as its rate limit or the disk needs: such a write goes on in a thread of its own, and what is committed
//! for RocksDB meanwhile waits in the loop, which serves other engines, leases and elections.

use crate::node_context::NodeContext;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tessera_consensus::Inbox;
use tessera_engine::mutation::{self, Mutation};
use tessera_engine::{Applied, Engine, EngineError};
use tessera_store::Table;
use tessera_store::hosting::{PartitionLedger, WriteCommand};
use tessera_types::{EngineKind, Space};

/// Writes entries to a table's engine as `how` does, and tells who watches or copies. Returns false if it was not done.
pub(crate) fn write(
    table: &Table,
    entries: &[Applied<'_>],
    how: impl FnOnce(&dyn Engine, &[Applied<'_>]) -> Result<bool, EngineError>,
) -> Result<bool, String> {
    let changing = || entries.iter().filter(|applied| changes_records(applied.payloads));
    changing().for_each(|applied| table.partition(applied.partition).begin_change());
    let outcome = how(table.engine(), entries);
    changing().for_each(|applied| table.partition(applied.partition).end_change());
    let is_done = outcome.map_err(|error| error.to_string())?;
    for applied in entries.iter().filter(|_| is_done) {
        touch_watched(table, applied.partition, applied.payloads);
        table.partition(applied.partition).change_capture().applied(applied.payloads);
    }
    Ok(is_done)
}

/// Whether payloads have anything but what a partition notes of transactions. Readers who confirm what they have read look at locks, and
/// need not read it again for that.
fn changes_records(payloads: &[Bytes]) -> bool {
    let is_note = |mutation| match mutation {
        Ok(Mutation::PutIn { space, key, .. } | Mutation::DeleteIn { space, key }) => {
            space == Space::SYSTEM && PartitionLedger::is_record(key)
        }
        _ => false,
    };
    payloads.iter().flat_map(|payload| mutation::decode(payload)).any(|mutation| !is_note(mutation))
}

fn touch_watched(table: &Table, partition: u32, payloads: &[Bytes]) {
    let watched = table.partition(partition).watched();
    if watched.is_empty() {
        return;
    }
    for mutation in payloads.iter().flat_map(|payload| mutation::decode(payload)) {
        match mutation {
            Ok(Mutation::Put { key, .. } | Mutation::Delete { key } | Mutation::DeleteHashKey { key }) => {
                watched.touch(key.hash_key);
            }
            Ok(Mutation::Clear) => watched.touch_all(),
            Ok(Mutation::Time(_)) => {}
            Ok(Mutation::Mark { .. }) => {}
            // Nobody watches what is in a space.
            Ok(Mutation::PutIn { .. } | Mutation::DeleteIn { .. } | Mutation::DropSpace { .. }) => {}
            Err(_) => {} // the engine has refused such a payload already
        }
    }
}

/// The writes of one worker that wait for RocksDB.
#[derive(Default)]
pub(crate) struct StalledWrites {
    are_under_way: Arc<AtomicBool>,
}

/// Entries for one table's engine.
pub(crate) struct StalledWrite {
    table: Arc<Table>,
    /// Partition, index, term and payloads, as in [`Applied`].
    entries: Vec<(u32, u64, u64, Vec<Bytes>)>,
}

/// Tells the loop when it is dropped, however the writes ended: what is missing then is tried again.
struct CatchUp {
    are_under_way: Arc<AtomicBool>,
    inbox: Arc<Inbox<WriteCommand>>,
}

impl Drop for CatchUp {
    fn drop(&mut self) {
        self.are_under_way.store(false, Ordering::Release);
        self.inbox.caught_up();
    }
}

impl StalledWrite {
    pub(crate) fn new(table: &Arc<Table>, entries: &[Applied<'_>]) -> Self {
        let owned =
            entries.iter().map(|applied| (applied.partition, applied.index, applied.term, applied.payloads.to_vec()));
        Self { table: table.clone(), entries: owned.collect() }
    }
}

impl StalledWrites {
    /// Whether a write to the table would have to wait behind those under way.
    pub(crate) fn hold_up(&self, table: &Table) -> bool {
        table.schema().engine == EngineKind::Rocksdb && self.are_under_way.load(Ordering::Acquire)
    }

    /// Lets writes go on in a thread of their own.
    pub(crate) fn begin(&self, context: &NodeContext, writes: Vec<StalledWrite>) {
        let Some(StalledWrite { table, entries }) = writes.first() else { return };
        let inbox = context.inbox_of(table.id(), entries[0].0).clone();
        self.are_under_way.store(true, Ordering::Release);
        let catch_up = CatchUp { are_under_way: self.are_under_way.clone(), inbox };
        let write_all = move || {
            let _catch_up = catch_up;
            for StalledWrite { table, entries } in &writes {
                let applied: Vec<_> = entries
                    .iter()
                    .map(|(partition, index, term, payloads)| Applied {
                        partition: *partition,
                        index: *index,
                        term: *term,
                        payloads,
                    })
                    .collect();
                if let Err(error) = write(table, &applied, |engine, applied| engine.write(applied).map(|()| true)) {
                    tracing::debug!(table = %table.name(), error, "a slow write failed; it is tried again");
                }
            }
        };
        context.threads.run("slow-write", write_all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use tessera_types::{Expiry, RecordKey, StoredValue, ValueKind};

    /// Reads at one instant that locked what they read once made each other do so, since their own entries counted as changes.
    #[test]
    fn what_a_partition_notes_of_transactions_changes_no_record() {
        let payload = |encode: &dyn Fn(&mut BytesMut)| {
            let mut payload = BytesMut::new();
            encode(&mut payload);
            payload.freeze()
        };
        let finished = [&b"t\x02"[..], &[0; 20]].concat();
        let note = payload(&|out| {
            mutation::encode_put_in(out, Space::SYSTEM, &finished, b"");
            mutation::encode_delete_in(out, Space::SYSTEM, &finished);
        });
        let put = payload(&|out| {
            let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"v" };
            mutation::encode_put(out, &RecordKey::new(b"k", b""), &stored);
        });
        let seal = payload(&|out| _ = mutation::encode_put_in(out, Space::SYSTEM, mutation::SEAL, b""));
        assert!(!changes_records(&[note.clone(), note.clone()]) && !changes_records(&[]));
        assert!(changes_records(&[note.clone(), put]) && changes_records(&[seal]));
        let of_documents = payload(&|out| _ = mutation::encode_put_in(out, Space::DOCUMENTS, &finished, b""));
        assert!(changes_records(&[of_documents]));
    }
}
