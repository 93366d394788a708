//! A feed's end of the logs of a table's partitions, on the node that the client asked.
//!
//! A task ([`pull`](super::pull)) polls the leaders, one request for all partitions that a node leads, and puts what comes into a queue,
//! which the query takes from. When the queue has no room the task waits, and what is not read stays in the partitions' logs. When the table was split, the
//! feed goes on in the new partitions at the same positions.

use super::pull::{Pulling, division_of, partitions_of};
use super::queue::Queue;
use super::record::Keys;
use crate::route::Place;
use crate::scan::{check_kind, document_range, index_range, key_order, not_built, only_key, scan_work, split};
use crate::tables::{Tables, damaged, key_of};
use crate::work::{Reply, ScanWork, Work};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_document::{Document, EntryKey, SecondaryKey, Value};
use tessera_reql::{
    ChangeLog, Entry, Error, Interest, KeyRange, Lazy, LogEvent, Order, Pacer, Position, Reached, Result, Resume, Scan,
    StampedPage, TableInfo, Unread,
};
use tessera_store::Table;
use tessera_types::{ReadMode, RecordKey, Space};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// How often a table is opened anew if it is split just then.
const TRIES: usize = 5;

pub(crate) struct Tail {
    tables: Tables,
    info: TableInfo,
    begun: Vec<Reached>,
    queue: Arc<Mutex<Queue>>,
    has_room: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn too_old() -> Error {
    Error::failed(
        "Cannot resume the changefeed: the changes after this resume token are not retained (`feed_retention`), or the table was \
         truncated since.",
    )
}

/// The primary keys of interest, as partitions have them; none if it is all of them.
fn keys_of(interest: &Interest) -> Result<Vec<Keys>> {
    let Interest::Keys(ranges) = interest else { return Ok(Vec::new()) };
    let keys = |range: &KeyRange| {
        let scan = Scan {
            index: None,
            range: range.clone(),
            cells: None,
            order: Order::Any,
            after: None,
            limit: 0,
            reads: tessera_reql::ReadMode::Single,
        };
        if let Some(key) = only_key(&scan) {
            let start = key_of(key)?;
            let end = [&start[..], b"\0"].concat();
            return Ok((start, Some(end.into())));
        }
        let keys = document_range(&scan)?;
        Ok((keys.start.to_vec().into(), keys.end.map(|end| end.to_vec().into())))
    };
    ranges.iter().map(keys).collect()
}

impl Tables {
    /// Has a table keep its changes, and follows them from now on, or from where a feed was before.
    pub(crate) fn follow(
        &self,
        info: &TableInfo,
        interest: &Interest,
        resume: Option<Resume>,
        pacer: Arc<dyn Pacer>,
    ) -> Result<Tail> {
        let mut table = self.open(info)?;
        let ranges = keys_of(interest)?;
        let mut tries = TRIES;
        let (partitions, begun) = loop {
            let partitions: Vec<u32> = partitions_of(&table, interest)?.into_iter().collect();
            let work = partitions.iter().map(|partition| (Place::Partition(*partition), Work::BeginChanges)).collect();
            match self.reach(&table, ReadMode::Single, work) {
                Ok(begun) => break (partitions, begun),
                Err(_) if tries > 0 && table.successor().is_some() => {
                    table = table.successor().unwrap_or(table);
                    tries -= 1;
                }
                Err(error) => return Err(error),
            }
        };
        let resumed = resume.as_ref().map(|resume| division_of(&table).positions(resume));
        let mut positions = BTreeMap::new();
        for (partition, begun) in partitions.into_iter().zip(begun) {
            let Reply::ChangesBegun(log) = begun else { return Err(damaged()) };
            let at = match &resumed {
                None => log.last,
                Some(resumed) => resumed.get(&partition).copied().ok_or_else(too_old)?,
            };
            if !(log.floor..=log.last).contains(&at) {
                return Err(too_old());
            }
            positions.insert(partition, at);
        }
        let begun = positions.iter().map(|(partition, at)| (*partition, *at)).collect();
        let (queue, has_room) = (Arc::new(Mutex::new(Queue::new(table.clone()))), Arc::<Notify>::default());
        let pulling = Pulling {
            shared: self.0.clone(),
            interest: interest.clone(),
            ranges,
            idle: positions.keys().copied().collect(),
            table,
            positions,
            queue: queue.clone(),
            has_room: has_room.clone(),
            pacer,
        };
        let task = self.0.runtime.spawn(pulling.run()).abort_handle();
        Ok(Tail { tables: self.clone(), info: info.clone(), begun, queue, has_room, task })
    }
}

impl ChangeLog for Tail {
    fn begin(&self) -> Vec<Reached> {
        self.begun.clone()
    }

    fn scheme(&self) -> u32 {
        self.queue.lock().table().schema().partitions
    }

    fn next(&mut self, limit: usize) -> Result<Vec<LogEvent>> {
        let mut queue = self.queue.lock();
        if queue.len() == 0
            && let Some(error) = &queue.error
        {
            return Err(error.clone());
        }
        let events = queue.take(limit);
        drop(queue);
        self.has_room.notify_one();
        Ok(events)
    }

    fn pages(&self, wanted: Vec<(u32, Scan)>) -> Result<Vec<StampedPage>, Unread> {
        let table = self.queue.lock().table();
        let mut pages: Vec<Option<StampedPage>> = Vec::with_capacity(wanted.len());
        let (mut work, mut places) = (Vec::new(), Vec::new());
        for (at, (partition, scan)) in wanted.iter().enumerate() {
            let is_elsewhere = match only_key(scan) {
                Some(key) => table.partition_of(&RecordKey::new(&key_of(key)?, b"")) != *partition,
                None => false,
            };
            pages.push(is_elsewhere.then(|| StampedPage { stamp: 0, rows: Vec::new(), next: None }));
            if !is_elsewhere {
                work.push((Place::Partition(*partition), Work::StampedScan(self.work_of(&table, scan)?)));
                places.push(at);
            }
        }
        let replies = self.tables.reach(&table, ReadMode::Single, work).map_err(|error| {
            let is_split = table.successor().is_some();
            Unread::Later(if is_split { split() } else { error })
        })?;
        for (at, reply) in places.into_iter().zip(replies) {
            let scan = &wanted[at].1;
            let (stamp, rows, has_more) = match reply {
                Reply::Stamped(stamp, rows, has_more) => (stamp, rows, has_more),
                Reply::NotBuilt => return Err(not_built(&self.info, scan).into()),
                _ => return Err(damaged().into()),
            };
            let ending = |(key, _): &(bytes::Bytes, bytes::Bytes)| -> Result<_> {
                Ok((Position(key.to_vec()), entry_of(scan, key)?))
            };
            let next = rows.last().filter(|_| has_more).map(ending).transpose()?;
            let keyed = |(key, document): (bytes::Bytes, bytes::Bytes)| {
                Ok((entry_of(scan, &key)?.primary, Lazy::Document(Document::trusted(document))))
            };
            let rows = rows.into_iter().map(keyed).collect::<Result<Vec<_>>>()?;
            pages[at] = Some(StampedPage { stamp, rows, next });
        }
        Ok(pages.into_iter().map(|page| page.ok_or_else(damaged)).collect::<Result<_>>()?)
    }

    fn table_name(&self) -> Option<String> {
        let table = self.queue.lock().table();
        let table = table.successor().unwrap_or(table);
        // The catalog has names and rights of one moment; the table follows it.
        let catalog = self.tables.0.store.catalog();
        Some(catalog.get(table.id()).map_or_else(|| table.name().to_string(), |entry| entry.name.clone()))
    }

    fn index_key(&self, value: &Value) -> Option<Vec<u8>> {
        let key = SecondaryKey::of_entry(Document::encode(value).value()).ok()?;
        Some(key.bytes().to_vec())
    }
}

/// What a key of a scan's space stands for.
fn entry_of(scan: &Scan, key: &[u8]) -> Result<Entry> {
    if scan.index.is_none() {
        return Ok(Entry { secondary: Vec::new(), primary: key.to_vec(), place: 0 });
    }
    let entry = EntryKey::decode(key).map_err(|_| damaged())?;
    let (secondary, primary) = (entry.secondary.to_vec(), entry.primary.to_vec());
    Ok(Entry { secondary, primary, place: entry.place.unwrap_or(0) })
}

impl Tail {
    fn work_of(&self, table: &Arc<Table>, scan: &Scan) -> Result<ScanWork> {
        let after = scan.after.as_ref().map(|Position(key)| bytes::Bytes::copy_from_slice(key));
        let order = key_order(scan.order);
        let Some(name) = &scan.index else {
            let keys = document_range(scan)?;
            return Ok(scan_work(Space::DOCUMENTS, &keys, order, after, scan.limit));
        };
        let index = self.tables.index(table, name).ok_or_else(|| self.info.index_not_found(name))?;
        check_kind(&self.info, &index, name, scan)?;
        let range = index_range(scan)?;
        let work = scan_work(Space(index.space), &range.keys, order, after, scan.limit);
        Ok(ScanWork { cells: scan.cells.clone(), ..work })
    }
}
