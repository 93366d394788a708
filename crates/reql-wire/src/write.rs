//! Writes: what becomes of a document is computed here from what it was, and the partition compares.

use crate::route::{Place, reach};
use crate::shared::Shared;
use crate::tables::{Tables, damaged, decoded, failed, key_of};
use crate::work::{Reply, Work, WriteWork};
use bytes::Bytes;
use std::collections::BTreeSet;
use tessera_document::{Document, Value};
use tessera_reql::{Durability, Env, Error, ErrorKind, Result, TableInfo, Write, Written};
use tessera_store::Table;
use tessera_types::{ReadMode, RecordKey};

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
        let table = self.open(info)?;
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
            let mut work = Vec::new();
            let mut under_way = Vec::new();
            let (mut in_turn, mut waiting) = (BTreeSet::new(), Vec::new());
            let left = written.iter().filter(|written| written.is_none()).count();
            for (at, write) in writes.iter().enumerate() {
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
                let new = match write.change.apply(env, &info.primary_key, &write.key, &old) {
                    Ok(new) => new,
                    Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                    // Only what was read counts: an assumption is looked at first.
                    Err(error) if is_known[at] => {
                        written[at] = Some(Written { old, new: Value::Null, error: Some(error) });
                        continue;
                    }
                    Err(_) => {
                        there[at] =
                            self.read(&table, ReadMode::Single, std::iter::once(keys[at].clone()))?.pop().flatten();
                        is_known[at] = true;
                        under_way.push((at, None));
                        continue;
                    }
                };
                let new_bytes = encoded(&new);
                if is_known[at] && new_bytes == there[at] {
                    written[at] = Some(Written { old, new, error: None });
                    continue;
                }
                let (old_bytes, key) = (there[at].clone(), &keys[at]);
                let write = work_of(&self.0, &table, env, key, (&old, old_bytes), (&new, new_bytes), durability)?;
                work.push((Place::Key(keys[at].clone()), Work::Write(write)));
                under_way.push((at, Some((old, new))));
            }
            let sent = under_way.into_iter().filter_map(|(at, states)| Some((at, states?)));
            let replies = self.wait(reach(&self.0, &table, ReadMode::Single, work)).map_err(|error| failed(&error))?;
            for ((at, (old, new)), reply) in sent.zip(replies) {
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
                    Reply::List(list) => {
                        let partition = table.partition_of(&RecordKey::new(&keys[at], b""));
                        self.0.lists.learn(table.id(), partition, &list)?;
                    }
                    _ => return Err(damaged()),
                }
            }
            match written.iter().filter(|written| written.is_none()).count() {
                0 => return Ok(written.into_iter().flatten().collect()),
                now if now < left => tries = WRITE_TRIES,
                _ => tries -= 1,
            }
            env.step()?;
        }
        Err(Error::failed("Cannot perform write: others change the document all the time."))
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
) -> Result<WriteWork> {
    let keeper = shared.lists.keeper(table.id(), table.partition_of(&RecordKey::new(key, b"")));
    Ok(WriteWork {
        entries: keeper.changes(env, old, new, key)?,
        key: key.clone(),
        old: old_bytes,
        new: new_bytes,
        is_soft: durability == Durability::Soft,
        is_hard: durability == Durability::Hard,
    })
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
