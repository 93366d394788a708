//! Databases as Redis has them: where the configuration says how many there are, `SELECT n` means the table `dbn`, which is created when
//! it is first selected.

use super::Connection;
use crate::commands::CommandError;
use crate::server::RedisServer;
use std::sync::Arc;
use tessera_cluster::{CatalogCommand, CatalogError};
use tessera_engine::DEFAULT_ENGINE;
use tessera_store::{Store, Table};
use tessera_types::{Right, TableSchema, TableSettings};
use tokio::time::timeout_at;

/// A database is small as a rule, and there may be many.
const PARTITIONS: u32 = 4;

fn name_of(database: u32) -> String {
    format!("db{database}")
}

impl RedisServer {
    /// Whether `SELECT` takes a number for a database, and not for the number of a table. Database 0 is the table of that number.
    fn is_database(&self, number: u32) -> bool {
        (1..self.config.databases).contains(&number)
    }

    /// By which number `SELECT` finds a table; `None` if only `TABLE` does, since the number is that of a database.
    pub(super) fn selected_as(&self, number: u32, name: &str) -> Option<u32> {
        let database = name.strip_prefix("db").and_then(|digits| digits.parse().ok());
        let database = database.filter(|database| self.is_database(*database) && name_of(*database) == name);
        database.or((!self.is_database(number)).then_some(number))
    }
}

impl Connection {
    /// The table that is database `number`, created if it is not there yet; `None` if the number means a table.
    pub(super) async fn database(&mut self, number: u32) -> Result<Option<Arc<Table>>, CommandError> {
        if !self.server.is_database(number) {
            return Ok(None);
        }
        let (server, name, until) = (self.server.clone(), name_of(number), self.patience.until().into());
        let store = &server.store;
        let may_create = self.session.user.as_ref().is_some_and(|user| user.rights.may_in_table(Right::Config, &name));
        let found = self.wait_for(None, timeout_at(until, find_or_create(store, number, &name, may_create))).await;
        let Ok(found) = found else {
            let message = format!(
                "ERR database {number} is not there yet: its table '{name}' was not found, or not created, in time; it may be there \
                 later, so try again"
            );
            return Err(CommandError::Reply(message.into()));
        };
        let (table, is_new) = found?;
        if is_new {
            // Commands on its keys wait too.
            let _ = self.wait_for(None, timeout_at(until, store.wait_until_served(table.id()))).await;
        }
        Ok(Some(table))
    }
}

/// The table of a database, and whether it was created now.
async fn find_or_create(
    store: &Store,
    number: u32,
    name: &str,
    may_create: bool,
) -> Result<(Arc<Table>, bool), CommandError> {
    if let Some(table) = store.find_table(|store| store.table_named(name)).await {
        return Ok((table, false));
    }
    if !may_create {
        let message =
            format!("NOPERM database {number} is not there yet, and this user may not create its table '{name}'");
        return Err(CommandError::Reply(message.into()));
    }
    let schema = TableSchema {
        engine: DEFAULT_ENGINE,
        partitions: PARTITIONS,
        partitioner: Default::default(),
        model: Default::default(),
        primary_key: None,
        durability: TableSchema::default_durability(DEFAULT_ENGINE),
        replicas: TableSchema::DEFAULT_REPLICAS,
    };
    let (settings, absent) = (TableSettings::default(), Default::default());
    let create = CatalogCommand::Create { name: name.into(), schema, settings, absent };
    match store.change_catalog(create).await? {
        // Another client may have been faster.
        Ok(_) | Err(CatalogError::Exists(_)) => {}
        Err(error) => {
            let message = format!("ERR database {number} cannot be created: {error}; nothing was done");
            return Err(CommandError::Reply(message.into()));
        }
    }
    match store.find_table(|store| store.table_named(name)).await {
        Some(table) => Ok((table, true)),
        None => Err(CommandError::Reply(format!("ERR database {number} was created, and dropped at once").into())),
    }
}
