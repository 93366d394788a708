//! Documents that are asked for by their keys and are here are answered where the connection lives: without a plan, without another
//! thread, and without decoding them. Everything unusual goes the way that all queries go, so that it ends in the same answers.

use crate::partition;
use crate::respond::{self, Reply};
use crate::shared::Shared;
use crate::tables::{key_of, mode};
use crate::work;
use std::sync::Arc;
use tessera_document::EncodedValue;
use tessera_engine::from_caches;
use tessera_reql::Query;
use tessera_store::Leader;
use tessera_types::{Model, ReadMode, RecordKey};

/// The answer to a query, if it is such a one.
pub(crate) fn answer(shared: &Arc<Shared>, query: &Query) -> Option<Reply> {
    let point = query.point()?;
    let table = shared.store.table_named(&format!("{}.{}", point.database, point.table))?;
    if table.schema().model != Model::Document {
        return None;
    }
    let key = key_of(&point.key).ok()?;
    let partition = table.partition_of(&RecordKey::new(&key, b""));
    let reads = mode(point.reads);
    if reads == ReadMode::Majority || table.reader_of(partition, reads) != Leader::Here {
        return None;
    }
    // What only the disk has is left to a thread for queries, which may wait.
    let found = from_caches(|| partition::get(&shared.store, &table, partition, reads, &key)).ok()?;
    let work::Reply::Document(found) = found else { return None };
    respond::document(found.as_deref().map(EncodedValue::trusted))
}
