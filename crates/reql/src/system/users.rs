//! The table `users`: who there is, and whether a password is needed. Rows that are written make users, change passwords and drop users.

use super::SystemTable;
use crate::account::{Account, AccountChange, NewPassword};
use crate::error::{Error, ErrorKind, Result, until_nul};
use crate::scan::TableInfo;
use crate::source::Source;
use crate::value::{self, Object, Value, ValueExt as _};
use tessera_types::ADMIN;

/// What stands for a password that was just set, where changes are shown.
const HIDDEN: &str = "<hidden>";

pub(super) fn rows(source: &dyn Source) -> Result<Vec<Value>> {
    let row = |account: Account| {
        value::object([("id", Value::from(account.name)), ("password", Value::Bool(account.has_password))])
    };
    source.accounts()?.into_iter().map(row).collect()
}

/// That nobody has an empty name, in the words of RethinkDB.
pub(crate) fn empty_name() -> Error {
    Error::new(ErrorKind::Internal, "Unexpected exception: Empty username")
}

/// The user of that name.
///
/// # Errors
/// If there is none.
pub(crate) fn account(source: &dyn Source, name: &str) -> Result<Account> {
    if name.is_empty() {
        return Err(empty_name());
    }
    let find = || Ok::<_, Error>(source.accounts()?.into_iter().find(|account| account.name == name));
    if let Some(account) = find()? {
        return Ok(account);
    }
    // Another node may have made it just now.
    source.learn();
    find()?.ok_or_else(|| Error::failed(until_nul(&format!("User `{name}` not found."))))
}

/// Why a row is refused whose key nobody gave.
pub(super) fn without_key(table: SystemTable, key: &Value) -> Option<Result<Error>> {
    match table {
        SystemTable::Users => Some(no_name(key)),
        SystemTable::Permissions => Some(Ok(Error::failed("You must specify a primary key."))),
        _ => None,
    }
}

fn no_name(key: &Value) -> Result<Error> {
    Ok(Error::failed(format!("Expected a username as the primary key, got {}.", key.print()?)))
}

/// Makes of the row `old` the other row `new`; `null` stands for none. Returns the row that may be shown.
pub(super) fn carry_out(source: &dyn Source, key: &Value, old: &Value, new: &Value) -> Result<Value> {
    let Value::String(name) = key else { return Err(no_name(key)?) };
    if name.is_empty() {
        return Err(empty_name());
    }
    if new.is_null() {
        if **name == *ADMIN {
            return Err(Error::failed("The user `admin` can't be deleted."));
        }
        account(source, name)?;
        source.change_account(name, AccountChange::Drop)?;
        return Ok(Value::Null);
    }
    let had_password = old.get_field("password") == Some(Value::TRUE);
    let fields = new.to_fields()?;
    let wanted = password(&fields, had_password)?;
    no_others(&fields, &["id", "password"])?;
    let change = match (wanted, old.is_null()) {
        (Wanted::Same, _) => return Ok(new.clone()),
        (Wanted::None, false) => AccountChange::SetPassword(None),
        (Wanted::None, true) => AccountChange::Create(None),
        (Wanted::New(password), false) => AccountChange::SetPassword(Some(password)),
        (Wanted::New(password), true) => AccountChange::Create(Some(password)),
    };
    let is_secret = matches!(&change, AccountChange::Create(Some(_)) | AccountChange::SetPassword(Some(_)));
    source.change_account(name, change)?;
    let shown = if is_secret { Value::from(HIDDEN) } else { Value::FALSE };
    value::object([("id", key.clone()), ("password", shown)])
}

enum Wanted {
    Same,
    None,
    New(NewPassword),
}

pub(super) fn field<'a>(fields: &'a Object, name: &str) -> Result<&'a Value> {
    fields.get(name).ok_or_else(|| Error::failed(format!("Expected a field named `{name}`.")))
}

/// Complains of fields that have other names than these.
pub(super) fn no_others(fields: &Object, known: &[&str]) -> Result<()> {
    let others = fields.into_iter().filter(|(name, _)| !known.contains(&&**name));
    let others: Vec<String> = others.map(|(name, _)| format!("`{name}`")).collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(Error::failed(format!("Unexpected key(s) {}.", others.join(", "))))
}

fn password(fields: &Object, had_password: bool) -> Result<Wanted> {
    let new = |clear: &str, iterations| Wanted::New(NewPassword { clear: clear.into(), iterations });
    match field(fields, "password")? {
        Value::Bool(false) => Ok(Wanted::None),
        Value::Bool(true) if had_password => Ok(Wanted::Same),
        Value::Bool(true) => Err(Error::failed(
            "Expected an object or string to set the password, or `false` to keep it unset, got true.",
        )),
        Value::String(clear) => Ok(new(clear, None)),
        object if object.is_object() => {
            let parts = object.to_fields()?;
            let clear = match field(&parts, "password")? {
                Value::String(clear) => clear.clone(),
                other => {
                    let message = format!("Expected a string for `password`, got {}.", other.print()?);
                    return Err(Error::failed(message));
                }
            };
            let iterations = field(&parts, "iterations")?;
            let count = match iterations {
                Value::Number(number) if number.get() >= 1.0 && number.get().fract() == 0.0 => number.get() as u32,
                other => {
                    return Err(Error::failed(format!(
                        "Expected `iterations` to be an integer greater than zero, got {}.",
                        other.print()?
                    )));
                }
            };
            no_others(&parts, &["password", "iterations"])?;
            Ok(new(&clear, Some(count)))
        }
        other => {
            Err(Error::failed(format!("Expected an object, string or boolean for `password`, got {}.", other.print()?)))
        }
    }
}

/// The table of permissions, for those who ask whether it may be written.
pub(crate) fn permissions_table() -> TableInfo {
    SystemTable::Permissions.info()
}
