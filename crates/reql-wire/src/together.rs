//! Documents of any partitions and tables that are written together or not at all, as parts of one transaction of the store; and
//! documents that are read at one instant. See docs/decisions/0056.

use crate::plan::{Plan, TakenTwice, partition_of};
use crate::tables::{Tables, damaged, decoded, failed, key_of};
use crate::transact::Carried;
use crate::work::{Reply, Taken, Work, WriteWork};
use crate::write::{DocumentWrite, encoded, work_of};
use bytes::Bytes;
use std::collections::BTreeMap;
use tessera_document::Value;
use tessera_reql::{Durability, Env, Error, Replacement, Result, TableInfo, Together};
use tessera_types::RequestError;

/// How often a transaction is made anew because partitions have got other indexes, or tables were split.
const TRIES: usize = 100;

/// A key of a unique index that the document at a place cannot have.
struct TakenKey {
    at: usize,
    taken: Taken,
    /// Whether the holder is another document of the query, which takes the key too.
    is_of_query: bool,
}

/// What documents are by now, with their places.
type Changed = Vec<(usize, Value)>;

impl Tables {
    /// Writes documents, all at one instant, or none.
    pub(crate) fn replace_together(
        &self,
        env: &Env,
        documents: &[Replacement],
        durability: Durability,
    ) -> Result<Together> {
        if !self.0.store.may_transact() {
            return Err(Error::failed("Cannot perform write: atomic queries need all nodes to be of this version."));
        }
        if documents.iter().all(Replacement::only_looks) {
            return self.compare_together(documents);
        }
        for _ in 0..TRIES {
            let (plan, complaint) = self.plan(env, documents, durability)?;
            let complaint = match complaint {
                Some(complaint) => Some(complaint),
                None => match self.wait(self.0.carry_out(plan, durability)).map_err(|error| failed(&error))? {
                    Carried::Done => return Ok(Together::Done),
                    Carried::Hindered(hindrances) => {
                        let (changed, complaint) = self.changed(documents, hindrances)?;
                        if !changed.is_empty() {
                            return Ok(Together::Changed(changed));
                        }
                        complaint
                    }
                    Carried::Split => None,
                },
            };
            if let Some(complaint) = complaint
                && let Some(changed) = self.complain(documents, &complaint)?
            {
                return Ok(changed);
            }
            env.check()?;
        }
        Err(failed(&RequestError::Contended))
    }

    /// Whether documents are what they must be, all at one instant.
    fn compare_together(&self, documents: &[Replacement]) -> Result<Together> {
        let (changed, _) = self.compare(documents, None)?;
        Ok(if changed.is_empty() { Together::Done } else { Together::Changed(changed) })
    }

    /// The documents that are others by now, with what they are; and the holder of a key at the same instant.
    fn compare(&self, documents: &[Replacement], holder_of: Option<&TakenKey>) -> Result<(Changed, Option<Bytes>)> {
        let keys = documents.iter().map(|document| (&document.table, &document.key));
        let holder_of = holder_of.and_then(|of| Some((&documents.get(of.at)?.table, &of.taken)));
        let mut found = self.read_together(keys, holder_of)?;
        let holder = if holder_of.is_some() { found.pop().flatten() } else { None };
        let mut changed = Vec::new();
        for (at, (document, found)) in documents.iter().zip(found).enumerate() {
            if found != encoded(&document.old) {
                changed.push((at, decoded(found.as_ref())?));
            }
        }
        Ok((changed, holder))
    }

    /// A document could not have a key: that counts if all documents were what the query takes them for when another one had it, which
    /// does not give it up.
    ///
    /// # Errors
    /// That it is so. `None` if the transaction is to be tried again.
    fn complain(&self, documents: &[Replacement], complaint: &TakenKey) -> Result<Option<Together>> {
        let TakenKey { at, taken, is_of_query } = complaint;
        let info = &documents.get(*at).ok_or_else(damaged)?.table;
        // A document that has ended gives its keys up when it is removed.
        if !is_of_query && self.remove_ended(&self.open(info)?, vec![taken.holder.clone()])? {
            return Ok(None);
        }
        let (changed, holder) = self.compare(documents, Some(complaint))?;
        if !changed.is_empty() {
            return Ok(Some(Together::Changed(changed)));
        }
        if !is_of_query && holder.as_ref() != Some(&taken.holder) {
            return Ok(None);
        }
        let error = self.duplicate(info, taken)?;
        Err(Error::failed(format!("Nothing was written, since the query is atomic: {}", error.message())))
    }

    /// What is to be done; and two documents that cannot both be written, if there are any.
    fn plan(&self, env: &Env, documents: &[Replacement], durability: Durability) -> Result<(Plan, Option<TakenKey>)> {
        let (mut plan, mut tables) = (Plan::default(), BTreeMap::new());
        for (at, document) in documents.iter().enumerate() {
            let Replacement { table: info, key, old, new, lifetime } = document;
            let table = match tables.get(&info.id) {
                Some(table) => table,
                None => &*tables.entry(info.id.clone()).or_insert(self.open(info)?),
            };
            let key = key_of(key)?;
            let (old_bytes, new_bytes) = (encoded(old), encoded(new));
            let DocumentWrite { mut work, claims } =
                match old_bytes == new_bytes && lifetime.is_nothing(new_bytes.is_some()) {
                    true => WriteWork::comparison(key.clone(), old_bytes).into(),
                    false => work_of(&self.0, table, env, &key, (old, old_bytes), (new, new_bytes), durability)?,
                };
            if work.new.is_some() {
                work.lifetime = *lifetime;
            }
            plan.add_document(table, at, &key, &Work::Write(work));
            if let Err(TakenTwice { space, key, first }) = plan.add_claims(table, at, &key, &claims) {
                let taken = Taken { space, key, holder: first };
                return Ok((plan, Some(TakenKey { at, taken, is_of_query: true })));
            }
        }
        Ok((plan, None))
    }

    /// What documents are by now, and a key that one of them cannot have, as hindrances say. There is nothing if they say that partitions
    /// have other indexes, which this node then knows.
    fn changed(
        &self,
        documents: &[Replacement],
        hindrances: Vec<(usize, Reply)>,
    ) -> Result<(Changed, Option<TakenKey>)> {
        let (mut changed, mut complaint) = (Vec::new(), None);
        for (at, hindrance) in hindrances {
            match hindrance {
                Reply::Differs(found) => changed.push((at, decoded(found.as_ref())?)),
                Reply::List(list) => {
                    let document = documents.get(at).ok_or_else(damaged)?;
                    let table = self.open(&document.table)?;
                    self.0.lists.learn(table.id(), partition_of(&table, &key_of(&document.key)?), &list)?;
                }
                Reply::Taken(taken) => complaint = Some(TakenKey { at, taken, is_of_query: false }),
                Reply::Ended(key) => {
                    let document = documents.get(at).ok_or_else(damaged)?;
                    self.remove_ended(&self.open(&document.table)?, vec![key])?;
                }
                Reply::Refused(reason) => {
                    return Err(Error::failed(format!("Cannot perform the atomic query: {reason}.")));
                }
                _ => return Err(damaged()),
            }
        }
        Ok((changed, complaint))
    }

    /// Documents as they are at one instant, in the order of their tables and keys here, and behind them the holder of a key.
    fn read_together<'a>(
        &self,
        keys: impl Iterator<Item = (&'a TableInfo, &'a Value)> + Clone,
        holder_of: Option<(&TableInfo, &Taken)>,
    ) -> Result<Vec<Option<Bytes>>> {
        for _ in 0..TRIES {
            let (mut plan, mut count) = (Plan::default(), 0);
            for (info, key) in keys.clone() {
                let key = key_of(key)?;
                plan.add_document(&self.open(info)?, count, &key, &Work::Get { key: key.clone() });
                count += 1;
            }
            if let Some((info, taken)) = holder_of {
                plan.add_holder(&self.open(info)?, count, taken.space, &taken.key);
                count += 1;
            }
            if let Some(found) = self.wait(self.0.read_at_one_instant(plan, count)).map_err(|error| failed(&error))? {
                return Ok(found);
            }
        }
        Err(failed(&RequestError::Contended))
    }
}
