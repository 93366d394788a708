//! The record that ends a partition.

use parking_lot::Mutex;
use tessera_engine::EngineError;
use tessera_engine::mutation::SEAL;
use tessera_store::{Operation, Table, Transaction, Verdict};
use tessera_types::{RequestError, Space};
use tokio::sync::oneshot;

/// Whether the partition has ended, as of what is applied.
pub(crate) fn is_sealed(table: &Table, partition: u32) -> Result<bool, EngineError> {
    table.engine().get_in(partition, Space::SYSTEM, SEAL, &mut |_| ())
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
        transaction.put_in_unchecked(Space::SYSTEM, SEAL, b"");
        let state = transaction.partition_state();
        // Nothing is read here any more either: soon the new table takes writes.
        state.stop_serving();
        state.change_capture().seal();
        // Whoever watches a key here would miss what is written in the new table.
        state.watched().touch_all();
        Verdict::Commit
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.0.lock().take() {
            let _ = sender.send(outcome);
        }
    }
}
