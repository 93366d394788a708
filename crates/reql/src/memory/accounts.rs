//! The users of a source in memory. Passwords are not kept: nobody logs in here.

use std::collections::BTreeMap;

use tessera_types::{ADMIN, Rights, Scope};

use crate::account::{Account, AccountChange};
use crate::error::{Error, Result};

pub(super) struct Accounts(BTreeMap<String, Account>);

impl Default for Accounts {
    fn default() -> Self {
        let admin = Account { name: ADMIN.into(), has_password: false, rights: Rights::all() };
        Self(BTreeMap::from([(ADMIN.into(), admin)]))
    }
}

fn missing(name: &str) -> Error {
    Error::failed(format!("User `{name}` not found."))
}

impl Accounts {
    pub(super) fn all(&self) -> Vec<Account> {
        self.0.values().cloned().collect()
    }

    pub(super) fn change(&mut self, name: &str, change: AccountChange) -> Result<()> {
        let found = self.0.get_mut(name);
        match (change, found) {
            (AccountChange::Create(_), Some(_)) => {
                return Err(Error::failed(format!("User `{name}` already exists.")));
            }
            (AccountChange::Create(password), None) => {
                let has_password = password.is_some();
                let account = Account { name: name.into(), has_password, rights: Rights::default() };
                self.0.insert(name.into(), account);
            }
            (_, None) => return Err(missing(name)),
            (AccountChange::SetPassword(password), Some(account)) => account.has_password = password.is_some(),
            (AccountChange::Drop, Some(_)) if name == ADMIN => {
                return Err(Error::failed("The user `admin` can't be deleted."));
            }
            (AccountChange::Drop, Some(_)) => {
                self.0.remove(name);
            }
            (AccountChange::Grant(scope, changes), Some(account)) => {
                let own = account.rights.at(&scope).changed(&changes);
                account.rights.set(&scope, own);
            }
        }
        Ok(())
    }

    /// A table has another name, or none any more.
    pub(super) fn table_was_renamed(&mut self, name: &str, to: Option<&str>) {
        for account in self.0.values_mut() {
            match to {
                Some(to) => account.rights.table_was_renamed(name, to),
                None => account.rights.table_was_dropped(name),
            }
        }
    }

    pub(super) fn database_was_dropped(&mut self, name: &str) {
        let prefix = format!("{name}.");
        for account in self.0.values_mut() {
            account.rights.database_was_dropped(name);
            for (scope, _) in account.rights.clone().places() {
                if let Scope::Table(table) = scope
                    && table.starts_with(&prefix)
                {
                    account.rights.table_was_dropped(&table);
                }
            }
        }
    }
}
