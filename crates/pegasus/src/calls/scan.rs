//! Scans: of the records of one hash key, in the order of sort keys, and of a whole partition, in no order that a client
//! could know (a partition's hash keys are ordered by hash).
//!
//! A scan stays on the server as a cursor between two calls, under a number that is used once. A client that finds its
//! cursor gone, because the server was restarted, another one leads or five minutes passed, begins a new scan after the
//! last key that it got. In a scan of a whole partition, such a key is a place in the partition's own order.

use super::Response;
use super::messages::{GetScannerRequest, KeyValue, ScanResponse};
use crate::conditions::Filter;
use crate::status::{INVALID_ARGUMENT, NOT_FOUND, OK};
use crate::stored_key;
use crate::wire::Blob;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};
use tessera_engine::{Order, PageLimit, Visit};
use tessera_store::{Table, Transaction};
use tessera_types::{ReadMode, RecordKey, RequestError, StoredValue, TableId, UnixMillis};

/// The context of a scan that has come to its end.
pub(super) const FINISHED: i64 = -1;
/// How long a cursor waits for the next call.
const PATIENCE: Duration = Duration::from_secs(300);
/// Cursors kept; beyond, the oldest goes, and its client starts again.
const KEPT: usize = 100_000;
/// Most records that one call looks at, and about the most bytes that it returns.
const SCANNED_RECORDS: usize = 1_000;
const BYTES: usize = 8 << 20;

/// The scans that are under way on this node.
pub(crate) struct Scanners {
    waiting: Mutex<Waiting>,
}

struct Waiting {
    next: i64,
    cursors: HashMap<i64, Cursor>,
    /// Since when each has waited; some are gone.
    ages: VecDeque<(Instant, i64)>,
}

struct Cursor {
    table: TableId,
    partition: u32,
    place: Place,
    options: Options,
}

struct Options {
    batch_size: usize,
    no_value: bool,
    hash_filter: Filter,
    sort_filter: Filter,
    wants_expire_ts: bool,
    only_count: bool,
}

/// A hash key and a sort key.
type Position = (Vec<u8>, Vec<u8>);

/// Where a scan goes on.
enum Place {
    HashKey { hash_key: Vec<u8>, start: Bound<Vec<u8>>, stop: Bound<Vec<u8>> },
    Partition { after: Option<Position>, within: Option<Within> },
    End,
}

/// The range of stored keys that a scan of a partition is to return.
struct Within {
    start: Bound<Vec<u8>>,
    stop: Bound<Vec<u8>>,
}

/// What one call found.
#[derive(Default)]
struct Batch {
    records: Vec<KeyValue>,
    count: usize,
    scanned: usize,
    bytes: usize,
}

impl Default for Scanners {
    fn default() -> Self {
        // Another process must not take the numbers of this one for its own.
        let next = rand::random_range(1..i64::MAX / 2);
        Self { waiting: Mutex::new(Waiting { next, cursors: HashMap::new(), ages: VecDeque::new() }) }
    }
}

impl Scanners {
    /// Begins a scan and returns its first records.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) fn begin(
        &self,
        table: &Table,
        partition: u32,
        request: &GetScannerRequest,
        now: UnixMillis,
    ) -> Result<Response, RequestError> {
        let filters = Filter::new(request.hash_filter_type, request.hash_filter_pattern.0.clone())
            .zip(Filter::new(request.sort_filter_type, request.sort_filter_pattern.0.clone()));
        let (Some((hash_filter, sort_filter)), Some(place)) = (filters, place(request)) else {
            let response = ScanResponse { error: INVALID_ARGUMENT, context: FINISHED, ..Default::default() };
            return Ok(Response::Scan(response));
        };
        let options = Options {
            batch_size: usize::try_from(request.batch_size).ok().filter(|size| *size > 0).unwrap_or(SCANNED_RECORDS),
            no_value: request.no_value,
            hash_filter,
            sort_filter,
            wants_expire_ts: request.wants_expire_ts == Some(true),
            only_count: request.only_count == Some(true),
        };
        let mut cursor = Cursor { table: table.id(), partition, place, options };
        let batch = cursor.advance(table, now)?;
        Ok(self.respond(cursor, batch))
    }

    /// Returns the next records of a scan.
    ///
    /// # Errors
    /// What the store reports. The scan is forgotten then, unless that is [`RequestError::WouldWait`] or [`RequestError::NotReady`].
    pub(crate) fn next(
        &self,
        table: &Table,
        partition: u32,
        context: i64,
        now: UnixMillis,
    ) -> Result<Response, RequestError> {
        let is_its = |cursor: &Cursor| cursor.table == table.id() && cursor.partition == partition;
        let cursor = {
            let mut waiting = self.waiting.lock();
            let is_known = waiting.cursors.get(&context).is_some_and(is_its);
            if is_known { waiting.cursors.remove(&context) } else { None }
        };
        match cursor {
            Some(mut cursor) => match cursor.advance(table, now) {
                Ok(batch) => Ok(self.respond(cursor, batch)),
                Err(error) => {
                    // It is asked for again.
                    if matches!(error, RequestError::WouldWait | RequestError::NotReady) {
                        self.waiting.lock().cursors.insert(context, cursor);
                    }
                    Err(error)
                }
            },
            None => Ok(Response::Scan(ScanResponse { error: NOT_FOUND, context: FINISHED, ..Default::default() })),
        }
    }

    pub(crate) fn forget(&self, context: i64) {
        self.waiting.lock().cursors.remove(&context);
    }

    fn respond(&self, cursor: Cursor, batch: Batch) -> Response {
        let is_finished = matches!(cursor.place, Place::End);
        let count = cursor.options.only_count.then(|| i32::try_from(batch.count).unwrap_or(i32::MAX));
        let context = if is_finished { FINISHED } else { self.keep(cursor) };
        Response::Scan(ScanResponse { error: OK, records: batch.records, context, count, ..Default::default() })
    }

    fn keep(&self, cursor: Cursor) -> i64 {
        let Waiting { next, cursors, ages } = &mut *self.waiting.lock();
        while let Some((since, context)) = ages.front()
            && (since.elapsed() >= PATIENCE || cursors.len() >= KEPT || ages.len() >= 2 * KEPT)
        {
            cursors.remove(context);
            ages.pop_front();
        }
        let context = *next;
        *next += 1;
        cursors.insert(context, cursor);
        ages.push_back((Instant::now(), context));
        context
    }
}

/// The hash key whose records are all that a scan is to find, if there is one.
pub(super) fn hash_key(request: &GetScannerRequest) -> Option<&[u8]> {
    let is_of_hash_key = matches!(place(request)?, Place::HashKey { .. });
    stored_key::split(&request.start.0).filter(|_| is_of_hash_key).map(|(hash_key, _)| hash_key)
}

/// Where a scan begins; `None` if a key of the request is none.
fn place(request: &GetScannerRequest) -> Option<Place> {
    let (Blob(start), Blob(stop)) = (&request.start, &request.stop);
    let (hash_key, sort_key) = if start.is_empty() { (&[][..], &[][..]) } else { stored_key::split(start)? };
    let bound = |key: &[u8], is_inclusive| match is_inclusive {
        true => Bound::Included(key.to_vec()),
        false => Bound::Excluded(key.to_vec()),
    };
    let is_whole = request.full_scan == Some(true) || stop.is_empty() || stop[..] == [0xff, 0xff];
    if is_whole {
        let is_beginning = hash_key.is_empty() && sort_key.is_empty();
        if is_beginning || !request.start_inclusive {
            let after = (!is_beginning).then(|| (hash_key.to_vec(), sort_key.to_vec()));
            return Some(Place::Partition { after, within: None });
        }
        let within = Within { start: Bound::Included(start.clone()), stop: Bound::Unbounded };
        return Some(Place::Partition { after: None, within: Some(within) });
    }
    let prefix = stored_key::join(hash_key, b"");
    let stop_sort_key = match stop.strip_prefix(&prefix[..]) {
        Some(sort_key) => Some(bound(sort_key, request.stop_inclusive)),
        None => (*stop == stored_key::after_prefix(&prefix)).then_some(Bound::Unbounded),
    };
    Some(match stop_sort_key {
        Some(stop) if !hash_key.is_empty() => {
            Place::HashKey { hash_key: hash_key.to_vec(), start: bound(sort_key, request.start_inclusive), stop }
        }
        _ => Place::Partition {
            after: None,
            within: Some(Within {
                start: bound(start, request.start_inclusive),
                stop: bound(stop, request.stop_inclusive),
            }),
        },
    })
}

impl Cursor {
    /// Gathers a batch, and moves behind it. After an error the cursor is where it was.
    fn advance(&mut self, table: &Table, now: UnixMillis) -> Result<Batch, RequestError> {
        let mut batch = Batch::default();
        advance(table, self.partition, &mut self.place, &self.options, &mut batch, now)?;
        Ok(batch)
    }
}

/// Gathers a batch, and moves the place behind it.
fn advance(
    table: &Table,
    partition: u32,
    place: &mut Place,
    options: &Options,
    batch: &mut Batch,
    now: UnixMillis,
) -> Result<(), RequestError> {
    match place {
        Place::End => {}
        Place::HashKey { hash_key, start, stop } => {
            let (start, stop) = (start.as_ref().map(Vec::as_slice), stop.as_ref().map(Vec::as_slice));
            *place = match in_hash_key(table, partition, hash_key, (start, stop), options, batch, now)? {
                Some(last) => Place::HashKey {
                    hash_key: std::mem::take(hash_key),
                    start: Bound::Excluded(last),
                    stop: stop.map(<[u8]>::to_vec),
                },
                None => Place::End,
            };
        }
        Place::Partition { after, within } => {
            if let Some(next) = in_partition(table, partition, after.clone(), within.as_ref(), options, batch, now)? {
                *after = Some(next);
            } else {
                *place = Place::End;
            }
        }
    }
    Ok(())
}

impl Batch {
    fn is_full(&self, options: &Options) -> bool {
        self.count >= options.batch_size || self.scanned >= SCANNED_RECORDS || self.bytes >= BYTES
    }

    fn add(&mut self, options: &Options, key: (&[u8], &[u8]), value: &[u8], expire_ts: i32) {
        self.scanned += 1;
        if !options.hash_filter.passes(key.0) || !options.sort_filter.passes(key.1) {
            return;
        }
        self.count += 1;
        if options.only_count {
            return;
        }
        let value = if options.no_value { Vec::new() } else { value.to_vec() };
        let key = stored_key::join(key.0, key.1);
        self.bytes += key.len() + value.len();
        let expire_ts = options.wants_expire_ts.then_some(expire_ts);
        self.records.push(KeyValue { key: Blob(key), value: Blob(value), expire_ts });
    }
}

/// Adds records of one hash key. Returns the last sort key that was looked at if there are more.
fn in_hash_key(
    table: &Table,
    partition: u32,
    hash_key: &[u8],
    range: (Bound<&[u8]>, Bound<&[u8]>),
    options: &Options,
    batch: &mut Batch,
    now: UnixMillis,
) -> Result<Option<Vec<u8>>, RequestError> {
    let transaction = Transaction::read_only(table, partition, ReadMode::Single, now)?;
    let wanted = options.batch_size.min(SCANNED_RECORDS);
    let page = transaction.scan(hash_key, range, Order::Ascending, wanted)?;
    transaction.check_lease()?;
    for (at, (sort_key, record)) in page.iter().enumerate() {
        batch.add(options, (hash_key, sort_key), &record.value, stored_key::expire_ts(record.expiry));
        let is_last = at + 1 == page.len() && page.len() < wanted;
        if batch.is_full(options) && !is_last {
            return Ok(Some(sort_key.to_vec()));
        }
    }
    Ok((page.len() == wanted).then(|| page[wanted - 1].0.to_vec()))
}

/// Adds records of a partition that come after a key in the partition's order. Returns the last one that was looked at if
/// there may be more.
fn in_partition(
    table: &Table,
    partition: u32,
    after: Option<Position>,
    within: Option<&Within>,
    options: &Options,
    batch: &mut Batch,
    now: UnixMillis,
) -> Result<Option<Position>, RequestError> {
    let mut from = match &after {
        Some((hash_key, sort_key)) => tessera_engine::Position::behind(&RecordKey::new(hash_key, sort_key)),
        None => tessera_engine::Position::START,
    };
    let (mut last, mut has_last) = ((Vec::new(), Vec::new()), false);
    loop {
        if batch.is_full(options) {
            return Ok(if has_last { Some(last) } else { after });
        }
        let wanted = options.batch_size.min(SCANNED_RECORDS - batch.scanned).max(1);
        let mut is_cut = false;
        let limit = PageLimit::of_records(wanted);
        let next = table.scan(partition, &from, limit, now, &mut |key, stored: StoredValue<'_>| {
            if is_cut || batch.is_full(options) {
                is_cut = true;
                return Visit::NextHashKey;
            }
            if within.is_none_or(|within| within.contains(&key)) {
                let expire_ts = stored_key::expire_ts(stored.expiry);
                batch.add(options, (key.hash_key, key.sort_key), stored.payload, expire_ts);
            } else {
                batch.scanned += 1;
            }
            has_last = true;
            for (kept, seen) in [(&mut last.0, key.hash_key), (&mut last.1, key.sort_key)] {
                kept.clear();
                kept.extend_from_slice(seen);
            }
            Visit::NextRecord
        })?;
        match next {
            _ if is_cut => return Ok(if has_last { Some(last) } else { after }),
            None => return Ok(None),
            Some(next) => from = next,
        }
    }
}

impl Within {
    fn contains(&self, key: &RecordKey<'_>) -> bool {
        let key = stored_key::join(key.hash_key, key.sort_key);
        (match &self.start {
            Bound::Included(start) => key >= *start,
            Bound::Excluded(start) => key > *start,
            Bound::Unbounded => true,
        }) && match &self.stop {
            Bound::Included(stop) => key <= *stop,
            Bound::Excluded(stop) => key < *stop,
            Bound::Unbounded => true,
        }
    }
}
