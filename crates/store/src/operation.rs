//! Writes on their way from a face to the partition that evaluates them.

use crate::transaction::Transaction;
use std::sync::Arc;
use std::time::Instant;
use tessera_consensus::Failure;
use tessera_transaction::Age;
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

    /// How old the transaction over partitions is that this belongs to. Of operations that have waited for a key those come first that
    /// belong to none, then the oldest.
    fn age(&self) -> Option<Age> {
        None
    }

    /// Until when it waits for keys that transactions over partitions hold, where it is to be evaluated; `None` for as long as a request
    /// is tried.
    fn until(&self) -> Option<Instant> {
        None
    }

    /// Whether it only brings a transaction over partitions to its end, which is done in dropped tables too, and on a full disk.
    fn ends_a_transaction(&self) -> bool {
        false
    }

    /// Whether it says if the partition takes requests: it seals or reopens it, and is evaluated although requests are refused. So
    /// nothing is let in between two seals, nor before it is certain that the partition reopens.
    fn seals_or_reopens(&self) -> bool {
        false
    }

    /// Whether the part changes nothing, which is done on a full disk too.
    fn only_reads(&self, _part: usize) -> bool {
        false
    }

    /// Called once for each part: with `Ok` when what was evaluated holds, else with the reason why it was never
    /// evaluated, or is not known to hold.
    fn answer(&self, part: usize, outcome: Result<(), RequestError>);
}

/// What is to become of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What the transaction wrote becomes part of a log entry.
    Commit,
    /// Nothing is written.
    Abandon,
}

/// Part of an operation on its way to a partition.
pub struct WriteCommand {
    /// Whether the log must be fsynced before the answer.
    pub sync: bool,
    /// Whether the command is answered as soon as the leader has persisted it, before a majority has.
    pub leader_acked: bool,
    /// Whether the command must be the first one of its log entry.
    pub begins_entry: bool,
    /// Whether a majority must confirm the leader before the answer if the command changes nothing.
    pub confirm: bool,
    /// When it first met a key that a transaction over partitions holds.
    pub held_since: Option<Instant>,
    /// What answers the command.
    pub pending_reply: PendingReply,
}

impl WriteCommand {
    /// A command that need not be durable when it is answered, and that nobody has to confirm.
    pub fn new(pending_reply: PendingReply) -> Self {
        Self { sync: false, leader_acked: false, begins_entry: false, confirm: false, held_since: None, pending_reply }
    }
}

/// What is needed to answer a part of an operation. If it is dropped, it answers that the outcome is not known.
pub struct PendingReply {
    operation: Option<Arc<dyn Operation>>,
    part: usize,
}

impl PendingReply {
    /// The duty to answer this part of the operation.
    pub fn new(operation: Arc<dyn Operation>, part: usize) -> Self {
        Self { operation: Some(operation), part }
    }

    /// Runs the operation's part in a transaction of its partition.
    pub fn evaluate(&self, transaction: &mut Transaction<'_>) -> Verdict {
        self.operation.as_ref().expect("not answered yet").evaluate(self.part, transaction)
    }

    /// Where the operation is in memory: the same for all of its parts, and for no other operation as long as one of them is there.
    pub fn address(&self) -> Option<usize> {
        self.operation.as_ref().map(|operation| Arc::as_ptr(operation).addr())
    }

    /// See [`Operation::age`].
    pub fn age(&self) -> Option<Age> {
        self.operation.as_ref()?.age()
    }

    /// See [`Operation::until`].
    pub fn until(&self) -> Option<Instant> {
        self.operation.as_ref()?.until()
    }

    /// See [`Operation::ends_a_transaction`].
    pub(crate) fn ends_a_transaction(&self) -> bool {
        self.operation.as_ref().is_some_and(|operation| operation.ends_a_transaction())
    }

    /// See [`Operation::seals_or_reopens`].
    pub fn seals_or_reopens(&self) -> bool {
        self.operation.as_ref().is_some_and(|operation| operation.seals_or_reopens())
    }

    /// Whether it is carried out although the disk is full: nothing of what waits comes to its end otherwise, and reads go on.
    pub fn may_use_reserve(&self) -> bool {
        self.operation
            .as_ref()
            .is_some_and(|operation| operation.ends_a_transaction() || operation.only_reads(self.part))
    }

    /// Tells the operation what became of its part.
    pub fn answer(mut self, outcome: Result<(), RequestError>) {
        if let Some(operation) = self.operation.take() {
            operation.answer(self.part, outcome);
        }
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            operation.answer(self.part, Err(RequestError::Interrupted));
        }
    }
}

/// What a request asks of its writes, where that is something else than their table gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// The durability; `None` for the table's.
    pub durability: Option<Durability>,
    /// Who must have the write; `None` for the table's setting.
    pub acks: Option<Acks>,
}

/// What a group did not do, as an error of the request.
pub fn failed(failure: Failure) -> RequestError {
    match failure {
        Failure::NotServing => RequestError::NotReady,
        Failure::Busy => RequestError::Busy,
        Failure::DiskFull => RequestError::DiskFull,
        Failure::DiskFailed(error) => RequestError::DiskFailed(error),
        Failure::NotApplied(error) => RequestError::NotApplied(error),
        Failure::ShuttingDown => RequestError::ShuttingDown,
        Failure::Interrupted => RequestError::Interrupted,
    }
}
