//! Pages of indexes as a replica has them that does not lead: it applies what the leader has written while it reads, and no loop can make
//! the read between two writes.

use crate::work::Reply;
use bytes::Bytes;
use tessera_store::{READ_TRIES, Store, Table, Transaction};
use tessera_types::{ReadMode, RequestError, Space};

/// A page of an index whose entries and documents belong together. `read` reads it, perhaps while something is applied.
pub(crate) fn page_of_index(
    store: &Store,
    table: &Table,
    partition: u32,
    space: Space,
    read: impl Fn(&Transaction<'_>) -> Result<Reply, RequestError>,
) -> Result<Reply, RequestError> {
    for _ in 0..READ_TRIES {
        let before = table.version(partition);
        let reply = read(&Transaction::read_only(table, partition, ReadMode::Outdated, store.now())?)?;
        if before.is_some() && before == table.version(partition) {
            return Ok(reply);
        }
    }
    let transaction = Transaction::read_only(table, partition, ReadMode::Outdated, store.now())?;
    let Reply::Page(rows, has_more) = read(&transaction)? else { return Err(RequestError::NotReady) };
    // A document that was replaced between the two reads has lost its entry, or got another one.
    let entries: Vec<&[u8]> = rows.iter().map(|(entry, _)| &entry[..]).collect();
    let is_there = transaction.multi_get_in(space, &entries)?;
    let rows: Vec<(Bytes, Bytes)> =
        rows.into_iter().zip(is_there).filter(|(_, entry)| entry.is_some()).map(|(row, _)| row).collect();
    // Readers go on behind the last row, so a page that is not the last one has one.
    if rows.is_empty() && has_more { Err(RequestError::NotReady) } else { Ok(Reply::Page(rows, has_more)) }
}
