//! Databases and tables: naming, making and dropping them.

use std::sync::Arc;

use crate::call::Call;
use crate::env::Env;
use crate::error::{self, Error, Result};
use crate::plan::Definition;
use crate::selection::{Database, Table};
use crate::source::{ReadMode, TableInfo, TableOptions};
use crate::system::{self, DEFAULT_TAG};
use crate::val::{Kind, Val};
use crate::value::{self, Value, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::new(14, 1, 1, db).nondeterministic(),
    Definition::new(15, 1, 2, table).nondeterministic().optargs(&["read_mode", "use_outdated", "identifier_format"]),
    Definition::new(57, 1, 1, db_create).nondeterministic(),
    Definition::new(58, 1, 1, db_drop).nondeterministic(),
    Definition::new(59, 0, 0, db_list).nondeterministic(),
    Definition::new(60, 1, 2, table_create).nondeterministic().optargs(&[
        "primary_key",
        "shards",
        "replicas",
        "nonvoting_replica_tags",
        "primary_replica_tag",
        "durability",
        "ttl",
    ]),
    Definition::new(61, 1, 2, table_drop).nondeterministic(),
    Definition::new(62, 0, 1, table_list).nondeterministic(),
];

/// Whether a database, table or tag may be called so.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '-'))
}

/// A name of a database, table or tag.
///
/// # Errors
/// If it has characters that names must not have.
pub fn name(value: &Val, kind: &str) -> Result<Arc<str>> {
    let name = value.as_string()?;
    if is_name(&name) {
        return Ok(name);
    }
    let message = format!("{kind} name `{}` invalid (Use A-Z, a-z, 0-9, _ and - only).", error::until_nul(&name));
    Err(Error::logic(message).at(value.frame))
}

fn find_database(env: &Env, name: &str) -> Result<Database> {
    env.source()?.database(name)?.ok_or_else(|| Error::failed(format!("Database `{name}` does not exist.")))
}

/// The database of the query: its option `db`, or the one that every query has.
pub fn default_database(env: &Env) -> Result<Database> {
    match env.global_optarg("db")? {
        Some(value) => value.into_database(),
        None => find_database(env, "test"),
    }
}

fn db(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let name = name(&call.arg(env, 0)?, "Database")?;
    let database = find_database(env, &name)?;
    Ok(call.result(Kind::Database(database)))
}

fn read_mode(value: &Val) -> Result<ReadMode> {
    match &*value.as_string()? {
        "single" => Ok(ReadMode::Single),
        "majority" => Ok(ReadMode::Majority),
        // The latter looks into the replica of the server that is asked.
        "outdated" | "_debug_direct" => Ok(ReadMode::Outdated),
        other => Err(Error::logic(format!(
            "Read mode `{other}` unrecognized (options are \"majority\", \"single\", and \"outdated\")."
        ))),
    }
}

fn table(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    if call.optarg(env, "use_outdated")?.is_some() {
        return Err(Error::logic(
            "The `use_outdated` optarg is no longer supported.  Use the `read_mode` optarg instead.",
        ));
    }
    let reads = match call.optarg(env, "read_mode")? {
        Some(mode) => read_mode(&mode)?,
        None => env.global_optarg("read_mode")?.map_or(Ok(ReadMode::Single), |mode| read_mode(&mode))?,
    };
    if let Some(format) = call.optarg(env, "identifier_format")? {
        let text = format.as_string()?;
        if !matches!(&*text, "name" | "uuid") {
            let message = format!("Identifier format `{text}` unrecognized (options are \"name\" and \"uuid\").");
            return Err(Error::logic(message));
        }
    }
    let (database, name) = database_and_name(call, env)?;
    match env.source()?.table(&database, &name)? {
        Some(info) => Ok(call.result(Kind::Table(Arc::new(Table { info, frame: call.frame(), reads })))),
        None => Err(Error::failed(format!("Table `{}.{name}` does not exist.", database.name))),
    }
}

/// The arguments of terms that name a table, in a database or in that of the query.
fn database_and_name(call: &mut Call<'_>, env: &Env) -> Result<(Database, Arc<str>)> {
    if call.count() == 1 {
        let database = default_database(env)?;
        let name = name(&call.arg(env, 0)?, "Table")?;
        Ok((database, name))
    } else {
        let database = call.arg(env, 0)?.into_database()?;
        let name = name(&call.arg(env, 1)?, "Table")?;
        Ok((database, name))
    }
}

fn describe(database: &Database) -> Result<Value> {
    value::object([("id", Value::from(database.id.clone())), ("name", Value::from(database.name.clone()))])
}

fn changes(old: Value, new: Value) -> Result<Value> {
    Ok(Value::array(vec![value::object([("old_val", old), ("new_val", new)])?])?)
}

fn db_create(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let name = name(&call.arg(env, 0)?, "Database")?;
    env.source()?.learn();
    let database = env.alter(|source| source.create_database(&name))?;
    call.value(value::object([
        ("config_changes", changes(Value::Null, describe(&database)?)?),
        ("dbs_created", Value::from(1)),
    ])?)
}

fn db_drop(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let name = name(&call.arg(env, 0)?, "Database")?;
    env.source()?.learn();
    let (database, tables) = env.alter(|source| source.drop_database(&name))?;
    call.value(value::object([
        ("config_changes", changes(describe(&database)?, Value::Null)?),
        ("dbs_dropped", Value::from(1)),
        ("tables_dropped", value::integer(tables)),
    ])?)
}

fn sorted_names(mut names: Vec<String>) -> Result<Value> {
    names.sort();
    Ok(Value::array(names.into_iter().map(Value::from).collect())?)
}

fn db_list(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    env.source()?.learn();
    let names = env.source()?.databases()?.into_iter().map(|database| database.name).collect();
    call.value(sorted_names(names)?)
}

fn table_list(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let database = if call.count() == 0 { default_database(env)? } else { call.arg(env, 0)?.into_database()? };
    env.source()?.learn();
    let names = env.source()?.tables(&database)?.into_iter().map(|table| table.name).collect();
    call.value(sorted_names(names)?)
}

/// The optional argument `durability`; true for hard.
pub fn durability(call: &Call<'_>, env: &Env) -> Result<Option<bool>> {
    let Some(value) = call.optarg(env, "durability")? else { return Ok(None) };
    match &*value.as_string()? {
        "hard" => Ok(Some(true)),
        "soft" => Ok(Some(false)),
        other => {
            let message = format!("Durability option `{other}` unrecognized (options are \"hard\" and \"soft\").");
            Err(Error::logic(message).at(value.frame))
        }
    }
}

/// The most shards that RethinkDB gives a table.
const MAX_SHARDS: usize = 64;

/// What a query says about the replicas of a table.
#[derive(Default)]
pub struct Replicas {
    /// How many servers of each tag hold one. Every server has the one tag that there is.
    counts: Vec<(String, i64)>,
    primary_tag: Option<Arc<str>>,
    nonvoting_tags: Vec<String>,
}

/// The optional arguments that say how a table is spread: `shards` and `replicas`, and what belongs to these.
pub fn spread(call: &Call<'_>, env: &Env) -> Result<(Option<usize>, Option<Replicas>)> {
    let mut shards = None;
    if let Some(value) = call.optarg(env, "shards")? {
        let count = value.as_integer()?;
        if count <= 0 {
            return Err(Error::logic("Every table must have at least one shard.").at(value.frame));
        }
        shards = Some(count as usize);
    }
    let tag = call.optarg(env, "primary_replica_tag")?;
    let nonvoting = call.optarg(env, "nonvoting_replica_tags")?;
    let mut replicas = (tag.is_some() || nonvoting.is_some()).then(Replicas::default);
    if let Some(value) = call.optarg(env, "replicas")? {
        let said = replicas.get_or_insert_default();
        match value.as_datum()? {
            Value::Number(_) => {
                let wrong = |what: &str| {
                    let message = format!("`replicas` must be an OBJECT if `{what}` is specified.");
                    Err(Error::logic(message).at(value.frame))
                };
                if tag.is_some() {
                    return wrong("primary_replica_tag");
                }
                if nonvoting.is_some() {
                    return wrong("nonvoting_replica_tags");
                }
                said.counts.push((DEFAULT_TAG.into(), value.as_integer()?));
            }
            Value::Object(counts) => {
                if tag.is_none() {
                    let message = "`primary_replica_tag` must be specified when `replicas` is an OBJECT.";
                    return Err(Error::logic(message).at(value.frame));
                }
                for (tag, count) in counts {
                    let count = count.to_integer().map_err(|error| error.at(value.frame))?;
                    if count < 0 {
                        let message = "Can't have a negative number of replicas";
                        return Err(Error::logic(message).at(value.frame));
                    }
                    said.counts.push((tag.to_string(), count));
                }
            }
            other => {
                let message =
                    format!("Expected type OBJECT or NUMBER but found {}:\n{}", other.type_name(), other.print()?);
                return Err(Error::logic(message).at(value.frame));
            }
        }
    }
    if let (Some(value), Some(replicas)) = (nonvoting, &mut replicas) {
        let tags = value.as_datum()?;
        let Value::Array(tags) = tags else {
            let message = format!("Expected type ARRAY but found {}:\n{}", tags.type_name(), tags.print()?);
            return Err(Error::logic(message).at(value.frame));
        };
        for tag in tags.iter() {
            let Value::String(tag) = tag else {
                let message = format!("Expected type STRING but found {}:\n{}", tag.type_name(), tag.print()?);
                return Err(Error::logic(message).at(value.frame));
            };
            replicas.nonvoting_tags.push(tag.to_string());
        }
    }
    if let (Some(value), Some(replicas)) = (tag, &mut replicas) {
        replicas.primary_tag = Some(name(&value, "Server tag")?);
    }
    Ok((shards, replicas))
}

impl Replicas {
    /// How many replicas a shard is to have, if that is said.
    ///
    /// # Errors
    /// If there are not the servers for it.
    pub fn count(&self, env: &Env) -> Result<Option<usize>> {
        let known = |tag: &str| match self.counts.is_empty() {
            true => tag == DEFAULT_TAG,
            false => self.counts.iter().any(|(own, _)| own == tag),
        };
        if let Some(tag) = self.primary_tag.as_deref().filter(|tag| !known(tag)) {
            return Err(Error::failed(format!(
                "Can't use server tag `{tag}` for primary replicas because you specified no replicas in server tag `{tag}`."
            )));
        }
        if let Some(tag) = self.nonvoting_tags.iter().find(|tag| !known(tag)) {
            return Err(Error::failed(format!(
                "You specified that the replicas in server tag `{tag}` should be non-voting, but you didn't specify a \
                 number of replicas in server tag `{tag}`."
            )));
        }
        if self.counts.is_empty() {
            return Ok(None);
        }
        if self.counts.iter().all(|(_, count)| *count == 0) {
            return Err(Error::failed(
                "You must set `replicas` to at least one. `replicas` includes the primary replica; if there are zero \
                 replicas, there is nowhere to put the data.",
            ));
        }
        let servers = env.source()?.servers()?.len();
        for (tag, count) in &self.counts {
            if tag != DEFAULT_TAG {
                return Err(Error::failed(format!("Could not find any servers with server tag `{tag}`.")));
            }
            if usize::try_from(*count).is_ok_and(|count| count <= servers) {
                continue;
            }
            let count = *count as u64;
            return Err(Error::failed(format!(
                "Can't put {count} replicas on servers with the tag `{tag}` because there are only {servers} servers with \
                 the tag `{tag}`. It's impossible to have more replicas of the data than there are servers."
            )));
        }
        Ok(self.counts.first().and_then(|(_, count)| usize::try_from(*count).ok()))
    }
}

/// # Errors
/// If a table has fewer shards at most.
pub fn check_shards(shards: usize) -> Result<()> {
    if shards <= MAX_SHARDS {
        return Ok(());
    }
    Err(Error::failed(format!("Maximum number of shards is {MAX_SHARDS}.")))
}

fn config_of(env: &Env, table: &TableInfo) -> Result<Value> {
    system::config_row(table, &env.source()?.table_config(table)?)
}

/// The longest time to live that can be asked for: a thousand years.
const MOST_SECONDS: f64 = 31_557_600_000.0;

/// A time to live as milliseconds; `null` is none.
pub fn time_to_live(seconds: &Value) -> Result<Option<u64>> {
    match seconds {
        Value::Null => Ok(None),
        Value::Number(seconds) if seconds.get() > 0.0 && seconds.get() <= MOST_SECONDS => {
            Ok(Some((seconds.get() * 1_000.0).ceil() as u64))
        }
        Value::Number(_) => {
            Err(Error::logic("A time to live is a number of seconds greater than zero, a thousand years at most."))
        }
        other => Err(Error::typed(other, "A time to live is a number of seconds, or null.")),
    }
}

fn table_create(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let (shards, replicas) = spread(call, env)?;
    let primary_key = match call.optarg(env, "primary_key")? {
        Some(value) => value.as_string()?.to_string(),
        None => "id".into(),
    };
    let is_hard = durability(call, env)?.unwrap_or(true);
    let ttl_seconds = match call.optarg(env, "ttl")? {
        Some(value) => time_to_live(value.as_datum()?)?.map(|millis| millis.div_ceil(1_000)),
        None => None,
    };
    let (database, name) = database_and_name(call, env)?;
    env.source()?.learn();
    if env.source()?.table(&database, &name)?.is_none() && database.name != system::DATABASE {
        check_shards(shards.unwrap_or(1))?;
    }
    let replicas = replicas.map_or(Ok(None), |replicas| replicas.count(env))?;
    let shards = shards.unwrap_or(1);
    let options = TableOptions { primary_key, shards, replicas, is_hard, waits_for_majority: true, ttl_seconds };
    let table = env.alter(|source| source.create_table(&database, &name, &options))?;
    let config = config_of(env, &table)?;
    call.value(value::object([("config_changes", changes(Value::Null, config)?), ("tables_created", Value::from(1))])?)
}

fn table_drop(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let (database, name) = database_and_name(call, env)?;
    env.source()?.learn();
    let Some(table) = env.source()?.table(&database, &name)? else {
        return Err(Error::failed(format!("Table `{}.{name}` does not exist.", database.name)));
    };
    if table.is_system() {
        env.source_alone()?.drop_table(&database, &name)?;
    }
    let config = config_of(env, &table)?;
    env.alter(|source| source.drop_table(&database, &name))?;
    call.value(value::object([("config_changes", changes(config, Value::Null)?), ("tables_dropped", Value::from(1))])?)
}
