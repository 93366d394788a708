//! Pages of documents: of one partition after the other where their order does not matter, else merged from all partitions.

use crate::definition::{is_geospatial, read_definition};
use crate::indexes::value_at;
use crate::position;
use crate::route::Place;
use crate::tables::{Tables, damaged, decoded, mode};
use crate::work::{Reply, ScanWork, Work};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use tessera_cluster::IndexEntry;
use tessera_document::{Document, EntryKey, KeyRange as Keys, SecondaryRange, Value};
use tessera_engine::Order as KeyOrder;
use tessera_reql::{Env, Error, Lazy, Order, Page, Position, Result, Scan, TableInfo};
use tessera_store::Table;
use tessera_types::Space;

/// The fewest rows that a partition is asked for if several are: most of a small page may be in one of them. More than these, about as
/// many more than an even share as chance makes of the largest one.
const FEWEST_ROWS: usize = 16;

/// Keys of a space with their documents, and where the next page begins.
type KeyedPage = (Vec<(Bytes, Bytes)>, Option<Position>);

impl Tables {
    /// A page of a table, or of one of its indexes.
    pub(crate) fn page(&self, env: &Env, info: &TableInfo, scan: &Scan) -> Result<Page> {
        let table = self.open(info)?;
        if let Some(index) = &scan.index {
            return self.scan_index(env, info, &table, index, scan);
        }
        if let Some(key) = only_key(scan) {
            let rows = self.document(&table, key, scan.reads)?.into_iter().map(row).collect();
            return Ok(Page { rows, next: None });
        }
        let keys = document_range(scan)?;
        if scan.order == Order::Any {
            return self.scan_any(&table, &keys, scan);
        }
        let (found, next) = self.scan_in_order(&table, Space::DOCUMENTS, &keys, info, scan)?;
        Ok(Page { rows: found.into_iter().map(|(_, document)| row(document)).collect(), next })
    }

    /// Pages in any order go from one partition to the next.
    fn scan_any(&self, table: &Arc<Table>, keys: &Keys, scan: &Scan) -> Result<Page> {
        let partitions = table.schema().partitions;
        let (mut partition, mut after) = match &scan.after {
            None => (0, None),
            Some(Position(bytes)) => {
                let numbers = bytes.first_chunk::<8>().ok_or_else(damaged)?;
                let number =
                    |at: usize| u32::from_le_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]]);
                if number(0) != partitions {
                    return Err(split());
                }
                (number(4), Some(Bytes::copy_from_slice(&bytes[8..])).filter(|after| !after.is_empty()))
            }
        };
        let mut rows = Vec::new();
        while partition < partitions && rows.len() < scan.limit.max(1) {
            let limit = scan.limit.max(1) - rows.len();
            let work = Work::Scan(scan_work(Space::DOCUMENTS, keys, KeyOrder::Ascending, after.take(), limit));
            let replies = self.reach(table, mode(scan.reads), vec![(Place::Partition(partition), work)])?;
            let Some(Reply::Page(found, has_more)) = replies.into_iter().next() else { return Err(damaged()) };
            after = found.last().filter(|_| has_more).map(|(key, _)| key.clone());
            rows.extend(found.into_iter().map(|(_, document)| row(document)));
            if has_more {
                break;
            }
            partition += 1;
        }
        let next = (partition < partitions).then(|| {
            let numbers = [partitions.to_le_bytes(), partition.to_le_bytes()].concat();
            Position(numbers.into_iter().chain(after.unwrap_or_default()).collect())
        });
        Ok(Page { rows, next })
    }

    /// A page in the order of a space's keys, merged from all partitions.
    fn scan_in_order(
        &self,
        table: &Arc<Table>,
        space: Space,
        keys: &Keys,
        info: &TableInfo,
        scan: &Scan,
    ) -> Result<KeyedPage> {
        let order = key_order(scan.order);
        let (limit, partitions) = (scan.limit.max(1), table.schema().partitions);
        let even = limit.div_ceil(partitions as usize);
        let share = (even + 2 * even.isqrt()).max(FEWEST_ROWS).min(limit);
        let after = position::key_before(space, info, scan)?;
        let work =
            |after| Work::Scan(ScanWork { cells: scan.cells.clone(), ..scan_work(space, keys, order, after, share) });
        let place = |partition| (Place::Partition(partition), work(after.clone()));
        let replies = self.reach(table, mode(scan.reads), (0..partitions).map(place).collect())?;
        let mut merged: Vec<(Bytes, Bytes)> = Vec::new();
        let mut end: Option<Bytes> = None;
        for reply in replies {
            let (rows, has_more) = match reply {
                Reply::Page(rows, has_more) => (rows, has_more),
                Reply::NotBuilt => return Err(not_built(info, scan)),
                _ => return Err(damaged()),
            };
            // Behind the last key of a page that is not the last one, that partition may have more.
            if let Some((last, _)) = rows.last().filter(|_| has_more)
                && end.as_ref().is_none_or(|end| order.compare(last, end).is_lt())
            {
                end = Some(last.clone());
            }
            merged.extend(rows);
        }
        // They are sorted already, one partition after the other.
        merged.sort_by(|(one, _), (other, _)| order.compare(one, other));
        let total = merged.len();
        let is_inside = |key: &Bytes| end.as_ref().is_none_or(|end| order.compare(key, end).is_le());
        let inside = merged.partition_point(|(key, _)| is_inside(key));
        merged.truncate(inside.min(limit));
        let has_more = merged.len() < total || end.is_some();
        let next = merged.last().filter(|_| has_more).map(|(key, _)| position::behind(space, key));
        Ok((merged, next))
    }

    fn scan_index(&self, env: &Env, info: &TableInfo, table: &Arc<Table>, name: &str, scan: &Scan) -> Result<Page> {
        let index = self.index(table, name).ok_or_else(|| info.index_not_found(name))?;
        check_kind(info, &index, name, scan)?;
        let range = index_range(scan)?;
        let (found, next) = self.scan_in_order(table, Space(index.space), &range.keys, info, scan)?;
        let mut rows = Vec::with_capacity(found.len());
        for (entry, document) in found {
            let entry = EntryKey::decode(&entry).map_err(|_| damaged())?;
            let is_inside = !range.is_doubtful(&entry)
                || self.is_in_range(env, &index, scan, &decoded(Some(&document))?, entry.place)?;
            if is_inside {
                rows.push(row(document));
            }
        }
        Ok(Page { rows, next })
    }

    /// Whether a document belongs to a range that its entry's key, which was cut, leaves open.
    fn is_in_range(
        &self,
        env: &Env,
        index: &IndexEntry,
        scan: &Scan,
        document: &Value,
        place: Option<u32>,
    ) -> Result<bool> {
        let definition = read_definition(&index.definition).ok_or_else(damaged)?;
        let Some(value) = value_at(env, &definition, document, place)? else { return Ok(false) };
        let key = tessera_reql::secondary_key(&value)?;
        let bound = |bound: &Bound<Value>| {
            let key = |value: &Value| match value {
                Value::MinVal | Value::MaxVal => None,
                value => tessera_reql::secondary_key(value).ok(),
            };
            match bound {
                Bound::Included(value) => key(value).map_or(Bound::Unbounded, Bound::Included),
                Bound::Excluded(value) => key(value).map_or(Bound::Unbounded, Bound::Excluded),
                Bound::Unbounded => Bound::Unbounded,
            }
        };
        use std::ops::RangeBounds as _;
        Ok((bound(&scan.range.lower), bound(&scan.range.upper)).contains(&key))
    }
}

fn row(document: Bytes) -> Lazy {
    Lazy::Document(Document::trusted(document))
}

pub(crate) fn split() -> Error {
    Error::failed("The table was split while it was read; run the query again.")
}

pub(crate) fn not_built(info: &TableInfo, scan: &Scan) -> Error {
    let (index, full) = (scan.index.as_deref().unwrap_or_default(), info.full_name());
    Error::failed(format!("Index `{index}` on table `{full}` was accessed before its construction was finished."))
}

pub(crate) fn key_order(order: Order) -> KeyOrder {
    if order == Order::Descending { KeyOrder::Descending } else { KeyOrder::Ascending }
}

pub(crate) fn scan_work(space: Space, keys: &Keys, order: KeyOrder, after: Option<Bytes>, limit: usize) -> ScanWork {
    ScanWork {
        space,
        start: Bytes::copy_from_slice(&keys.start),
        end: keys.end.as_ref().map(|end| Bytes::copy_from_slice(end)),
        cells: None,
        order,
        after,
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
    }
}

/// The key of the only document that a scan may find.
pub(crate) fn only_key(scan: &Scan) -> Option<&Value> {
    match (&scan.index, &scan.range.lower, &scan.range.upper) {
        (None, Bound::Included(lower), Bound::Included(upper))
            if lower == upper && !matches!(lower, Value::MinVal | Value::MaxVal) =>
        {
            Some(lower)
        }
        _ => None,
    }
}

/// Refuses a range whose ends can be no keys, in the words of RethinkDB. `r.minval` and `r.maxval` are ends of every range.
fn check_bounds<Key>(scan: &Scan, key: impl Fn(&Value) -> Result<Key>) -> Result<()> {
    for bound in [&scan.range.lower, &scan.range.upper] {
        match bound {
            Bound::Unbounded | Bound::Included(Value::MinVal | Value::MaxVal) => {}
            Bound::Excluded(Value::MinVal | Value::MaxVal) => {}
            Bound::Included(value) | Bound::Excluded(value) => drop(key(value)?),
        }
    }
    Ok(())
}

/// The primary keys of a scan.
pub(crate) fn document_range(scan: &Scan) -> Result<Keys> {
    check_bounds(scan, tessera_reql::primary_bound)?;
    let bound = |bound: &Bound<Value>| bound.as_ref().map(Document::encode);
    let (lower, upper) = (bound(&scan.range.lower), bound(&scan.range.upper));
    tessera_document::primary_range(lower.as_ref().map(Document::value), upper.as_ref().map(Document::value))
        .map_err(|error| Error::logic(error.to_string()))
}

/// Refuses to read a geospatial index in the order of keys, which it does not have.
pub(crate) fn check_kind(info: &TableInfo, index: &IndexEntry, name: &str, scan: &Scan) -> Result<()> {
    if scan.cells.is_some() {
        return Ok(());
    }
    match is_geospatial(&index.definition).ok_or_else(damaged)? {
        true => Err(info.geospatial_index(name)),
        false => Ok(()),
    }
}

/// The entries of an index that a scan is about.
pub(crate) fn index_range(scan: &Scan) -> Result<SecondaryRange> {
    check_bounds(scan, tessera_reql::secondary_key)?;
    let bound = |bound: &Bound<Value>| bound.as_ref().map(Document::encode);
    let (lower, upper) = (bound(&scan.range.lower), bound(&scan.range.upper));
    let (lower, upper) = (lower.as_ref().map(Document::value), upper.as_ref().map(Document::value));
    tessera_document::secondary_range(lower, upper).map_err(|error| Error::logic(error.to_string()))
}
