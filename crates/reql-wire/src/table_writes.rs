//! The writes of a query to a table: they go to the nodes that lead the documents' partitions.

use crate::route::{Place, reach};
use crate::tables::{Tables, failed, key_of};
use crate::work::{Reply, Taken, Work, WriteWork};
use crate::write::{DocumentWrite, work_of};
use crate::write_batch::{Documents, WriteBatch};
use bytes::Bytes;
use std::sync::Arc;
use tessera_document::Value;
use tessera_reql::{Durability, Env, Error, Result, TableInfo, Write, Written};
use tessera_store::Table;
use tessera_types::{ReadMode, RecordKey, RequestError};

impl Tables {
    /// Carries out writes, each one atomically; answers them in the order given.
    pub(crate) fn write_all(
        &self,
        env: &Env,
        info: &TableInfo,
        writes: Vec<Write>,
        durability: Durability,
    ) -> Result<Vec<Written>> {
        let keys: Vec<Bytes> = writes.iter().map(|write| key_of(&write.key)).collect::<Result<_>>()?;
        let mut documents = DocumentsOf { tables: self, env, info, table: self.open(info)?, durability };
        WriteBatch::new(env, &info.primary_key, writes, keys).carry_out(&mut documents)
    }
}

/// The documents of a table, for a query that writes.
struct DocumentsOf<'a> {
    tables: &'a Tables,
    env: &'a Env,
    info: &'a TableInfo,
    table: Arc<Table>,
    durability: Durability,
}

impl Documents for DocumentsOf<'_> {
    fn read(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>> {
        self.tables.read(&self.table, ReadMode::Single, keys.into_iter())
    }

    fn work(&self, key: &Bytes, old: (&Value, Option<Bytes>), new: (&Value, Option<Bytes>)) -> Result<DocumentWrite> {
        work_of(&self.tables.0, &self.table, self.env, key, old, new, self.durability)
    }

    fn send(
        &mut self,
        work: Vec<(usize, WriteWork)>,
        claiming: Vec<(usize, DocumentWrite)>,
    ) -> Result<Vec<(usize, Reply)>> {
        let shared = &self.tables.0;
        if !claiming.is_empty() && !shared.store.may_transact() {
            return Err(Error::failed("Cannot perform write: unique indexes need all nodes to be of this version."));
        }
        let (places, work): (Vec<_>, Vec<_>) =
            work.into_iter().map(|(at, write)| (at, (Place::Key(write.key.clone()), Work::Write(write)))).unzip();
        let sent =
            self.tables.wait(reach(shared, &self.table, ReadMode::Single, work)).map_err(|error| failed(&error))?;
        let mut replies: Vec<_> = places.into_iter().zip(sent).collect();
        if !claiming.is_empty() {
            // The parts of a transaction are not taken to the table that takes the place of one that was split.
            let claimed = self.tables.open(self.info).and_then(|open| {
                self.table = open;
                self.tables.write_claiming(&self.table, claiming, self.durability, &mut replies)
            });
            claimed.map_err(|error| match replies.iter().any(|(_, reply)| matches!(reply, Reply::Written)) {
                true => failed(&RequestError::Interrupted),
                false => error,
            })?;
        }
        Ok(replies)
    }

    fn duplicate(&self, taken: &Taken) -> Result<Error> {
        self.tables.duplicate(self.info, taken)
    }

    fn remove_ended(&self, keys: Vec<Bytes>) -> Result<()> {
        self.tables.remove_ended(&self.table, keys).map(|_| ())
    }

    fn learn(&self, key: &Bytes, list: &Bytes) -> Result<()> {
        let partition = self.table.partition_of(&RecordKey::new(key, b""));
        self.tables.0.lists.learn(self.table.id(), partition, list)
    }
}
