//! Parts of transactions over partitions, as the partitions carry them out.
//!
//! An operation of a part is what a [plan](crate::plan) has put there: writes, of which those that write what is there already only compare;
//! claims to unique keys; or reads. A refusal is, for each document that hinders the transaction, its `u32` place, and the reply
//! to its write after the reply's `u32` length. See docs/decisions/0056.

use crate::claims;
use crate::document_write::Compared;
use crate::partition::list_of;
use crate::shared::Shared;
use crate::tables::damaged;
use crate::work::{Reply, Work, put, take};
use bytes::{Buf as _, BufMut as _, Bytes};
use std::collections::BTreeMap;
use tessera_reql::Result;
use tessera_store::{Evaluator, PartitionName, Transaction};
use tessera_types::{RequestError, TableId};

/// What a read of `count` documents and holders of keys has found, in their order.
pub(crate) fn documents_of(count: usize, replies: BTreeMap<PartitionName, Bytes>) -> Option<Vec<Option<Bytes>>> {
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

/// What a refusal says, with the places of the documents that it is about.
pub(crate) fn hindrances(mut refusal: Bytes) -> Result<Vec<(usize, Reply)>> {
    let mut found = Vec::new();
    while !refusal.is_empty() {
        let at = refusal.try_get_u32_le().map_err(|_| damaged())? as usize;
        found.push((at, take(&mut refusal).and_then(Reply::decode).ok_or_else(damaged)?));
    }
    Ok(found)
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

/// The work of an intent.
fn intended(operation: &Bytes) -> core::result::Result<Vec<(u32, Work)>, RequestError> {
    decode(operation.clone()).ok_or_else(|| RequestError::Corruption("the intent of documents".into()))
}

/// Writes what was found to be without hindrance.
fn write(work: &Work, transaction: &mut Transaction<'_>) -> core::result::Result<(), RequestError> {
    match work {
        Work::Write(write) if !write.only_compares() => {
            let (list, ended) = (list_of(transaction)?, write.ended(transaction)?);
            write.write(transaction, list, ended).map(drop)
        }
        Work::Claim(claim) => claim.write(transaction),
        _ => Ok(()),
    }
}

impl Evaluator for Shared {
    fn evaluate(&self, operation: &Bytes, transaction: &mut Transaction<'_>) -> core::result::Result<Bytes, Bytes> {
        let unreadable = || refusal(0, &Reply::Refused("a part of the transaction cannot be read".into()));
        let work = decode(operation.clone()).ok_or_else(unreadable)?;
        let refused = |at: u32, error: RequestError| refusal(at, &Reply::Refused(error.to_string()));
        let first = work.first().map_or(0, |(at, _)| *at);
        if transaction.may_write() {
            check_size(operation, work.len(), transaction).map_err(|error| refused(first, error))?;
        }
        let (mut replies, mut hindrances) = (Vec::new(), Vec::new());
        for (at, work) in &work {
            let hindrance = match work {
                Work::Get { .. } | Work::Holder { .. } => {
                    let reply = get(work, transaction).map_err(|error| refused(*at, error))?;
                    if let Work::Get { .. } = work {
                        self.meter.note_read(transaction.table().id(), 1);
                    }
                    put_reply(&mut replies, *at, &reply);
                    Ok(None)
                }
                Work::Write(write) => {
                    let compared = list_of(transaction).and_then(|list| write.compare(transaction, &list));
                    compared.map(|compared| match compared {
                        Compared::Same(_) => None,
                        Compared::Hindered(hindrance) => Some(hindrance),
                    })
                }
                Work::Claim(claim) => claim.hindrance(transaction),
                _ => return Err(unreadable()),
            };
            if let Some(hindrance) = hindrance.map_err(|error| refused(*at, error))? {
                put_reply(&mut hindrances, *at, &hindrance);
            }
        }
        if !hindrances.is_empty() {
            return Err(hindrances.into());
        }
        // A partition keeps the replies of a transaction in its log until that is decided.
        let (actual, allowed) = (replies.len(), transaction.table().limits().write_bytes);
        if transaction.may_write() && actual > allowed {
            let (what, limit) = ("answer of one partition to a read at one instant".into(), "write_bytes".into());
            return Err(refused(first, RequestError::TooLarge { what, limit, actual, allowed }));
        }
        for (at, work) in &work {
            write(work, transaction).map_err(|error| refused(*at, error))?;
        }
        Ok(replies.into())
    }

    fn defers(&self) -> bool {
        true
    }

    fn carry_out(
        &self,
        operation: &Bytes,
        transaction: &mut Transaction<'_>,
    ) -> core::result::Result<(), RequestError> {
        for (_, work) in intended(operation)? {
            match work {
                Work::Write(write) if !write.only_compares() => {
                    let list = list_of(transaction)?;
                    write.write_promised(transaction, list)?;
                }
                Work::Claim(claim) => claim.write_promised(transaction)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn has_taken_effect(&self, table: TableId, partition: u32, operation: &Bytes) {
        for (_, work) in intended(operation).into_iter().flatten() {
            if let Work::Write(write) = work
                && !write.only_compares()
            {
                self.meter.note_written(table);
                self.waiters.wake(table, partition, &write.key, write.change_bytes());
            }
        }
    }
}

fn get(work: &Work, transaction: &Transaction<'_>) -> core::result::Result<Reply, RequestError> {
    match work {
        Work::Get { key } => transaction.get_in(tessera_types::Space::DOCUMENTS, key),
        Work::Holder { space, key } => claims::holder(transaction, *space, key),
        _ => Err(RequestError::NotReady),
    }
    .map(Reply::Document)
}

/// Whether a partition may log a part of this size, and evaluate it in one go.
fn check_size(
    operation: &Bytes,
    documents: usize,
    transaction: &Transaction<'_>,
) -> core::result::Result<(), RequestError> {
    transaction.check_records(documents)?;
    let (actual, allowed) = (operation.len(), transaction.table().limits().write_bytes);
    if actual > allowed {
        let (what, limit) = ("part of an atomic query in one partition".into(), "write_bytes".into());
        return Err(RequestError::TooLarge { what, limit, actual, allowed });
    }
    transaction.check_spare(actual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indexes::NewEntries;
    use crate::work::WriteWork;

    #[test]
    fn operations_and_refusals_travel() {
        let key = Bytes::from_static(b"key");
        let compared = WriteWork::comparison(key.clone(), Some(Bytes::from_static(b"old")));
        let written =
            WriteWork { new: None, entries: NewEntries { stamp: 7, changes: Vec::new() }, ..compared.clone() };
        assert!(compared.only_compares() && !written.only_compares());
        let mut operation = Vec::new();
        let work = [(3, Work::Write(compared)), (5, Work::Write(written)), (6, Work::Get { key })];
        for (at, work) in &work {
            operation.put_u32_le(*at);
            work.encode(&mut operation);
        }
        let operation = Bytes::from(operation);
        assert_eq!(decode(operation.clone()), Some(work.to_vec()));
        assert_eq!(decode(operation.slice(..operation.len() - 1)), None);
        let refused = [refusal(3, &Reply::Differs(None)), refusal(5, &Reply::Written)].concat();
        assert_eq!(hindrances(refused.clone().into()).unwrap(), [(3, Reply::Differs(None)), (5, Reply::Written)]);
        assert!(hindrances(Bytes::copy_from_slice(&refused[..refused.len() - 1])).is_err());
        let replies = BTreeMap::from([
            (PartitionName { table: TableId(1), partition: 0 }, refusal(1, &Reply::Document(None))),
            (PartitionName { table: TableId(1), partition: 1 }, refusal(0, &Reply::Document(Some(operation.clone())))),
        ]);
        assert_eq!(documents_of(2, replies.clone()), Some(vec![Some(operation), None]));
        assert_eq!(documents_of(1, replies), None);
    }
}
