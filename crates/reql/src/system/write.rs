//! What is written to a system table is carried out by the cluster, or refused.

use super::{DATABASE, SystemTable, WithSystemTables, cluster_config, jobs};
use crate::cluster::TableChange;
use crate::error::{Error, Result};
use crate::scan::TableInfo;
use crate::source::Source;
use crate::value::{Value, ValueExt as _};

/// Makes of the row `old` the other row `new`; `null` stands for none. Databases and tables are [made](super::made) elsewhere.
pub(super) fn carry_out(source: &WithSystemTables, table: SystemTable, old: &Value, new: &Value) -> Result<()> {
    let name = table.name();
    let refuse = |what: &str| Err(Error::failed(what));
    match (table, old.is_null(), new.is_null()) {
        (SystemTable::DbConfig, _, true) => source.0.drop_database(&text(table, old, "name")?).map(drop),
        (SystemTable::DbConfig, ..) => rename_database(source, old, new),
        (SystemTable::TableConfig, _, true) => {
            let info = table_of(source, old)?;
            source.0.drop_table(&info.database, &info.name).map(drop)
        }
        (SystemTable::TableConfig, ..) => change_table(source, old, new),
        (SystemTable::ServerConfig, true, _) => {
            refuse("It's illegal to insert new rows into the `rethinkdb.server_config` system table.")
        }
        (SystemTable::ServerConfig, _, true) => {
            refuse("It's illegal to delete rows from the `rethinkdb.server_config` system table.")
        }
        (SystemTable::ServerConfig, ..) => refuse(
            "Tessera names its nodes itself, has no tags, and takes the sizes of caches from each node's configuration file.",
        ),
        (SystemTable::ClusterConfig, ..) => cluster_config::carry_out(&*source.0, old, new),
        (SystemTable::Jobs, ..) => jobs::carry_out(&*source.0, old, new),
        (SystemTable::Logs, ..) => refuse("It's illegal to write to the `rethinkdb.logs` system table."),
        _ => Err(Error::failed(format!("It's illegal to write to the `{DATABASE}.{name}` table."))),
    }
}

pub(super) fn wrong_format(table: SystemTable, what: &str) -> Error {
    let name = table.name();
    Error::failed(format!("The change you're trying to make to `{DATABASE}.{name}` has the wrong format. {what}"))
}

pub(super) fn text(table: SystemTable, row: &Value, field: &str) -> Result<String> {
    match row.get_field(field) {
        Some(Value::String(text)) => Ok(text.to_string()),
        Some(_) => Err(wrong_format(table, &format!("In `{field}`: Expected a string."))),
        None => Err(wrong_format(table, &format!("Expected a field named `{field}`."))),
    }
}

pub(super) fn check_name(table: SystemTable, name: &str, kind: &str) -> Result<()> {
    if crate::terms::is_name(name) {
        return Ok(());
    }
    let what = format!("In `name`: \"{name}\" is not a valid {kind} name; Use A-Z, a-z, 0-9, _ and - only");
    Err(wrong_format(table, &what))
}

fn table_of(source: &WithSystemTables, row: &Value) -> Result<TableInfo> {
    let (database, name) = (text(SystemTable::TableConfig, row, "db")?, text(SystemTable::TableConfig, row, "name")?);
    let missing = || Error::failed(format!("Table `{database}.{name}` does not exist."));
    let found = source.0.databases()?.into_iter().find(|info| info.name == database).ok_or_else(missing)?;
    source.0.table(&found, &name)?.ok_or_else(missing)
}

fn rename_database(source: &WithSystemTables, old: &Value, new: &Value) -> Result<()> {
    let (from, to) = (text(SystemTable::DbConfig, old, "name")?, text(SystemTable::DbConfig, new, "name")?);
    check_name(SystemTable::DbConfig, &to, "db")?;
    if from == to {
        return unexpected(SystemTable::DbConfig, old, new, &[]);
    }
    if source.databases()?.iter().any(|info| info.name == to) {
        return Err(Error::failed(format!(
            "Cannot rename database `{from}` to `{to}` because database `{to}` already exists."
        )));
    }
    Err(Error::failed(
        "Tessera cannot rename a database. Make one of the new name, and give its tables the new `db`, one by one.",
    ))
}

/// Complains if the rows differ in another field than these.
fn unexpected(table: SystemTable, old: &Value, new: &Value, fields: &[&str]) -> Result<()> {
    let (old, new) = (old.to_fields()?, new.to_fields()?);
    for (name, value) in &new {
        let is_known = fields.contains(&&**name);
        match old.get(name) {
            None => return Err(wrong_format(table, &format!("Unexpected key(s): {name}"))),
            Some(own) if own != value && !is_known => {
                return Err(Error::failed(format!("Tessera cannot change `{name}` of `{DATABASE}.{}`.", table.name())));
            }
            Some(_) => {}
        }
    }
    match old.into_iter().find(|(name, _)| new.get(name).is_none()) {
        Some((name, _)) => Err(wrong_format(table, &format!("Expected a field named `{name}`."))),
        None => Ok(()),
    }
}

fn change_table(source: &WithSystemTables, old: &Value, new: &Value) -> Result<()> {
    const TABLE: SystemTable = SystemTable::TableConfig;
    unexpected(TABLE, old, new, &["name", "db", "write_acks"]).map_err(|error| {
        let is_shape = ["shards", "durability"].into_iter().find(|name| old.get_field(name) != new.get_field(name));
        match is_shape {
            Some("shards") => Error::failed(
                "Tessera places replicas itself: use `reconfigure` for the number of shards and replicas of a table.",
            ),
            Some(_) => {
                Error::failed("Tessera cannot change the durability of a table; say `durability` with each write.")
            }
            None => error,
        }
    })?;
    let info = table_of(source, old)?;
    let (database, name) = (text(TABLE, new, "db")?, text(TABLE, new, "name")?);
    check_name(TABLE, &name, "table")?;
    let acks = text(TABLE, new, "write_acks")?;
    let majority = match &*acks {
        "majority" => true,
        "single" => false,
        other => {
            let what = format!("In `write_acks`: Expected \"single\" or \"majority\", got: \"{other}\"");
            return Err(wrong_format(TABLE, &what));
        }
    };
    if (&*database, &*name) != (&*info.database.name, &*info.name) {
        let Some(to) = source.0.databases()?.into_iter().find(|info| info.name == database) else {
            return Err(wrong_format(TABLE, &format!("Database `{database}` does not exist.")));
        };
        if source.0.table(&to, &name)?.is_some() {
            let from = info.full_name();
            return Err(Error::failed(format!(
                "Can't rename table `{from}` to `{database}.{name}` because table `{database}.{name}` already exists."
            )));
        }
    }
    // The acknowledgement first: it goes by the old name.
    if old.get_field("write_acks") != new.get_field("write_acks") {
        source.0.change_table(&info, &TableChange::WriteAcks { majority })?;
    }
    if (&*database, &*name) != (&*info.database.name, &*info.name) {
        source.0.change_table(&info, &TableChange::Rename { database, name })?;
    }
    Ok(())
}
