//! What a copier has the new partitions do, wherever they are led.
//!
//! A request between nodes: `u8 kind | u32 table | u32 partition | u64 attempt | u64 index`, integers little-endian, then
//! mutations as log entries carry them. The answer is JSON.

use crate::node_context::NodeContext;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_store::hosting::number;
use tessera_store::{Leader, Operation, Store, Table, Transaction, Verdict, WriteOptions};
use tessera_transport::RequestFailure;
use tessera_types::{RequestError, TableId};
use tokio::sync::oneshot;

/// How long a step is tried while nobody leads the new partition.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long another node may take for one.
const STEP: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// At which log index did the partition change last?
    Status,
    /// Delete all, if that was at this index.
    Clear { index: u64 },
    /// Take these mutations, if nobody else has cleared since.
    Take(Bytes),
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepOutcome {
    /// With the index of the last change, for a [`Step::Status`].
    Done(u64),
    /// Not done; it may be tried again.
    NotReady,
    /// Not done: somebody else copies, or the partition has another leader now, which knows of no copier.
    Overtaken,
    /// Perhaps done.
    Failed(String),
}

/// A step on its way to the partition's loop.
struct SentStep {
    step: Step,
    attempt: u64,
    evaluated: Mutex<StepOutcome>,
    sender: Mutex<Option<oneshot::Sender<StepOutcome>>>,
}

impl SentStep {
    fn carry_out(&self, transaction: &mut Transaction<'_>) -> StepOutcome {
        let state = transaction.partition_state();
        match &self.step {
            Step::Status if transaction.is_behind() => StepOutcome::NotReady,
            Step::Status => StepOutcome::Done(transaction.table().applied_index(transaction.partition())),
            Step::Clear { index } => {
                let applied = transaction.table().applied_index(transaction.partition());
                if transaction.is_behind() || applied != *index {
                    return StepOutcome::Overtaken;
                }
                state.set_copied_by(self.attempt);
                transaction.clear();
                StepOutcome::Done(0)
            }
            Step::Take(_) if state.copied_by() != self.attempt => StepOutcome::Overtaken,
            Step::Take(payload) => match take(transaction, payload) {
                Ok(()) => StepOutcome::Done(0),
                Err(error) => StepOutcome::Failed(error.to_string()),
            },
        }
    }
}

fn take(transaction: &mut Transaction<'_>, payload: &[u8]) -> Result<(), RequestError> {
    transaction.check_spare(payload.len())?;
    transaction.replay(payload)
}

impl Operation for SentStep {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let outcome = self.carry_out(transaction);
        let is_change = matches!((&self.step, &outcome), (Step::Clear { .. } | Step::Take(_), StepOutcome::Done(_)));
        *self.evaluated.lock() = outcome;
        if is_change { Verdict::Commit } else { Verdict::Abandon }
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        let outcome = match outcome {
            Ok(()) => self.evaluated.lock().clone(),
            Err(RequestError::NotReady | RequestError::Busy) => StepOutcome::NotReady,
            Err(error) => StepOutcome::Failed(error.to_string()),
        };
        if let Some(sender) = self.sender.lock().take() {
            let _ = sender.send(outcome);
        }
    }
}

impl Step {
    fn encode(&self, table: &Table, partition: u32, attempt: u64) -> Bytes {
        let (kind, index, payload) = match self {
            Self::Status => (0, 0, &b""[..]),
            Self::Clear { index } => (1, *index, &b""[..]),
            Self::Take(payload) => (2, 0, &payload[..]),
        };
        let mut out = BytesMut::with_capacity(25 + payload.len());
        out.put_u8(kind);
        out.put_u32_le(table.id().0);
        out.put_u32_le(partition);
        out.put_u64_le(attempt);
        out.put_u64_le(index);
        out.put_slice(payload);
        out.freeze()
    }
}

/// Carries out what another node has encoded.
pub(crate) async fn take_step(context: &NodeContext, mut request: Bytes) -> StepOutcome {
    let mut decode = || -> Option<_> {
        let kind = request.try_get_u8().ok()?;
        let table = TableId(request.try_get_u32_le().ok()?);
        let (partition, attempt) = (request.try_get_u32_le().ok()?, request.try_get_u64_le().ok()?);
        let index = request.try_get_u64_le().ok()?;
        let step = match kind {
            0 => Step::Status,
            1 => Step::Clear { index },
            2 => Step::Take(std::mem::take(&mut request)),
            _ => return None,
        };
        Some((table, partition, attempt, step))
    };
    let Some((table, partition, attempt, step)) = decode() else {
        return StepOutcome::Failed("the request cannot be read".into());
    };
    match context.registry.any(table).filter(|table| partition < table.schema().partitions) {
        Some(table) => step_here(&context.store, &table, partition, attempt, step).await,
        // News of it is on its way.
        None => StepOutcome::NotReady,
    }
}

async fn step_here(store: &Store, table: &Table, partition: u32, attempt: u64, step: Step) -> StepOutcome {
    let (sender, receiver) = oneshot::channel();
    let (evaluated, sender) = (Mutex::new(StepOutcome::NotReady), Mutex::new(Some(sender)));
    let sent: Arc<dyn Operation> = Arc::new(SentStep { step, attempt, evaluated, sender });
    store.write(table, WriteOptions::default(), &sent, [partition]);
    receiver.await.unwrap_or_else(|_| StepOutcome::Failed("the node is stopping".into()))
}

/// Has a step carried out by the partition's leader, and returns the index for a [`Step::Status`].
///
/// # Errors
/// Why it was not carried out, or may not have been.
pub(super) async fn send(
    context: &NodeContext,
    table: &Table,
    partition: u32,
    attempt: u64,
    step: &Step,
) -> Result<u64, String> {
    let began = Instant::now();
    loop {
        let outcome = match table.leader_of(partition) {
            Leader::Here => step_here(&context.store, table, partition, attempt, step.clone()).await,
            Leader::Node(node) => {
                let request = step.encode(table, partition, attempt);
                let answer = context.transport.request(node, number::COPY, &request);
                match tokio::time::timeout(STEP, answer).await {
                    Ok(Ok(answer)) => serde_json::from_slice(&answer).unwrap_or(StepOutcome::NotReady),
                    Ok(Err(RequestFailure::NotSent)) => StepOutcome::NotReady,
                    Ok(Err(RequestFailure::Lost)) | Err(_) => {
                        StepOutcome::Failed(format!("node {node} may have carried it out"))
                    }
                }
            }
            Leader::Unknown => StepOutcome::NotReady,
        };
        match outcome {
            StepOutcome::Done(index) => return Ok(index),
            StepOutcome::NotReady if began.elapsed() < PATIENCE => context.store.another_leader(PAUSE).await,
            StepOutcome::NotReady => return Err(format!("nobody leads new partition {partition}")),
            StepOutcome::Overtaken => return Err(format!("new partition {partition} changed meanwhile")),
            StepOutcome::Failed(why) => return Err(why),
        }
    }
}
