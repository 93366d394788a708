//! Pages of all that a partition has: of its records, then of one space after the other.

use super::sorter::Sorter;
use bytes::Bytes;
use std::ops::Bound;
use tessera_engine::mutation::Mutation;
use tessera_engine::{EngineError, Order, PageLimit, Position};
use tessera_store::Table;
use tessera_types::{ReadMode, Space, StoredValue, UnixMillis};

/// Where a page begins.
pub(super) enum Place {
    Records(Position),
    /// Behind this key of the space, or at its beginning.
    Space(Space, Option<Bytes>),
}

impl Place {
    pub(super) const START: Self = Self::Records(Position::START);

    fn space_from(table: &Table, partition: u32, from: Option<u32>) -> Result<Option<Self>, EngineError> {
        let Some(from) = from else { return Ok(None) };
        let space = table.engine().next_space(partition, Space(from))?;
        Ok(space.map(|space| Self::Space(space, None)))
    }
}

type Read = ([Vec<Bytes>; 2], Option<Place>);

/// Reads a page, and returns where the next one begins.
pub(super) fn read(
    table: &Table,
    partition: u32,
    from: &Place,
    limit: PageLimit,
    sorter: Sorter<'_>,
) -> Result<Read, EngineError> {
    match from {
        Place::Records(from) => read_records(table, partition, from, limit, sorter),
        Place::Space(space, behind) => read_space(table, partition, *space, behind.as_deref(), limit, sorter),
    }
}

fn read_space(
    table: &Table,
    partition: u32,
    space: Space,
    behind: Option<&[u8]>,
    limit: PageLimit,
    mut sorter: Sorter<'_>,
) -> Result<Read, EngineError> {
    let range = (behind.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let page = table.engine().read_space(partition, space, range, Order::Ascending, limit)?;
    for (key, value) in page.records() {
        sorter.add(Mutation::PutIn { space, key, value })?;
    }
    let next = match page.last_key().filter(|_| page.is_cut) {
        Some(last) => Some(Place::Space(space, Some(Bytes::copy_from_slice(last)))),
        None => Place::space_from(table, partition, space.0.checked_add(1))?,
    };
    Ok((sorter.finish(), next))
}

fn read_records(
    table: &Table,
    partition: u32,
    from: &Position,
    limit: PageLimit,
    mut sorter: Sorter<'_>,
) -> Result<Read, EngineError> {
    let seen_at = table.seen_at(partition, ReadMode::Single, table.clock().now());
    if let time = table.engine().time(partition)
        && *from == Position::START
        && time > UnixMillis::new(0)
    {
        // The new partitions must not see again what the old one's log says has expired.
        sorter.add(Mutation::Time(time))?;
    }
    let page = table.engine().read_page(partition, from, limit)?;
    for (key, value) in page.records() {
        if StoredValue::decode(value).is_none_or(|stored| stored.is_live(seen_at)) {
            sorter.add(Mutation::Put { key, value })?;
        }
    }
    let next = match page.next {
        Some(next) => Some(Place::Records(next)),
        None => Place::space_from(table, partition, Some(0))?,
    };
    Ok((sorter.finish(), next))
}
