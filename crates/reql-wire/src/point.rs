//! Queries about one document by its key, which most queries of many services are. They are carried out where the connection lives:
//! without a plan and without another thread. A document that is here is answered at once and without decoding it; a write, and a read
//! that a majority confirms, go to the document's partition, and the answer is made when they come back. Everything unusual goes the
//! way that all queries go, so that it ends in the same answers.

use crate::partition;
use crate::respond::{self, ATOM, Reply, Values};
use crate::route::{Place, reach};
use crate::shared::Shared;
use crate::tables::{decoded, failed, key_of, mode};
use crate::work::{self, Work, WriteWork};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_document::{Document, EncodedValue, Value};
use tessera_engine::from_caches;
use tessera_reql::{Change, Durability, Env, Error, Failure, Pacer, Query, Stage, Written};
use tessera_store::{Leader, Table};
use tessera_types::{Model, ReadMode, RecordKey};

/// A longer document is left to a thread for queries.
const MOST_BYTES: usize = 64 << 10;
/// How long the functions of indexes may take here; those that take longer are left to a thread for queries.
const BRIEF: Duration = Duration::from_millis(1);

/// Lets functions run for a moment.
struct Briefly(Instant);

impl Pacer for Briefly {
    fn goes_on(&self) -> bool {
        Instant::now() < self.0
    }
}

/// The answer to a query, if it is one for a document that is here.
pub(crate) fn answer(shared: &Arc<Shared>, query: &Query) -> Option<Reply> {
    let point = query.point()?;
    let table = table_of(shared, point.database, point.table)?;
    let key = key_of(&point.key).ok()?;
    let reads = mode(point.reads);
    if reads == ReadMode::Majority {
        return None;
    }
    let found = find(shared, &table, reads, &key)?;
    respond::document(found.as_deref().map(EncodedValue::trusted))
}

fn table_of(shared: &Shared, database: &str, name: &str) -> Option<Arc<Table>> {
    let table = shared.store.table_named(&format!("{database}.{name}"))?;
    (table.schema().model == Model::Document).then_some(table)
}

/// The document with a key, if this node answers for it and need not wait for the disk: that is left to a thread for queries.
fn find(shared: &Shared, table: &Table, reads: ReadMode, key: &[u8]) -> Option<Option<Bytes>> {
    let partition = table.partition_of(&RecordKey::new(key, b""));
    if table.reader_of(partition, reads) != Leader::Here {
        return None;
    }
    match from_caches(|| partition::get(&shared.store, table, partition, reads, key)).ok()? {
        work::Reply::Document(found) => Some(found),
        _ => None,
    }
}

/// What a partition is asked for a query about one document.
pub(crate) struct Asked {
    table: Arc<Table>,
    reads: ReadMode,
    key: Bytes,
    work: Work,
    /// The document before and after the write, if it is one.
    states: Option<(Value, Value)>,
}

impl Asked {
    /// What is to be asked for a query, if it is such a one.
    pub(crate) fn of(shared: &Arc<Shared>, query: &Query) -> Option<Self> {
        if let Some(point) = query.point() {
            let table = table_of(shared, point.database, point.table)?;
            let (key, reads) = (key_of(&point.key).ok()?, mode(point.reads));
            let work = Work::Get { key: key.clone() };
            return (reads == ReadMode::Majority).then_some(Self { table, reads, key, work, states: None });
        }
        let write = query.point_write()?;
        let table = table_of(shared, write.database, write.table)?;
        let primary_key = table.schema().primary_key();
        let (key, old) = match (&write.change, write.key) {
            (Change::Insert { document, .. }, None) => (document.get_field(primary_key)?, None),
            (_, Some(key)) => {
                let found = find(shared, &table, ReadMode::Single, &key_of(&key).ok()?)?;
                (key, found)
            }
            _ => return None,
        };
        if old.as_ref().is_some_and(|old| old.len() > MOST_BYTES) {
            return None;
        }
        let bytes = key_of(&key).ok()?;
        let env = Env::for_functions(Arc::new(Briefly(Instant::now() + BRIEF)), Value::Null);
        // What is inserted is mostly not there; the partition tells if it is.
        let before = decoded(old.as_ref()).ok()?;
        let after = write.change.apply(&env, primary_key, &key, &before).ok()?;
        let new = (!matches!(after, Value::Null)).then(|| Document::encode(&after).into_bytes());
        if new == old {
            return None;
        }
        let partition = table.partition_of(&RecordKey::new(&bytes, b""));
        let keeper = shared.lists.keeper(table.id(), partition);
        let work = WriteWork {
            entries: keeper.changes(&env, &before, &after, &bytes).ok()?,
            key: bytes.clone(),
            old,
            new,
            is_soft: write.durability == Durability::Soft,
            is_hard: write.durability == Durability::Hard,
        };
        let (key, work) = (bytes, Work::Write(work));
        Some(Self { table, reads: ReadMode::Single, key, work, states: Some((before, after)) })
    }

    /// Asks, and makes the answer. `None` if nothing was done, and the query is to go the way that all queries go.
    pub(crate) async fn answer(self, shared: &Arc<Shared>) -> Option<Reply> {
        let Self { table, reads, key, work, states } = self;
        let mut replies = match reach(shared, &table, reads, vec![(Place::Key(key), work)]).await {
            Ok(replies) => replies,
            Err(error) => return Some(respond::failure(&shared.explained(failure(&failed(&error))))),
        };
        let written = match (replies.pop()?, states) {
            (work::Reply::Document(found), None) => {
                return respond::document(found.as_deref().map(EncodedValue::trusted));
            }
            (work::Reply::Written, Some((old, new))) => Written { old, new, error: None },
            (work::Reply::Refused(reason), Some((old, _))) => {
                let error = Error::failed(format!("Cannot perform write: {reason}."));
                Written { old, new: Value::Null, error: Some(error) }
            }
            // The document is another one by now, or the partition's indexes are.
            _ => return None,
        };
        let text = tessera_reql::answer_of_one(written).map_err(|error| failure(&error)).and_then(|answer| {
            let mut values = Values::new();
            values.push(&answer)?;
            Ok(values.finish(ATOM, false))
        });
        Some(text.map_or_else(|failure| respond::failure(&failure), Reply::good))
    }
}

/// An error of the outermost term.
fn failure(error: &Error) -> Failure {
    Failure { stage: Stage::Run, kind: error.kind(), message: error.message().into(), backtrace: Vec::new() }
}
