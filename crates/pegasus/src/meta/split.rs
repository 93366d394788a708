//! Splitting a table into twice as many partitions.

use super::messages::{
    ControlSplitRequest, ControlSplitResponse, PlainResponse, QuerySplitRequest, QuerySplitResponse, StartSplitRequest,
};
use super::outcome::{OK, Refusal, change, plain};
use super::routing::id;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use std::collections::BTreeMap;
use tessera_cluster::{CatalogCommand, CopyState};

/// The state of a partition that has not been split yet.
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

pub(super) async fn query(server: &PegasusServer, request: &QuerySplitRequest) -> QuerySplitResponse {
    let failed = |error: &str, hint: &str| QuerySplitResponse {
        error: ErrorCode(error.into()),
        hint: Some(hint.into()),
        ..Default::default()
    };
    // The split may have begun through another node.
    server.store.learn_of_changes().await;
    let catalog = server.store.catalog();
    let Some(entry) = catalog.by_name(&request.table) else {
        return failed("ERR_APP_NOT_EXIST", "there is no such table");
    };
    let split = entry.split.as_ref().filter(|split| split.truncation.is_none());
    let Some(split) = split else { return failed("ERR_INVALID_STATE", "the table is not being split") };
    QuerySplitResponse {
        error: ErrorCode(OK.into()),
        partitions: id(2 * entry.schema.partitions),
        states: under_way(split.copies.iter()),
        hint: None,
    }
}

/// The partitions that are not split yet. Clients count those that are named, whatever their state is.
fn under_way<'a>(copies: impl Iterator<Item = &'a CopyState>) -> BTreeMap<i32, i32> {
    let under_way = (0..).zip(copies).filter(|(_, copy)| **copy != CopyState::Done);
    under_way.map(|(partition, _)| (partition, SPLITTING)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_that_are_done_are_not_named() {
        let copies = [CopyState::Done, CopyState::Waiting, CopyState::Done, CopyState::CaughtUp(1)];
        assert_eq!(under_way(copies.iter()), BTreeMap::from([(1, SPLITTING), (3, SPLITTING)]));
    }
}
