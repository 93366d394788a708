//! What the rows of the system tables hold, in RethinkDB's shapes.

use super::{SystemTable, WithSystemTables, cluster_config, jobs, logs, permissions, stats, users};
use crate::cluster::{Process, Readiness, Server, ServerStatus, ShardConfig, ShardStatus, TableConfig, readiness};
use crate::error::Result;
use crate::scan::TableInfo;
use crate::source::Source;
use crate::uuid;
use crate::value::{self, Time, Value};
use tessera_document::Timezone;

/// The tag that every server has. Tessera keeps replicas apart by zones, and has no other tags.
pub(crate) const DEFAULT_TAG: &str = "default";

pub(super) fn of(all: &WithSystemTables, table: SystemTable) -> Result<Vec<Value>> {
    // What the system's tables tell is not about themselves.
    let source = &*all.0;
    match table {
        SystemTable::ClusterConfig => cluster_config::rows(source),
        SystemTable::CurrentIssues => issues(source),
        SystemTable::DbConfig => {
            let describe = |info: crate::scan::DatabaseInfo| {
                value::object([("id", Value::from(info.id)), ("name", Value::from(info.name))])
            };
            source.databases()?.into_iter().map(describe).collect()
        }
        SystemTable::Jobs => jobs::rows(source),
        SystemTable::Logs => logs::rows(source),
        SystemTable::Permissions => permissions::rows(all),
        SystemTable::ServerConfig => source.servers()?.iter().map(|status| server_config(&status.server)).collect(),
        SystemTable::ServerStatus => {
            let servers = source.servers()?;
            servers.iter().map(|status| server_status(status, &servers)).collect()
        }
        SystemTable::Stats => stats::rows(source),
        SystemTable::TableConfig => {
            tables(source)?.iter().map(|info| config_row(info, &source.table_config(info)?)).collect()
        }
        SystemTable::TableStatus => {
            tables(source)?.iter().map(|info| status_row(info, &source.table_status(info)?)).collect()
        }
        SystemTable::Users => users::rows(source),
    }
}

pub(super) fn tables(source: &dyn Source) -> Result<Vec<TableInfo>> {
    let mut tables = Vec::new();
    for database in source.databases()? {
        tables.extend(source.tables(&database)?);
    }
    Ok(tables)
}

pub(super) fn array(items: impl IntoIterator<Item = Value>) -> Result<Value> {
    Ok(Value::array(items.into_iter().collect())?)
}

pub(super) fn name(server: &Server) -> Value {
    Value::from(server.name.clone())
}

pub(super) fn names<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Result<Value> {
    array(servers.into_iter().map(name))
}

/// The row of `table_config` of a table.
pub(crate) fn config_row(info: &TableInfo, config: &TableConfig) -> Result<Value> {
    let shard = |shard: &ShardConfig| {
        value::object([
            ("nonvoting_replicas", array([])?),
            ("primary_replica", shard.primary.as_ref().map_or(Value::Null, name)),
            ("replicas", names(&shard.replicas)?),
        ])
    };
    value::object([
        ("db", Value::from(info.database.name.clone())),
        ("durability", Value::from(if config.is_hard { "hard" } else { "soft" })),
        ("id", Value::from(info.id.clone())),
        ("indexes", array(config.indexes.iter().cloned().map(Value::from))?),
        ("name", Value::from(info.name.clone())),
        ("primary_key", Value::String(info.primary_key.clone())),
        ("shards", array(config.shards.iter().map(shard).collect::<Result<Vec<_>>>()?)?),
        ("write_acks", Value::from(config.write_acks)),
        ("write_hook", Value::Null),
    ])
}

fn availability(shards: &[ShardStatus]) -> Result<Value> {
    let readiness = readiness(shards);
    value::object([
        ("all_replicas_ready", Value::Bool(readiness >= Readiness::AllReplicas)),
        ("ready_for_outdated_reads", Value::Bool(readiness >= Readiness::OutdatedReads)),
        ("ready_for_reads", Value::Bool(readiness >= Readiness::Writes)),
        ("ready_for_writes", Value::Bool(readiness >= Readiness::Writes)),
    ])
}

fn shard_rows(shards: &[ShardStatus]) -> Result<Value> {
    let replica = |(server, state): &(Server, crate::cluster::ReplicaState)| {
        value::object([("server", name(server)), ("state", Value::from(state.name()))])
    };
    let shard = |shard: &ShardStatus| {
        let replicas = shard.replicas.iter().map(replica).collect::<Result<Vec<_>>>()?;
        value::object([("primary_replicas", names(&shard.primary)?), ("replicas", array(replicas)?)])
    };
    array(shards.iter().map(shard).collect::<Result<Vec<_>>>()?)
}

/// The row of `table_status` of a table. Its `raft_leader` is the server that leads the first shard: here every shard has a
/// group of its own.
pub(crate) fn status_row(info: &TableInfo, shards: &[ShardStatus]) -> Result<Value> {
    let leader = shards.first().and_then(|shard| shard.primary.as_ref());
    value::object([
        ("db", Value::from(info.database.name.clone())),
        ("id", Value::from(info.id.clone())),
        ("name", Value::from(info.name.clone())),
        ("raft_leader", leader.map_or(Value::Null, name)),
        ("shards", shard_rows(shards)?),
        ("status", availability(shards)?),
    ])
}

fn server_config(server: &Server) -> Result<Value> {
    value::object([
        ("cache_size_mb", Value::from("auto")),
        ("id", Value::from(server.id.clone())),
        ("name", name(server)),
        ("tags", array([Value::from(DEFAULT_TAG)])?),
    ])
}

fn port(port: Option<u16>) -> Value {
    port.map_or(Value::Null, |port| Value::from(i32::from(port)))
}

fn server_status(status: &ServerStatus, all: &[ServerStatus]) -> Result<Value> {
    let is_asked = status.process.is_some();
    let others = all.iter().filter(|other| other.server != status.server);
    // A node knows of its own links only.
    let is_linked = |other: &&ServerStatus| if is_asked { other.is_connected } else { other.process.is_some() };
    let connected = others.filter(|_| status.is_connected).filter(is_linked);
    let connected: Vec<(&str, Value)> = connected.map(|other| (&*other.server.name, Value::TRUE)).collect();
    let address = [("host", Value::from(status.host.clone())), ("port", port(status.cluster_port))];
    let started = |process: &Process| Ok::<_, crate::Error>(Value::from(Time::new(process.started, Timezone::UTC)?));
    let time = status.process.as_ref().map(started).transpose()?.unwrap_or(Value::Null);
    let network = value::object([
        ("canonical_addresses", array([value::object(address)?])?),
        ("cluster_port", port(status.cluster_port)),
        ("connected_to", Value::object(connected)?),
        ("hostname", Value::from(status.host.clone())),
        ("http_admin_port", port(status.admin_port)),
        ("reql_port", port(status.reql_port)),
        ("time_connected", time.clone()),
    ])?;
    let process = status.process.as_ref();
    let process = value::object([
        ("argv", array([])?),
        ("cache_size_mb", Value::Null),
        ("pid", process.map_or(Value::Null, |process| Value::from(process.pid))),
        ("time_started", time),
        ("version", status.version.clone().map_or(Value::Null, Value::from)),
    ])?;
    value::object([
        ("id", Value::from(status.server.id.clone())),
        ("name", name(&status.server)),
        ("network", network),
        ("process", process),
    ])
}

/// Tables that are not wholly available.
fn issues(source: &dyn Source) -> Result<Vec<Value>> {
    let mut issues = Vec::new();
    for info in tables(source)? {
        let shards = source.table_status(&info)?;
        let readiness = readiness(&shards);
        if readiness == Readiness::AllReplicas {
            continue;
        }
        let what = match readiness {
            Readiness::Unavailable => "can be neither read nor written",
            Readiness::OutdatedReads => "can only be read with `read_mode=\"outdated\"`",
            _ => "can be read and written, but some of its replicas are not ready",
        };
        let details = value::object([
            ("db", Value::from(info.database.name.clone())),
            ("shards", shard_rows(&shards)?),
            ("status", availability(&shards)?),
            ("table", Value::from(info.name.clone())),
        ])?;
        issues.push(value::object([
            ("critical", Value::Bool(readiness < Readiness::Writes)),
            ("description", Value::from(format!("Table `{}` {what}.", info.full_name()))),
            ("id", Value::from(uuid::of_name(&format!("table_availability.{}", info.id)))),
            ("info", details),
            ("type", Value::from("table_availability")),
        ])?);
    }
    Ok(issues)
}
