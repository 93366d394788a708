//! Reads of records that are known by key.

use super::messages::{
    BatchGetRequest, BatchGetResponse, CountResponse, FullData, FullKey, KeyValue, MultiGetRequest, MultiGetResponse,
    ReadResponse, TtlResponse,
};
use super::{Read, Response};
use crate::conditions::Filter;
use crate::status::{INCOMPLETE, INVALID_ARGUMENT, NOT_FOUND, OK};
use crate::stored_key;
use crate::wire::Blob;
use std::ops::Bound;
use tessera_engine::Order;
use tessera_store::{Record, Transaction};
use tessera_types::RequestError;

/// Most records that one MULTI_GET looks at, and most bytes that it returns, as in Pegasus.
const MULTI_GET_RECORDS: usize = 3_000;
const MULTI_GET_BYTES: usize = 30 << 20;
/// Records that are read from the engine at a time.
const PAGE: usize = 256;

/// Carries out a read. All of it is of one instant if the transaction is.
///
/// # Errors
/// What the store reports.
pub(crate) fn run(read: &Read, transaction: &Transaction<'_>) -> Result<Response, RequestError> {
    match read {
        Read::Get(key) => {
            let record = record(transaction, key)?;
            Ok(Response::Read(ReadResponse {
                error: if record.is_some() { OK } else { NOT_FOUND },
                value: Blob(record.map(|record| record.value.to_vec()).unwrap_or_default()),
                ..Default::default()
            }))
        }
        Read::Ttl(key) => {
            let seconds =
                record(transaction, key)?.map(|record| stored_key::seconds_left(record.expiry, transaction.now()));
            Ok(Response::Ttl(TtlResponse {
                error: if seconds.is_some() { OK } else { NOT_FOUND },
                seconds: seconds.unwrap_or_default(),
                ..Default::default()
            }))
        }
        Read::MultiGet(request) => multi_get(request, transaction),
        Read::BatchGet(request) => Ok(Response::BatchGet(batch_get(request, transaction)?, request.keys.len())),
        Read::SortKeyCount(hash_key) => count(&hash_key.0, transaction).map(Response::Count),
    }
}

fn record(transaction: &Transaction<'_>, key: &Blob) -> Result<Option<Record>, RequestError> {
    match stored_key::split(&key.0) {
        Some((hash_key, sort_key)) => transaction.get(hash_key, sort_key),
        None => Ok(None),
    }
}

/// What a MULTI_GET gathers, up to what its request and the server allow.
struct Gathered<'a> {
    request: &'a MultiGetRequest,
    records: Vec<KeyValue>,
    scanned: usize,
    bytes: usize,
}

impl<'a> Gathered<'a> {
    fn new(request: &'a MultiGetRequest) -> Self {
        Self { request, records: Vec::new(), scanned: 0, bytes: 0 }
    }

    fn is_full(&self) -> bool {
        let most = |asked: i32, allowed: usize| {
            usize::try_from(asked).ok().filter(|asked| *asked > 0).map_or(allowed, |asked| asked.min(allowed))
        };
        self.scanned >= MULTI_GET_RECORDS
            || self.records.len() >= most(self.request.max_count, MULTI_GET_RECORDS)
            || self.bytes >= most(self.request.max_bytes, MULTI_GET_BYTES)
    }

    fn add(&mut self, sort_key: &[u8], record: &Record) {
        let value = if self.request.no_value { Vec::new() } else { record.value.to_vec() };
        self.bytes += sort_key.len() + value.len();
        self.records.push(KeyValue { key: Blob(sort_key.to_vec()), value: Blob(value), expire_ts: None });
    }

    fn response(self, is_complete: bool) -> Response {
        let error = if is_complete { OK } else { INCOMPLETE };
        Response::MultiGet(MultiGetResponse { error, records: self.records, ..Default::default() }, self.scanned)
    }
}

fn multi_get(request: &MultiGetRequest, transaction: &Transaction<'_>) -> Result<Response, RequestError> {
    let filter = Filter::new(request.filter_type, request.filter_pattern.0.clone());
    let (Some(filter), false) = (filter, request.hash_key.0.is_empty()) else {
        return Ok(Response::MultiGet(MultiGetResponse { error: INVALID_ARGUMENT, ..Default::default() }, 0));
    };
    if request.sort_keys.is_empty() {
        in_range(request, &filter, transaction)
    } else {
        by_sort_keys(request, transaction)
    }
}

fn by_sort_keys(request: &MultiGetRequest, transaction: &Transaction<'_>) -> Result<Response, RequestError> {
    let mut gathered = Gathered::new(request);
    for Blob(sort_key) in &request.sort_keys {
        if gathered.is_full() {
            return Ok(gathered.response(false));
        }
        gathered.scanned += 1;
        if let Some(record) = transaction.get(&request.hash_key.0, sort_key)? {
            gathered.add(sort_key, &record);
        }
    }
    Ok(gathered.response(true))
}

fn in_range(
    request: &MultiGetRequest,
    filter: &Filter,
    transaction: &Transaction<'_>,
) -> Result<Response, RequestError> {
    let bound = |key: &'_ Blob, is_inclusive| match is_inclusive {
        true => Bound::Included(key.0.clone()),
        false => Bound::Excluded(key.0.clone()),
    };
    let mut start = bound(&request.start, request.start_inclusive);
    let mut stop = match request.stop.0.is_empty() {
        true => Bound::Unbounded,
        false => bound(&request.stop, request.stop_inclusive),
    };
    let mut gathered = Gathered::new(request);
    let order = if request.reverse { Order::Descending } else { Order::Ascending };
    let is_complete = loop {
        let range = (start.as_ref().map(Vec::as_slice), stop.as_ref().map(Vec::as_slice));
        let page = transaction.scan(&request.hash_key.0, range, order, PAGE)?;
        let mut rest = page.iter();
        while !gathered.is_full()
            && let Some((sort_key, record)) = rest.next()
        {
            gathered.scanned += 1;
            if filter.passes(sort_key) {
                gathered.add(sort_key, record);
            }
        }
        match page.last() {
            _ if rest.next().is_some() => break false,
            None => break true,
            Some(_) if page.len() < PAGE => break true,
            Some((last, _)) => match order {
                Order::Ascending => start = Bound::Excluded(last.to_vec()),
                Order::Descending => stop = Bound::Excluded(last.to_vec()),
            },
        }
    };
    if request.reverse {
        gathered.records.reverse();
    }
    Ok(gathered.response(is_complete))
}

fn batch_get(request: &BatchGetRequest, transaction: &Transaction<'_>) -> Result<BatchGetResponse, RequestError> {
    if request.keys.is_empty() {
        return Ok(BatchGetResponse { error: INVALID_ARGUMENT, ..Default::default() });
    }
    let (mut records, mut bytes) = (Vec::new(), 0);
    for FullKey { hash_key, sort_key } in &request.keys {
        if bytes >= MULTI_GET_BYTES {
            return Ok(BatchGetResponse { error: INCOMPLETE, records, ..Default::default() });
        }
        if let Some(record) = transaction.get(&hash_key.0, &sort_key.0)? {
            bytes += hash_key.0.len() + sort_key.0.len() + record.value.len();
            let (hash_key, sort_key) = (hash_key.clone(), sort_key.clone());
            records.push(FullData { hash_key, sort_key, value: Blob(record.value.to_vec()) });
        }
    }
    Ok(BatchGetResponse { error: OK, records, ..Default::default() })
}

fn count(hash_key: &[u8], transaction: &Transaction<'_>) -> Result<CountResponse, RequestError> {
    if hash_key.is_empty() {
        return Ok(CountResponse { error: INVALID_ARGUMENT, ..Default::default() });
    }
    let (mut count, mut start) = (0, Bound::Unbounded);
    loop {
        let range = (start.as_ref().map(Vec::as_slice), Bound::Unbounded);
        let page = transaction.scan(hash_key, range, Order::Ascending, PAGE)?;
        count += i64::try_from(page.len()).unwrap_or(i64::MAX);
        match page.last() {
            Some((last, _)) if page.len() == PAGE => start = Bound::Excluded(last.to_vec()),
            _ => return Ok(CountResponse { error: OK, count, ..Default::default() }),
        }
    }
}
