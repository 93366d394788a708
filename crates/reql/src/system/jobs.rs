//! The table `jobs`: queries that run, indexes that are built, and replicas that get their data, on all nodes. A query whose row is
//! deleted ends.

use std::collections::BTreeMap;

use super::parts::{array, name, names, tables};
use crate::cluster::{Readiness, ReplicaState, Server, ShardStatus, readiness};
use crate::error::{Error, Result};
use crate::monitor::QueryJob;
use crate::scan::{IndexInfo, TableInfo};
use crate::source::Source;
use crate::uuid;
use crate::value::{self, Value, ValueExt as _};

const QUERY: &str = "query";

/// Whether a key is that of a query.
pub(super) fn is_query(key: &Value) -> bool {
    matches!(key, Value::Array(id) if matches!(&id[..], [Value::String(kind), _] if **kind == *QUERY))
}

pub(super) fn queries(source: &dyn Source) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    if let Some(monitor) = source.monitor() {
        for (server, jobs) in monitor.queries()? {
            for job in jobs.into_iter().flatten() {
                rows.push(query(&server, &job)?);
            }
        }
    }
    Ok(rows)
}

pub(super) fn rows(source: &dyn Source) -> Result<Vec<Value>> {
    let mut rows = queries(source)?;
    for info in tables(source)? {
        let shards = source.table_status(&info)?;
        // Indexes of a table that nobody can read are not built, and asking for them would take long.
        let is_read = readiness(&shards) >= Readiness::Writes;
        // Whoever looks at jobs wants to see the others also when a table is lost just now.
        let indexes = if is_read { source.indexes(&info).unwrap_or_default() } else { Vec::new() };
        for index in indexes.iter().filter(|index| !index.is_ready) {
            let progress = source.index_progress(&info, &index.name).map_or(Ok(Value::Null), value::number)?;
            rows.push(construction(&info, &shards, index, progress)?);
        }
        rows.extend(backfills(&info, &shards)?);
    }
    Ok(rows)
}

fn row(kind: &str, id: &str, seconds: Value, servers: Value, info: Value) -> Result<Value> {
    value::object([
        ("duration_sec", seconds),
        ("id", array([Value::from(kind), Value::from(id)])?),
        ("info", info),
        ("servers", servers),
        ("type", Value::from(kind)),
    ])
}

fn query(server: &Server, job: &QueryJob) -> Result<Value> {
    let info = value::object([
        ("client_address", Value::from(job.host.clone())),
        ("client_port", Value::from(i32::from(job.port))),
        ("query", Value::from(job.text.clone())),
        ("user", Value::from(job.user.clone())),
    ])?;
    row(QUERY, &job.id, value::number(job.seconds)?, names([server])?, info)
}

/// Nobody keeps when the building of an index was begun, or the copying of a replica: their `duration_sec` is `null`.
fn construction(table: &TableInfo, shards: &[ShardStatus], index: &IndexInfo, progress: Value) -> Result<Value> {
    let leaders: BTreeMap<&str, &Server> =
        shards.iter().filter_map(|shard| shard.primary.as_ref()).map(|server| (&*server.id, server)).collect();
    let info = value::object([
        ("db", Value::from(table.database.name.clone())),
        ("index", Value::from(index.name.clone())),
        ("progress", progress),
        ("table", Value::from(table.name.clone())),
    ])?;
    let id = uuid::of_name(&format!("index_construction.{}.{}", table.id, index.name));
    row("index_construction", &id, Value::Null, names(leaders.into_values())?, info)
}

/// The copying of replicas of a table: one job for each pair of nodes.
fn backfills(table: &TableInfo, shards: &[ShardStatus]) -> Result<Vec<Value>> {
    let mut pairs = BTreeMap::new();
    for shard in shards {
        for (to, state) in &shard.replicas {
            if let (ReplicaState::Transferring, Some(from)) = (state, &shard.primary) {
                pairs.insert((&*from.id, &*to.id), (from, to));
            }
        }
    }
    let job = |(from, to): (&Server, &Server)| {
        let info = value::object([
            ("db", Value::from(table.database.name.clone())),
            ("destination_server", name(to)),
            ("progress", Value::Null),
            ("source_server", name(from)),
            ("table", Value::from(table.name.clone())),
        ])?;
        let id = uuid::of_name(&format!("backfill.{}.{}.{}", table.id, from.id, to.id));
        row("backfill", &id, Value::Null, names([from, to])?, info)
    };
    pairs.into_values().map(job).collect()
}

/// Makes of the row `old` the other row `new`; `null` stands for none.
pub(super) fn carry_out(source: &dyn Source, old: &Value, new: &Value) -> Result<()> {
    if !new.is_null() {
        return Err(Error::failed("The `rethinkdb.jobs` system table only allows deletions, not inserts or updates."));
    }
    let Some(Value::Array(id)) = old.get_field("id") else { return Ok(()) };
    match &id[..] {
        [Value::String(kind), Value::String(id)] if **kind == *QUERY => {
            source.monitor().map_or(Ok(()), |monitor| monitor.end_query(id))
        }
        [Value::String(kind), _] => Err(Error::failed(format!("Jobs of type `{kind}` cannot be interrupted."))),
        _ => Ok(()),
    }
}
