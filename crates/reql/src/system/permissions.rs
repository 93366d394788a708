//! The table `permissions`: what each user may do where. The key of a row is the user, then the database and the table by their
//! identifiers, as far as the row is about one.

use super::users::{account, empty_name, field, no_others};
use super::{DATABASE, WithSystemTables};
use crate::account::AccountChange;
use crate::error::{Error, Result, until_nul};
use crate::scan::TableInfo;
use crate::source::Source;
use crate::value::{Value, ValueExt as _};
use std::collections::BTreeMap;
use tessera_types::{ADMIN, PermissionChanges, Permissions, Right, Scope};

/// What is decided, as an object; `null` if nothing is.
pub(crate) fn shown(permissions: Permissions) -> Result<Value> {
    if permissions.is_none() {
        return Ok(Value::Null);
    }
    Ok(Value::object(permissions.decided().map(|(right, is_given)| (right.name(), Value::Bool(is_given))))?)
}

pub(super) fn rows(source: &WithSystemTables) -> Result<Vec<Value>> {
    let databases = source.databases()?;
    let mut tables = BTreeMap::new();
    let mut rows = Vec::new();
    for account in source.accounts()? {
        for (scope, permissions) in account.rights.places() {
            let user = Value::from(account.name.clone());
            let mut id = vec![user.clone()];
            let mut row = vec![("user", user), ("permissions", shown(permissions)?)];
            let (database, table) = match &scope {
                Scope::Global => (None, None),
                Scope::Database(name) => (Some(&**name), None),
                Scope::Table(full) => match full.split_once('.') {
                    Some((database, name)) => (Some(database), Some(name)),
                    // Tables of keys and values have no identifiers here.
                    None => continue,
                },
            };
            if let Some(name) = database {
                let Some(database) = databases.iter().find(|database| database.name == name) else { continue };
                id.push(Value::from(database.id.clone()));
                row.push(("database", Value::from(name)));
                if let Some(name) = table {
                    if !tables.contains_key(&database.name) {
                        tables.insert(database.name.clone(), source.tables(database)?);
                    }
                    let known = tables.get(&database.name).into_iter().flatten();
                    let Some(table) = known.into_iter().find(|table: &&TableInfo| table.name == name) else { continue };
                    id.push(Value::from(table.id.clone()));
                    row.push(("table", Value::from(name)));
                }
            }
            row.push(("id", Value::array(id)?));
            rows.push(Value::object(row)?);
        }
    }
    Ok(rows)
}

/// What somebody wants to be decided otherwise.
///
/// # Errors
/// If the value is no such thing.
pub(crate) fn changes(wanted: &Value, scope: &Scope) -> Result<PermissionChanges> {
    if !wanted.is_object() {
        return Err(Error::failed(format!("Expected an object, got {}.", wanted.print()?)));
    }
    let fields = wanted.to_fields()?;
    no_others(&fields, &Right::ALL.map(Right::name))?;
    let mut changes = PermissionChanges::new();
    for (name, decision) in &fields {
        let Some(right) = Right::named(name) else { continue };
        let decision = match decision {
            Value::Bool(is_given) => Some(*is_given),
            Value::Null => None,
            other => {
                let message = format!("Expected a boolean or null for `{name}`, got {}.", other.print()?);
                return Err(Error::failed(message));
            }
        };
        if right == Right::Connect && decision.is_some() && *scope != Scope::Global {
            return Err(Error::failed("The `connect` permission is only valid at the global scope."));
        }
        changes.insert(right, decision);
    }
    Ok(changes)
}

/// Changes what a user may do in one place. Returns what was decided there before and what is now.
///
/// # Errors
/// If there is no such user, or the user cannot be changed.
pub(crate) fn grant(source: &dyn Source, name: &str, scope: Scope, wanted: &Value) -> Result<(Value, Value)> {
    let account = account(source, name)?;
    not_admin(name)?;
    let changes = changes(wanted, &scope)?;
    let before = account.rights.at(&scope);
    let after = before.changed(&changes);
    source.change_account(name, AccountChange::Grant(scope, changes))?;
    Ok((shown(before)?, shown(after)?))
}

fn not_admin(name: &str) -> Result<()> {
    match name {
        ADMIN => Err(Error::failed("The permissions of the user `admin` can't be modified.")),
        _ => Ok(()),
    }
}

/// The user and the place that a key means.
fn read_key(source: &WithSystemTables, key: &Value) -> Result<(String, Scope)> {
    let wrong =
        || Ok::<_, Error>(format!("Expected an array of one to three items in the primary key, got {}.", key.print()?));
    let Value::Array(parts) = key else { return Err(Error::failed(wrong()?)) };
    let mut texts = Vec::new();
    for part in parts.iter() {
        match part {
            Value::String(text) => texts.push(&**text),
            other => {
                return Err(Error::failed(format!("Expected a string in the primary key, got {}.", other.print()?)));
            }
        }
    }
    let (user, database, table) = match texts[..] {
        [user] => return Ok((user.into(), Scope::Global)),
        [user, database] => (user, database, None),
        [user, database, table] => (user, database, Some(table)),
        _ => return Err(Error::failed(wrong()?)),
    };
    let found = source.databases()?.into_iter().find(|own| own.id == database);
    let database = found.ok_or_else(|| Error::failed(format!("No database with UUID `{database}` exists.")))?;
    let Some(table) = table else { return Ok((user.into(), Scope::Database(database.name))) };
    let found = source.tables(&database)?.into_iter().find(|own| own.id == table);
    let table = found.ok_or_else(|| Error::failed(format!("No table with UUID `{table}` exists.")))?;
    Ok((user.into(), Scope::Table(table.full_name())))
}

/// Makes of the row `old` the other row `new`; `null` stands for none.
pub(super) fn carry_out(source: &WithSystemTables, key: &Value, old: &Value, new: &Value) -> Result<()> {
    let (user, scope) = read_key(source, key)?;
    if user.is_empty() {
        return Err(empty_name());
    }
    not_admin(&user)?;
    if !source.accounts()?.iter().any(|account| account.name == user) {
        return Err(Error::failed(until_nul(&format!("No user named `{user}`."))));
    }
    // What the row does not decide is not decided.
    let mut all: PermissionChanges = Right::ALL.map(|right| (right, None)).into();
    if !new.is_null() {
        let fields = new.to_fields()?;
        all.extend(changes(field(&fields, "permissions")?, &scope)?);
        no_others(&fields, &["id", "user", "database", "table", "permissions"])?;
        for name in ["user", "database", "table"] {
            if fields.get(name).is_some_and(|value| old.get_field(name).is_some_and(|own| own != *value)) {
                let message = format!("The field `{name}` of a row of `{DATABASE}.permissions` follows from its `id`.");
                return Err(Error::failed(message));
            }
        }
    }
    source.change_account(&user, AccountChange::Grant(scope, all))
}
