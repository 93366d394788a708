//! Splitting a table into twice as many partitions.

use super::messages::{
    ControlSplitRequest, ControlSplitResponse, PlainResponse, QuerySplitRequest, QuerySplitResponse, StartSplitRequest,
};
use super::outcome::{OK, Refusal, change, plain};
use super::routing::id;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use tessera_cluster::{CatalogCommand, CopyState};

/// States of a partition.
const NOT_SPLIT: i32 = 0;
const SPLITTING: i32 = 1;

/// What may be asked of a split; the others are to pause it and to go on.
const CANCEL: i32 = 2;

pub(super) async fn start(server: &PegasusServer, request: StartSplitRequest) -> PlainResponse {
    let partitions = u32::try_from(request.partitions).unwrap_or_default();
    plain(change(server, CatalogCommand::Split { name: request.table, partitions, absent: Default::default() }).await)
}

pub(super) async fn control(server: &PegasusServer, request: ControlSplitRequest) -> ControlSplitResponse {
    let (error, hint) = match cancel(server, request).await {
        Ok(()) => (OK, None),
        Err((error, hint)) => (error, Some(hint)),
    };
    ControlSplitResponse { error: ErrorCode(error.into()), hint }
}

async fn cancel(server: &PegasusServer, request: ControlSplitRequest) -> Result<(), Refusal> {
    let ControlSplitRequest { table: name, control, old_partitions, .. } = request;
    if control != CANCEL {
        return Err(("ERR_INVALID_PARAMETERS", "a split can be cancelled, and neither paused nor resumed".into()));
    }
    let partitions = server.store.catalog().by_name(&name).map(|entry| id(entry.schema.partitions));
    if old_partitions.is_some_and(|expected| partitions.is_some_and(|partitions| partitions != expected)) {
        return Err(("ERR_INVALID_PARAMETERS", "the table has another number of partitions".into()));
    }
    change(server, CatalogCommand::CancelSplit { name }).await.map(|_| ())
}

pub(super) fn query(server: &PegasusServer, request: &QuerySplitRequest) -> QuerySplitResponse {
    let failed = |error: &str, hint: &str| QuerySplitResponse {
        error: ErrorCode(error.into()),
        hint: Some(hint.into()),
        ..Default::default()
    };
    let catalog = server.store.catalog();
    let Some(entry) = catalog.by_name(&request.table) else {
        return failed("ERR_APP_NOT_EXIST", "there is no such table");
    };
    let Some(split) = &entry.split else { return failed("ERR_INVALID_STATE", "the table is not being split") };
    let state = |copy: &CopyState| if *copy == CopyState::Done { NOT_SPLIT } else { SPLITTING };
    QuerySplitResponse {
        error: ErrorCode(OK.into()),
        partitions: id(2 * entry.schema.partitions),
        states: (0..).zip(split.copies.iter().map(state)).collect(),
        hint: None,
    }
}
