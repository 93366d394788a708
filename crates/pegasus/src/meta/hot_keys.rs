//! Searches for the hash key that a partition is asked most. One of them goes on for a partition at a time, on the node that
//! leads it; the node that was told to begin knows what came of it.

use super::messages::{DetectHotKeyRequest, DetectHotKeyResponse};
use super::tables::OK;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tessera_store::HotKeysFound;
use tessera_types::{RequestError, TableId, TableNumber};
use tokio::task::AbortHandle;

/// How long requests are counted.
const TIME: Duration = Duration::from_secs(5);

/// What clients ask for.
const READS: i32 = 0;
const WRITES: i32 = 1;
const START: i32 = 0;
const STOP: i32 = 1;
const QUERY: i32 = 2;

/// The latest search in each partition.
#[derive(Default)]
pub(crate) struct Searches(Mutex<HashMap<(TableId, u32), Search>>);

struct Search {
    kind: i32,
    task: AbortHandle,
    found: Arc<OnceLock<Result<HotKeysFound, RequestError>>>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Begins a search, ends it, or tells what it found.
pub(super) fn detect(server: &PegasusServer, request: &DetectHotKeyRequest) -> DetectHotKeyResponse {
    let (error, hint, result) = match carry_out(server, request) {
        Ok(result) => (OK, None, result),
        Err((error, hint)) => (error, Some(hint), None),
    };
    DetectHotKeyResponse { error: ErrorCode(error.into()), hint, result }
}

type Refusal = (&'static str, String);

fn carry_out(server: &PegasusServer, request: &DetectHotKeyRequest) -> Result<Option<String>, Refusal> {
    let (number, partition) = request.partition.parts();
    let table = server.store.table_numbered(TableNumber(number));
    let Some(table) = table.filter(|table| partition < table.schema().partitions) else {
        return Err(("ERR_OBJECT_NOT_FOUND", format!("there is no partition {number}.{partition}")));
    };
    let kind = request.kind;
    let what = match kind {
        READS => "reads",
        WRITES => "writes",
        _ => return Err(("ERR_INVALID_PARAMETERS", format!("{kind} is neither 0 for reads nor 1 for writes"))),
    };
    let place = (table.id(), partition);
    let mut searches = server.hot_keys.0.lock();
    match request.action {
        START => {
            if searches.get(&place).is_some_and(|search| search.found.get().is_none()) {
                return Err(("ERR_SERVICE_ALREADY_EXIST", "a search goes on in this partition".into()));
            }
            let tables: HashSet<_> = server.store.tables().iter().map(|table| table.id()).collect();
            searches.retain(|(table, _), _| tables.contains(table));
            let found = Arc::<OnceLock<_>>::default();
            let (told, store) = (found.clone(), server.store.clone());
            let count = async move { _ = told.set(store.find_hot_keys(&table, partition, TIME).await) };
            searches.insert(place, Search { kind, task: tokio::spawn(count).abort_handle(), found });
            Ok(None)
        }
        STOP => {
            searches.remove(&place);
            Ok(None)
        }
        QUERY => {
            let search = searches.get(&place).filter(|search| search.kind == kind);
            let search = search.ok_or_else(|| ("ERR_BUSY", format!("no search among {what} was begun here")))?;
            let found = search.found.get().ok_or_else(|| ("ERR_BUSY", "the search goes on".into()))?;
            let found = found.as_ref().map_err(|error| ("ERR_BUSY", error.to_string()))?;
            let hottest = if kind == READS { found.reads.first() } else { found.writes.first() };
            let hottest = hottest.ok_or_else(|| ("ERR_BUSY", format!("no hash key has many of the {what}")))?;
            Ok(Some(hottest.hash_key.clone()))
        }
        action => Err(("ERR_INVALID_PARAMETERS", format!("{action} is none of 0, 1 and 2: start, stop and query"))),
    }
}
