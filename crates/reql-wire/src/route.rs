//! Work for partitions, and the nodes that lead them: the store's [router](tessera_store::Route) takes it there. A request to
//! another node is its [table](TableIdentity), then its parts: for each the `u32` number of the partition,
//! a byte for who may answer a read, and the work.
//!
//! A table that takes the place of one that was split has the same number and another id. Partitions are counted anew there, so
//! work for a partition of the old table must not be done in the new one: the document would be looked for, or written, where
//! nobody finds it.

use crate::evaluation;
use crate::feeds;
use crate::indexes::progress;
use crate::partition::{self, Writes};
use crate::shared::Shared;
use crate::work::{EvaluateWork, Reply, Work};
use bytes::{Buf as _, BufMut as _, Bytes};
use std::sync::Arc;
use std::time::Instant;
use tessera_store::{
    Envelope, Leader, Operation, Outcomes, PATIENCE, Part, PartOutcome, Route, Table, TableIdentity, WriteOptions,
};
use tessera_types::{Durability, Outcome, ReadMode, RecordKey, RequestError};

/// The number of the service by which nodes hand each other what clients of this face ask. Nodes of other versions know it.
pub(crate) const SERVICE: u8 = 13;

/// Most parts of a request between nodes.
const MAX_PARTS: usize = 1 << 20;

/// Work for a partition, and who may answer it.
type Asked = (u32, ReadMode, Work);

struct Documents<'a>(&'a Arc<Shared>);

impl Route for Documents<'_> {
    type Work = Work;

    const SERVICE: u8 = SERVICE;

    // No two parts of a request write the same document.
    const IN_ORDER: bool = false;

    fn request(&self, table: &Table, parts: &[&Part<Work>]) -> Vec<u8> {
        let mut out = Vec::new();
        table.identity().encode(&mut out);
        for part in parts {
            out.put_u32_le(part.partition);
            out.put_u8(reads_code(part.reads));
            part.work.encode(&mut out);
        }
        out
    }

    fn carry_out(&self, table: &Table, parts: &[&Part<Work>]) -> Outcomes {
        let (shared, table) = (self.0.clone(), table.identity());
        let parts = parts.iter().map(|part| (part.partition, part.reads, part.work.clone())).collect();
        Box::pin(async move { carry_out(&shared, table, parts).await.into_iter().collect() })
    }

    fn note_forwarded(&self) {}
}

fn reads_code(reads: ReadMode) -> u8 {
    match reads {
        ReadMode::Single => 0,
        ReadMode::Majority => 1,
        ReadMode::Outdated => 2,
    }
}

fn reads_of(code: u8) -> Option<ReadMode> {
    [ReadMode::Single, ReadMode::Majority, ReadMode::Outdated].get(usize::from(code)).copied()
}

/// Carries out what another node asks for.
pub(crate) async fn serve(shared: Arc<Shared>, mut request: Bytes) -> Envelope {
    let mut read = || -> Option<(TableIdentity, Vec<Asked>)> {
        let table = TableIdentity::decode(&mut request)?;
        let mut parts = Vec::new();
        while !request.is_empty() && parts.len() < MAX_PARTS {
            let (partition, reads) = (request.try_get_u32_le().ok()?, reads_of(request.try_get_u8().ok()?)?);
            parts.push((partition, reads, Work::decode(&mut request)?));
        }
        Some((table, parts))
    };
    match read() {
        Some((table, parts)) => carry_out(&shared, table, parts).await.into_iter().collect(),
        None => Envelope::default(),
    }
}

/// Parts in their order: writes that stand together go to the log together. Nothing is done for a table that is not here, or
/// not any more because it was split: the router follows the split.
async fn carry_out(shared: &Arc<Shared>, table: TableIdentity, parts: Vec<Asked>) -> Vec<PartOutcome> {
    let not_done = |count| vec![PartOutcome::NO_LEADER; count];
    let Some(table) = shared.store.table_identified(table) else { return not_done(parts.len()) };
    if parts.iter().any(|(partition, ..)| *partition >= table.schema().partitions) {
        return not_done(parts.len());
    }
    let mut outcomes = Vec::with_capacity(parts.len());
    let mut parts = parts.into_iter().peekable();
    while let Some((partition, reads, work)) = parts.next() {
        if table.reader_of(partition, reads) != Leader::Here {
            outcomes.push(PartOutcome::NO_LEADER);
            continue;
        }
        if reads != ReadMode::Outdated && work.is_scan() && table.has_locks(partition) {
            // Whoever looks at many documents does not look for locks.
            if let Err(error) = shared.store.await_intents(&table, partition, Instant::now() + PATIENCE).await {
                outcomes.push(PartOutcome::of(error));
                continue;
            }
        }
        match work {
            Work::Evaluate(evaluate) => {
                // Those that stand together are evaluated beside each other.
                let mut slices =
                    vec![shared.runtime.spawn(slice(shared.clone(), table.clone(), partition, reads, evaluate))];
                let is_next = |part: &Asked| {
                    let is_free = part.1 == ReadMode::Outdated || !table.has_locks(part.0);
                    matches!(part.2, Work::Evaluate(_)) && is_free && table.reader_of(part.0, part.1) == Leader::Here
                };
                while let Some((partition, reads, Work::Evaluate(evaluate))) = parts.next_if(is_next) {
                    slices.push(shared.runtime.spawn(slice(shared.clone(), table.clone(), partition, reads, evaluate)));
                }
                for slice in slices {
                    outcomes.push(outcome(slice.await.unwrap_or(Err(RequestError::NotReady))));
                }
            }
            Work::Changes(changes) => {
                // Those that stand together are answered as soon as there is something in one of them.
                let mut asked = vec![(partition, changes)];
                let is_next = |part: &Asked| {
                    matches!(part.2, Work::Changes(_)) && table.reader_of(part.0, part.1) == Leader::Here
                };
                while let Some((partition, _, Work::Changes(changes))) = parts.next_if(is_next) {
                    asked.push((partition, changes));
                }
                outcomes.extend(feeds::poll(shared, &table, asked).await.into_iter().map(outcome));
            }
            Work::BeginChanges => outcomes.push(outcome(feeds::begin(&shared.store, &table, partition).await)),
            Work::StampedScan(scan) => {
                let (of, table) = (shared.clone(), table.clone());
                let page = move || partition::stamped_scan(&of, &table, partition, &scan);
                let page = shared.read(page).await;
                outcomes.push(outcome(page.unwrap_or(Err(RequestError::NotReady))));
            }
            Work::Sync => outcomes.push(outcome(partition::sync(&shared.store, &table, partition).await)),
            work if reads == ReadMode::Majority && work.is_read() => {
                outcomes.push(outcome(partition::read_confirmed(shared, &table, partition, work).await));
            }
            Work::Get { key } => {
                let (of, in_table, wanted) = (shared.clone(), table.clone(), key.clone());
                let read = move || partition::get(&of, &in_table, partition, reads, &wanted);
                let mut found = shared.store.disk_readers().read(read).await;
                if matches!(found, Err(RequestError::NotReady)) && table.has_lease(partition) {
                    // A transaction may hold the document, for which the partition's loop waits; or a write that is on its way may let it
                    // live on, which the loop knows.
                    found = partition::read_in_loop(shared, &table, partition, Work::Get { key }).await;
                }
                outcomes.push(outcome(found));
            }
            Work::Stored { key } => {
                let (store, table) = (shared.store.clone(), table.clone());
                let read = move || partition::stored(&store, &table, partition, &key);
                outcomes.push(outcome(shared.store.disk_readers().read(read).await));
            }
            Work::List => {
                let (store, table) = (shared.store.clone(), table.clone());
                let read = move || partition::list(&store, &table, partition);
                outcomes.push(outcome(shared.store.disk_readers().read(read).await));
            }
            Work::Progress { space } => {
                let (store, table) = (shared.store.clone(), table.clone());
                let told = shared.read(move || progress(&store, &table, partition, space)).await;
                outcomes.push(outcome(told.unwrap_or(Err(RequestError::NotReady))));
            }
            Work::Scan(scan) => {
                let (of, table) = (shared.clone(), table.clone());
                let page = move || partition::scan(&of, &table, partition, reads, &scan);
                let page = shared.read(page).await;
                outcomes.push(outcome(page.unwrap_or(Err(RequestError::NotReady))));
            }
            Work::Holder { .. } | Work::Claim(_) => outcomes.push(PartOutcome::NO_LEADER),
            Work::Write(write) => {
                let durability = match () {
                    () if !table.schema().is_persistent() => None,
                    () if write.is_soft => Some(Durability::Soft),
                    () if write.is_hard => Some(Durability::Hard),
                    () => None,
                };
                let (mut partitions, mut writes) = (vec![partition], vec![write]);
                while let Some((partition, _, Work::Write(write))) =
                    parts.next_if(|(.., work)| matches!(work, Work::Write(_)))
                {
                    partitions.push(partition);
                    writes.push(write);
                }
                let writes = Arc::new(Writes::new(shared, table.id(), partitions.clone(), writes));
                let operation: Arc<dyn Operation> = writes.clone();
                shared.store.write(&table, WriteOptions { durability, acks: None }, &operation, partitions);
                outcomes.extend(writes.done().await.into_iter().map(outcome));
            }
        }
    }
    outcomes
}

/// A slice of an evaluation, when it is its turn.
async fn slice(
    shared: Arc<Shared>,
    table: Arc<Table>,
    partition: u32,
    reads: ReadMode,
    evaluate: EvaluateWork,
) -> Result<Reply, RequestError> {
    let mut page = None;
    if reads == ReadMode::Majority {
        let first = Work::Scan(evaluation::first_page(&evaluate));
        page = Some(partition::read_confirmed(&shared, &table, partition, first).await?);
    }
    let _turn = shared.evaluators.acquire().await.map_err(|_| RequestError::ShuttingDown)?;
    let of = shared.clone();
    let evaluated = shared.runtime.spawn_blocking(move || match page {
        Some(page) => evaluation::evaluate_page(&of, &evaluate, &page),
        None => evaluation::evaluate(&of, &table, partition, reads, &evaluate),
    });
    evaluated.await.unwrap_or(Err(RequestError::NotReady))
}

fn outcome(reply: Result<Reply, RequestError>) -> PartOutcome {
    match reply {
        Ok(reply) => PartOutcome::Done(reply.encode()),
        Err(error @ (RequestError::NotReady | RequestError::ShuttingDown | RequestError::NoSuchTable(_))) => {
            PartOutcome::NotDone(error)
        }
        Err(error) if error.outcome() == Outcome::Unknown => PartOutcome::Unknown,
        Err(error) => PartOutcome::Done(Reply::Refused(error.to_string()).encode()),
    }
}

/// Where work goes.
pub(crate) enum Place {
    Key(Bytes),
    Partition(u32),
}

impl Place {
    pub(crate) fn partition_in(&self, table: &Table) -> u32 {
        match self {
            Self::Key(key) => table.partition_of(&RecordKey::new(key, b"")),
            Self::Partition(partition) => *partition,
        }
    }
}

/// Has work done wherever it is to be done, also while the table is split.
pub(crate) async fn reach(
    shared: &Arc<Shared>,
    table: &Arc<Table>,
    reads: ReadMode,
    work: Vec<(Place, Work)>,
) -> Result<Vec<Reply>, RequestError> {
    let (mut table, until) = (table.clone(), Instant::now() + PATIENCE);
    let mut places = Vec::with_capacity(work.len());
    let mut parts = Vec::with_capacity(work.len());
    for (place, work) in work {
        let (partition, is_repeatable) = (place.partition_in(&table), work.is_read());
        parts.push(Part { partition, reads, is_repeatable, work, outcome: None });
        places.push(place);
    }
    while let Some(successor) = shared.store.route(&table, &Documents(shared), &mut parts, until).await {
        table = successor;
        for (part, place) in parts.iter_mut().zip(&places).filter(|(part, _)| part.outcome.is_none()) {
            if matches!(place, Place::Partition(_)) {
                // The scan began in partitions that are no more.
                return Err(RequestError::NotReady);
            }
            part.partition = place.partition_in(&table);
        }
    }
    let replies = parts.into_iter().map(|part| {
        let bytes = part.outcome.unwrap_or(PartOutcome::NO_LEADER).reply()?;
        Reply::decode(bytes).ok_or(RequestError::Interrupted)
    });
    all_or_the_worst(replies.collect())
}

/// What is not known of one document is what is to be said of all: that nothing was done would not be true.
fn all_or_the_worst(replies: Vec<Result<Reply, RequestError>>) -> Result<Vec<Reply>, RequestError> {
    let failures = || replies.iter().filter_map(|reply| reply.as_ref().err());
    let was_one_done = replies.iter().any(|reply| matches!(reply, Ok(Reply::Written)));
    let is_unknown = failures().any(|error| error.outcome() == Outcome::Unknown);
    if is_unknown || was_one_done && failures().next().is_some() {
        return Err(RequestError::Interrupted);
    }
    replies.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_which_something_may_be_done_is_not_said_to_be_undone() {
        let (done, not_done, unknown) =
            (Ok(Reply::Written), Err(RequestError::NotReady), Err(RequestError::Interrupted));
        let all = |replies: &[&Result<Reply, RequestError>]| {
            all_or_the_worst(replies.iter().map(|reply| (*reply).clone()).collect())
        };
        assert_eq!(all(&[&not_done, &unknown]), Err(RequestError::Interrupted));
        assert_eq!(all(&[&not_done, &done]), Err(RequestError::Interrupted));
        assert_eq!(all(&[&not_done, &not_done]), Err(RequestError::NotReady));
        assert_eq!(all(&[&done, &done]), Ok(vec![Reply::Written, Reply::Written]));
    }
}
