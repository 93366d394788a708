//! Creating, dropping, recalling, renaming and listing tables, and what is done to a whole one.

use super::envs;
use super::messages::{
    CreateRequest, DropRequest, ListTablesResponse, PlainResponse, RecallRequest, RecallResponse, RenameRequest,
    ReplicaCountRequest, ReplicaCountResponse, TableInfo,
};
use super::outcome::{OK, change, plain};
use super::routing::id;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use tessera_cluster::{CatalogCommand, Changed, TableEntry, TableState};
use tessera_types::{Model, Partitioner, TableNumber, TableSchema, TableSettings, UnixMillis};

/// States of a table.
pub(super) const ANY: i32 = 0;
pub(super) const AVAILABLE: i32 = 1;
const DROPPED: i32 = 6;

/// Creates a table and returns the name of an error and the table's number. What Pegasus has no word for can be asked as app
/// envs: `tessera.engine` and `tessera.durability`.
pub(super) async fn create(server: &PegasusServer, request: CreateRequest) -> (&'static str, i32) {
    let CreateRequest { table: name, options } = request;
    if options.success_if_exists
        && let Some(table) = server.store.table_named(&name)
    {
        return (OK, id(table.number().0));
    }
    let mut wanted = options.envs;
    let engine = wanted.remove("tessera.engine").map_or(Ok(tessera_engine::DEFAULT_ENGINE), |engine| engine.parse());
    let Ok(engine) = engine else { return ("ERR_INVALID_PARAMETERS", 0) };
    let durability = wanted.remove("tessera.durability");
    let durability = durability.map_or(Ok(TableSchema::default_durability(engine)), |durability| durability.parse());
    let replicas = if options.replicas > 0 { options.replicas } else { i32::from(TableSchema::DEFAULT_REPLICAS) };
    let (Ok(durability), Ok(partitions), Ok(replicas)) =
        (durability, u32::try_from(options.partitions), u8::try_from(replicas))
    else {
        return ("ERR_INVALID_PARAMETERS", 0);
    };
    let mut settings = TableSettings::default();
    if envs::set(&mut settings, wanted).is_err() {
        return ("ERR_INVALID_PARAMETERS", 0);
    }
    let schema = TableSchema {
        engine,
        partitions,
        partitioner: Partitioner::Crc64,
        model: Model::Kv,
        primary_key: None,
        durability,
        replicas,
    };
    match change(server, CatalogCommand::Create { name: name.clone(), schema, settings, absent: Default::default() })
        .await
    {
        Ok(Changed::Table(table)) => (OK, id(table.0)),
        Ok(_) => ("ERR_UNKNOWN", 0),
        Err(("ERR_APP_EXIST", hint)) if options.success_if_exists => {
            // Another node has just created it, and this one may not have heard of it.
            match server.store.find_table(|store| store.table_named(&name)).await {
                Some(table) => (OK, id(table.number().0)),
                None => refusal(&name, "ERR_APP_EXIST", &hint),
            }
        }
        Err((error, hint)) => refusal(&name, error, &hint),
    }
}

/// The answer to the creation of a table has no room for a reason.
fn refusal(name: &str, error: &'static str, hint: &str) -> (&'static str, i32) {
    tracing::info!(table = name, hint, "a table could not be created");
    (error, 0)
}

pub(super) async fn drop(server: &PegasusServer, request: DropRequest) -> PlainResponse {
    let reserved = request.options.reserve_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    // As in Pegasus, none stands for the cluster's own time.
    let purge_at = reserved
        .filter(|seconds| *seconds > 0)
        .and_then(|seconds| UnixMillis::now().checked_add_millis(seconds.saturating_mul(1_000)))
        .unwrap_or_else(|| server.store.purge_time());
    let outcome = change(server, CatalogCommand::Drop { name: request.table, purge_at }).await;
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
        Err((error, _)) => RecallResponse { error: ErrorCode(error.into()), info: TableInfo::default() },
    }
}

pub(super) async fn rename(server: &PegasusServer, request: RenameRequest) -> PlainResponse {
    plain(change(server, CatalogCommand::Rename { name: request.old_name, to: request.new_name }).await)
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

/// What clients are to know of a table, if anything.
fn info(entry: &TableEntry) -> Option<TableInfo> {
    let (status, expire_second) = match entry.state {
        TableState::Growing => return None,
        TableState::Active => (AVAILABLE, 0),
        TableState::Dropped { purge_at } => (DROPPED, i64::try_from(purge_at.get() / 1_000).unwrap_or(i64::MAX)),
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
        create_second: 0,
        drop_second: 0,
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
    let Ok(replicas) = u8::try_from(request.replicas) else {
        return ReplicaCountResponse { error: ErrorCode("ERR_INVALID_PARAMETERS".into()), ..before };
    };
    match change(server, CatalogCommand::SetReplicas { name: request.table, replicas }).await {
        Ok(_) => before,
        Err((error, hint)) => ReplicaCountResponse { error: ErrorCode(error.into()), hint, ..before },
    }
}
