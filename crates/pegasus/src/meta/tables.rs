//! Dropping, recalling, renaming and listing tables, and what is done to a whole one.

use super::create::replicas;
use super::envs;
use super::messages::{
    DropRequest, ListTablesResponse, PlainResponse, RecallRequest, RecallResponse, RenameRequest, ReplicaCountRequest,
    ReplicaCountResponse, TableInfo,
};
use super::outcome::{OK, Refusal, change, plain};
use super::routing::id;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use tessera_cluster::{CatalogCommand, Changed, TableEntry, TableState};
use tessera_types::{Partitioner, TableNumber, UnixMillis};

/// States of a table.
pub(super) const ANY: i32 = 0;
pub(super) const AVAILABLE: i32 = 1;
const DROPPED: i32 = 6;

pub(super) async fn drop(server: &PegasusServer, request: DropRequest) -> PlainResponse {
    let reserved = request.options.reserve_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    // As in Pegasus, none stands for the cluster's own time.
    let purge_at = reserved
        .filter(|seconds| *seconds > 0)
        .and_then(|seconds| server.store.now().checked_add_millis(seconds.saturating_mul(1_000)))
        .unwrap_or_else(|| server.store.purge_time());
    let outcome = change(server, CatalogCommand::drop(request.table, purge_at)).await;
    match outcome {
        Err(("ERR_APP_NOT_EXIST", _)) if request.options.success_if_missing => {
            PlainResponse { error: ErrorCode(OK.into()), hint: String::new() }
        }
        outcome => plain(outcome),
    }
}

pub(super) async fn recall(server: &PegasusServer, request: RecallRequest) -> RecallResponse {
    let number = TableNumber(request.table.cast_unsigned());
    let to = Some(request.new_name).filter(|name| !name.is_empty());
    match change(server, CatalogCommand::Recall { number, to }).await {
        Ok(changed) => {
            let catalog = server.store.catalog();
            let entry = if let Changed::Table(table) = changed { catalog.get(table) } else { None };
            RecallResponse { error: ErrorCode(OK.into()), info: entry.and_then(info).unwrap_or_default() }
        }
        Err(("ERR_APP_NOT_EXIST", _))
            if server.store.find_table(|store| store.table_numbered(number)).await.is_some() =>
        {
            // It was not dropped.
            RecallResponse { error: ErrorCode("ERR_APP_EXIST".into()), info: TableInfo::default() }
        }
        Err(refusal) => {
            let (error, _) = of_another_table(refusal);
            RecallResponse { error: ErrorCode(error.into()), info: TableInfo::default() }
        }
    }
}

/// Why a table cannot have a name that another one has.
fn of_another_table((error, hint): Refusal) -> Refusal {
    (if error == "ERR_APP_EXIST" { "ERR_INVALID_PARAMETERS" } else { error }, hint)
}

pub(super) async fn rename(server: &PegasusServer, request: RenameRequest) -> PlainResponse {
    let command = CatalogCommand::Rename { name: request.old_name, to: request.new_name };
    plain(change(server, command).await.map_err(of_another_table))
}

pub(super) fn list(server: &PegasusServer, status: i32) -> ListTablesResponse {
    let tables = server
        .store
        .catalog()
        .tables()
        // Clients ask next where the partitions of each are, and take no error for an answer.
        .filter(|entry| entry.schema.partitioner == Partitioner::Crc64)
        .filter_map(info)
        .filter(|info| status == ANY || info.status == status)
        .collect();
    ListTablesResponse { error: ErrorCode(OK.into()), tables }
}

/// Seconds since 1970.
fn seconds(time: UnixMillis) -> i64 {
    i64::try_from(time.get() / 1_000).unwrap_or(i64::MAX)
}

/// What clients are to know of a table, if anything.
fn info(entry: &TableEntry) -> Option<TableInfo> {
    let (status, expire_second, drop_second) = match entry.state {
        TableState::Growing => return None,
        TableState::Active => (AVAILABLE, 0, 0),
        TableState::Dropped { purge_at, dropped_at, .. } => (DROPPED, seconds(purge_at), dropped_at.map_or(0, seconds)),
    };
    let partitions = id(entry.schema.partitions);
    Some(TableInfo {
        status,
        kind: "pegasus".into(),
        name: entry.name.clone(),
        id: id(entry.number.0),
        partitions,
        envs: envs::of(&entry.settings),
        is_stateful: true,
        replicas: i32::from(entry.schema.replicas),
        expire_second,
        create_second: entry.settings.created_at.map_or(0, seconds),
        drop_second,
        is_duplicating: None,
        first_partitions: partitions,
        is_bulk_loading: false,
    })
}

pub(super) fn replica_count(server: &PegasusServer, name: &str) -> ReplicaCountResponse {
    match server.store.catalog().by_name(name) {
        Some(entry) => ReplicaCountResponse {
            error: ErrorCode(OK.into()),
            replicas: i32::from(entry.schema.replicas),
            hint: String::new(),
        },
        None => ReplicaCountResponse {
            error: ErrorCode("ERR_APP_NOT_EXIST".into()),
            hint: "there is no such table".into(),
            ..Default::default()
        },
    }
}

pub(super) async fn set_replica_count(server: &PegasusServer, request: ReplicaCountRequest) -> ReplicaCountResponse {
    let before = replica_count(server, &request.table);
    let replicas = match replicas(server, request.replicas) {
        Ok(replicas) => replicas,
        Err(hint) => return ReplicaCountResponse { error: ErrorCode("ERR_INVALID_PARAMETERS".into()), hint, ..before },
    };
    match change(server, CatalogCommand::SetReplicas { name: request.table, replicas }).await {
        Ok(_) => before,
        Err((error, hint)) => ReplicaCountResponse { error: ErrorCode(error.into()), hint, ..before },
    }
}
