//! How work is done in one partition, by the node that leads it, or may answer for it.

use crate::feeds::{STATE_KEY, decode_state};
use crate::indexes::{IndexList, LIST_KEY};
use crate::replica;
use crate::shared::Shared;
use crate::work::{Reply, ScanWork, Work, WriteWork};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_document::EntryKey;
use tessera_engine::{KeyRange, Order, PageLimit};
use tessera_reql::{Cells, cell_bounds};
use tessera_store::{Leader, Operation, Store, Table, Transaction, Verdict, WriteOptions};
use tessera_types::{Acks, Durability, ReadMode, RequestError, Space, TableId, UnixMillis};
use tokio::sync::{Notify, oneshot};

/// Bytes of documents in a page, about.
const PAGE_BYTES: usize = 1 << 20;

/// Bytes of a geospatial index's entries in a page.
const ENTRIES_BYTES: usize = 64 << 10;

/// Documents of an index's entries that are read in one call: as many as RocksDB looks for together.
const DOCUMENTS_AT_ONCE: usize = 32;
/// How often a page of an index is begun anew because all documents of its entries have ended.
const ROUNDS_WITHOUT_ROWS: usize = 200;

/// Reads something of a partition that one look at it shows.
pub(crate) fn read<T>(
    store: &Store,
    table: &Table,
    partition: u32,
    reads: ReadMode,
    read: impl FnOnce(&Transaction<'_>) -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    read_if_settled(table, partition, reads, store.now(), read)?.ok_or(RequestError::NotReady)
}

/// As [`read`]. Returns `None` if it is not settled what has expired: a write that is on its way may have found it alive.
pub(crate) fn read_if_settled<T>(
    table: &Table,
    partition: u32,
    reads: ReadMode,
    now: UnixMillis,
    read: impl FnOnce(&Transaction<'_>) -> Result<T, RequestError>,
) -> Result<Option<T>, RequestError> {
    let transaction = Transaction::read_only(table, partition, reads, now)?;
    let found = read(&transaction)?;
    if transaction.is_unsettled() {
        return Ok(None);
    }
    transaction.check_lease()?;
    Ok(Some(found))
}

/// Counts the documents that a reply has.
fn counted(shared: &Shared, table: TableId, reply: Reply) -> Reply {
    let documents = match &reply {
        Reply::Document(_) => 1,
        Reply::Page(rows, _) | Reply::Stamped(_, rows, _) => rows.len(),
        _ => 0,
    };
    shared.meter.note_read(table, documents);
    reply
}

pub(crate) fn get(
    shared: &Shared,
    table: &Table,
    partition: u32,
    reads: ReadMode,
    key: &[u8],
) -> Result<Reply, RequestError> {
    let get = |transaction: &Transaction<'_>| transaction.get_in(Space::DOCUMENTS, key);
    let found = read(&shared.store, table, partition, reads, get)?;
    Ok(counted(shared, table.id(), Reply::Document(found)))
}

/// What is stored of a document, also if it has ended.
pub(crate) fn stored(store: &Store, table: &Table, partition: u32, key: &[u8]) -> Result<Reply, RequestError> {
    read(store, table, partition, ReadMode::Single, |transaction| {
        let stored = transaction.get_stored_in(Space::DOCUMENTS, key)?;
        Ok(Reply::Stored(stored, transaction.seen_at().get()))
    })
}

/// The list of indexes that a partition keeps.
pub(crate) fn list(store: &Store, table: &Table, partition: u32) -> Result<Reply, RequestError> {
    let list =
        read(store, table, partition, ReadMode::Single, |transaction| transaction.get_in(Space::INDEXES, LIST_KEY))?;
    Ok(Reply::List(list.unwrap_or_default()))
}

/// A page of a partition's documents, in the order of the keys of a space.
///
/// Blocks while writes come too fast for entries and documents to be read at one instant, or may let documents live on that have ended by
/// the clock: then the partition's loop reads them.
pub(crate) fn scan(
    shared: &Shared,
    table: &Table,
    partition: u32,
    reads: ReadMode,
    scan: &ScanWork,
) -> Result<Reply, RequestError> {
    scan_uncounted(&shared.store, table, partition, reads, scan).map(|reply| counted(shared, table.id(), reply))
}

fn scan_uncounted(
    store: &Store,
    table: &Table,
    partition: u32,
    reads: ReadMode,
    scan: &ScanWork,
) -> Result<Reply, RequestError> {
    let found = if scan.space == Space::DOCUMENTS {
        let page = |transaction: &Transaction<'_>| scan.page_of_documents(transaction, PAGE_BYTES);
        read_if_settled(table, partition, reads, store.now(), page)?
    } else if reads == ReadMode::Outdated && table.leader_of(partition) != Leader::Here {
        let page = |transaction: &Transaction<'_>| scan.page_of_index(transaction, PAGE_BYTES);
        return replica::page_of_index(store, table, partition, scan.space, page);
    } else {
        let page = |transaction: &mut Transaction<'_>| scan.page_of_index(transaction, PAGE_BYTES);
        table.read_instant(partition, reads, store.now(), page)?
    };
    if let Some(reply) = found {
        return Ok(reply);
    }
    LoopRead::begin(store, table, partition, Work::Scan(scan.clone()))
        .blocking_recv()
        .unwrap_or(Err(RequestError::NotReady))
}

/// As [`scan`], with the last change that the page shows.
///
/// Blocks as [`scan`] does.
pub(crate) fn stamped_scan(
    shared: &Shared,
    table: &Table,
    partition: u32,
    scan: &ScanWork,
) -> Result<Reply, RequestError> {
    let page = |transaction: &mut Transaction<'_>| scan.stamped(transaction, PAGE_BYTES);
    let reply = match table.read_instant(partition, ReadMode::Single, shared.store.now(), page)? {
        Some(reply) => reply,
        None => LoopRead::begin(&shared.store, table, partition, Work::StampedScan(scan.clone()))
            .blocking_recv()
            .unwrap_or(Err(RequestError::NotReady))?,
    };
    Ok(counted(shared, table.id(), reply))
}

/// Has a partition's loop read, which waits until no transaction holds what is read.
pub(crate) async fn read_in_loop(
    shared: &Shared,
    table: &Table,
    partition: u32,
    work: Work,
) -> Result<Reply, RequestError> {
    let read = LoopRead::begin(&shared.store, table, partition, work);
    read.await.unwrap_or(Err(RequestError::NotReady)).map(|reply| counted(shared, table.id(), reply))
}

/// Has a partition's loop read, confirmed by a majority of its replicas.
pub(crate) async fn read_confirmed(
    shared: &Shared,
    table: &Table,
    partition: u32,
    work: Work,
) -> Result<Reply, RequestError> {
    let (read, receiver) = LoopRead::of(work);
    shared.store.read_confirmed(table, &read, [partition]);
    receiver.await.unwrap_or(Err(RequestError::NotReady)).map(|reply| counted(shared, table.id(), reply))
}

/// Makes durable what was written to a partition before, if its table is on disk: what is fsynced later has all before it.
pub(crate) async fn sync(store: &Store, table: &Table, partition: u32) -> Result<Reply, RequestError> {
    let (sender, receiver) = oneshot::channel();
    let mark: Arc<dyn Operation> = Arc::new(Mark(Mutex::new(Some(sender))));
    let durability = table.schema().is_persistent().then_some(Durability::Hard);
    store.write(table, WriteOptions { durability, acks: Some(Acks::Majority) }, &mark, [partition]);
    receiver.await.unwrap_or(Err(RequestError::Interrupted)).map(|()| Reply::Synced)
}

/// What a [`Mark`] deletes: there is no such record.
const SYNC_KEY: &[u8] = b"sync";

/// A write that changes nothing, but stands in the log.
struct Mark(Mutex<Option<oneshot::Sender<Result<(), RequestError>>>>);

impl Operation for Mark {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        transaction.delete_in(Space::SYSTEM, SYNC_KEY);
        Verdict::Commit
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.0.lock().take() {
            let _ = sender.send(outcome);
        }
    }
}

impl ScanWork {
    /// What is still to be read behind a key.
    fn range<'a>(&'a self, after: Option<&'a Bytes>) -> KeyRange<'a> {
        let start = Bound::Included(&self.start[..]);
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        match (after, self.order) {
            (None, _) => (start, end),
            // A scan may have been told meanwhile to leave something out.
            (Some(after), Order::Ascending) if **after < *self.start => (start, end),
            (Some(after), Order::Ascending) => (Bound::Excluded(&after[..]), end),
            (Some(after), Order::Descending) => (start, Bound::Excluded(&after[..])),
        }
    }

    fn limit(&self) -> usize {
        (self.limit as usize).max(1)
    }

    fn stamped(&self, transaction: &Transaction<'_>, bytes: usize) -> Result<Reply, RequestError> {
        let state = transaction.get_in(Space::INDEXES, STATE_KEY)?;
        let last = state.and_then(|state| decode_state(&state)).map_or(0, |state| state.last);
        let page = match self.space {
            Space::DOCUMENTS => self.page_of_documents(transaction, bytes)?,
            _ => self.page_of_index(transaction, bytes)?,
        };
        Ok(match page {
            Reply::Page(rows, has_more) => Reply::Stamped(last, rows, has_more),
            other => other,
        })
    }

    fn page_of_documents(&self, transaction: &Transaction<'_>, bytes: usize) -> Result<Reply, RequestError> {
        let limit = PageLimit { records: self.limit(), bytes };
        let found = transaction.scan_in(Space::DOCUMENTS, self.range(self.after.as_ref()), self.order, limit)?;
        Ok(Reply::Page(found.records, found.is_cut))
    }

    /// Entries with their documents: all that is seen must be of one instant.
    fn page_of_index(&self, transaction: &Transaction<'_>, bytes: usize) -> Result<Reply, RequestError> {
        let list = transaction.get_in(Space::INDEXES, LIST_KEY)?.unwrap_or_default();
        let is_built = |list: &IndexList| list.get(self.space).is_some_and(|index| index.is_built);
        if !IndexList::decode(list).is_some_and(|list| is_built(&list)) {
            return Ok(Reply::NotBuilt);
        }
        let mut after = self.after.clone();
        for round in 0..ROUNDS_WITHOUT_ROWS {
            let records = if round == 0 { self.limit() } else { self.limit().max(8 * DOCUMENTS_AT_ONCE) };
            let limit = PageLimit { records, bytes };
            let (found, is_cut) = match &self.cells {
                None => {
                    let found = transaction.scan_in(self.space, self.range(after.as_ref()), self.order, limit)?;
                    (found.records, found.is_cut)
                }
                Some(cells) => self.entries_with_cells(transaction, cells, after.as_ref(), records)?,
            };
            let (rows, looked) = self.rows_of(transaction, &found, bytes)?;
            let has_more = is_cut || looked < found.len();
            match found.last() {
                // Readers go on behind the last row, so a page that is not the last one has one.
                Some((last, _)) if rows.is_empty() && has_more => after = Some(last.clone()),
                _ => return Ok(Reply::Page(rows, has_more)),
            }
        }
        // What has ended is being removed.
        Err(RequestError::NotReady)
    }

    /// The documents of entries, as many as a page may have, and how many entries were looked at.
    fn rows_of(
        &self,
        transaction: &Transaction<'_>,
        found: &[(Bytes, Bytes)],
        bytes: usize,
    ) -> Result<(Vec<(Bytes, Bytes)>, usize), RequestError> {
        let (mut rows, mut size, mut looked) = (Vec::with_capacity(found.len().min(self.limit())), 0, 0);
        for entries in found.chunks(DOCUMENTS_AT_ONCE) {
            let keys = entries.iter().map(|(entry, _)| primary_key(entry)).collect::<Result<Vec<_>, RequestError>>()?;
            let documents = transaction.multi_get_in(Space::DOCUMENTS, &keys)?;
            for ((entry, _), document) in entries.iter().zip(documents) {
                if size >= bytes || rows.len() >= self.limit() {
                    return Ok((rows, looked));
                }
                looked += 1;
                // It has ended; or a write overtook this reader, which reads again then.
                let Some(document) = document else { continue };
                size += document.len();
                rows.push((entry.clone(), document));
            }
        }
        Ok((rows, looked))
    }

    /// The next entries by which a search of a geospatial index finds documents, and whether there may be more behind them.
    fn entries_with_cells(
        &self,
        transaction: &Transaction<'_>,
        cells: &Cells,
        after: Option<&Bytes>,
        records: usize,
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), RequestError> {
        let bounds: Vec<_> = cells.ranges().iter().map(|range| cell_bounds(*range)).collect();
        let mut ranges: Vec<KeyRange<'_>> =
            bounds.iter().map(|(start, end)| (Bound::Included(&start[..]), Bound::Excluded(&end[..]))).collect();
        if let Some(after) = after {
            let begun = bounds.partition_point(|(_, end)| **end <= **after);
            ranges.drain(..begun);
            if let Some((start, _)) = ranges.first_mut().filter(|_| *bounds[begun].0 <= **after) {
                *start = Bound::Excluded(after);
            }
        }
        let limit = PageLimit { records, bytes: ENTRIES_BYTES };
        // What is no key of an entry is told when its document is looked for.
        let finds = |key: &[u8]| EntryKey::decode(key).map_or(true, |entry| cells.finds_by(entry.secondary));
        let found = transaction.scan_ranges_in(self.space, &ranges, limit, finds)?;
        Ok((found.records, found.is_cut))
    }
}

/// The primary key of the document that an index entry is for.
fn primary_key(entry: &[u8]) -> Result<&[u8], RequestError> {
    let entry = EntryKey::decode(entry).map_err(|_| RequestError::Corruption("an index entry".into()))?;
    Ok(entry.primary)
}

/// Bytes of documents in a page that a partition's loop reads, about.
const LOOP_PAGE_BYTES: usize = 64 << 10;

/// What a partition's loop reads.
struct LoopRead {
    work: Work,
    found: Mutex<Option<Result<Reply, RequestError>>>,
    sender: Mutex<Option<oneshot::Sender<Result<Reply, RequestError>>>>,
}

impl LoopRead {
    fn of(work: Work) -> (Arc<dyn Operation>, oneshot::Receiver<Result<Reply, RequestError>>) {
        let (sender, receiver) = oneshot::channel();
        (Arc::new(Self { work, found: Mutex::new(None), sender: Mutex::new(Some(sender)) }), receiver)
    }

    /// Hands a read to a partition's loop.
    fn begin(
        store: &Store,
        table: &Table,
        partition: u32,
        work: Work,
    ) -> oneshot::Receiver<Result<Reply, RequestError>> {
        let (read, receiver) = Self::of(work);
        store.write(table, WriteOptions::default(), &read, [partition]);
        receiver
    }

    fn read(&self, transaction: &Transaction<'_>) -> Result<Reply, RequestError> {
        match &self.work {
            Work::Get { key } => transaction.get_in(Space::DOCUMENTS, key).map(Reply::Document),
            Work::List => {
                let list = transaction.get_in(Space::INDEXES, LIST_KEY)?;
                Ok(Reply::List(list.unwrap_or_default()))
            }
            Work::Scan(scan) if scan.space == Space::DOCUMENTS => scan.page_of_documents(transaction, LOOP_PAGE_BYTES),
            Work::Scan(scan) => scan.page_of_index(transaction, LOOP_PAGE_BYTES),
            Work::StampedScan(scan) => scan.stamped(transaction, LOOP_PAGE_BYTES),
            Work::Write(_)
            | Work::Sync
            | Work::Evaluate(_)
            | Work::BeginChanges
            | Work::Changes(_)
            | Work::Holder { .. }
            | Work::Claim(_)
            | Work::Stored { .. }
            | Work::Progress { .. } => Err(RequestError::NotReady),
        }
    }
}

impl Operation for LoopRead {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        *self.found.lock() = Some(self.read(transaction));
        Verdict::Abandon
    }

    fn only_reads(&self, _part: usize) -> bool {
        true
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.sender.lock().take() {
            let found = self.found.lock().take().unwrap_or(Err(RequestError::NotReady));
            let _ = sender.send(outcome.and(found));
        }
    }
}

/// What came of a write, and whether feeds are to be told.
type Answered = (Option<Result<Reply, RequestError>>, bool);

/// Writes, each to its partition.
pub(crate) struct Writes {
    writes: Vec<WriteWork>,
    /// The partitions of the writes, of which table, and who waits for changes there.
    places: (Arc<Shared>, TableId, Vec<u32>),
    replies: Mutex<Vec<Answered>>,
    left: AtomicUsize,
    all_done: Notify,
}

impl Writes {
    pub(crate) fn new(shared: &Arc<Shared>, table: TableId, partitions: Vec<u32>, writes: Vec<WriteWork>) -> Self {
        let left = AtomicUsize::new(writes.len());
        let replies = Mutex::new(vec![(None, false); writes.len()]);
        let places = (shared.clone(), table, partitions);
        Self { writes, places, replies, left, all_done: Notify::new() }
    }

    /// Waits until all are answered.
    pub(crate) async fn done(&self) -> Vec<Result<Reply, RequestError>> {
        loop {
            let all_done = self.all_done.notified();
            if self.left.load(Ordering::Acquire) == 0 {
                break;
            }
            all_done.await;
        }
        let replies = std::mem::take(&mut *self.replies.lock());
        replies.into_iter().map(|(reply, _)| reply.unwrap_or(Err(RequestError::Interrupted))).collect()
    }
}

/// The list of indexes of a partition.
pub(crate) fn list_of(transaction: &Transaction<'_>) -> Result<Bytes, RequestError> {
    Ok(transaction.get_in(Space::INDEXES, LIST_KEY)?.unwrap_or_default())
}

impl Operation for Writes {
    fn evaluate(&self, part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let write = &self.writes[part];
        let (reply, is_told) = match write.carry_out(transaction) {
            Ok((reply, is_told)) => (Ok(reply), is_told),
            Err(error) => (Err(error), false),
        };
        let verdict = if matches!(reply, Ok(Reply::Written)) { Verdict::Commit } else { Verdict::Abandon };
        self.replies.lock()[part] = (Some(reply), is_told);
        verdict
    }

    fn answer(&self, part: usize, outcome: Result<(), RequestError>) {
        let (shared, table, partitions) = &self.places;
        let is_told = {
            let (reply, is_told) = &mut self.replies.lock()[part];
            if let Err(error) = &outcome {
                *reply = Some(Err(error.clone()));
            }
            if matches!(reply, Some(Ok(Reply::Written))) {
                shared.meter.note_written(*table);
            }
            outcome.is_ok() && *is_told
        };
        if is_told {
            let write = &self.writes[part];
            shared.waiters.wake(*table, partitions[part], &write.key, write.change_bytes());
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_done.notify_one();
        }
    }
}
