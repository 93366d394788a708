//! How far an index is, for people: they wait for it.

use super::list::{IndexList, progress_key};
use crate::partition::{self, list_of};
use crate::work::Reply;
use tessera_store::{Store, Table};
use tessera_types::{ReadMode, RequestError, Space};

/// Which share of a partition's documents an index holds. They are looked at in the order of their keys, so it is the share of those up to the
/// last one that was. It may wait for the disk.
pub(crate) fn progress(store: &Store, table: &Table, partition: u32, index: Space) -> Result<Reply, RequestError> {
    let (is_built, last) = partition::read(store, table, partition, ReadMode::Single, |transaction| {
        let list = IndexList::decode(list_of(transaction)?);
        let list = list.ok_or_else(|| RequestError::Corruption("a list of indexes".into()))?;
        let is_built = list.get(index).is_some_and(|index| index.is_built);
        Ok((is_built, transaction.get_in(Space::INDEXES, &progress_key(index))?))
    })?;
    let share = match last {
        _ if is_built => 1.0,
        Some(last) => table.share_up_to(partition, Space::DOCUMENTS, &last)?,
        None => 0.0,
    };
    Ok(Reply::Progress(share))
}
