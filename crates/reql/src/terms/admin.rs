//! Configuration and state of tables.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::selection::Database;
use crate::val::{Kind, Val};
use crate::value::{self, Value};

pub const TERMS: &[Definition] = &[
    Definition::new(174, 1, 1, config).nondeterministic(),
    Definition::new(175, 1, 1, status).nondeterministic(),
    Definition::new(176, 0, 1, refuse).nondeterministic().optargs(&[
        "dry_run",
        "emergency_repair",
        "nonvoting_replica_tags",
        "primary_replica_tag",
        "replicas",
        "shards",
    ]),
    Definition::new(177, 0, 1, wait).nondeterministic().optargs(&["timeout", "wait_for"]),
    Definition::new(179, 0, 1, refuse).nondeterministic(),
    Definition::new(138, 1, 1, sync).nondeterministic(),
    Definition::new(188, 2, 3, refuse).nondeterministic(),
    Definition::new(189, 2, 2, refuse).nondeterministic(),
    Definition::new(190, 1, 1, get_write_hook).nondeterministic(),
];

fn refuse(_call: &mut Call<'_>, _env: &Env) -> Result<Val> {
    Err(Error::logic("This term is not available on this server yet."))
}

fn config(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let target = call.arg(env, 0)?;
    match target.kind {
        Kind::Database(database) => {
            call.value(value::object([("id", Value::from(database.id)), ("name", Value::from(database.name))])?)
        }
        kind => {
            let table = Val { frame: target.frame, kind }.into_table()?;
            call.value(env.source.table_config(&table.info)?)
        }
    }
}

fn status(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    call.value(env.source.table_status(&table.info)?)
}

enum Target {
    Database(Database),
    Table,
}

fn wait(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    const STATES: [&str; 4] = ["ready_for_outdated_reads", "ready_for_reads", "ready_for_writes", "all_replicas_ready"];
    if call.count() == 0 {
        return Err(Error::logic("`wait` can only be called on a table or database."));
    }
    let target = call.arg(env, 0)?;
    let target = match target.kind {
        Kind::Database(database) => Target::Database(database),
        kind => {
            Val { frame: target.frame, kind }.into_table()?;
            Target::Table
        }
    };
    if let Some(state) = call.optarg(env, "wait_for")? {
        let text = state.as_string()?;
        if !STATES.contains(&&*text) {
            let message = format!(
                "Unknown table readiness state: '{text}', must be one of '{}', '{}', '{}', or '{}'",
                STATES[0], STATES[1], STATES[2], STATES[3]
            );
            return Err(Error::logic(message).at(state.frame));
        }
    }
    if let Some(timeout) = call.optarg(env, "timeout")? {
        timeout.as_integer()?;
    }
    let ready = match target {
        Target::Table => 1,
        Target::Database(database) => env.source.tables(&database)?.len(),
    };
    call.value(value::object([("ready", value::integer(ready))])?)
}

fn sync(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    env.source.sync(&table.info)?;
    call.value(value::object([("synced", Value::from(1))])?)
}

fn get_write_hook(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    call.arg(env, 0)?.into_table()?;
    call.value(Value::Null)
}
