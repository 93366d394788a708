//! The record that ends a partition.

use crate::machine::{Operation, Verdict};
use crate::table::Table;
use crate::transaction::Transaction;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use tessera_engine::EngineError;
use tessera_types::{Expiry, Limits, RecordKey, RequestError, StoredValue};
use tokio::sync::oneshot;

/// Longer by a byte than what clients can write.
static HASH_KEY: [u8; Limits::HASH_KEY_BYTES_CEILING + 1] = [0; Limits::HASH_KEY_BYTES_CEILING + 1];

/// It is found by its partition, not by its hash.
fn key() -> RecordKey<'static> {
    RecordKey::with_hash(0, &HASH_KEY, b"")
}

/// Whether a key is that of the record.
pub(crate) fn is_seal(key: &RecordKey<'_>) -> bool {
    key.hash_key.len() == HASH_KEY.len()
}

/// Whether the partition has ended, as of what is applied.
pub(crate) fn is_sealed(table: &Table, partition: u32) -> Result<bool, EngineError> {
    let mut is_there = false;
    table.engine.get(partition, &key(), &mut |_| is_there = true)?;
    Ok(is_there)
}

/// Ends a partition.
pub(super) struct Seal(Mutex<Option<oneshot::Sender<Result<(), RequestError>>>>);

impl Seal {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<(), RequestError>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Mutex::new(Some(sender))), receiver)
    }
}

impl Operation for Seal {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        transaction.put_unchecked(&key(), &StoredValue { expiry: Expiry::NEVER, is_field: false, payload: b"" });
        let state = transaction.partition_state();
        // Nothing is read here any more either: soon the new table takes writes.
        state.is_serving.store(false, Ordering::Release);
        state.outflow.seal();
        // Whoever watches a key here would miss what is written in the new table.
        state.watched.touch_all();
        Verdict::Commit
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.0.lock().take() {
            let _ = sender.send(outcome);
        }
    }
}
