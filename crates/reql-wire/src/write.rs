//! What a partition is asked to write of a document.

use crate::indexes::IndexChanges;
use crate::shared::Shared;
use crate::work::WriteWork;
use bytes::Bytes;
use tessera_document::{Document, EntryChanges, Value};
use tessera_reql::{Durability, Env, Error, Lifetime, Result, Written};
use tessera_store::Table;
use tessera_types::{RecordKey, Space};

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
