//! Creating, dropping, recalling, renaming and listing tables, and what is done to a whole one.

use super::envs;
use super::messages::{
    CreateOptions, CreateRequest, DropRequest, ListTablesResponse, PlainResponse, RecallRequest, RecallResponse,
    RenameRequest, ReplicaCountRequest, ReplicaCountResponse, TableInfo,
};
use super::outcome::{OK, Refusal, change, plain};
use super::routing::id;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use tessera_cluster::{CatalogCommand, Changed, NodeEntry, TableEntry, TableState};
use tessera_types::{Model, Partitioner, TableNumber, TableSchema, TableSettings, UnixMillis};

/// States of a table.
pub(super) const ANY: i32 = 0;
pub(super) const AVAILABLE: i32 = 1;
const DROPPED: i32 = 6;

/// Creates a table and returns the name of an error and the table's number. What Pegasus has no word for can be asked as app
/// envs: `tessera.engine` and `tessera.durability`.
pub(super) async fn create(server: &PegasusServer, request: CreateRequest) -> (&'static str, i32) {
    let name = request.table.clone();
    match created(server, request).await {
        Ok(number) => (OK, id(number)),
        Err((error, hint)) => {
            // The answer has no room for it.
            tracing::info!(table = name, hint, "a table could not be created");
            (error, 0)
        }
    }
}

async fn created(server: &PegasusServer, request: CreateRequest) -> Result<u32, Refusal> {
    let CreateRequest { table: name, options } = request;
    let may_exist = options.success_if_exists;
    let wanted = Wanted::of(server, options).map_err(invalid)?;
    let existing = |server: &PegasusServer| server.store.catalog().by_name(&name).cloned();
    if let Some(table) = existing(server) {
        return wanted.instead_of(&table, may_exist);
    }
    let (schema, settings) = (wanted.schema.clone(), wanted.settings.clone());
    let command = CatalogCommand::Create { name: name.clone(), schema, settings, absent: Default::default() };
    match change(server, command).await {
        Ok(Changed::Table(table)) => Ok(table.0),
        Ok(_) => Err(("ERR_UNKNOWN", "no table was created".into())),
        Err(("ERR_APP_EXIST", hint)) => {
            // Another node has just created it, and this one may not have heard of it.
            server.store.find_table(|store| store.table_named(&name)).await;
            let table = existing(server).ok_or(("ERR_APP_EXIST", hint))?;
            wanted.instead_of(&table, may_exist)
        }
        Err(refusal) => Err(refusal),
    }
}

fn invalid(hint: String) -> Refusal {
    ("ERR_INVALID_PARAMETERS", hint)
}

/// A table that somebody wants.
struct Wanted {
    schema: TableSchema,
    settings: TableSettings,
    /// Whether these were asked for. If not, any will do of a table that is there already.
    has_engine: bool,
    has_durability: bool,
}

impl Wanted {
    /// # Errors
    /// What is wrong with the options, for a person.
    fn of(server: &PegasusServer, options: CreateOptions) -> Result<Self, String> {
        let replicas = replicas(server, options.replicas)?;
        let mut envs = options.envs;
        let (engine, durability) = (envs.remove("tessera.engine"), envs.remove("tessera.durability"));
        let (has_engine, has_durability) = (engine.is_some(), durability.is_some());
        let engine = engine.map_or(Ok(tessera_engine::DEFAULT_ENGINE), |engine| engine.parse())?;
        let durability = durability.map_or(Ok(TableSchema::default_durability(engine)), |name| name.parse())?;
        let partitions = options.partitions;
        let partitions = u32::try_from(partitions).map_err(|_| format!("{partitions} is no number of partitions"))?;
        let mut settings = TableSettings::default();
        envs::set(&mut settings, envs)?;
        let (partitioner, model, primary_key) = (Partitioner::Crc64, Model::Kv, None);
        let schema = TableSchema { engine, partitions, partitioner, model, primary_key, durability, replicas };
        Ok(Self { schema, settings, has_engine, has_durability })
    }

    /// Takes a table that is there already, if that may be and it is what is wanted. Returns its number.
    fn instead_of(&self, table: &TableEntry, may_exist: bool) -> Result<u32, Refusal> {
        if !may_exist {
            return Err(("ERR_APP_EXIST", "there is a table of this name".into()));
        }
        let (wanted, there) = (&self.schema, &table.schema);
        let is_the_same = (wanted.partitions, wanted.replicas) == (there.partitions, there.replicas)
            && (wanted.partitioner, wanted.model) == (there.partitioner, there.model)
            && (!self.has_engine || wanted.engine == there.engine)
            && (!self.has_durability || wanted.durability == there.durability)
            && envs::of(&self.settings) == envs::of(&table.settings);
        is_the_same.then_some(table.number.0).ok_or_else(|| invalid("the table that is there is another one".into()))
    }
}

/// Checks a number of replicas, as Pegasus does: there must be as many nodes that can take one.
///
/// # Errors
/// What is wrong with it, for a person.
fn replicas(server: &PegasusServer, wanted: i32) -> Result<u8, String> {
    let catalog = server.store.catalog();
    let takes_replicas = |node: &&NodeEntry| !node.is_draining && !node.is_expected && server.store.is_heard(node.id);
    let nodes = catalog.nodes().filter(takes_replicas).count();
    let is_fine = |replicas: &u8| *replicas > 0 && usize::from(*replicas) <= nodes;
    let replicas = u8::try_from(wanted).ok().filter(is_fine);
    replicas.ok_or_else(|| format!("{wanted} replicas of a partition cannot be on {nodes} nodes"))
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
    let (status, expire_second) = match entry.state {
        TableState::Growing => return None,
        TableState::Active => (AVAILABLE, 0),
        TableState::Dropped { purge_at } => (DROPPED, seconds(purge_at)),
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
    let replicas = match replicas(server, request.replicas) {
        Ok(replicas) => replicas,
        Err(hint) => return ReplicaCountResponse { error: ErrorCode("ERR_INVALID_PARAMETERS".into()), hint, ..before },
    };
    match change(server, CatalogCommand::SetReplicas { name: request.table, replicas }).await {
        Ok(_) => before,
        Err((error, hint)) => ReplicaCountResponse { error: ErrorCode(error.into()), hint, ..before },
    }
}
