//! Writing the record that ends a partition.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tessera_engine::mutation::SEAL;
use tessera_store::hosting::Seal;
use tessera_store::{Operation, Transaction, Verdict};
use tessera_types::{RequestError, Space};
use tokio::sync::oneshot;

/// Ends a partition.
pub(super) struct Sealing {
    seal: Seal,
    /// Whether transactions over partitions stood in the way, or the seal has no meaning any more.
    is_early: AtomicBool,
    sender: Mutex<Option<oneshot::Sender<Result<(), RequestError>>>>,
}

impl Sealing {
    pub(super) fn new(seal: Seal) -> (Self, oneshot::Receiver<Result<(), RequestError>>) {
        let (sender, receiver) = oneshot::channel();
        (Self { seal, is_early: AtomicBool::new(false), sender: Mutex::new(Some(sender)) }, receiver)
    }
}

impl Operation for Sealing {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        // The new partitions know nothing of transactions: all that this one knows must be over.
        // The table may have been truncated and recalled since, and is not to end again.
        let is_void = transaction.table().seal() != self.seal;
        let is_early = is_void || !transaction.partition_state().ledger().may_be_sealed();
        self.is_early.store(is_early, Ordering::Relaxed);
        if is_early {
            return Verdict::Abandon;
        }
        transaction.put_in_unchecked(Space::SYSTEM, SEAL, &self.seal.encode());
        let state = transaction.partition_state();
        // Nothing is read here any more either: soon the new table takes writes.
        state.stop_serving();
        state.change_capture().seal();
        // Whoever watches a key here would miss what is written in the new table.
        state.watched().touch_all();
        Verdict::Commit
    }

    fn seals_or_reopens(&self) -> bool {
        true
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.sender.lock().take() {
            let is_early = self.is_early.load(Ordering::Relaxed);
            let _ = sender.send(outcome.and(if is_early { Err(RequestError::Busy) } else { Ok(()) }));
        }
    }
}
