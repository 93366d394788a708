//! Databases and tables that are made by inserting rows into `db_config` and `table_config`. Their identifiers are not those of the
//! rows that were inserted, but their own.

use super::rows::config_row;
use super::write::{check_name, text, wrong_format};
use super::{DATABASE, SystemTable, WithSystemTables};
use crate::error::{Error, Result};
use crate::scan::{ReadMode, TableInfo, TableOptions};
use crate::source::Source;
use crate::value::{self, Value, ValueExt as _};

/// Why a row is refused whose key somebody gave, where only the cluster makes keys.
pub(crate) fn with_key(source: &dyn Source, table: &TableInfo, document: &Value) -> Result<Option<Error>> {
    let what = match SystemTable::of(table)? {
        // Without a name nothing could be made of it, whatever its key.
        Some(SystemTable::DbConfig) if document.get_field("name").is_some() => "database",
        Some(SystemTable::TableConfig) => "table",
        _ => return Ok(None),
    };
    let Some(key) = document.get_field("id") else { return Ok(None) };
    if source.get(table, &key, ReadMode::Single)?.is_some() {
        return Ok(None);
    }
    Ok(Some(Error::failed(format!(
        "There is no existing {what} with the given ID. To create a new {what} by inserting into `{DATABASE}.{}`, you must let \
         the database generate the primary key automatically.",
        table.name
    ))))
}

/// Makes what the row says. Returns its row.
pub(super) fn make(source: &WithSystemTables, table: SystemTable, row: &Value) -> Result<Value> {
    match table {
        SystemTable::DbConfig => make_database(source, row),
        _ => make_table(source, row),
    }
}

fn only(table: SystemTable, row: &Value, known: &[&str]) -> Result<()> {
    let fields = row.to_fields()?;
    let unknown = (&fields).into_iter().map(|(name, _)| name).find(|name| !known.contains(&&***name));
    match unknown {
        Some(name) => Err(wrong_format(table, &format!("Unexpected key(s): {name}"))),
        None => Ok(()),
    }
}

fn make_database(source: &WithSystemTables, row: &Value) -> Result<Value> {
    let table = SystemTable::DbConfig;
    let name = text(table, row, "name")?;
    check_name(table, &name, "db")?;
    only(table, row, &["id", "name"])?;
    let info = source.create_database(&name)?;
    value::object([("id", Value::from(info.id)), ("name", Value::from(info.name))])
}

fn make_table(source: &WithSystemTables, row: &Value) -> Result<Value> {
    let table = SystemTable::TableConfig;
    let name = text(table, row, "name")?;
    check_name(table, &name, "table")?;
    let database = text(table, row, "db")?;
    only(
        table,
        row,
        &["id", "name", "db", "primary_key", "durability", "write_acks", "shards", "indexes", "write_hook"],
    )?;
    // Rows of other tables have these, and are copied.
    match row.get_field("indexes") {
        None => {}
        Some(Value::Array(indexes)) if indexes.is_empty() => {}
        Some(Value::Array(_)) => {
            return Err(Error::failed("The `indexes` field is read-only and can't be used to create indexes."));
        }
        Some(_) => return Err(wrong_format(table, "In `indexes`: Expected an array.")),
    }
    if row.get_field("write_hook").is_some_and(|hook| !hook.is_null()) {
        return Err(Error::failed("The `write_hook` field is read-only and can't be used to create a write hook."));
    }
    if row.get_field("shards").is_some() {
        return Err(Error::failed(
            "Tessera places replicas itself: leave `shards` out, or use `table_create` with the numbers of shards and replicas.",
        ));
    }
    let choice = |field: &str, choices: [&'static str; 2]| -> Result<&'static str> {
        if row.get_field(field).is_none() {
            return Ok(choices[0]);
        }
        let given = text(table, row, field)?;
        choices.into_iter().find(|choice| *choice == given).ok_or_else(|| {
            let [first, second] = choices;
            wrong_format(table, &format!("In `{field}`: Expected \"{second}\" or \"{first}\", got: \"{given}\""))
        })
    };
    let durability = choice("durability", ["hard", "soft"])?;
    let acks = choice("write_acks", ["majority", "single"])?;
    let primary_key = match row.get_field("primary_key") {
        None => "id".into(),
        Some(_) => text(table, row, "primary_key")?,
    };
    let found = source.databases()?.into_iter().find(|info| info.name == database);
    let Some(found) = found else {
        return Err(wrong_format(table, &format!("Database `{database}` does not exist.")));
    };
    let (is_hard, waits_for_majority) = (durability == "hard", acks == "majority");
    let options =
        TableOptions { primary_key, shards: 1, replicas: None, is_hard, waits_for_majority, ttl_seconds: None };
    let info = source.create_table(&found, &name, &options)?;
    config_row(&info, &source.table_config(&info)?)
}
