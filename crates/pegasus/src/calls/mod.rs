//! The data calls: what they ask, and how each is carried out on one partition.

mod counted;
mod get;
pub(crate) mod messages;
mod read;
mod scan;
mod write;

use crate::frame::{Call, read_argument, write_reply};
use crate::status::{self, Failure};
use crate::stored_key;
use crate::wire::{Blob, Shared, input};
pub(crate) use counted::{COUNTED, Tally};
pub(crate) use get::{Get, serve_get_batch};
use messages::{
    BatchGetRequest, BatchGetResponse, CheckAndMutateRequest, CheckAndSetRequest, CheckResponse, CountResponse,
    GetScannerRequest, IncrRequest, IncrResponse, MultiGetRequest, MultiGetResponse, MultiPutRequest,
    MultiRemoveRequest, MultiRemoveResponse, PutRequest, ReadResponse, ScanRequest, ScanResponse, TtlResponse,
    UpdateResponse,
};
pub(crate) use read::run as run_read;
pub(crate) use scan::Scanners;
use tessera_types::RecordKey;
pub(crate) use write::run as run_write;

/// A read of records that are known by key.
#[derive(Clone, Debug)]
pub(crate) enum Read {
    Get(Blob),
    Ttl(Blob),
    MultiGet(MultiGetRequest),
    BatchGet(BatchGetRequest),
    SortKeyCount(Blob),
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Put(PutRequest),
    Remove(Blob),
    MultiPut(MultiPutRequest),
    MultiRemove(MultiRemoveRequest),
    Incr(IncrRequest),
    CheckAndSet(CheckAndSetRequest),
    CheckAndMutate(CheckAndMutateRequest),
}

/// A request for data.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Read(Read),
    Write(Write),
    GetScanner(GetScannerRequest),
    Scan(ScanRequest),
    /// Not answered.
    ClearScanner(i64),
}

/// Reads the arguments of the data call `name`; `None` if there is no such call.
pub(crate) fn parse(name: &str, arguments: &[u8]) -> Option<thrift::Result<Request>> {
    let name = name.strip_prefix("RPC_RRDB_RRDB_")?;
    let input = &mut input(arguments);
    Some(match name {
        "GET" => read_argument(input).map(|key| Request::Read(Read::Get(key))),
        "TTL" => read_argument(input).map(|key| Request::Read(Read::Ttl(key))),
        "MULTI_GET" => read_argument(input).map(|request| Request::Read(Read::MultiGet(request))),
        "BATCH_GET" => read_argument(input).map(|request| Request::Read(Read::BatchGet(request))),
        "SORTKEY_COUNT" => read_argument(input).map(|key| Request::Read(Read::SortKeyCount(key))),
        "PUT" => read_argument(input).map(|request| Request::Write(Write::Put(request))),
        "REMOVE" => read_argument(input).map(|key| Request::Write(Write::Remove(key))),
        "MULTI_PUT" => read_argument(input).map(|request| Request::Write(Write::MultiPut(request))),
        "MULTI_REMOVE" => read_argument(input).map(|request| Request::Write(Write::MultiRemove(request))),
        "INCR" => read_argument(input).map(|request| Request::Write(Write::Incr(request))),
        "CHECK_AND_SET" => read_argument(input).map(|request| Request::Write(Write::CheckAndSet(request))),
        "CHECK_AND_MUTATE" => read_argument(input).map(|request| Request::Write(Write::CheckAndMutate(request))),
        "GET_SCANNER" => read_argument(input).map(Request::GetScanner),
        "SCAN" => read_argument(input).map(Request::Scan),
        "CLEAR_SCANNER" => read_argument(input).map(Request::ClearScanner),
        _ => return None,
    })
}

impl Request {
    /// Whether it begins a scan of all of a partition, or of a range of stored keys there. A scan of one hash key is for the key's
    /// partition, as other requests are.
    pub(crate) fn is_whole_scan(&self) -> bool {
        matches!(self, Self::GetScanner(_)) && matches!(self.key(), Ok(None))
    }

    /// A key whose partition all of the request's keys are in; `None` for those that say their partition themselves.
    ///
    /// # Errors
    /// If a key is none.
    pub(crate) fn key(&self) -> Result<Option<RecordKey<'_>>, Failure> {
        let hash_key = match self {
            Self::Read(Read::Get(key) | Read::Ttl(key))
            | Self::Write(
                Write::Remove(key) | Write::Put(PutRequest { key, .. }) | Write::Incr(IncrRequest { key, .. }),
            ) => {
                let (hash_key, sort_key) = stored_key::split(&key.0).ok_or(Failure::Header("ERR_INVALID_DATA"))?;
                return Ok(Some(RecordKey::new(hash_key, sort_key)));
            }
            Self::Read(Read::MultiGet(request)) => &request.hash_key,
            Self::Read(Read::SortKeyCount(hash_key)) => hash_key,
            Self::Write(Write::MultiPut(request)) => &request.hash_key,
            Self::Write(Write::MultiRemove(request)) => &request.hash_key,
            Self::Write(Write::CheckAndSet(request)) => &request.hash_key,
            Self::Write(Write::CheckAndMutate(request)) => &request.hash_key,
            Self::GetScanner(request) => return Ok(scan::hash_key(request).map(|key| RecordKey::new(key, b""))),
            Self::Read(Read::BatchGet(_)) | Self::Scan(_) | Self::ClearScanner(_) => return Ok(None),
        };
        // An empty one is refused where it is used.
        Ok(Some(&hash_key.0).filter(|key| !key.is_empty()).map(|key| RecordKey::new(key, b"")))
    }
}

/// The response to a data call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Response {
    Update(UpdateResponse),
    Read(ReadResponse),
    Ttl(TtlResponse),
    Count(CountResponse),
    /// With the number of records that were looked at.
    MultiGet(MultiGetResponse, usize),
    BatchGet(BatchGetResponse, usize),
    MultiRemove(MultiRemoveResponse),
    Incr(IncrResponse),
    Check(CheckResponse),
    Scan(ScanResponse),
}

/// Who answers: what every response tells besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) table: i32,
    pub(crate) partition: i32,
    /// The log index that the partition's records reflect.
    pub(crate) decree: i64,
    pub(crate) server: &'a Shared,
}

impl Response {
    /// The response of a request that failed with a code.
    pub(crate) fn failed(request: &Request, error: i32) -> Self {
        match request {
            Request::Read(Read::Get(_)) => Self::Read(ReadResponse { error, ..Default::default() }),
            Request::Read(Read::Ttl(_)) => Self::Ttl(TtlResponse { error, ..Default::default() }),
            Request::Read(Read::MultiGet(_)) => Self::MultiGet(MultiGetResponse { error, ..Default::default() }, 0),
            Request::Read(Read::BatchGet(_)) => Self::BatchGet(BatchGetResponse { error, ..Default::default() }, 0),
            Request::Read(Read::SortKeyCount(_)) => Self::Count(CountResponse { error, ..Default::default() }),
            Request::Write(write) => Self::write_failed(write, error),
            Request::GetScanner(_) | Request::Scan(_) | Request::ClearScanner(_) => {
                Self::Scan(ScanResponse { error, context: scan::FINISHED, ..Default::default() })
            }
        }
    }

    pub(crate) fn write_failed(write: &Write, error: i32) -> Self {
        match write {
            Write::Put(_) | Write::Remove(_) | Write::MultiPut(_) => {
                Self::Update(UpdateResponse { error, ..Default::default() })
            }
            Write::MultiRemove(_) => Self::MultiRemove(MultiRemoveResponse { error, ..Default::default() }),
            Write::Incr(_) => Self::Incr(IncrResponse { error, ..Default::default() }),
            Write::CheckAndSet(_) | Write::CheckAndMutate(_) => {
                Self::Check(CheckResponse { error, ..Default::default() })
            }
        }
    }

    /// Records that a read looked at, where that tells more than what it returns.
    pub(crate) fn scanned(&self) -> usize {
        match self {
            Self::MultiGet(_, scanned) | Self::BatchGet(_, scanned) => *scanned,
            _ => 0,
        }
    }

    /// Whether a write was carried out.
    pub(crate) fn is_ok(&self) -> bool {
        let error = match self {
            Self::Update(response) => response.error,
            Self::MultiRemove(response) => response.error,
            Self::Incr(response) => response.error,
            Self::Check(response) => response.error,
            Self::Read(_) | Self::Ttl(_) | Self::Count(_) | Self::MultiGet(..) | Self::BatchGet(..) | Self::Scan(_) => {
                return false;
            }
        };
        error == status::OK
    }

    /// Appends the reply to `call`.
    pub(crate) fn write(self, out: &mut Vec<u8>, call: &Call, origin: Origin<'_>) {
        macro_rules! reply {
            ($response:ident $(, $decree:ident)?) => {{
                let mut response = $response;
                response.table = origin.table;
                response.partition = origin.partition;
                response.server = origin.server.clone();
                $(response.$decree = origin.decree;)?
                write_reply(out, call, &response);
            }};
        }
        match self {
            Self::Update(response) => reply!(response, decree),
            Self::MultiRemove(response) => reply!(response, decree),
            Self::Incr(response) => reply!(response, decree),
            Self::Check(response) => reply!(response, decree),
            Self::Read(response) => reply!(response),
            Self::Ttl(response) => reply!(response),
            Self::Count(response) => reply!(response),
            Self::MultiGet(response, _) => reply!(response),
            Self::BatchGet(response, _) => reply!(response),
            Self::Scan(response) => reply!(response),
        }
    }
}
