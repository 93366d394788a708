//! What is done to one partition by the node that leads it, and the form in which another node asks for it: a byte that names the
//! work, and its fields. Texts of bytes follow their `u32` length; numbers are little-endian.
//!
//! A write is a comparison: the document becomes what the asking node has computed if it still is what that was computed from, and
//! if the asking node knew which indexes the partition keeps. See docs/decisions/0039 and 0041.

use crate::evaluation::{EvaluateWork, Slice};
use crate::indexes::{IndexList, LIST_KEY, NewEntries, stamp_of};
use bytes::{Buf as _, BufMut as _, Bytes};
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_document::{EntryChanges, EntryKey};
use tessera_engine::{KeyRange, Order, PageLimit};
use tessera_store::{Operation, Store, Table, Transaction, Verdict, WriteOptions};
use tessera_types::{Acks, Durability, ReadMode, RequestError, Space};
use tokio::sync::{Notify, oneshot};

/// Bytes of documents in a page, about.
const PAGE_BYTES: usize = 1 << 20;

/// Documents of an index's entries that are read in one call: as many as RocksDB looks for together.
const DOCUMENTS_AT_ONCE: usize = 32;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Get {
        key: Bytes,
    },
    Scan(ScanWork),
    Evaluate(EvaluateWork),
    Write(WriteWork),
    /// Tell which indexes the partition keeps.
    List,
    /// Make durable what was written before.
    Sync,
}

/// Documents by the keys of a space from `start` on, up to but without `end`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanWork {
    /// That of the documents, or of an index.
    pub(crate) space: Space,
    pub(crate) start: Bytes,
    pub(crate) end: Option<Bytes>,
    pub(crate) order: Order,
    pub(crate) after: Option<Bytes>,
    pub(crate) limit: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WriteWork {
    pub(crate) key: Bytes,
    /// What the document must still be.
    pub(crate) old: Option<Bytes>,
    pub(crate) new: Option<Bytes>,
    pub(crate) entries: NewEntries,
    /// Whether the write need not wait for the disk.
    pub(crate) is_soft: bool,
    pub(crate) is_hard: bool,
}

/// What came of work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Document(Option<Bytes>),
    /// Keys of the space and documents, and whether there are more behind the last one.
    Page(Vec<(Bytes, Bytes)>, bool),
    Written,
    /// The document is not what it was; it is this.
    Differs(Option<Bytes>),
    /// Nothing was done, for this reason.
    Refused(String),
    /// The [list](IndexList) of indexes that the partition keeps. Nothing was written: the entries were made for another one.
    List(Bytes),
    /// The partition does not have the index yet.
    NotBuilt,
    Synced,
    Slice(Slice),
}

pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("values are shorter than 4 GiB"));
    out.put_slice(bytes);
}

pub(crate) fn put_option(out: &mut Vec<u8>, bytes: Option<&Bytes>) {
    out.put_u8(u8::from(bytes.is_some()));
    bytes.inspect(|bytes| put(out, bytes));
}

pub(crate) fn take(input: &mut Bytes) -> Option<Bytes> {
    let length = input.try_get_u32_le().ok()? as usize;
    (length <= input.len()).then(|| input.split_to(length))
}

pub(crate) fn take_option(input: &mut Bytes) -> Option<Option<Bytes>> {
    if input.try_get_u8().ok()? == 0 { Some(None) } else { take(input).map(Some) }
}

fn put_entries(out: &mut Vec<u8>, entries: &NewEntries) {
    out.put_u64_le(entries.stamp);
    out.put_u32_le(u32::try_from(entries.changes.len()).expect("indexes are few"));
    for (space, changes) in &entries.changes {
        out.put_u32_le(space.0);
        for keys in [&changes.removed, &changes.added] {
            out.put_u32_le(u32::try_from(keys.len()).expect("an array has fewer elements"));
            keys.iter().for_each(|key| put(out, key));
        }
    }
}

fn take_entries(input: &mut Bytes) -> Option<NewEntries> {
    let mut entries = NewEntries { stamp: input.try_get_u64_le().ok()?, ..NewEntries::default() };
    for _ in 0..input.try_get_u32_le().ok()? {
        let space = Space(input.try_get_u32_le().ok()?);
        let mut keys = || -> Option<Vec<Vec<u8>>> {
            let count = input.try_get_u32_le().ok()?;
            (0..count).map(|_| take(input).map(|key| key.to_vec())).collect()
        };
        let changes = EntryChanges { removed: keys()?, added: keys()? };
        entries.changes.push((space, changes));
    }
    Some(entries)
}

impl Work {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { key } => {
                out.put_u8(0);
                put(out, key);
            }
            Self::Scan(scan) => {
                out.put_u8(1);
                scan.encode(out);
            }
            Self::Write(write) => {
                out.put_slice(&[2, u8::from(write.is_soft), u8::from(write.is_hard)]);
                put(out, &write.key);
                put_option(out, write.old.as_ref());
                put_option(out, write.new.as_ref());
                put_entries(out, &write.entries);
            }
            Self::List => out.put_u8(3),
            Self::Sync => out.put_u8(4),
            Self::Evaluate(evaluate) => {
                out.put_u8(5);
                evaluate.encode(out);
            }
        }
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        Some(match input.try_get_u8().ok()? {
            0 => Self::Get { key: take(input)? },
            1 => Self::Scan(ScanWork::decode(input)?),
            2 => {
                let (is_soft, is_hard) = (input.try_get_u8().ok()? != 0, input.try_get_u8().ok()? != 0);
                let (key, old, new) = (take(input)?, take_option(input)?, take_option(input)?);
                Self::Write(WriteWork { key, old, new, entries: take_entries(input)?, is_soft, is_hard })
            }
            3 => Self::List,
            4 => Self::Sync,
            5 => Self::Evaluate(EvaluateWork::decode(input)?),
            _ => return None,
        })
    }

    /// Whether it does no harm twice.
    pub(crate) fn is_read(&self) -> bool {
        !matches!(self, Self::Write(_))
    }
}

impl Reply {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Document(document) => {
                out.put_u8(0);
                put_option(&mut out, document.as_ref());
            }
            Self::Page(rows, has_more) => {
                out.put_slice(&[1, u8::from(*has_more)]);
                for (key, document) in rows {
                    put(&mut out, key);
                    put(&mut out, document);
                }
            }
            Self::Written => out.put_u8(2),
            Self::Differs(document) => {
                out.put_u8(3);
                put_option(&mut out, document.as_ref());
            }
            Self::Refused(reason) => {
                out.put_u8(4);
                put(&mut out, reason.as_bytes());
            }
            Self::List(list) => {
                out.put_u8(5);
                put(&mut out, list);
            }
            Self::NotBuilt => out.put_u8(6),
            Self::Synced => out.put_u8(7),
            Self::Slice(slice) => {
                out.put_u8(8);
                slice.encode(&mut out);
            }
        }
        out.into()
    }

    pub(crate) fn decode(mut input: Bytes) -> Option<Self> {
        let input = &mut input;
        Some(match input.try_get_u8().ok()? {
            0 => Self::Document(take_option(input)?),
            1 => {
                let (has_more, mut rows) = (input.try_get_u8().ok()? != 0, Vec::new());
                while !input.is_empty() {
                    rows.push((take(input)?, take(input)?));
                }
                Self::Page(rows, has_more)
            }
            2 => Self::Written,
            3 => Self::Differs(take_option(input)?),
            4 => Self::Refused(String::from_utf8_lossy(&take(input)?).into_owned()),
            5 => Self::List(take(input)?),
            6 => Self::NotBuilt,
            7 => Self::Synced,
            8 => Self::Slice(Slice::decode(input)?),
            _ => return None,
        })
    }
}

/// Reads something of a partition that one look at it shows.
pub(crate) fn read<T>(
    store: &Store,
    table: &Table,
    partition: u32,
    reads: ReadMode,
    read: impl FnOnce(&Transaction<'_>) -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    let transaction = Transaction::read_only(table, partition, reads, store.now())?;
    let found = read(&transaction)?;
    transaction.check_lease()?;
    Ok(found)
}

pub(crate) fn get(
    store: &Store,
    table: &Table,
    partition: u32,
    reads: ReadMode,
    key: &[u8],
) -> Result<Reply, RequestError> {
    read(store, table, partition, reads, |transaction| transaction.get_in(Space::DOCUMENTS, key)).map(Reply::Document)
}

/// The list of indexes that a partition keeps.
pub(crate) fn list(store: &Store, table: &Table, partition: u32) -> Result<Reply, RequestError> {
    let list =
        read(store, table, partition, ReadMode::Single, |transaction| transaction.get_in(Space::INDEXES, LIST_KEY))?;
    Ok(Reply::List(list.unwrap_or_default()))
}

/// A page of a partition's documents, in the order of the keys of a space.
///
/// Blocks while writes come too fast for entries and documents to be read at one instant: then the partition's loop reads them.
pub(crate) fn scan(
    store: &Store,
    table: &Table,
    partition: u32,
    reads: ReadMode,
    scan: &ScanWork,
) -> Result<Reply, RequestError> {
    if scan.space == Space::DOCUMENTS {
        return read(store, table, partition, reads, |transaction| scan.page_of_documents(transaction, PAGE_BYTES));
    }
    let page = |transaction: &mut Transaction<'_>| scan.page_of_index(transaction, PAGE_BYTES);
    if let Some(reply) = table.read_instant(partition, reads, store.now(), page)? {
        return Ok(reply);
    }
    let (read, receiver) = LoopRead::of(Work::Scan(scan.clone()));
    store.write(table, WriteOptions::default(), &read, [partition]);
    receiver.blocking_recv().unwrap_or(Err(RequestError::NotReady))
}

/// Has a partition's loop read, confirmed by a majority of its replicas.
pub(crate) async fn read_confirmed(
    store: &Store,
    table: &Table,
    partition: u32,
    work: Work,
) -> Result<Reply, RequestError> {
    let (read, receiver) = LoopRead::of(work);
    store.read_confirmed(table, &read, [partition]);
    receiver.await.unwrap_or(Err(RequestError::NotReady))
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
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.order == Order::Descending));
        out.put_u32_le(self.space.0);
        put(out, &self.start);
        put_option(out, self.end.as_ref());
        put_option(out, self.after.as_ref());
        out.put_u32_le(self.limit);
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        Some(Self {
            order: if input.try_get_u8().ok()? == 0 { Order::Ascending } else { Order::Descending },
            space: Space(input.try_get_u32_le().ok()?),
            start: take(input)?,
            end: take_option(input)?,
            after: take_option(input)?,
            limit: input.try_get_u32_le().ok()?,
        })
    }

    fn range(&self) -> KeyRange<'_> {
        let start = Bound::Included(&self.start[..]);
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        match (&self.after, self.order) {
            (None, _) => (start, end),
            (Some(after), Order::Ascending) => (Bound::Excluded(&after[..]), end),
            (Some(after), Order::Descending) => (start, Bound::Excluded(&after[..])),
        }
    }

    fn limit(&self) -> usize {
        (self.limit as usize).max(1)
    }

    fn page_of_documents(&self, transaction: &Transaction<'_>, bytes: usize) -> Result<Reply, RequestError> {
        let limit = PageLimit { records: self.limit(), bytes };
        let found = transaction.scan_in(Space::DOCUMENTS, self.range(), self.order, limit)?;
        Ok(Reply::Page(found.records, found.is_cut))
    }

    /// Entries with their documents: all that is seen must be of one instant.
    fn page_of_index(&self, transaction: &Transaction<'_>, bytes: usize) -> Result<Reply, RequestError> {
        let list = transaction.get_in(Space::INDEXES, LIST_KEY)?.unwrap_or_default();
        let is_built = |list: &IndexList| list.get(self.space).is_some_and(|index| index.is_built);
        if !IndexList::decode(list).is_some_and(|list| is_built(&list)) {
            return Ok(Reply::NotBuilt);
        }
        let limit = PageLimit { records: self.limit(), bytes };
        let found = transaction.scan_in(self.space, self.range(), self.order, limit)?;
        let (mut rows, mut size) = (Vec::with_capacity(found.records.len()), 0);
        let count = found.records.len();
        for entries in found.records.chunks(DOCUMENTS_AT_ONCE) {
            let keys = entries.iter().map(|(entry, _)| primary_key(entry)).collect::<Result<Vec<_>, RequestError>>()?;
            let documents = transaction.multi_get_in(Space::DOCUMENTS, &keys)?;
            // A reader that writes overtook finds entries without documents, and reads again.
            let pairs = entries.iter().zip(documents).filter_map(|((entry, _), found)| Some((entry.clone(), found?)));
            for (entry, document) in pairs {
                if size >= bytes {
                    break;
                }
                size += document.len();
                rows.push((entry, document));
            }
            if size >= bytes {
                break;
            }
        }
        let has_more = found.is_cut || rows.len() < count;
        Ok(Reply::Page(rows, has_more))
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

    fn read(&self, transaction: &Transaction<'_>) -> Result<Reply, RequestError> {
        match &self.work {
            Work::Get { key } => transaction.get_in(Space::DOCUMENTS, key).map(Reply::Document),
            Work::List => {
                let list = transaction.get_in(Space::INDEXES, LIST_KEY)?;
                Ok(Reply::List(list.unwrap_or_default()))
            }
            Work::Scan(scan) if scan.space == Space::DOCUMENTS => scan.page_of_documents(transaction, LOOP_PAGE_BYTES),
            Work::Scan(scan) => scan.page_of_index(transaction, LOOP_PAGE_BYTES),
            Work::Write(_) | Work::Sync | Work::Evaluate(_) => Err(RequestError::NotReady),
        }
    }
}

impl Operation for LoopRead {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        *self.found.lock() = Some(self.read(transaction));
        Verdict::Abandon
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.sender.lock().take() {
            let found = self.found.lock().take().unwrap_or(Err(RequestError::NotReady));
            let _ = sender.send(outcome.and(found));
        }
    }
}

/// Writes, each to its partition.
pub(crate) struct Writes {
    writes: Vec<WriteWork>,
    replies: Mutex<Vec<Option<Result<Reply, RequestError>>>>,
    left: AtomicUsize,
    all_done: Notify,
}

impl Writes {
    pub(crate) fn new(writes: Vec<WriteWork>) -> Self {
        let left = AtomicUsize::new(writes.len());
        let replies = Mutex::new(vec![None; writes.len()]);
        Self { writes, replies, left, all_done: Notify::new() }
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
        replies.into_iter().map(|reply| reply.unwrap_or(Err(RequestError::Interrupted))).collect()
    }
}

impl WriteWork {
    fn carry_out(&self, transaction: &mut Transaction<'_>) -> Result<Reply, RequestError> {
        let list = transaction.get_in(Space::INDEXES, LIST_KEY)?.unwrap_or_default();
        if stamp_of(&list) != self.entries.stamp {
            return Ok(Reply::List(list));
        }
        let there = transaction.get_in(Space::DOCUMENTS, &self.key)?;
        if there != self.old {
            return Ok(Reply::Differs(there));
        }
        match &self.new {
            Some(new) => transaction.put_in(Space::DOCUMENTS, &self.key, new)?,
            None => transaction.delete_in(Space::DOCUMENTS, &self.key),
        }
        for (space, changes) in &self.entries.changes {
            changes.removed.iter().for_each(|entry| transaction.delete_in(*space, entry));
            changes.added.iter().try_for_each(|entry| transaction.put_in(*space, entry, b""))?;
        }
        Ok(Reply::Written)
    }
}

impl Operation for Writes {
    fn evaluate(&self, part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let write = &self.writes[part];
        let reply = write.carry_out(transaction);
        let verdict = if matches!(reply, Ok(Reply::Written)) { Verdict::Commit } else { Verdict::Abandon };
        self.replies.lock()[part] = Some(reply);
        verdict
    }

    fn answer(&self, part: usize, outcome: Result<(), RequestError>) {
        if let Err(error) = outcome {
            self.replies.lock()[part] = Some(Err(error));
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_done.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::SliceEnd;

    #[test]
    fn work_and_replies_travel() {
        let key = Bytes::from_static(b"key");
        let some = [
            Work::Get { key: key.clone() },
            Work::Scan(ScanWork {
                space: Space(17),
                start: key.clone(),
                end: None,
                order: Order::Descending,
                after: Some(key.clone()),
                limit: 7,
            }),
            Work::List,
            Work::Sync,
            Work::Evaluate(EvaluateWork {
                scan: ScanWork {
                    space: Space::DOCUMENTS,
                    start: Bytes::new(),
                    end: Some(key.clone()),
                    order: Order::Ascending,
                    after: None,
                    limit: 3,
                },
                pipeline: key.clone(),
                wants_keys: true,
            }),
            Work::Write(WriteWork {
                key: key.clone(),
                old: None,
                new: Some(key.clone()),
                entries: NewEntries {
                    stamp: 77,
                    changes: vec![(
                        Space(16),
                        EntryChanges { removed: vec![b"one".to_vec()], added: vec![b"two".to_vec(), b"3".to_vec()] },
                    )],
                },
                is_soft: true,
                is_hard: false,
            }),
        ];
        for work in some {
            let mut out = Vec::new();
            work.encode(&mut out);
            assert_eq!(Work::decode(&mut Bytes::from(out.clone())), Some(work));
            for length in 0..out.len() {
                assert_eq!(Work::decode(&mut Bytes::copy_from_slice(&out[..length])), None, "cut at {length}");
            }
        }
        let row = (key.clone(), key.clone());
        let some = [
            Reply::Document(None),
            Reply::Document(Some(key.clone())),
            Reply::Page(vec![row.clone(), row.clone()], true),
            Reply::Written,
            Reply::Differs(Some(key)),
            Reply::Refused("reason".into()),
            Reply::List(Bytes::from_static(b"list")),
            Reply::NotBuilt,
            Reply::Synced,
            Reply::Slice(Slice {
                partial: row.0.clone(),
                keys: vec![(row.0.clone(), 3)],
                last: Some(row.1.clone()),
                end: SliceEnd::Failed(row.1.clone(), row.0.clone()),
            }),
        ];
        for reply in some {
            assert_eq!(Reply::decode(reply.encode()), Some(reply));
        }
    }
}
