//! Compactions that somebody asks for, and how far they are.

use super::envs::{self, COMPACT_ONCE, SET};
use super::messages::{
    CompactRequest, PlainResponse, QueryCompactionRequest, QueryCompactionResponse, UpdateEnvsRequest,
};
use super::outcome::OK;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use tessera_types::UnixMillis;

/// Has every node compact a table, now or at a time in seconds since 1970.
pub(super) async fn start(server: &PegasusServer, request: CompactRequest) -> PlainResponse {
    let now = UnixMillis::now().get() / 1_000;
    // A moment later, so that no node has looked beyond it when it hears of it.
    let at = request.at.and_then(|at| u64::try_from(at).ok()).filter(|at| *at > now).unwrap_or(now + 3);
    let (keys, values) = (vec![COMPACT_ONCE.to_string()], vec![at.to_string()]);
    envs::update(server, UpdateEnvsRequest { table: request.table, operation: SET, keys, values, prefix: None }).await
}

/// How much of it is done, on all nodes that could be asked.
pub(super) async fn query(server: &PegasusServer, request: QueryCompactionRequest) -> QueryCompactionResponse {
    let failed = |error: &str, hint: &str| QueryCompactionResponse {
        error: ErrorCode(error.into()),
        hint: hint.into(),
        progress: None,
    };
    let Some(table) = server.store.table_named(&request.table) else {
        return failed("ERR_APP_NOT_EXIST", "there is no such table");
    };
    let states: Vec<_> = server.store.compactions(&table).await.into_iter().filter_map(|(_, state)| state).collect();
    if states.iter().all(|state| state.running == 0 && state.ended.is_none()) {
        return failed("ERR_INVALID_STATE", "no node has compacted the table since it started");
    }
    let done = |state: &tessera_store::CompactionState| if state.running > 0 { state.done } else { 1.0 };
    let share = states.iter().map(done).sum::<f64>() / states.len() as f64;
    QueryCompactionResponse {
        error: ErrorCode(OK.into()),
        hint: String::new(),
        // Nothing else than all of it is a hundred.
        progress: Some((100.0 * share) as i32),
    }
}
