//! Writes on their way from whoever asks for them to the partition that evaluates them.

use crate::transaction::Transaction;
use std::sync::Arc;
use tessera_consensus::Failure;
use tessera_types::{Acks, Durability, RequestError};

/// Writes as a face sends them, in parts that each concern one partition. A part is evaluated by its partition's owner
/// and answered when it is as durable as asked.
pub trait Operation: Send + Sync {
    /// Reads and writes. What it finds it keeps for [`answer`](Self::answer). Runs on the partition's loop, so it must
    /// be quick.
    ///
    /// If it reads what no cache has, all that it did in the transaction is taken back, and it is evaluated again when that was
    /// read. So what it finds must replace what it found before, and it must change nothing but the transaction unless it reads
    /// nothing.
    fn evaluate(&self, part: usize, transaction: &mut Transaction<'_>) -> Verdict;

    /// Called once for each part: with `Ok` when what was evaluated holds, else with the reason why it was never
    /// evaluated, or is not known to hold.
    fn answer(&self, part: usize, outcome: Result<(), RequestError>);
}

/// What is to become of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Commit,
    /// Nothing is written.
    Abandon,
}

/// Part of an operation on its way to a partition.
pub struct WriteCommand {
    pub sync: bool,
    /// Whether it is answered when the leader has it.
    pub early: bool,
    /// Whether nothing may stand before it in its log entry.
    pub begins_entry: bool,
    /// Whether a majority must confirm the leader, should it turn out to change nothing.
    pub confirm: bool,
    pub ticket: Ticket,
}

/// The duty to answer a part of an operation. Dropped, it answers that the outcome is not known.
pub struct Ticket {
    operation: Option<Arc<dyn Operation>>,
    part: usize,
}

impl Ticket {
    pub fn new(operation: Arc<dyn Operation>, part: usize) -> Self {
        Self { operation: Some(operation), part }
    }

    pub fn evaluate(&self, transaction: &mut Transaction<'_>) -> Verdict {
        self.operation.as_ref().expect("not answered yet").evaluate(self.part, transaction)
    }

    pub fn answer(mut self, outcome: Result<(), RequestError>) {
        if let Some(operation) = self.operation.take() {
            operation.answer(self.part, outcome);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            operation.answer(self.part, Err(RequestError::Interrupted));
        }
    }
}

/// What a request asks of its writes, where that is something else than their table gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub durability: Option<Durability>,
    pub acks: Option<Acks>,
}

/// What a group did not do, as an error of the request.
pub fn failed(failure: Failure) -> RequestError {
    match failure {
        Failure::NotServing => RequestError::NotReady,
        Failure::Busy => RequestError::Busy,
        Failure::DiskFull => RequestError::DiskFull,
        Failure::DiskFailed(error) => RequestError::DiskFailed(error),
        Failure::ShuttingDown => RequestError::ShuttingDown,
        Failure::Interrupted => RequestError::Interrupted,
    }
}
