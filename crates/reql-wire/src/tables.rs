//! The tables of documents of the cluster, for threads that may wait: which there are, and how what is asked of them gets to the nodes
//! that lead their partitions.

use crate::identity::{full_name, table_id};
use crate::memory::Held;
use crate::partition;
use crate::route::{Place, reach};
use crate::shared::Shared;
use crate::turn::Turn;
use crate::work::{Reply, Work};
use bytes::Bytes;
use std::sync::Arc;
use tessera_cluster::{CatalogError, IndexEntry};
use tessera_document::{Document, EncodedValue, Value};
use tessera_reql::{Error, ErrorKind, ReadMode as Reads, Result, TableInfo};
use tessera_store::{Leader, Table};
use tessera_types::{Model, Outcome, ReadMode, RequestError};

/// The tables of documents of a cluster, for a query with its turn, and with what its connection holds.
#[derive(Clone)]
pub(crate) struct Tables(pub(crate) Arc<Shared>, pub(crate) Arc<Turn>, pub(crate) Arc<Held>);

impl Tables {
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.1.wait(future)
    }

    /// The table of this full name, if there is one, and it is one of documents.
    pub(crate) fn found(&self, full: &str) -> Result<Option<Arc<Table>>> {
        match self.0.store.table_named(full) {
            Some(table) if table.schema().model != Model::Document => Err(Error::failed(format!(
                "Table `{full}` is a table of keys and values, which the Redis and Pegasus ports serve. ReQL works on tables \
                 of documents: make one with `tessera table create NAME --model document`, or with `table_create`."
            ))),
            found => Ok(found),
        }
    }

    pub(crate) fn open(&self, info: &TableInfo) -> Result<Arc<Table>> {
        let full = full_name(&info.database, &info.name);
        let missing = || Error::failed(format!("Table `{full}` does not exist."));
        self.found(&full)?.filter(|table| table_id(table.number()) == info.id).ok_or_else(missing)
    }

    /// The index of this name, also if another node has just made it.
    pub(crate) fn index(&self, table: &Arc<Table>, name: &str) -> Option<IndexEntry> {
        if let Some(index) = table.indexes().get(name) {
            return Some(index.clone());
        }
        let has_it = |table: &Arc<Table>| table.indexes().get(name).is_some();
        let number = table.number();
        let found = self.wait(self.0.store.find_table(|store| store.table_numbered(number).filter(has_it)));
        found.and_then(|table| table.indexes().get(name).cloned())
    }

    /// Has reads made where they are to be made.
    pub(crate) fn reach(&self, table: &Arc<Table>, reads: ReadMode, work: Vec<(Place, Work)>) -> Result<Vec<Reply>> {
        let is_here = |(place, work): &(Place, Work)| self.is_read_here(table, reads, place, work);
        let here: Option<Vec<Reply>> = match work.iter().all(is_here) {
            true => work.iter().map(|(place, work)| self.read_here(table, reads, place, work)).collect(),
            false => None,
        };
        let mut replies = match here {
            Some(replies) => replies,
            None => self.wait(reach(&self.0, table, reads, work)).map_err(|error| failed(&error))?,
        };
        for reply in &mut replies {
            match reply {
                Reply::Refused(reason) => {
                    return Err(Error::failed(format!("Cannot perform the operation: {reason}.")));
                }
                // Its rows share these bytes, and may wait for their client for long.
                Reply::Slice(slice) => slice.partial = self.2.keep_bytes(std::mem::take(&mut slice.partial)),
                _ => {}
            }
        }
        Ok(replies)
    }

    /// Whether a read can be made without leaving the thread: this node answers for the partition.
    fn is_read_here(&self, table: &Table, reads: ReadMode, place: &Place, work: &Work) -> bool {
        let partition = place.partition_in(table);
        let is_simple = match work {
            Work::Get { .. } => true,
            // A scan waits for what transactions have here.
            Work::Scan(_) => reads == ReadMode::Outdated || !table.has_locks(partition),
            _ => false,
        };
        reads != ReadMode::Majority && is_simple && table.reader_of(partition, reads) == Leader::Here
    }

    /// Makes a read that [can be made here](Self::is_read_here). What goes wrong is left to those who can try again.
    fn read_here(&self, table: &Table, reads: ReadMode, place: &Place, work: &Work) -> Option<Reply> {
        let partition = place.partition_in(table);
        match work {
            Work::Get { key } => partition::get(&self.0, table, partition, reads, key).ok(),
            Work::Scan(scan) => partition::scan(&self.0, table, partition, reads, scan).ok(),
            _ => None,
        }
    }

    /// The document with a primary key.
    pub(crate) fn document(&self, table: &Arc<Table>, key: &Value, reads: Reads) -> Result<Option<Bytes>> {
        let found = self.read(table, mode(reads), std::iter::once(key_of(key)?))?;
        Ok(found.into_iter().next().flatten())
    }

    /// The documents with these primary keys.
    pub(crate) fn read(
        &self,
        table: &Arc<Table>,
        reads: ReadMode,
        keys: impl Iterator<Item = Bytes>,
    ) -> Result<Vec<Option<Bytes>>> {
        let work = keys.map(|key| (Place::Key(key.clone()), Work::Get { key })).collect();
        let replies = self.reach(table, reads, work)?.into_iter();
        replies.map(|reply| if let Reply::Document(found) = reply { Ok(found) } else { Err(damaged()) }).collect()
    }

    /// Waits until this node knows what was changed of a table.
    pub(crate) fn known(&self, info: &TableInfo, is_known: impl Fn(&Table) -> bool) -> Result<()> {
        let number = self.open(info)?.number();
        let table = |store: &tessera_store::Store| store.table_numbered(number);
        self.wait(self.0.until(|store| table(store).is_none_or(|table| is_known(&table))));
        Ok(())
    }
}

pub(crate) fn failed(error: &RequestError) -> Error {
    let (kind, what) = match error.outcome() {
        Outcome::NotDone => (ErrorKind::OpFailed, "Cannot perform the operation"),
        Outcome::Unknown => (ErrorKind::OpIndeterminate, "The operation may or may not have been performed"),
    };
    Error::new(kind, format!("{what}: {error}."))
}

pub(crate) fn catalog_outcome(
    outcome: std::result::Result<std::result::Result<tessera_cluster::Changed, CatalogError>, RequestError>,
) -> Result<()> {
    match outcome {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::failed(format!("{error}."))),
        Err(error) => Err(failed(&error)),
    }
}

pub(crate) fn mode(reads: Reads) -> ReadMode {
    match reads {
        Reads::Single => ReadMode::Single,
        Reads::Majority => ReadMode::Majority,
        Reads::Outdated => ReadMode::Outdated,
    }
}

/// The bytes of a primary key, in the words of RethinkDB if it cannot be one.
pub(crate) fn key_of(value: &Value) -> Result<Bytes> {
    tessera_reql::primary_key(value)?;
    let mut key = Vec::new();
    tessera_document::primary_key(Document::encode(value).value(), &mut key)
        .map_err(|error| Error::logic(error.to_string()))?;
    Ok(key.into())
}

pub(crate) fn damaged() -> Error {
    Error::new(ErrorKind::Internal, "A stored document is damaged.")
}

pub(crate) fn decoded(document: Option<&Bytes>) -> Result<Value> {
    let Some(bytes) = document else { return Ok(Value::Null) };
    EncodedValue::trusted(bytes).to_value().map_err(|_| damaged())
}
