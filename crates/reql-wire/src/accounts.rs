//! The users of the cluster, as ReQL tells and changes them.

use crate::tables::{Tables, failed};
use tessera_access::ScramPassword;
use tessera_cluster::{CatalogCommand, CatalogError, PasswordHash};
use tessera_reql::{Account, AccountChange, Error, NewPassword, Result};
use tessera_types::Rights;

/// What the catalog keeps of a password.
fn hash(password: NewPassword) -> Result<PasswordHash> {
    let iterations = password.iterations.unwrap_or(ScramPassword::ITERATIONS);
    if iterations > ScramPassword::MOST_ITERATIONS {
        let most = ScramPassword::MOST_ITERATIONS;
        return Err(Error::failed(format!("Expected `iterations` to be at most {most}, got {iterations}.")));
    }
    Ok(PasswordHash(ScramPassword::new(password.clear.as_bytes(), iterations).to_string()))
}

fn refused(error: &CatalogError) -> Error {
    Error::failed(match error {
        CatalogError::NoSuchUser(name) => format!("User `{name}` not found."),
        CatalogError::UserExists(name) => format!("User `{name}` already exists."),
        CatalogError::NoSuchDatabase(name) => format!("Database `{name}` does not exist."),
        CatalogError::NoSuchTable(name) => format!("Table `{name}` does not exist."),
        error => format!("{error}."),
    })
}

impl Tables {
    pub(crate) fn all_accounts(&self) -> Vec<Account> {
        let (authenticator, catalog) = (&self.0.config.authenticator, self.0.store.catalog());
        let account = |name: String| {
            // One that could not be logged in as is shown all the same: somebody may give it a password.
            let user = authenticator.named(&name).map(|user| (user.password.is_some(), user.rights));
            let entry = || catalog.users().get(&name).map(|entry| (entry.password.is_some(), entry.rights));
            let (has_password, rights) = user.or_else(entry)?;
            Some(Account { name, has_password, rights })
        };
        authenticator.names().into_iter().filter_map(account).collect()
    }

    pub(crate) fn change_one_account(&self, name: &str, change: AccountChange) -> Result<()> {
        if self.0.config.authenticator.is_configured(name) {
            return Err(Error::failed(format!(
                "The user `{name}` stands in the configuration of this node (`redis.users`), and is changed there."
            )));
        }
        let name = name.to_string();
        let command = match change {
            AccountChange::Create(password) => {
                let password = password.map(hash).transpose()?;
                CatalogCommand::CreateUser { name, password, rights: Rights::default() }
            }
            AccountChange::SetPassword(password) => {
                let password = password.map(hash).transpose()?;
                CatalogCommand::AlterUser { name, password }
            }
            AccountChange::Drop => CatalogCommand::DropUser { name },
            AccountChange::Grant(scope, changes) => CatalogCommand::Grant { user: name, scope, changes },
        };
        match self.wait(self.0.store.change_catalog(command)) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(refused(&error)),
            Err(error) => Err(failed(&error)),
        }
    }
}
