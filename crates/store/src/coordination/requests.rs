//! Requests to the partitions of a transaction, wherever these are led.
//!
//! Between nodes, integers little-endian: a [table](TableIdentity), `u8 durability | u32 count`, then so many times `u32 partition` and a request
//! in the form of [`crate::ledger`]. The durability is 0 for the table's, 1 for none, 2 for soft, 3 for hard. The reply to a part is an answer
//! in that form.

use super::{ANSWER_BYTES, Coordination};
use crate::ledger::{Asked, LedgerStep, OnTables, answer_if_sealed, decode_request, encode_answer, encode_request};
use crate::operation::{Operation, WriteOptions};
use crate::router::{Envelope, Outcomes, Part, PartOutcome, Route};
use crate::services::number;
use crate::store::Store;
use crate::table::{Table, TableIdentity};
use bytes::{Buf, BufMut, Bytes};
use std::sync::Arc;
use std::time::Duration;
use tessera_transaction::{Answer, Outcome, Request};
use tessera_types::{Acks, Durability, RequestError};

/// How long the catalog's leader is asked what has become of a table.
pub(super) const TO_LEARN: Duration = Duration::from_secs(1);

/// The way of requests to one table.
pub(super) struct ToPartitions {
    pub(super) coordination: Arc<Coordination>,
    /// The durability of the transaction in this table; `None` for the table's own.
    pub(super) durability: Option<Durability>,
}

impl Route for ToPartitions {
    type Work = Request<OnTables>;

    const SERVICE: u8 = number::TRANSACTION;

    const IN_ORDER: bool = false;

    fn request(&self, table: &Table, parts: &[&Part<Self::Work>]) -> Vec<u8> {
        let mut out = Vec::new();
        table.identity().encode(&mut out);
        out.put_u8(match self.durability {
            None => 0,
            Some(Durability::None) => 1,
            Some(Durability::Soft) => 2,
            Some(Durability::Hard) => 3,
        });
        out.put_u32_le(u32::try_from(parts.len()).expect("a table has fewer partitions"));
        for part in parts {
            out.put_u32_le(part.partition);
            encode_request(&mut out, &part.work);
        }
        out
    }

    fn carry_out(&self, table: &Table, parts: &[&Part<Self::Work>]) -> Outcomes {
        let requests = parts.iter().map(|part| (part.partition, part.work.clone()));
        carry_out_all(&self.coordination, table, self.durability, requests.collect())
    }

    fn without_leader(&self, table: &Table, part: &Part<Self::Work>) -> Option<PartOutcome> {
        if !table.is_splitting() {
            return None;
        }
        // Nobody is known to lead a partition that is sealed and led here.
        let answer = answer_if_sealed(table, part.partition, &part.work).ok().flatten()?;
        // Once another table has taken its place, the records may be removed while they are read.
        table.successor().is_none().then(|| PartOutcome::Done(encode_answer(&answer)))
    }

    fn note_forwarded(&self) {}
}

/// Carries out what another node has asked.
pub(crate) async fn carry_out(store: &Store, request: Bytes) -> Envelope {
    let coordination = store.coordination();
    let Some(mut asked) = decode(coordination, request.clone()) else { return Envelope::default() };
    let (table, _, requests) = &asked;
    // A seal may answer what is asked of somebody else's transaction. Neither this node nor the one that asks may have heard yet that the table was
    // recalled, where the transaction has begun since.
    let is_of_other = |request: &Request<_>| matches!(request, Request::Recover(_) | Request::Resolve(..));
    if requests.iter().any(|(_, request)| is_of_other(request)) && store.may_rest_on_truncation(table) {
        if !store.learns_from_leader(TO_LEARN).await {
            return Envelope::default();
        }
        let Some(asked_again) = decode(coordination, request) else { return Envelope::default() };
        asked = asked_again;
    }
    let (table, durability, requests) = asked;
    carry_out_all(coordination, &table, durability, requests).await
}

type Requests = Vec<(u32, Request<OnTables>)>;

/// `None` if the request cannot be read, or its table is not known here.
fn decode(coordination: &Coordination, mut from: Bytes) -> Option<(Arc<Table>, Option<Durability>, Requests)> {
    let table = coordination.parts.registry.identified(TableIdentity::decode(&mut from)?)?;
    let durability = match from.try_get_u8().ok()? {
        0 => None,
        1 => Some(Durability::None),
        2 => Some(Durability::Soft),
        3 => Some(Durability::Hard),
        _ => return None,
    };
    let count = from.try_get_u32_le().ok()?;
    let mut requests = Vec::new();
    for _ in 0..count {
        let partition = from.try_get_u32_le().ok().filter(|partition| *partition < table.schema.partitions)?;
        requests.push((partition, decode_request(&mut from)?));
    }
    Some((table, durability, requests))
}

fn carry_out_all(
    coordination: &Arc<Coordination>,
    table: &Table,
    durability: Option<Durability>,
    requests: Requests,
) -> Outcomes {
    // All are on their way before the first one is waited for.
    let answers: Vec<_> = requests
        .into_iter()
        .map(|(partition, request)| coordination.ask_here(table, durability, partition, Asked::Request(request)))
        .collect();
    Box::pin(async move {
        let (mut outcomes, mut bytes) = (Vec::with_capacity(answers.len()), 0);
        for answer in answers {
            outcomes.push(match answer.await {
                // The partition gives the same answer when it is asked again.
                Ok(_) if bytes >= ANSWER_BYTES => PartOutcome::NO_LEADER,
                Ok(answer) => {
                    let answer = encode_answer(&answer);
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
    /// Has a partition that this node leads carry out a step.
    ///
    /// Entries of transactions wait for a majority, whatever the table's setting of acks: a leader that loses an intent which it
    /// has answered would make half of a transaction take effect.
    pub(super) fn ask_here(
        &self,
        table: &Table,
        durability: Option<Durability>,
        partition: u32,
        asked: Asked,
    ) -> impl Future<Output = Result<Answer<OnTables>, RequestError>> + Send + use<> {
        let known = match &asked {
            Asked::Request(request) if table.is_splitting() => answer_if_sealed(table, partition, request).transpose(),
            _ => None,
        };
        let evaluator = match &asked {
            Asked::Request(Request::Prepare(prepare)) => self.evaluator(prepare.operation.service),
            Asked::Request(Request::Decide(decide)) => self.evaluator(decide.operation.service),
            Asked::Request(Request::Resolve(id, Outcome::Committed)) => {
                let service = table.partitions[partition as usize].ledger.service_of(*id);
                service.and_then(|service| self.evaluator(service))
            }
            Asked::Request(Request::Recover(_) | Request::Resolve(..)) | Asked::Forget(_) => None,
        };
        let sent = known.is_none().then(|| {
            let (step, answer) = LedgerStep::new(asked, evaluator);
            let step: Arc<dyn Operation> = Arc::new(step);
            let options = WriteOptions { durability, acks: Some(Acks::Majority) };
            // What a partition says of transactions must not come from a leader that has been replaced.
            self.parts.write(table, options, true, &step, [partition]);
            answer
        });
        async move {
            match (known, sent) {
                (Some(answer), _) => answer,
                (None, Some(answer)) => answer.await.unwrap_or(Err(RequestError::Interrupted)),
                (None, None) => Err(RequestError::NotReady),
            }
        }
    }
}
