//! Searches for the hash key that a partition is asked most. One of them goes on for a partition at a time, on the node that
//! leads it; the node that was told to begin knows what came of it.

use super::messages::{DetectHotKeyRequest, DetectHotKeyResponse};
use super::outcome::OK;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use std::collections::HashSet;
use std::time::Duration;
use tessera_types::TableNumber;

/// How long requests are counted.
const TIME: Duration = Duration::from_secs(5);

/// What clients ask for.
const READS: i32 = 0;
const WRITES: i32 = 1;
const START: i32 = 0;
const STOP: i32 = 1;
const QUERY: i32 = 2;

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
    match request.action {
        START => {
            let tables: HashSet<_> = server.store.tables().iter().map(|table| table.id()).collect();
            server.hot_keys.retain(|table| tables.contains(&table));
            let store = server.store.clone();
            let count = async move { store.find_hot_keys(&table, partition, TIME).await };
            match server.hot_keys.begin(place, kind, count) {
                true => Ok(None),
                false => Err(("ERR_SERVICE_ALREADY_EXIST", "a search goes on in this partition".into())),
            }
        }
        STOP => {
            server.hot_keys.end(place);
            Ok(None)
        }
        QUERY => {
            let search = server.hot_keys.latest(place).filter(|search| search.kind == kind);
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
