//! Configuration and state of tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tables::{Replicas, check_shards, spread};
use crate::account::Place;
use crate::call::Call;
use crate::cluster::{Readiness, Shape, ShardConfig, TableConfig, readiness};
use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::plan::Definition;
use crate::selection::{Database, Row, Table};
use crate::source::{ReadMode, TableInfo};
use crate::system::{self, SystemTable, config_row, special, status_row};
use crate::val::{Kind, Val};
use crate::value::{self, Value, ValueExt as _};
use tessera_types::Right;

pub const TERMS: &[Definition] = &[
    Definition::new(174, 1, 1, config).nondeterministic(),
    Definition::new(175, 1, 1, status).nondeterministic(),
    Definition::new(176, 0, 1, reconfigure).nondeterministic().optargs(&[
        "dry_run",
        "emergency_repair",
        "nonvoting_replica_tags",
        "primary_replica_tag",
        "replicas",
        "shards",
    ]),
    Definition::new(177, 0, 1, wait).nondeterministic().optargs(&["timeout", "wait_for"]),
    Definition::new(179, 0, 1, rebalance).nondeterministic(),
    Definition::new(138, 1, 1, sync).nondeterministic(),
];

/// A row of a system table, which may be written to.
fn row_of(frame: FrameId, table: SystemTable, value: Value) -> Result<Kind> {
    let key = value.field("id")?;
    let table = Arc::new(Table { info: table.info(), frame, reads: ReadMode::Single });
    Ok(Kind::Row(Row { error: None, table, key, value }))
}

fn config(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let target = call.arg(env, 0)?;
    let row = match target.kind {
        Kind::Database(database) if database.name == system::DATABASE => {
            return Err(special("you can't configure it."));
        }
        Kind::Database(database) => {
            env.source()?.require(Right::Config, Place::Database(&database.name))?;
            let row = value::object([("id", Value::from(database.id)), ("name", Value::from(database.name))])?;
            row_of(call.frame(), SystemTable::DbConfig, row)?
        }
        kind => {
            let table = Val { frame: target.frame, kind }.into_table()?;
            let row = config_row(&table.info, &env.source()?.table_config(&table.info)?)?;
            row_of(call.frame(), SystemTable::TableConfig, row)?
        }
    };
    Ok(call.result(row))
}

fn status(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let row = status_row(&table.info, &env.source()?.table_status(&table.info)?)?;
    let row = row_of(call.frame(), SystemTable::TableStatus, row)?;
    Ok(call.result(row))
}

enum Target {
    Database(Database),
    Table(Arc<Table>),
}

impl Target {
    /// The argument of a term that is for a table or for all tables of a database.
    fn of(call: &mut Call<'_>, env: &Env, term: &str) -> Result<Self> {
        if call.count() == 0 {
            return Err(Error::logic(format!("`{term}` can only be called on a table or database.")));
        }
        let target = call.arg(env, 0)?;
        match target.kind {
            Kind::Database(database) => Ok(Self::Database(database)),
            kind => Ok(Self::Table(Val { frame: target.frame, kind }.into_table()?)),
        }
    }

    /// The tables, unless they are the system's.
    fn tables(&self, env: &Env, refusal: &str) -> Result<Vec<TableInfo>> {
        let is_system = match self {
            Self::Database(database) => database.name == system::DATABASE,
            Self::Table(table) => table.info.is_system(),
        };
        match self {
            _ if is_system => Err(special(refusal)),
            Self::Database(database) => env.source()?.tables(database),
            Self::Table(table) => Ok(vec![table.info.clone()]),
        }
    }
}

const STATES: [(&str, Readiness); 4] = [
    ("ready_for_outdated_reads", Readiness::OutdatedReads),
    ("ready_for_reads", Readiness::Writes),
    ("ready_for_writes", Readiness::Writes),
    ("all_replicas_ready", Readiness::AllReplicas),
];

fn wait(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let target = Target::of(call, env, "wait")?;
    let mut wanted = Readiness::AllReplicas;
    if let Some(state) = call.optarg(env, "wait_for")? {
        let text = state.as_string()?;
        let Some((_, readiness)) = STATES.into_iter().find(|(name, _)| *name == &*text) else {
            let [first, second, third, last] = STATES.map(|(name, _)| name);
            let message = format!(
                "Unknown table readiness state: '{text}', must be one of '{first}', '{second}', '{third}', or '{last}'"
            );
            return Err(Error::logic(message).at(state.frame));
        };
        wanted = readiness;
    }
    let mut patience = None;
    if let Some(timeout) = call.optarg(env, "timeout")? {
        patience = Some(Duration::from_secs(timeout.as_integer()?.max(0) as u64));
    }
    let refusal = "the system tables in it are always available and don't need to be waited on.";
    let tables = target.tables(env, refusal)?;
    let began = Instant::now();
    for table in &tables {
        loop {
            if patience.is_some_and(|patience| began.elapsed() >= patience) {
                return Err(Error::failed("Timed out while waiting for tables."));
            }
            if readiness(&env.source()?.table_status(table)?) >= wanted {
                break;
            }
            env.source()?.pause();
            env.check()?;
        }
    }
    call.value(value::object([("ready", value::integer(tables.len()))])?)
}

fn change(old: Value, new: Value) -> Result<Value> {
    value::object([("new_val", new), ("old_val", old)])
}

fn reconfigure(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let target = Target::of(call, env, "reconfigure")?;
    let is_dry_run = call.optarg_bool(env, "dry_run")?.unwrap_or(false);
    let is_repair =
        call.optarg(env, "emergency_repair")?.is_some_and(|repair| !repair.peek().is_some_and(Value::is_null));
    if !is_repair && call.optarg(env, "shards")?.is_none() {
        return Err(Error::logic("Missing required argument `shards`."));
    }
    let (shards, replicas) = spread(call, env)?;
    if let Some(repair) = call.optarg(env, "emergency_repair")?
        && !repair.peek().is_some_and(Value::is_null)
    {
        if !matches!(&*repair.as_string()?, "unsafe_rollback" | "unsafe_rollback_or_erase") {
            let message = "`emergency_repair` should be \"unsafe_rollback\" or \"unsafe_rollback_or_erase\"";
            return Err(Error::logic(message).at(repair.frame));
        }
        if shards.is_some() || replicas.is_some() {
            return Err(Error::logic("In emergency repair mode, you can't specify shards, replicas, etc."));
        }
        return Err(repair_refused(env, &target)?);
    }
    let Some(shards) = shards else { return Err(Error::logic("Missing required argument `shards`.")) };
    let Some(replicas) = replicas else { return Err(Error::logic("Missing required argument `replicas`.")) };
    let tables = target.tables(env, "you can't configure the tables in it.")?;
    check_shards(shards)?;
    let replicas = replicas_of(env, &replicas)?;
    let shape = Shape { shards, replicas };
    let (mut configs, mut statuses) = (Vec::new(), Vec::new());
    for table in &tables {
        let config = env.source()?.table_config(table)?;
        let old = config_row(table, &config)?;
        if is_dry_run {
            configs.push(change(old, config_row(table, &planned(env, &config, &shape)?)?)?);
            continue;
        }
        let old_status = status_row(table, &env.source()?.table_status(table)?)?;
        env.alter(|source| source.reconfigure(env, table, &shape))?;
        configs.push(change(old, config_row(table, &env.source()?.table_config(table)?)?)?);
        statuses.push(change(old_status, status_row(table, &env.source()?.table_status(table)?)?)?);
    }
    let configs = ("config_changes", Value::array(configs)?);
    let reconfigured = ("reconfigured", value::integer(statuses.len()));
    if is_dry_run {
        return call.value(value::object([configs, reconfigured])?);
    }
    call.value(value::object([configs, reconfigured, ("status_changes", Value::array(statuses)?)])?)
}

fn replicas_of(env: &Env, replicas: &Replicas) -> Result<usize> {
    replicas.count(env)?.ok_or_else(|| Error::logic("Missing required argument `replicas`."))
}

/// Why a table is not repaired.
fn repair_refused(env: &Env, target: &Target) -> Result<Error> {
    let Target::Table(table) = target else {
        return Ok(Error::logic(
            "Can't emergency repair an entire database at once; instead you should run `reconfigure()` on each table \
             individually.",
        ));
    };
    let is_available = readiness(&env.source()?.table_status(&table.info)?) >= Readiness::Writes;
    Ok(Error::failed(match is_available {
        true => "This table doesn't need to be repaired.",
        false => {
            "Tessera does not repair a table at the price of acknowledged writes. Start the nodes that hold its replicas; \
             of nodes that are lost for good, the guide on recovery says what can be done."
        }
    }))
}

/// How a table would be spread. Where the shards that are made by splitting lie is that of the shards that they are made of.
fn planned(env: &Env, config: &TableConfig, shape: &Shape) -> Result<TableConfig> {
    let servers: Vec<_> = env.source()?.servers()?.into_iter().map(|status| status.server).collect();
    let shard = |at: usize| {
        let mut shard = match config.shards.get(at % config.shards.len().max(1)) {
            Some(shard) => shard.clone(),
            None => ShardConfig { primary: None, replicas: Vec::new() },
        };
        // The replica that leads stays.
        shard.replicas.sort_by_key(|server| Some(server) != shard.primary.as_ref());
        for server in &servers {
            if !shard.replicas.contains(server) {
                shard.replicas.push(server.clone());
            }
        }
        shard.replicas.truncate(shape.replicas);
        shard
    };
    Ok(TableConfig { shards: (0..shape.shards).map(shard).collect(), ..config.clone() })
}

/// Shards are ranges of hashes, which are of one size always, and leaders are spread by the cluster itself: there is nothing to do.
fn rebalance(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let target = Target::of(call, env, "rebalance")?;
    let tables = target.tables(env, "you can't rebalance the tables in it.")?;
    let mut statuses = Vec::new();
    for table in &tables {
        env.source()?.require(Right::Config, Place::Table(table))?;
        let status = status_row(table, &env.source()?.table_status(table)?)?;
        statuses.push(change(status.clone(), status)?);
    }
    call.value(value::object([
        ("rebalanced", value::integer(statuses.len())),
        ("status_changes", Value::array(statuses)?),
    ])?)
}

fn sync(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    env.source_alone()?.sync(&table.info)?;
    call.value(value::object([("synced", Value::from(1))])?)
}
