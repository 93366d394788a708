//! Reads of several partitions at one instant, without locks and without the log.
//!
//! The protocol is that of [`tessera_transaction::ReadAttempt`]: all partitions are read, then each confirms that nothing has changed
//! since, and that no transaction holds what was read. Where writes come too fast for that, the read is made as a
//! [transaction](super::transact) that locks what it reads.
//!
//! Between nodes, integers little-endian: a [table](TableIdentity), `u8 step | u32 count`, then so many times `u32 partition`, `u32` how many keys,
//! for each of them `u32` length and bytes, and then of step 0, which reads, `u8 service`, `u32` length and bytes of an operation; of step 1,
//! which confirms, a stamp: `u64` node, `u64` its start, `u64` interruptions, `u64` version, and `u64` when the first of the records ends. The reply to a read is `u8` 0, a stamp
//! and the face's reply, or `u8` 1 and its refusal, or `u8` 2 if a transaction holds keys, or others write all the time; to a confirmation, `u8` 1 if it is confirmed, else 0.

use super::part::TransactionPart;
use super::tables::OfTable;
use super::transact::Transacted;
use super::{ANSWER_BYTES, Coordination};
use crate::ledger::{Evaluator, OnTables, PartitionName, Stamp, encoding};
use crate::router::{Envelope, Outcomes, Part, PartOutcome, READ_TRIES, Route};
use crate::services::number;
use crate::store::Store;
use crate::store_parts::StoreParts;
use crate::table::{Table, TableIdentity};
use crate::transaction::Transaction;
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_engine::from_caches;
use tessera_transaction::{ReadAttempt, ReadStep};
use tessera_types::{Durability, NodeId, ReadMode, RequestError, UnixMillis};

/// So many attempts fail since others write, before the read locks what it reads.
const ATTEMPTS: usize = 2;

/// How long the read waits for keys that transactions hold, before it locks too: one that gave way for ever would starve. An attempt looks for
/// leaders for as long.
const HASTE: Duration = Duration::from_millis(4);
/// Between two attempts that were not answered, or met held keys.
const PAUSE: Duration = Duration::from_millis(1);

/// What is answered where keys are held.
const HELD: u8 = 2;

/// What one partition is asked.
#[derive(Clone)]
struct Question {
    /// The hash keys that are read.
    keys: Vec<Bytes>,
    step: QuestionStep,
}

#[derive(Clone)]
enum QuestionStep {
    Read { service: u8, operation: Bytes },
    Confirm(Stamp),
}

struct ToReaders(Arc<Coordination>);

impl Route for ToReaders {
    type Work = Question;

    const SERVICE: u8 = number::INSTANT;

    const IN_ORDER: bool = false;

    fn request(&self, table: &Table, parts: &[&Part<Question>]) -> Vec<u8> {
        let mut out = Vec::new();
        table.identity().encode(&mut out);
        out.put_u8(u8::from(parts.iter().any(|part| matches!(part.work.step, QuestionStep::Confirm(_)))));
        out.put_u32_le(encoding::number(parts.len()));
        for part in parts {
            out.put_u32_le(part.partition);
            out.put_u32_le(encoding::number(part.work.keys.len()));
            part.work.keys.iter().for_each(|key| encoding::put_bytes(&mut out, key));
            match &part.work.step {
                QuestionStep::Read { service, operation } => {
                    out.put_u8(*service);
                    encoding::put_bytes(&mut out, operation);
                }
                QuestionStep::Confirm(stamp) => put_stamp(&mut out, *stamp),
            }
        }
        out
    }

    fn carry_out(&self, table: &Table, parts: &[&Part<Question>]) -> Outcomes {
        let questions = parts.iter().map(|part| (part.partition, part.work.clone())).collect();
        // The table of a route is open.
        match self.0.parts.registry.identified(table.identity()) {
            Some(table) => answer_all(self.0.clone(), table, questions),
            None => Box::pin(std::future::ready(Envelope::default())),
        }
    }

    fn note_forwarded(&self) {}
}

/// Answers what another node has asked.
pub(crate) fn answer_instant(coordination: &Arc<Coordination>, request: Bytes) -> Outcomes {
    match decode(coordination, request) {
        Some((table, questions)) => answer_all(coordination.clone(), table, questions),
        None => Box::pin(std::future::ready(Envelope::default())),
    }
}

type Questions = Vec<(u32, Question)>;

/// `None` if the request cannot be read, or its table is not known here.
fn decode(coordination: &Coordination, mut from: Bytes) -> Option<(Arc<Table>, Questions)> {
    let table = coordination.parts.registry.identified(TableIdentity::decode(&mut from)?)?;
    let confirms = from.try_get_u8().ok()? != 0;
    let count = from.try_get_u32_le().ok()?;
    let mut questions = Vec::new();
    for _ in 0..count {
        let partition = from.try_get_u32_le().ok().filter(|partition| *partition < table.schema.partitions)?;
        let keys = encoding::list(&mut from, encoding::bytes)?;
        let step = match confirms {
            true => QuestionStep::Confirm(stamp(&mut from)?),
            false => QuestionStep::Read { service: from.try_get_u8().ok()?, operation: encoding::bytes(&mut from)? },
        };
        questions.push((partition, Question { keys, step }));
    }
    Some((table, questions))
}

fn answer_all(coordination: Arc<Coordination>, table: Arc<Table>, questions: Questions) -> Outcomes {
    Box::pin(async move {
        let (mut outcomes, mut bytes) = (Vec::with_capacity(questions.len()), 0);
        for (partition, question) in questions {
            if bytes >= ANSWER_BYTES {
                outcomes.push(PartOutcome::NO_LEADER);
                continue;
            }
            let answer = match question.step {
                QuestionStep::Read { service, operation } => match coordination.evaluator(service) {
                    Some(evaluator) => coordination.read(&table, partition, evaluator, operation).await,
                    None => Err(RequestError::NotReady),
                },
                QuestionStep::Confirm(stamp) => {
                    let StoreParts { clock, identity, .. } = &*coordination.parts;
                    let is_of_this_start = stamp.start == identity.generation.number;
                    let confirmed = table.confirms(partition, &question.keys, stamp, clock.now());
                    let confirmed = confirmed.map(|is_confirmed| is_confirmed && is_of_this_start);
                    confirmed.map(|is_confirmed| Bytes::copy_from_slice(&[u8::from(is_confirmed)]))
                }
            };
            outcomes.push(match answer {
                Ok(answer) => {
                    bytes += answer.len();
                    PartOutcome::Done(answer)
                }
                Err(error) => PartOutcome::of(error),
            });
        }
        outcomes.into_iter().collect()
    })
}

impl Coordination {
    /// Reads a partition that this node leads.
    async fn read(
        &self,
        table: &Arc<Table>,
        partition: u32,
        evaluator: Arc<dyn Evaluator>,
        operation: Bytes,
    ) -> Result<Bytes, RequestError> {
        let (now, start) = (self.parts.clock.now(), self.parts.identity.generation.number);
        let read = {
            let (table, evaluator, operation) = (table.clone(), evaluator, operation);
            move || {
                table.read_with_stamp(partition, start, |transaction| evaluator.evaluate(&operation, transaction), now)
            }
        };
        match from_caches(&read) {
            Err(RequestError::WouldWait) => self.parts.disk_readers.read_from_disk(read).await.flatten(),
            read => read,
        }
    }
}

impl Table {
    /// Reads a partition at one instant, with the stamp of that.
    fn read_with_stamp(
        &self,
        partition: u32,
        start: u64,
        evaluate: impl Fn(&mut Transaction<'_>) -> Result<Bytes, Bytes>,
        now: UnixMillis,
    ) -> Result<Bytes, RequestError> {
        for _ in 0..READ_TRIES {
            let (interruptions, version) =
                (self.partitions[partition as usize].interruptions(), self.version(partition));
            let mut transaction = Transaction::read_only(self, partition, ReadMode::Single, now)?;
            let evaluated = evaluate(&mut transaction);
            if transaction.is_held() {
                break;
            }
            if transaction.would_wait() {
                return Err(RequestError::WouldWait);
            }
            transaction.check_lease()?;
            if let Some(version) = version.filter(|version| Some(*version) == self.version(partition)) {
                let mut answer = Vec::new();
                match evaluated {
                    Ok(reply) => {
                        answer.put_u8(0);
                        let (node, ends) = (self.node, transaction.first_expiry());
                        put_stamp(&mut answer, Stamp { node, start, interruptions, version, ends });
                        answer.put_slice(&reply);
                    }
                    Err(refusal) => {
                        answer.put_u8(1);
                        answer.put_slice(&refusal);
                    }
                }
                return Ok(answer.into());
            }
        }
        Ok(Bytes::from_static(&[HELD]))
    }

    /// Whether what was read of these keys of a partition, with this stamp, still holds, and no transaction is about to change
    /// it.
    fn confirms(&self, partition: u32, keys: &[Bytes], stamp: Stamp, now: UnixMillis) -> Result<bool, RequestError> {
        let Stamp { node, interruptions, version, ends, .. } = stamp;
        let readable = self.check_serving(partition, ReadMode::Single)?;
        // The locks come first: a transaction that holds nothing any more has changed the version before.
        let is_held = keys.iter().any(|key| readable.state.ledger.is_unreadable(key));
        let is_same = node == self.node
            && self.version(partition) == Some(version)
            && readable.state.interruptions() == interruptions;
        self.check_lease(partition, ReadMode::Single, readable)?;
        let has_ended = ends <= self.seen_at(partition, ReadMode::Single, now).get();
        Ok(is_same && !is_held && !has_ended)
    }
}

/// What became of one attempt.
enum Read {
    Done(BTreeMap<PartitionName, Bytes>),
    Refused(Bytes),
    /// Others wrote meanwhile.
    Changed,
    /// Transactions hold keys, or others write all the time.
    Held,
    /// Not all partitions have answered, for this reason.
    NotDone(RequestError),
    Split,
}

impl Store {
    /// Reads partitions of one or several tables, led wherever: all that is read was so at one instant between the call and its
    /// answer. The parts must only read. `service` is that of the face that understands their operations. What could not be read is tried
    /// again `until` then.
    pub async fn read_at_one_instant(&self, service: u8, parts: Vec<TransactionPart>, until: Instant) -> Transacted {
        let (began, mut attempts) = (Instant::now(), 0);
        // Where a disk is full, nothing can be locked, and reads go on.
        let cannot_lock = || {
            let is_refused = |part: &TransactionPart| self.disk_refusal(&part.table, part.partition).is_some();
            Instant::now() < until && parts.iter().any(is_refused)
        };
        while attempts < ATTEMPTS || cannot_lock() {
            match self.read_once(service, &parts, HASTE).await {
                Read::Done(replies) => return Transacted::Committed(replies),
                Read::Refused(refusal) => return Transacted::Refused(refusal),
                Read::Held if began.elapsed() < HASTE || cannot_lock() => self.another_leader(PAUSE).await,
                // A transaction waits for its turn.
                Read::Held => break,
                Read::Split => return Transacted::Split,
                Read::Changed if attempts < ATTEMPTS => attempts += 1,
                Read::Changed => self.another_leader(PAUSE).await,
                // Nothing is locked as long as somebody cannot be asked: others would wait for nothing.
                Read::NotDone(reason) if reason.is_final() => return Transacted::NotDone(reason),
                Read::NotDone(reason) => match self.await_leaders(&parts, until).await {
                    Err(transacted) => return transacted,
                    Ok(()) if Instant::now() >= until => {
                        return Transacted::NotDone(self.not_reached(&parts).unwrap_or(reason));
                    }
                    Ok(()) => self.another_leader(PAUSE).await,
                },
            }
        }
        // What is only locked need not survive anything.
        let least = |part: TransactionPart| {
            let durability = if part.table.schema.is_persistent() { Durability::Soft } else { Durability::None };
            TransactionPart { durability: Some(durability), ..part }
        };
        let tables: Vec<_> = parts.iter().map(|part| part.table.clone()).collect();
        match self.transact(service, parts.into_iter().map(least).collect(), until).await {
            // It has changed nothing.
            Transacted::Unknown if tables.iter().any(|table| table.successor().is_some()) => Transacted::Split,
            Transacted::Unknown => Transacted::NotDone(RequestError::NotReady),
            other => other,
        }
    }

    async fn read_once(&self, service: u8, asked: &[TransactionPart], patience: Duration) -> Read {
        let mut attempt = ReadAttempt::<OnTables>::new(asked.iter().map(TransactionPart::name));
        let question = |part: &TransactionPart, step| {
            let keys = part.locks.iter().map(|(key, _)| key.clone()).collect();
            (part.table.clone(), Part::repeatable(part.partition, Question { keys, step }))
        };
        let read =
            |part: &TransactionPart| question(part, QuestionStep::Read { service, operation: part.operation.clone() });
        let answers = match self.ask_readers(asked.iter().map(read), Instant::now() + patience).await {
            Ok(answers) => answers,
            Err(end) => return end,
        };
        let mut step = ReadStep::Wait;
        for (name, mut answer) in answers {
            match answer.try_get_u8() {
                Ok(0) => match stamp(&mut answer) {
                    Some(stamp) => step = attempt.receive(name, stamp, answer),
                    None => return Read::NotDone(RequestError::NotReady),
                },
                Ok(1) => return Read::Refused(answer),
                Ok(HELD) => return Read::Held,
                _ => return Read::NotDone(RequestError::NotReady),
            }
        }
        if let ReadStep::Confirm(stamps) = &step {
            let confirm = |(name, stamp): &(PartitionName, Stamp)| {
                let part = asked.iter().find(|part| part.name() == *name)?;
                Some(question(part, QuestionStep::Confirm(*stamp)))
            };
            let questions = stamps.iter().filter_map(confirm);
            let answers = match self.ask_readers(questions, Instant::now() + patience).await {
                Ok(answers) => answers,
                Err(end) => return end,
            };
            for (name, answer) in answers {
                step = attempt.confirm(name, answer[..] == [1]);
                if step == ReadStep::Changed {
                    return Read::Changed;
                }
            }
        }
        match step {
            ReadStep::Done(values) => Read::Done(values),
            ReadStep::Changed => Read::Changed,
            ReadStep::Wait | ReadStep::Confirm(_) => Read::NotDone(RequestError::NotReady),
        }
    }

    /// Asks partitions. The error is the end of the read, if not all have answered.
    async fn ask_readers(
        &self,
        questions: impl Iterator<Item = (Arc<Table>, Part<Question>)>,
        until: Instant,
    ) -> Result<Vec<(PartitionName, Bytes)>, Read> {
        let route = |_| ToReaders(self.coordination().clone());
        let mut answers = Vec::new();
        for OfTable { table, parts, is_split } in self.route_to_tables(OfTable::sort(questions), route, until).await {
            if is_split {
                return Err(Read::Split);
            }
            for part in parts {
                let name = PartitionName { table: table.id, partition: part.partition };
                match part.outcome.unwrap_or(PartOutcome::NO_LEADER) {
                    PartOutcome::Done(answer) => answers.push((name, answer)),
                    PartOutcome::NotDone(reason) => return Err(Read::NotDone(reason)),
                    PartOutcome::Unknown => return Err(Read::NotDone(RequestError::NotReady)),
                }
            }
        }
        Ok(answers)
    }
}

fn put_stamp(out: &mut Vec<u8>, Stamp { node, start, interruptions, version, ends }: Stamp) {
    [u64::from(node.0), start, interruptions, version, ends].into_iter().for_each(|number| out.put_u64_le(number));
}

fn stamp(from: &mut Bytes) -> Option<Stamp> {
    Some(Stamp {
        node: NodeId(u32::try_from(from.try_get_u64_le().ok()?).ok()?),
        start: from.try_get_u64_le().ok()?,
        interruptions: from.try_get_u64_le().ok()?,
        version: from.try_get_u64_le().ok()?,
        ends: from.try_get_u64_le().ok()?,
    })
}
