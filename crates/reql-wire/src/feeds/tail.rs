//! A feed's end of the logs of a table's partitions, on the node that the client asked.
//!
//! A task polls the leaders, one request for all partitions that a node leads, and puts what comes into a queue, which the query takes
//! from. When the queue has no room the task waits, and what is not read stays in the partitions' logs. When the table was split, the
//! feed goes on in the new partitions at the same positions.

use super::record::{ChangesWork, Keys, NewChanges, decode_change, number_of};
use crate::route::{Place, reach};
use crate::scan::{check_kind, document_range, index_range, key_order, not_built, only_key, scan_work, split};
use crate::shared::Shared;
use crate::tables::{Tables, damaged, failed, key_of};
use crate::work::{Reply, ScanWork, Work};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tessera_document::{Document, EntryKey};
use tessera_reql::{
    ChangeLog, DocumentChange, Error, Interest, KeyRange, Lazy, LogEvent, Order, Pacer, Position, Reached, Result,
    Resume, Scan, StampedPage, TableInfo,
};
use tessera_store::{Leader, Table};
use tessera_types::{ReadMode, RecordKey, RequestError, Space};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Bytes of changes that wait for the query; then no more are asked for.
const QUEUE_BYTES: usize = 1 << 20;
/// So many events that only tell how far partitions are wake the query, and more than so many do not wait for it.
const MANY_REACHED: usize = 128;
const MOST_REACHED: usize = 1024;
/// How long a leader may wait with an answer until something changes.
const POLL: Duration = Duration::from_secs(3);
/// An answer that takes longer than that by so much is given up, and asked for again.
const GRACE: Duration = Duration::from_secs(4);
/// Between two tries where nothing was answered.
const PAUSE: Duration = Duration::from_millis(20);
/// After a partition could not be read.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);
/// How often a feed says that it needs the log. Logs go on for longer than twice this time without feeds.
const RENEWAL: Duration = Duration::from_secs(20);
/// How often a table is opened anew if it is split just then.
const TRIES: usize = 5;

/// What has come and was not taken yet.
struct Queue {
    events: VecDeque<LogEvent>,
    bytes: usize,
    error: Option<Error>,
    /// The table, as far as events tell that have been taken.
    table: Arc<Table>,
    /// Tables that take its place, each after so many events that tell of a split.
    coming: VecDeque<(usize, Arc<Table>)>,
}

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

fn lost() -> Error {
    Error::failed(
        "Changefeed aborted (unavailable): changes that it had not read are not retained any more (`feed_retention`).",
    )
}

fn too_old() -> Error {
    Error::failed(
        "Cannot resume the changefeed: the changes after this resume token are not retained (`feed_retention`).",
    )
}

/// The partitions that may have something of interest.
fn partitions_of(table: &Table, interest: &Interest) -> Result<BTreeSet<u32>> {
    let all = || (0..table.schema().partitions).collect();
    let Interest::Keys(ranges) = interest else { return Ok(all()) };
    let mut partitions = BTreeSet::new();
    for range in ranges {
        let Some(key) = range.only_key() else { return Ok(all()) };
        partitions.insert(table.partition_of(&RecordKey::new(&key_of(key)?, b"")));
    }
    Ok(partitions)
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

/// The partitions of a table with more partitions that have what a partition had.
fn heirs(table: &Table, partition: u32, before: u32) -> Vec<u32> {
    let (mut heirs, mut count) = (vec![partition], before);
    while count < table.schema().partitions {
        count *= 2;
        heirs = heirs.iter().flat_map(|heir| table.schema().partitioner.children_of(*heir, count)).collect();
    }
    heirs
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
        let resumed = resume.as_ref().map(|resume| positions_of(&table, resume));
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
        let queue =
            Queue { events: VecDeque::new(), bytes: 0, error: None, table: table.clone(), coming: VecDeque::new() };
        let (queue, has_room) = (Arc::new(Mutex::new(queue)), Arc::<Notify>::default());
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
        Ok(Tail { tables: Self(self.0.clone()), info: info.clone(), begun, queue, has_room, task })
    }
}

/// Where to go on in each partition of a table which may have been split since.
fn positions_of(table: &Table, resume: &Resume) -> BTreeMap<u32, u64> {
    let mut positions = BTreeMap::new();
    for (partition, at) in &resume.reached {
        positions.extend(heirs(table, *partition, resume.scheme.max(1)).into_iter().map(|heir| (heir, *at)));
    }
    positions
}

impl ChangeLog for Tail {
    fn begin(&self) -> Vec<Reached> {
        self.begun.clone()
    }

    fn scheme(&self) -> u32 {
        self.queue.lock().table.schema().partitions
    }

    fn next(&mut self, limit: usize) -> Result<Vec<LogEvent>> {
        let mut queue = self.queue.lock();
        if queue.events.is_empty()
            && let Some(error) = &queue.error
        {
            return Err(error.clone());
        }
        let count = queue.events.len().min(limit);
        let events: Vec<LogEvent> = queue.events.drain(..count).collect();
        queue.bytes -= events.iter().map(size).sum::<usize>();
        for event in &events {
            if matches!(event, LogEvent::Split { .. })
                && let Some((left, _)) = queue.coming.front_mut()
            {
                *left -= 1;
                if *left == 0
                    && let Some((_, table)) = queue.coming.pop_front()
                {
                    queue.table = table;
                }
            }
        }
        drop(queue);
        self.has_room.notify_one();
        Ok(events)
    }

    fn pages(&self, wanted: Vec<(u32, Scan)>) -> Result<Vec<StampedPage>> {
        let table = self.queue.lock().table.clone();
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
        let replies = match self.tables.reach(&table, ReadMode::Single, work) {
            Err(_) if table.successor().is_some() => return Err(split()),
            replies => replies?,
        };
        for (at, reply) in places.into_iter().zip(replies) {
            let scan = &wanted[at].1;
            let (stamp, rows, has_more) = match reply {
                Reply::Stamped(stamp, rows, has_more) => (stamp, rows, has_more),
                Reply::NotBuilt => return Err(not_built(&self.info, scan)),
                _ => return Err(damaged()),
            };
            let next = rows.last().filter(|_| has_more).map(|(key, _)| Position(key.to_vec()));
            let keyed = |(key, document): (bytes::Bytes, bytes::Bytes)| {
                let primary = match scan.index {
                    None => key.to_vec(),
                    Some(_) => EntryKey::decode(&key).map_err(|_| damaged())?.primary.to_vec(),
                };
                Ok((primary, Lazy::Document(Document::trusted(document))))
            };
            let rows = rows.into_iter().map(keyed).collect::<Result<Vec<_>>>()?;
            pages[at] = Some(StampedPage { stamp, rows, next });
        }
        pages.into_iter().map(|page| page.ok_or_else(damaged)).collect()
    }
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

fn size(event: &LogEvent) -> usize {
    match event {
        LogEvent::Split { .. } | LogEvent::Reached { .. } => 0,
        LogEvent::Change(change) => {
            let bytes = |document: &Option<Document>| document.as_ref().map_or(0, |document| document.bytes().len());
            change.key.len() + bytes(&change.old) + bytes(&change.new)
        }
    }
}

/// The task that polls.
struct Pulling {
    shared: Arc<Shared>,
    interest: Interest,
    ranges: Vec<Keys>,
    table: Arc<Table>,
    /// For each partition the last change that was taken.
    positions: BTreeMap<u32, u64>,
    /// Partitions that are not asked now.
    idle: BTreeSet<u32>,
    queue: Arc<Mutex<Queue>>,
    has_room: Arc<Notify>,
    pacer: Arc<dyn Pacer>,
}

type Polled = (Vec<u32>, std::result::Result<Vec<Reply>, RequestError>);

impl Pulling {
    async fn run(mut self) {
        let error = self.pull().await;
        self.queue.lock().error = Some(error);
        self.pacer.wake();
    }

    /// Returns why the feed ends.
    async fn pull(&mut self) -> Error {
        let mut polls = JoinSet::new();
        let mut renewal = Instant::now() + RENEWAL;
        loop {
            while self.queue.lock().bytes >= QUEUE_BYTES {
                // The log must stay although nobody reads it.
                if tokio::time::timeout_at(renewal, self.has_room.notified()).await.is_err() {
                    renewal = self.renew();
                }
            }
            if matches!(self.table.not_serving(), RequestError::NoSuchTable(_)) {
                return Error::aborted_feed();
            }
            if let Some(successor) = self.table.successor() {
                // What is asked of the old partitions is answered, or refused, soon. Then the new ones are asked.
                if polls.is_empty()
                    && let Err(error) = self.split(successor)
                {
                    return error;
                }
            }
            if self.table.successor().is_none() {
                self.ask(&mut polls);
            }
            tokio::select! {
                polled = polls.join_next(), if !polls.is_empty() => {
                    if let Some(Ok((partitions, replies))) = polled
                        && let Err(error) = self.take(partitions, replies).await
                    {
                        return error;
                    }
                }
                () = tokio::time::sleep(PAUSE), if polls.is_empty() => {}
                () = tokio::time::sleep_until(renewal) => renewal = self.renew(),
            }
        }
    }

    /// Asks the leaders of all partitions that are idle, each leader once.
    fn ask(&mut self, polls: &mut JoinSet<Polled>) {
        let mut by_leader: Vec<(Leader, Vec<u32>)> = Vec::new();
        for partition in std::mem::take(&mut self.idle) {
            let leader = self.table.leader_of(partition);
            match by_leader.iter_mut().find(|(known, _)| *known == leader && leader != Leader::Unknown) {
                Some((_, partitions)) => partitions.push(partition),
                None => by_leader.push((leader, vec![partition])),
            }
        }
        for (_, partitions) in by_leader {
            let work = |partition: &u32| {
                let (after, ranges) = (self.positions[partition], self.ranges.clone());
                let patience = u32::try_from(POLL.as_millis()).unwrap_or(u32::MAX);
                (Place::Partition(*partition), Work::Changes(ChangesWork { after, ranges, patience }))
            };
            let work: Vec<_> = partitions.iter().map(work).collect();
            let (shared, table) = (self.shared.clone(), self.table.clone());
            polls.spawn(async move {
                let asked = reach(&shared, &table, ReadMode::Single, work);
                let replies = tokio::time::timeout(POLL + GRACE, asked).await;
                (partitions, replies.unwrap_or(Err(RequestError::NotReady)))
            });
        }
    }

    async fn take(
        &mut self,
        partitions: Vec<u32>,
        replies: std::result::Result<Vec<Reply>, RequestError>,
    ) -> Result<()> {
        let mut is_new = false;
        match replies {
            // Nobody answers for them now.
            Err(_) => tokio::time::sleep(PAUSE).await,
            Ok(replies) => {
                for (partition, reply) in partitions.iter().zip(replies) {
                    match reply {
                        Reply::Changes(changes) => is_new |= self.append(*partition, changes)?,
                        Reply::Refused(reason) => {
                            tracing::warn!(%reason, "changes of a partition cannot be read now");
                            tokio::time::sleep(TROUBLE_PAUSE).await;
                        }
                        _ => return Err(damaged()),
                    }
                }
            }
        }
        self.idle.extend(partitions);
        if is_new {
            self.pacer.wake();
        }
        Ok(())
    }

    fn append(&mut self, part: u32, changes: NewChanges) -> Result<bool> {
        if changes.is_lost {
            return Err(lost());
        }
        let mut queue = self.queue.lock();
        let is_new = !changes.records.is_empty();
        for (key, value) in changes.records {
            let (at, primary) = number_of(&key).ok_or_else(damaged)?;
            let (old, new) = decode_change(value).ok_or_else(damaged)?;
            let document = |bytes: Option<bytes::Bytes>| bytes.map(Document::trusted);
            let change = DocumentChange { part, at, key: primary.to_vec(), old: document(old), new: document(new) };
            let event = LogEvent::Change(change);
            queue.bytes += size(&event);
            queue.events.push_back(event);
        }
        let before = self.positions.insert(part, changes.reached);
        // It only makes tokens newer, so it need not be told each time.
        if before != Some(changes.reached) && queue.events.len() < MOST_REACHED {
            queue.events.push_back(LogEvent::Reached { part, at: changes.reached });
        }
        Ok(is_new || queue.events.len() >= MANY_REACHED)
    }

    /// Goes on in the table that has taken the place of this one.
    fn split(&mut self, successor: Arc<Table>) -> Result<()> {
        let before = self.table.schema().partitions;
        let wanted = partitions_of(&successor, &self.interest)?;
        let mut queue = self.queue.lock();
        queue.coming.push_back((self.positions.len(), successor.clone()));
        let mut positions = BTreeMap::new();
        for (of, at) in std::mem::take(&mut self.positions) {
            let heirs = heirs(&successor, of, before).into_iter();
            let into: Vec<u32> = heirs.filter(|heir| wanted.contains(heir)).collect();
            positions.extend(into.iter().map(|heir| (*heir, at)));
            queue.events.push_back(LogEvent::Split { of, into });
        }
        drop(queue);
        self.idle = positions.keys().copied().collect();
        (self.positions, self.table) = (positions, successor);
        self.pacer.wake();
        Ok(())
    }

    /// Says that the logs are needed. Returns when to say it again.
    fn renew(&self) -> Instant {
        for partition in self.positions.keys().copied() {
            let (shared, table) = (self.shared.clone(), self.table.clone());
            self.shared.runtime.spawn(async move {
                let work = vec![(Place::Partition(partition), Work::BeginChanges)];
                if let Err(error) = reach(&shared, &table, ReadMode::Single, work).await {
                    tracing::debug!(error = %failed(&error), "a feed could not say that it needs the changes of a partition");
                }
            });
        }
        Instant::now() + RENEWAL
    }
}
