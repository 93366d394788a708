//! Queries about one document by its key, which most queries of many services are. They are carried out where the connection lives:
//! without a plan and without another thread. A document that is here is answered at once and without decoding it; a write, and a read
//! that a majority confirms, go to the document's partition, and the answer is made when they come back. Everything unusual goes the
//! way that all queries go, so that it ends in the same answers.

use crate::logins::Asker;
use crate::partition;
use crate::respond::{self, ATOM, Reply, Values};
use crate::route::{Place, reach};
use crate::shared::Shared;
use crate::tables::{decoded, failed, key_of, mode};
use crate::tally::{note_lookup, note_query};
use crate::until::Until;
use crate::work::{self, Work, WriteWork};
use crate::write::{encoded, refused, work_of};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_document::{EncodedValue, Value};
use tessera_engine::from_caches;
use tessera_reql::{Change, Durability, Env, Error, Failure, Query, Requester as _, Stage, Written};
use tessera_store::{Leader, Table};
use tessera_types::{Model, ReadMode, RecordKey, Right};

/// A longer document is left to a thread for queries.
const MOST_BYTES: usize = 64 << 10;
/// How often a write is computed anew here because others were faster.
const WRITE_TRIES: usize = 20;
/// How long the functions of indexes may take here; those that take longer are left to a thread for queries.
const BRIEF: Duration = Duration::from_millis(1);

/// The answer to a query, if it is one for a document that is here. It is counted then.
pub(crate) fn answer(shared: &Arc<Shared>, asker: &Asker, query: &Query, received: Instant) -> Option<Reply> {
    let point = query.point()?;
    let table = table_of(shared, asker, Right::Read, point.database, point.table)?;
    let key = key_of(&point.key).ok()?;
    let reads = mode(point.reads);
    if reads == ReadMode::Majority {
        return None;
    }
    let found = find(shared, &table, reads, &key)?;
    let reply = respond::document(found.as_deref().map(EncodedValue::trusted))?;
    note_lookup(shared, found.is_some());
    note_query(shared, Some(&table), received);
    Some(reply)
}

/// A table in which whoever asks has a right.
fn table_of(shared: &Shared, asker: &Asker, right: Right, database: &str, name: &str) -> Option<Arc<Table>> {
    let full = format!("{database}.{name}");
    let rights = asker.rights();
    let is_given =
        if right == Right::Write { rights.may_write_in_table(&full) } else { rights.may_in_table(right, &full) };
    let table = shared.store.table_named(&full).filter(|_| is_given)?;
    (table.schema().model == Model::Document).then_some(table)
}

/// The document with a key, if this node answers for it and need not wait for the disk: that is left to a thread for queries.
fn find(shared: &Shared, table: &Table, reads: ReadMode, key: &[u8]) -> Option<Option<Bytes>> {
    let partition = table.partition_of(&RecordKey::new(key, b""));
    if table.reader_of(partition, reads) != Leader::Here {
        return None;
    }
    match from_caches(|| partition::get(shared, table, partition, reads, key)).ok()? {
        work::Reply::Document(found) => Some(found),
        _ => None,
    }
}

/// What a partition is asked for a query about one document.
pub(crate) struct Asked {
    table: Arc<Table>,
    key: Bytes,
    job: Job,
}

enum Job {
    Read(ReadMode),
    Write(Box<Writing>),
}

struct Writing {
    /// The primary key.
    value: Value,
    change: Change,
    durability: Durability,
    /// What the write makes of the document, if that was read here.
    computed: Option<Computed>,
}

/// A write whose outcome is known if nobody else is faster.
struct Computed {
    work: WriteWork,
    before: Value,
    after: Value,
}

impl Asked {
    /// What is to be asked for a query, if it is such a one, and could not be [answered](answer) at once.
    pub(crate) fn of(shared: &Arc<Shared>, asker: &Asker, query: &Query) -> Option<Self> {
        if let Some(point) = query.point() {
            let table = table_of(shared, asker, Right::Read, point.database, point.table)?;
            let (key, reads) = (key_of(&point.key).ok()?, mode(point.reads));
            let partition = table.partition_of(&RecordKey::new(&key, b""));
            // What is here and could not be answered at once waits for the disk.
            let waits_for_disk = reads != ReadMode::Majority && table.reader_of(partition, reads) == Leader::Here;
            return (!waits_for_disk).then_some(Self { table, key, job: Job::Read(reads) });
        }
        let write = query.point_write()?;
        let (change, durability) = (write.change, write.durability);
        let table = table_of(shared, asker, Right::Write, write.database, write.table)?;
        if table.settings().write_hook.is_some() {
            return None;
        }
        let value = match (&change, write.key) {
            (Change::Insert { document, .. }, None) => document.get_field(table.schema().primary_key())?,
            (_, Some(key)) => key,
            _ => return None,
        };
        let key = key_of(&value).ok()?;
        let partition = table.partition_of(&RecordKey::new(&key, b""));
        let old = match change {
            // What is inserted is mostly not there; the partition tells if it is.
            Change::Insert { .. } => Some(None),
            _ if table.reader_of(partition, ReadMode::Single) == Leader::Here => {
                Some(find(shared, &table, ReadMode::Single, &key)?)
            }
            _ => None,
        };
        let computed = match old {
            Some(old) => Some(Computed::of(shared, &table, (&change, durability), &value, &key, old)?),
            None => None,
        };
        let job = Job::Write(Box::new(Writing { value, change, durability, computed }));
        Some(Self { table, key, job })
    }

    /// Asks, and makes the answer. `None` if nothing was done, and the query is to go the way that all queries go.
    pub(crate) async fn answer(self, shared: &Arc<Shared>) -> Option<Reply> {
        let Self { table, key, job } = self;
        let ask = async |reads, work| {
            let replies = reach(shared, &table, reads, vec![(Place::Key(key.clone()), work)]).await;
            replies.map_err(|error| respond::failure(&shared.explained(failure(&failed(&error)))))
        };
        let read = async |reads| ask(reads, Work::Get { key: key.clone() }).await;
        let Writing { value, change, durability, computed } = match job {
            Job::Write(writing) => *writing,
            Job::Read(reads) => {
                return match read(reads).await.map(|mut replies| replies.pop()) {
                    Ok(Some(work::Reply::Document(found))) => {
                        note_lookup(shared, found.is_some());
                        respond::document(found.as_deref().map(EncodedValue::trusted))
                    }
                    Ok(_) => None,
                    Err(refusal) => Some(refusal),
                };
            }
        };
        let compute = |old| Computed::of(shared, &table, (&change, durability), &value, &key, old);
        let mut computed = match computed {
            Some(computed) => computed,
            None => match read(ReadMode::Single).await.map(|mut replies| replies.pop()) {
                Ok(Some(work::Reply::Document(old))) => compute(old)?,
                Ok(_) => return None,
                Err(refusal) => return Some(refusal),
            },
        };
        let mut tries = WRITE_TRIES;
        let written = loop {
            let Computed { work, before: old, after: new } = computed;
            match ask(ReadMode::Single, Work::Write(work)).await.map(|mut replies| replies.pop()) {
                Ok(Some(work::Reply::Written)) => break Written { old, new, error: None },
                Ok(Some(work::Reply::Refused(reason))) => break refused(old, &reason),
                // Somebody else was faster.
                Ok(Some(work::Reply::Differs(found))) if tries > 0 => {
                    tries -= 1;
                    computed = compute(found)?;
                }
                // The partition's indexes are others by now.
                Ok(_) => return None,
                Err(refusal) => return Some(refusal),
            }
        };
        let text = tessera_reql::answer_of_one(written).map_err(|error| failure(&error)).and_then(|answer| {
            let mut values = Values::new();
            values.push(&answer)?;
            Ok(values.finish(ATOM, None))
        });
        Some(text.map_or_else(|failure| respond::failure(&failure), Reply::good))
    }
}

impl Computed {
    /// What a write makes of a document. `None` if there is anything unusual about it, or nothing to write.
    fn of(
        shared: &Shared,
        table: &Table,
        (change, durability): (&Change, Durability),
        value: &Value,
        key: &Bytes,
        old: Option<Bytes>,
    ) -> Option<Self> {
        if old.as_ref().is_some_and(|old| old.len() > MOST_BYTES) {
            return None;
        }
        let env = Env::for_functions(Arc::new(Until::after(BRIEF)), Value::Null);
        let before = decoded(old.as_ref()).ok()?;
        let after = change.apply(&env, table.schema().primary_key(), value, &before).ok()?;
        let new = encoded(&after);
        if new == old {
            return None;
        }
        let write = work_of(shared, table, &env, key, (&before, old), (&after, new), durability).ok()?;
        // What changes unique keys is a transaction.
        write.claims.is_empty().then_some(Self { work: write.work, before, after })
    }
}

/// An error of the outermost term.
fn failure(error: &Error) -> Failure {
    Failure { stage: Stage::Run, kind: error.kind(), message: error.message().into(), backtrace: Vec::new() }
}
