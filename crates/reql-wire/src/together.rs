//! Documents of any partitions and tables that are written together or not at all, as parts of one transaction of the store; and
//! documents that are read at one instant.
//!
//! An operation of a part is work, each one after its `u32` place in the list of all documents: writes, of which those that write what is
//! there already only compare; or reads. A refusal is, for each document that hinders the transaction, its `u32` place, and the reply
//! to its write after the reply's `u32` length. See docs/decisions/0056.

use crate::partition::list_of;
use crate::route::SERVICE;
use crate::shared::Shared;
use crate::tables::{Tables, damaged, decoded, failed, key_of};
use crate::work::{Reply, Work, WriteWork, put, take};
use crate::write::{encoded, work_of};
use bytes::{Buf as _, BufMut as _, Bytes};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_document::Value;
use tessera_reql::{Durability, Env, Error, Replacement, Result, TableInfo, Together};
use tessera_store::{Access, Evaluator, PATIENCE, PartitionName, Table, Transacted, Transaction, TransactionPart};
use tessera_types::{RecordKey, RequestError, TableId};

/// How often a transaction is made anew because partitions have got other indexes, or tables were split.
const TRIES: usize = 100;

/// What is asked of one partition.
struct PlannedPart {
    table: Arc<Table>,
    keys: Vec<Bytes>,
    operation: Vec<u8>,
}

/// The parts of a transaction, with that of the first document at first.
#[derive(Default)]
struct Plan {
    places: BTreeMap<PartitionName, usize>,
    parts: Vec<PlannedPart>,
}

impl Plan {
    fn add(&mut self, table: &Arc<Table>, at: usize, key: Bytes, work: &Work) {
        let name = PartitionName { table: table.id(), partition: partition_of(table, &key) };
        let place = *self.places.entry(name).or_insert_with(|| {
            self.parts.push(PlannedPart { table: table.clone(), keys: Vec::new(), operation: Vec::new() });
            self.parts.len() - 1
        });
        let part = &mut self.parts[place];
        part.keys.push(key);
        part.operation.put_u32_le(number(at));
        work.encode(&mut part.operation);
    }

    fn parts(self, durability: Durability) -> Vec<TransactionPart> {
        let part = |PlannedPart { table, keys, operation }: PlannedPart| TransactionPart {
            partition: partition_of(&table, &keys[0]),
            durability: match durability {
                _ if !table.schema().is_persistent() => None,
                Durability::Default => None,
                Durability::Soft => Some(tessera_types::Durability::Soft),
                Durability::Hard => Some(tessera_types::Durability::Hard),
            },
            table,
            locks: keys.into_iter().map(|key| (key, Access::Exclusive)).collect(),
            operation: operation.into(),
        };
        self.parts.into_iter().map(part).collect()
    }
}

fn partition_of(table: &Table, key: &[u8]) -> u32 {
    table.partition_of(&RecordKey::new(key, b""))
}

fn number(at: usize) -> u32 {
    u32::try_from(at).expect("a query has fewer documents")
}

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
        if documents.iter().all(|document| document.old == document.new) {
            return self.compare_together(documents);
        }
        for _ in 0..TRIES {
            let plan = self.plan(env, documents, durability)?;
            match self.wait(self.0.store.transact(SERVICE, plan.parts(durability), PATIENCE)) {
                Transacted::Committed(_) => return Ok(Together::Done),
                Transacted::Refused(refusal) => {
                    let changed = self.changed(documents, refusal)?;
                    if !changed.is_empty() {
                        return Ok(Together::Changed(changed));
                    }
                }
                Transacted::NotDone(reason) => return Err(failed(&reason)),
                Transacted::Unknown => return Err(failed(&RequestError::Interrupted)),
                Transacted::Split => {}
            }
            env.check()?;
        }
        Err(failed(&RequestError::Contended))
    }

    /// Whether documents are what they must be, all at one instant.
    fn compare_together(&self, documents: &[Replacement]) -> Result<Together> {
        let found = self.read_together(documents.iter().map(|document| (&document.table, &document.key)))?;
        let mut changed = Vec::new();
        for (at, (document, found)) in documents.iter().zip(found).enumerate() {
            if found != encoded(&document.old) {
                changed.push((at, decoded(found.as_ref())?));
            }
        }
        Ok(if changed.is_empty() { Together::Done } else { Together::Changed(changed) })
    }

    fn plan(&self, env: &Env, documents: &[Replacement], durability: Durability) -> Result<Plan> {
        let (mut plan, mut tables) = (Plan::default(), BTreeMap::new());
        for (at, Replacement { table: info, key, old, new }) in documents.iter().enumerate() {
            let table = match tables.get(&info.id) {
                Some(table) => table,
                None => &*tables.entry(info.id.clone()).or_insert(self.open(info)?),
            };
            let key = key_of(key)?;
            let (old_bytes, new_bytes) = (encoded(old), encoded(new));
            let write = match old_bytes == new_bytes {
                true => WriteWork::comparison(key.clone(), old_bytes),
                false => work_of(&self.0, table, env, &key, (old, old_bytes), (new, new_bytes), durability)?,
            };
            plan.add(table, at, key, &Work::Write(write));
        }
        Ok(plan)
    }

    /// What a refusal says that documents are; nothing if it says that partitions have other indexes, which this node then knows.
    fn changed(&self, documents: &[Replacement], mut refusal: Bytes) -> Result<Vec<(usize, Value)>> {
        let mut changed = Vec::new();
        while !refusal.is_empty() {
            let at = refusal.try_get_u32_le().map_err(|_| damaged())? as usize;
            match take(&mut refusal).and_then(Reply::decode) {
                Some(Reply::Differs(found)) => changed.push((at, decoded(found.as_ref())?)),
                Some(Reply::List(list)) => {
                    let document = documents.get(at).ok_or_else(damaged)?;
                    let table = self.open(&document.table)?;
                    self.0.lists.learn(table.id(), partition_of(&table, &key_of(&document.key)?), &list)?;
                }
                Some(Reply::Refused(reason)) => {
                    return Err(Error::failed(format!("Cannot perform the atomic query: {reason}.")));
                }
                _ => return Err(damaged()),
            }
        }
        Ok(changed)
    }

    /// Documents as they are at one instant, in the order of their tables and keys here.
    pub(crate) fn read_together<'a>(
        &self,
        keys: impl Iterator<Item = (&'a TableInfo, &'a Value)> + Clone,
    ) -> Result<Vec<Option<Bytes>>> {
        for _ in 0..TRIES {
            let (mut plan, mut count) = (Plan::default(), 0);
            for (at, (info, key)) in keys.clone().enumerate() {
                let key = key_of(key)?;
                plan.add(&self.open(info)?, at, key.clone(), &Work::Get { key });
                count = at + 1;
            }
            let parts = plan.parts(Durability::Soft);
            match self.wait(self.0.store.read_at_one_instant(SERVICE, parts, PATIENCE)) {
                Transacted::Committed(replies) => return documents_of(count, replies).ok_or_else(damaged),
                Transacted::Refused(refusal) => return self.changed(&[], refusal).and(Err(damaged())),
                Transacted::NotDone(reason) => return Err(failed(&reason)),
                Transacted::Unknown => return Err(failed(&RequestError::NotReady)),
                Transacted::Split => {}
            }
        }
        Err(failed(&RequestError::Contended))
    }
}

fn documents_of(count: usize, replies: BTreeMap<PartitionName, Bytes>) -> Option<Vec<Option<Bytes>>> {
    let mut documents = vec![None; count];
    for mut reply in replies.into_values() {
        while !reply.is_empty() {
            let at = reply.try_get_u32_le().ok()? as usize;
            let Reply::Document(document) = Reply::decode(take(&mut reply)?)? else { return None };
            *documents.get_mut(at)? = document;
        }
    }
    Some(documents)
}

/// Work with its places in the list of all documents; `None` if the bytes are none.
fn decode(mut operation: Bytes) -> Option<Vec<(u32, Work)>> {
    let mut work = Vec::new();
    while !operation.is_empty() {
        work.push((operation.try_get_u32_le().ok()?, Work::decode(&mut operation)?));
    }
    Some(work)
}

fn put_reply(out: &mut Vec<u8>, at: u32, reply: &Reply) {
    out.put_u32_le(at);
    put(out, &reply.encode());
}

fn refusal(at: u32, reply: &Reply) -> Bytes {
    let mut out = Vec::new();
    put_reply(&mut out, at, reply);
    out.into()
}

/// The writes of an operation that change something.
fn writes(operation: &Bytes) -> Result<impl Iterator<Item = WriteWork>, RequestError> {
    let work = decode(operation.clone()).ok_or_else(|| RequestError::Corruption("the intent of documents".into()))?;
    Ok(work.into_iter().filter_map(|(_, work)| match work {
        Work::Write(write) if !write.only_compares() => Some(write),
        _ => None,
    }))
}

impl Evaluator for Shared {
    fn evaluate(&self, operation: &Bytes, transaction: &mut Transaction<'_>) -> Result<Bytes, Bytes> {
        let unreadable = || refusal(0, &Reply::Refused("a part of the transaction cannot be read".into()));
        let work = decode(operation.clone()).ok_or_else(unreadable)?;
        if transaction.may_write() {
            check_size(operation, work.len(), transaction)
                .map_err(|error| refusal(0, &Reply::Refused(error.to_string())))?;
        }
        let (mut replies, mut hindrances) = (Vec::new(), Vec::new());
        for (at, work) in &work {
            let failed = |error: RequestError| refusal(*at, &Reply::Refused(error.to_string()));
            match work {
                Work::Get { .. } => {
                    let reply = get(work, transaction).map_err(failed)?;
                    self.meter.note_read(transaction.table().id(), 1);
                    put_reply(&mut replies, *at, &reply);
                }
                Work::Write(write) => {
                    let hindrance = match write.only_compares() {
                        true => write.difference(transaction),
                        false => list_of(transaction).and_then(|list| write.hindrance(transaction, &list)),
                    };
                    if let Some(hindrance) = hindrance.map_err(failed)? {
                        put_reply(&mut hindrances, *at, &hindrance);
                    }
                }
                _ => return Err(unreadable()),
            }
        }
        if !hindrances.is_empty() {
            return Err(hindrances.into());
        }
        // A partition keeps the replies of a transaction in its log until that is decided.
        let (actual, allowed) = (replies.len(), transaction.table().limits().write_bytes);
        if transaction.may_write() && actual > allowed {
            let (what, limit) = ("answer of one partition to a read at one instant", "write_bytes");
            let error = RequestError::TooLarge { what, limit, actual, allowed };
            return Err(refusal(0, &Reply::Refused(error.to_string())));
        }
        for (at, work) in &work {
            if let Work::Write(write) = work
                && !write.only_compares()
            {
                let written = list_of(transaction).and_then(|list| write.write(transaction, list));
                written.map_err(|error| refusal(*at, &Reply::Refused(error.to_string())))?;
            }
        }
        Ok(replies.into())
    }

    fn defers(&self) -> bool {
        true
    }

    fn carry_out(&self, operation: &Bytes, transaction: &mut Transaction<'_>) -> Result<(), RequestError> {
        for write in writes(operation)? {
            let list = list_of(transaction)?;
            write.write_promised(transaction, list)?;
        }
        Ok(())
    }

    fn has_taken_effect(&self, table: TableId, partition: u32, operation: &Bytes) {
        for write in writes(operation).into_iter().flatten() {
            self.meter.note_written(table);
            self.waiters.wake(table, partition, &write.key);
        }
    }
}

fn get(work: &Work, transaction: &Transaction<'_>) -> Result<Reply, RequestError> {
    match work {
        Work::Get { key } => transaction.get_in(tessera_types::Space::DOCUMENTS, key).map(Reply::Document),
        _ => Err(RequestError::NotReady),
    }
}

/// Whether a partition may log a part of this size, and evaluate it in one go.
fn check_size(operation: &Bytes, documents: usize, transaction: &Transaction<'_>) -> Result<(), RequestError> {
    transaction.check_records(documents)?;
    let (actual, allowed) = (operation.len(), transaction.table().limits().write_bytes);
    if actual > allowed {
        let (what, limit) = ("part of an atomic query in one partition", "write_bytes");
        return Err(RequestError::TooLarge { what, limit, actual, allowed });
    }
    transaction.check_spare(actual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indexes::NewEntries;

    #[test]
    fn operations_and_refusals_travel() {
        let key = Bytes::from_static(b"key");
        let compared = WriteWork::comparison(key.clone(), Some(Bytes::from_static(b"old")));
        let written =
            WriteWork { new: None, entries: NewEntries { stamp: 7, changes: Vec::new() }, ..compared.clone() };
        assert!(compared.only_compares() && !written.only_compares());
        let mut operation = Vec::new();
        let work = [(3, Work::Write(compared)), (5, Work::Write(written.clone())), (6, Work::Get { key })];
        for (at, work) in &work {
            operation.put_u32_le(*at);
            work.encode(&mut operation);
        }
        let operation = Bytes::from(operation);
        assert_eq!(decode(operation.clone()), Some(work.to_vec()));
        assert_eq!(decode(operation.slice(..operation.len() - 1)), None);
        assert_eq!(writes(&operation).unwrap().collect::<Vec<_>>(), [written]);
        let replies = BTreeMap::from([
            (PartitionName { table: TableId(1), partition: 0 }, refusal(1, &Reply::Document(None))),
            (PartitionName { table: TableId(1), partition: 1 }, refusal(0, &Reply::Document(Some(operation.clone())))),
        ]);
        assert_eq!(documents_of(2, replies.clone()), Some(vec![Some(operation), None]));
        assert_eq!(documents_of(1, replies), None);
    }
}
