//! A request of a coordinator, on its way through the partition's loop.

use super::data::{FaceOperation, IntendedWrites, OnTables};
use super::encoding::PREFIX;
use super::partition_ledger::has_committed;
use crate::errors::request_error;
use crate::operation::{Operation, Verdict};
use crate::table::Table;
use crate::transaction::Transaction;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use tessera_transaction::{Age, Answer, Entry, Outcome, Request, Step, TransactionId};
use tessera_types::{RequestError, Space, TableId};
use tokio::sync::oneshot;

/// What a face adds to transactions over partitions: it understands its operations.
pub trait Evaluator: Send + Sync {
    /// Evaluates a part of a transaction in its partition, as [`Operation::evaluate`] does. Returns the reply, or the refusal by which
    /// the whole transaction is aborted.
    ///
    /// # Errors
    /// The refusal, in the face's own words.
    fn evaluate(&self, operation: &Bytes, transaction: &mut Transaction<'_>) -> Result<Bytes, Bytes>;

    /// Whether an intent keeps its operation, to be [carried out](Self::carry_out) when it is resolved. Else it keeps what
    /// [`evaluate`](Self::evaluate) has written. A face wants that if it writes something that has to be in the order of the log.
    fn defers(&self) -> bool {
        false
    }

    /// Carries out what was [evaluated](Self::evaluate) before, now that the transaction has committed. Nobody has changed since what it
    /// has locked, and nothing may be refused. Locks and limits do not hold here.
    ///
    /// # Errors
    /// What the engine reports. It is tried again then.
    fn carry_out(&self, _operation: &Bytes, _transaction: &mut Transaction<'_>) -> Result<(), RequestError> {
        Ok(())
    }

    /// What an operation of a transaction has written in this partition has taken effect.
    fn has_taken_effect(&self, _table: TableId, _partition: u32, _operation: &Bytes) {}
}

/// What is asked.
pub(crate) enum Asked {
    Request(Request<OnTables>),
    /// That the anchor forgets a commit, which all participants have resolved.
    Forget(TransactionId),
}

/// What comes of it.
type Answered = Result<Answer<OnTables>, RequestError>;

/// One request to one partition.
pub(crate) struct LedgerStep {
    asked: Asked,
    /// Of the face whose operation the request has.
    evaluator: Option<Arc<dyn Evaluator>>,
    answer: Mutex<Answered>,
    /// What takes effect with the answer, and where.
    effect: Mutex<Option<(TableId, u32, Bytes)>>,
    sender: Mutex<Option<oneshot::Sender<Answered>>>,
}

impl LedgerStep {
    /// A step, and where its answer arrives.
    pub(crate) fn new(asked: Asked, evaluator: Option<Arc<dyn Evaluator>>) -> (Self, oneshot::Receiver<Answered>) {
        let (sender, receiver) = oneshot::channel();
        let (answer, effect) = (Mutex::new(Ok(Answer::Over)), Mutex::default());
        (Self { asked, evaluator, answer, effect, sender: Mutex::new(Some(sender)) }, receiver)
    }

    /// Whether it is carried out only where the partition serves: what is logged behind a seal, which may be on its way, is lost.
    fn needs_to_serve(&self) -> bool {
        matches!(self.asked, Asked::Request(Request::Prepare(_) | Request::Decide(_) | Request::Recover(_)))
    }

    /// What the ledger has to say.
    fn step(&self, transaction: &Transaction<'_>) -> Step<OnTables> {
        let ledger = transaction.partition_state().ledger();
        let is_closed = ledger.is_closed();
        let step = ledger.look(|ledger| match &self.asked {
            Asked::Request(Request::Prepare(prepare)) => ledger.prepare(prepare),
            Asked::Request(Request::Decide(decide)) => ledger.decide(decide),
            Asked::Request(Request::Recover(id)) => ledger.recover(*id),
            Asked::Request(Request::Resolve(id, outcome)) => ledger.resolve(*id, *outcome),
            Asked::Forget(id) => ledger.forget(*id).map_or(Step::Answer(Answer::Resolved), Step::Log),
        });
        match (&self.asked, step) {
            // The partition is about to be sealed, or its indexes are about to change: the transaction is tried again then.
            (Asked::Request(Request::Prepare(_)), Step::Evaluate) if is_closed => Step::Answer(Answer::Over),
            (Asked::Request(Request::Decide(decide)), Step::Evaluate) if is_closed => {
                Step::Log(Entry::Abort(decide.id))
            }
            (_, step) => step,
        }
    }

    /// Evaluates the operation, and returns the entry; `None` if there is an answer already, or it is to be evaluated again.
    fn evaluate_operation(&self, transaction: &mut Transaction<'_>) -> Option<Entry<OnTables>> {
        let Asked::Request(request) = &self.asked else { return None };
        let operation = match request {
            Request::Prepare(prepare) => &prepare.operation,
            Request::Decide(decide) => &decide.operation,
            Request::Recover(_) | Request::Resolve(..) => return None,
        };
        let evaluator = self.evaluator.as_ref()?;
        let evaluated = evaluator.evaluate(&operation.operation, transaction);
        if transaction.would_wait() {
            return None;
        }
        let reply = match evaluated {
            Ok(reply) => reply,
            Err(refusal) => {
                *self.answer.lock() = Ok(Answer::Refused(refusal));
                return None;
            }
        };
        match request {
            Request::Prepare(prepare) => {
                let mutations = transaction.take_writes();
                let writes = match evaluator.defers() {
                    true => IntendedWrites::Operation(operation.clone()),
                    false => IntendedWrites::Mutations(mutations),
                };
                Some(transaction.partition_state().ledger().look(|ledger| ledger.prepared(prepare, writes, reply)))
            }
            Request::Decide(decide) => {
                self.note_effect(operation, transaction);
                // The anchor's own writes stand in the same log entry already.
                let none = IntendedWrites::Mutations(Bytes::new());
                let entry = |ledger: &tessera_transaction::Ledger<OnTables>| ledger.committed(decide, none, reply);
                Some(transaction.partition_state().ledger().look(entry))
            }
            Request::Recover(_) | Request::Resolve(..) => None,
        }
    }

    fn note_effect(&self, operation: &FaceOperation, transaction: &Transaction<'_>) {
        *self.effect.lock() = Some((transaction.table().id(), transaction.partition(), operation.operation.clone()));
    }

    /// Writes what an intent has kept, whose transaction has committed.
    fn apply(&self, id: TransactionId, transaction: &mut Transaction<'_>) -> Result<(), RequestError> {
        let ledger = transaction.partition_state().ledger();
        match ledger.look(|ledger| Some(ledger.intent(id)?.writes.clone())) {
            None => Ok(()),
            Some(IntendedWrites::Mutations(mutations)) => transaction.replay(&mutations),
            Some(IntendedWrites::Operation(operation)) => {
                // The face may not be there yet, or not any more.
                let evaluator = self.evaluator.as_ref().ok_or(RequestError::NotReady)?;
                evaluator.carry_out(&operation.operation, transaction)?;
                if transaction.would_wait() {
                    return Err(RequestError::WouldWait);
                }
                self.note_effect(&operation, transaction);
                Ok(())
            }
        }
    }
}

/// Logs the change of the ledger.
fn log(entry: &Entry<OnTables>, transaction: &mut Transaction<'_>) {
    let ledger = transaction.partition_state().ledger();
    for (key, record) in ledger.log(entry) {
        debug_assert!(key.starts_with(PREFIX), "a ledger's records stand together");
        match record {
            Some(record) => transaction.put_in_unchecked(Space::SYSTEM, &key, &record),
            None => transaction.delete_in(Space::SYSTEM, &key),
        }
    }
}

impl Operation for LedgerStep {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        *self.effect.lock() = None;
        if self.needs_to_serve() && !transaction.partition_state().is_serving() {
            *self.answer.lock() = Err(RequestError::NotReady);
            return Verdict::Abandon;
        }
        let entry = match self.step(transaction) {
            Step::Answer(Answer::Busy(holder)) => {
                // The older one waits, the younger one gives way. Of the same age is an earlier attempt, which is being aborted.
                if self.age().is_some_and(|age| age <= holder.age) {
                    transaction.wait_for(holder.id);
                }
                *self.answer.lock() = Ok(Answer::Busy(holder));
                None
            }
            Step::Answer(answer) => {
                *self.answer.lock() = Ok(answer);
                None
            }
            Step::Log(entry) => Some(entry),
            Step::Evaluate => self.evaluate_operation(transaction),
        };
        let Some(entry) = entry else { return Verdict::Abandon };
        let applied = match &entry {
            Entry::Resolve(id, Outcome::Committed) => self.apply(*id, transaction),
            _ => Ok(()),
        };
        // What was evaluated in vain must not be in the ledger.
        let logged = applied.map(|()| {
            log(&entry, transaction);
            entry.answer()
        });
        let verdict = if logged.is_ok() { Verdict::Commit } else { Verdict::Abandon };
        *self.answer.lock() = logged;
        verdict
    }

    fn age(&self) -> Option<Age> {
        match &self.asked {
            Asked::Request(request) => request.age(),
            Asked::Forget(_) => None,
        }
    }

    fn ends_a_transaction(&self) -> bool {
        !matches!(self.asked, Asked::Request(Request::Prepare(_) | Request::Decide(_)))
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let (Ok(()), Some((table, partition, operation)), Some(evaluator)) =
            (&outcome, self.effect.lock().take(), &self.evaluator)
        {
            evaluator.has_taken_effect(table, partition, &operation);
        }
        if let Some(sender) = self.sender.lock().take() {
            let _ = sender.send(outcome.and_then(|()| self.answer.lock().clone()));
        }
    }
}

/// What a partition answers that was sealed: it takes no transactions any more, and has no intents. `None` if it is not
/// sealed, as far as the replica here knows.
///
/// # Errors
/// What the engine reports.
pub(crate) fn answer_if_sealed(
    table: &Table,
    partition: u32,
    request: &Request<OnTables>,
) -> Result<Option<Answer<OnTables>>, RequestError> {
    if !table.is_sealed(partition).map_err(request_error)? {
        return Ok(None);
    }
    let engine = &*table.engine;
    let decided = |id| match has_committed(engine, partition, id).map_err(request_error) {
        Ok(true) => Ok(Answer::Committed(None)),
        Ok(false) => Ok(Answer::Aborted),
        Err(error) => Err(error),
    };
    Ok(Some(match request {
        Request::Prepare(_) => Answer::Over,
        Request::Resolve(_, Outcome::Committed | Outcome::Aborted) => Answer::Resolved,
        Request::Decide(decide) => decided(decide.id)?,
        Request::Recover(id) => decided(*id)?,
    }))
}

/// What a partition answers of a table that was split or truncated, or is not there any more. It was sealed when all that it had committed was
/// resolved. For one that was dropped, and then deleted before that, nobody can know any more.
pub(crate) fn answer_of_ended(request: &Request<OnTables>) -> Answer<OnTables> {
    match request {
        Request::Prepare(_) => Answer::Over,
        Request::Resolve(_, Outcome::Committed | Outcome::Aborted) => Answer::Resolved,
        Request::Decide(_) | Request::Recover(_) => Answer::Aborted,
    }
}
