//! Writes: what becomes of a document is computed here from what it was, and the partition compares.

use crate::indexes::IndexChanges;
use crate::route::{Place, reach};
use crate::shared::Shared;
use crate::tables::{Tables, damaged, decoded, failed, key_of};
use crate::work::{Reply, Work, WriteWork};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_document::{Document, EntryChanges, Value};
use tessera_reql::{Durability, Env, Error, ErrorKind, Lifetime, Result, TableInfo, Write, Written};
use tessera_store::Table;
use tessera_types::{ReadMode, RecordKey, RequestError, Space};

/// Documents that are written at once are so long together, but for the last one.
const BYTES_AT_ONCE: usize = 8 << 20;

/// How often a write is computed anew because others were faster. One of all those who try succeeds each time.
const WRITE_TRIES: usize = 1000;

impl Tables {
    /// Carries out writes, each one atomically; answers them in the order given.
    pub(crate) fn write_all(
        &self,
        env: &Env,
        info: &TableInfo,
        writes: Vec<Write>,
        durability: Durability,
    ) -> Result<Vec<Written>> {
        let mut table = self.open(info)?;
        let keys: Vec<Bytes> = writes.iter().map(|write| key_of(&write.key)).collect::<Result<_>>()?;
        let is_insert = |write: &Write| matches!(write.change, tessera_reql::Change::Insert { .. });
        // What is inserted is mostly not there; a comparison that fails tells what is.
        let mut there: Vec<Option<Bytes>> = match writes.iter().all(is_insert) {
            true => vec![None; writes.len()],
            false => self.read(&table, ReadMode::Single, keys.iter().cloned())?,
        };
        let mut is_known = vec![!writes.iter().all(is_insert); writes.len()];
        let mut written: Vec<Option<Written>> = writes.iter().map(|_| None).collect();
        let mut tries = WRITE_TRIES;
        while tries > 0 {
            let (mut work, mut claiming) = (Vec::new(), Vec::new());
            let mut under_way = BTreeMap::new();
            let (mut in_turn, mut waiting, mut bytes) = (BTreeSet::new(), Vec::new(), 0);
            let left = written.iter().filter(|written| written.is_none()).count();
            for (at, write) in writes.iter().enumerate() {
                if bytes >= BYTES_AT_ONCE {
                    break;
                }
                if written[at].is_some() {
                    continue;
                }
                // Of several writes of one document, each one is computed from what the one before it has made.
                if !in_turn.insert(&keys[at]) {
                    is_known[at] = false;
                    waiting.push(at);
                    continue;
                }
                let old = decoded(there[at].as_ref())?;
                let new = match write.apply(env, &info.primary_key, &old) {
                    Ok(new) => new,
                    Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                    // Only what was read counts: an assumption is looked at first.
                    Err(error) if is_known[at] => {
                        written[at] = Some(Written { old, new: Value::Null, error: Some(error) });
                        continue;
                    }
                    Err(_) => {
                        let found = self.read(&table, ReadMode::Single, std::iter::once(keys[at].clone()));
                        there[at] = found.map_err(|error| unless_written(&written, error))?.pop().flatten();
                        is_known[at] = true;
                        continue;
                    }
                };
                let new_bytes = encoded(&new);
                if is_known[at] && new_bytes == there[at] && write.lifetime.is_nothing(new_bytes.is_some()) {
                    written[at] = Some(Written { old, new, error: None });
                    continue;
                }
                bytes += new_bytes.as_ref().map_or(0, Bytes::len);
                let (old_bytes, key, lifetime) = (there[at].clone(), &keys[at], write.lifetime);
                let mut write = work_of(&self.0, &table, env, key, (&old, old_bytes), (&new, new_bytes), durability)?;
                write.work.lifetime = lifetime;
                match write.claims.is_empty() {
                    true => work.push((at, write.work)),
                    false => claiming.push((at, write)),
                }
                under_way.insert(at, (old, new));
            }
            let sent = self.send(&mut table, info, work, claiming, durability);
            let replies = sent.map_err(|error| unless_written(&written, error))?;
            let mut ended = Vec::new();
            for (at, reply) in replies {
                let Some((old, new)) = under_way.remove(&at) else { continue };
                match reply {
                    Reply::Written => {
                        let next = waiting.iter().find(|next| keys[**next] == keys[at]);
                        next.inspect(|next| there[**next] = encoded(&new));
                        written[at] = Some(Written { old, new, error: None });
                    }
                    Reply::Differs(found) => {
                        there[at] = found;
                        is_known[at] = true;
                    }
                    Reply::Refused(reason) => written[at] = Some(refused(old, &reason)),
                    Reply::Taken(taken) => {
                        let error = self.duplicate(info, &taken).map_err(|error| unless_written(&written, error))?;
                        let error = Some(error);
                        written[at] = Some(Written { old, new: Value::Null, error });
                    }
                    Reply::Ended(key) => ended.push(key),
                    Reply::List(list) => {
                        let partition = table.partition_of(&RecordKey::new(&keys[at], b""));
                        self.0.lists.learn(table.id(), partition, &list)?;
                    }
                    _ => return Err(damaged()),
                }
            }
            if !ended.is_empty() {
                self.remove_ended(&table, ended).map_err(|error| unless_written(&written, error))?;
            }
            match written.iter().filter(|written| written.is_none()).count() {
                0 => return Ok(written.into_iter().flatten().collect()),
                now if now < left => tries = WRITE_TRIES,
                _ => tries -= 1,
            }
            env.step()?;
        }
        let error = Error::failed("Cannot perform write: others change the document all the time.");
        Err(unless_written(&written, error))
    }

    /// Sends writes, each one to be carried out for itself; what `claiming` has change unique keys. Returns replies with the places of the writes;
    /// those without one are to be made again.
    fn send(
        &self,
        table: &mut Arc<Table>,
        info: &TableInfo,
        work: Vec<(usize, WriteWork)>,
        claiming: Vec<(usize, DocumentWrite)>,
        durability: Durability,
    ) -> Result<Vec<(usize, Reply)>> {
        if !claiming.is_empty() && !self.0.store.may_transact() {
            return Err(Error::failed("Cannot perform write: unique indexes need all nodes to be of this version."));
        }
        let (places, work): (Vec<_>, Vec<_>) =
            work.into_iter().map(|(at, write)| (at, (Place::Key(write.key.clone()), Work::Write(write)))).unzip();
        let sent = self.wait(reach(&self.0, table, ReadMode::Single, work)).map_err(|error| failed(&error))?;
        let mut replies: Vec<_> = places.into_iter().zip(sent).collect();
        if !claiming.is_empty() {
            // The parts of a transaction are not taken to the table that takes the place of one that was split.
            let claimed = self.open(info).and_then(|open| {
                *table = open;
                self.write_claiming(table, claiming, durability, &mut replies)
            });
            claimed.map_err(|error| match replies.iter().any(|(_, reply)| matches!(reply, Reply::Written)) {
                true => failed(&RequestError::Interrupted),
                false => error,
            })?;
        }
        Ok(replies)
    }
}

/// The error with which a batch ends. Where others of it are written it must not say that nothing was done.
fn unless_written(written: &[Option<Written>], error: Error) -> Error {
    let is_written = |written: &Written| written.error.is_none() && written.old != written.new;
    match written.iter().flatten().any(is_written) {
        true => failed(&RequestError::Interrupted),
        false => error,
    }
}

/// What a partition is asked for a document, and the unique keys that the document gives up and takes.
#[derive(Debug)]
pub(crate) struct DocumentWrite {
    pub(crate) work: WriteWork,
    pub(crate) claims: Vec<(Space, EntryChanges)>,
}

impl From<WriteWork> for DocumentWrite {
    fn from(work: WriteWork) -> Self {
        Self { work, claims: Vec::new() }
    }
}

/// What a partition is asked for a document to take the place of another one; each comes as a value and as bytes.
///
/// # Errors
/// If the functions of indexes were interrupted.
pub(crate) fn work_of(
    shared: &Shared,
    table: &Table,
    env: &Env,
    key: &Bytes,
    (old, old_bytes): (&Value, Option<Bytes>),
    (new, new_bytes): (&Value, Option<Bytes>),
    durability: Durability,
) -> Result<DocumentWrite> {
    let keeper = shared.lists.keeper(table.id(), table.partition_of(&RecordKey::new(key, b"")));
    let IndexChanges { entries, mut claims } = keeper.changes(env, old, new, key)?;
    if !claims.is_empty() {
        // The partition may keep an index for a while that the catalog has dropped: it hinders nobody any more.
        let indexes = table.indexes();
        claims.retain(|(space, _)| !indexes.is_dropped(*space));
    }
    let work = WriteWork {
        entries,
        key: key.clone(),
        old: old_bytes,
        new: new_bytes,
        is_soft: durability == Durability::Soft,
        is_hard: durability == Durability::Hard,
        lifetime: Lifetime::Kept,
        removes_ended: false,
    };
    Ok(DocumentWrite { work, claims })
}

/// What became of a write that the partition has refused.
pub(crate) fn refused(old: Value, reason: &str) -> Written {
    let error = Error::failed(format!("Cannot perform write: {reason}."));
    Written { old, new: Value::Null, error: Some(error) }
}

/// The bytes of a document; `null` is none.
pub(crate) fn encoded(value: &Value) -> Option<Bytes> {
    (!matches!(value, Value::Null)).then(|| Document::encode(value).into_bytes())
}
