//! The database `rethinkdb`: tables whose rows tell how the cluster is, and some of which change it when they are written to.

mod changes;
mod cluster_config;
mod jobs;
mod logs;
mod made;
mod parts;
mod permissions;
mod rows;
mod stats;
mod users;
mod write;

use std::collections::BTreeMap;
use std::ops::RangeBounds as _;
use std::sync::Arc;

pub(crate) use made::with_key;
pub(crate) use permissions::grant;
pub(crate) use rows::{DEFAULT_TAG, config_row, status_row};

pub(crate) use users::permissions_table;

use crate::account::{Account, AccountChange};
use crate::change_log::{ChangeLog, Interest, Resume};
use crate::cluster::{ServerStatus, Shape, ShardStatus, TableChange, TableConfig};
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::gathered::{Replacement, Together};
use crate::http::HttpClient;
use crate::lazy::Lazy;
use crate::scan::{DatabaseInfo, IndexDefinition, IndexInfo, Order, Page, ReadMode, Scan, TableInfo, TableOptions};
use crate::script::ScriptEngine;
use crate::source::{Change, Durability, Evaluated, Source, Write, Written, evaluate_page};
use crate::stream::Pipeline;
use crate::uuid;
use crate::value::{Value, ValueExt as _};
use crate::write_hook::WriteHook;

/// The database of the system tables.
pub use crate::scan::SYSTEM_DATABASE as DATABASE;
/// Its identifier, as every RethinkDB 2.4.4 server tells it.
const ID: &str = "b99b9572-8e53-5fef-9a2b-5e6aba3edf1c";

/// A table of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemTable {
    ClusterConfig,
    CurrentIssues,
    DbConfig,
    Jobs,
    Logs,
    Permissions,
    ServerConfig,
    ServerStatus,
    Stats,
    TableConfig,
    TableStatus,
    Users,
}

impl SystemTable {
    const ALL: [(&str, Self); 12] = [
        ("cluster_config", Self::ClusterConfig),
        ("current_issues", Self::CurrentIssues),
        ("db_config", Self::DbConfig),
        ("jobs", Self::Jobs),
        ("logs", Self::Logs),
        ("permissions", Self::Permissions),
        ("server_config", Self::ServerConfig),
        ("server_status", Self::ServerStatus),
        ("stats", Self::Stats),
        ("table_config", Self::TableConfig),
        ("table_status", Self::TableStatus),
        ("users", Self::Users),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(own, _)| *own == name).map(|(_, table)| table)
    }

    fn of(info: &TableInfo) -> Result<Option<Self>> {
        if !info.is_system() {
            return Ok(None);
        }
        let missing = || Error::failed(format!("Table `{}` does not exist.", info.full_name()));
        Self::named(&info.name).map(Some).ok_or_else(missing)
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, table)| *table == self).map_or("", |(name, _)| name)
    }

    pub(crate) fn info(self) -> TableInfo {
        let name = self.name();
        TableInfo {
            id: uuid::of_name(&format!("{DATABASE}.{name}")),
            name: name.into(),
            database: database(),
            primary_key: Arc::from("id"),
        }
    }
}

fn database() -> DatabaseInfo {
    DatabaseInfo { id: ID.into(), name: DATABASE.into() }
}

/// What is refused because of the database.
pub(crate) fn special(what: &str) -> Error {
    Error::failed(format!("Database `{DATABASE}` is special; {what}"))
}

/// Why a row is refused whose key nobody gave, if the table needs one.
pub(crate) fn without_key(table: &TableInfo, key: &Value) -> Option<Result<Error>> {
    if !table.is_system() {
        return None;
    }
    SystemTable::named(&table.name).and_then(|table| users::without_key(table, key))
}

/// A source with the system tables beside its own.
pub struct WithSystemTables(Arc<dyn Source>);

impl WithSystemTables {
    /// Adds the system tables to a source.
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self(source)
    }

    fn rows(&self, table: SystemTable) -> Result<Vec<(Value, Value)>> {
        self.0.learn();
        let rows = rows::of(self, table)?;
        let keyed = rows.into_iter().map(|row| (row.get_field("id").unwrap_or(Value::Null), row));
        let mut keyed: Vec<(Value, Value)> = keyed.collect();
        keyed.sort();
        Ok(keyed)
    }

    fn row(&self, table: SystemTable, key: &Value) -> Result<Option<Value>> {
        if table == SystemTable::Jobs && jobs::is_query(key) {
            // Nothing else is looked at to end a query.
            return Ok(jobs::queries(&*self.0)?.into_iter().find(|row| row.get_field("id").as_ref() == Some(key)));
        }
        Ok(self.rows(table)?.into_iter().find(|(own, _)| own == key).map(|(_, row)| row))
    }
}

impl Source for WithSystemTables {
    fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        let mut databases = self.0.databases()?;
        databases.push(database());
        Ok(databases)
    }

    fn database(&self, name: &str) -> Result<Option<DatabaseInfo>> {
        if name == DATABASE { Ok(Some(database())) } else { self.0.database(name) }
    }

    fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        if name == DATABASE {
            return Err(Error::failed(format!("Database `{DATABASE}` already exists.")));
        }
        self.0.create_database(name)
    }

    fn drop_database(&self, name: &str) -> Result<(DatabaseInfo, usize)> {
        if name == DATABASE {
            return Err(special("you can't delete it."));
        }
        self.0.drop_database(name)
    }

    fn tables(&self, database: &DatabaseInfo) -> Result<Vec<TableInfo>> {
        if database.name == DATABASE {
            return Ok(SystemTable::ALL.iter().map(|(_, table)| table.info()).collect());
        }
        self.0.tables(database)
    }

    fn table(&self, database: &DatabaseInfo, name: &str) -> Result<Option<TableInfo>> {
        if database.name == DATABASE {
            return Ok(SystemTable::named(name).map(SystemTable::info));
        }
        self.0.table(database, name)
    }

    fn create_table(&self, database: &DatabaseInfo, name: &str, options: &TableOptions) -> Result<TableInfo> {
        if database.name == DATABASE {
            return Err(special("you can't create new tables in it."));
        }
        self.0.create_table(database, name, options)
    }

    fn drop_table(&self, database: &DatabaseInfo, name: &str) -> Result<TableInfo> {
        if database.name == DATABASE {
            return Err(special("you can't drop tables in it."));
        }
        self.0.drop_table(database, name)
    }

    fn table_config(&self, table: &TableInfo) -> Result<TableConfig> {
        match SystemTable::of(table)? {
            Some(_) => Err(special("you can't configure the tables in it.")),
            None => self.0.table_config(table),
        }
    }

    fn table_status(&self, table: &TableInfo) -> Result<Vec<ShardStatus>> {
        match SystemTable::of(table)? {
            Some(_) => Err(special("the system tables in it don't have meaningful status information.")),
            None => self.0.table_status(table),
        }
    }

    fn document_counts(&self, table: &TableInfo) -> Result<Vec<u64>> {
        match SystemTable::of(table)? {
            Some(system) => Ok(vec![self.rows(system)?.len() as u64]),
            None => self.0.document_counts(table),
        }
    }

    fn servers(&self) -> Result<Vec<ServerStatus>> {
        self.0.servers()
    }

    fn http(&self) -> Option<&dyn HttpClient> {
        self.0.http()
    }

    fn scripts(&self) -> Option<&dyn ScriptEngine> {
        self.0.scripts()
    }

    fn accounts(&self) -> Result<Vec<Account>> {
        self.0.accounts()
    }

    fn change_account(&self, name: &str, change: AccountChange) -> Result<()> {
        self.0.change_account(name, change)
    }

    fn reconfigure(&self, env: &Env, table: &TableInfo, shape: &Shape) -> Result<()> {
        self.0.reconfigure(env, table, shape)
    }

    fn change_table(&self, table: &TableInfo, change: &TableChange) -> Result<()> {
        self.0.change_table(table, change)
    }

    fn write_hook(&self, table: &TableInfo) -> Result<Option<Arc<WriteHook>>> {
        if table.is_system() { Ok(None) } else { self.0.write_hook(table) }
    }

    fn indexes(&self, table: &TableInfo) -> Result<Vec<IndexInfo>> {
        if table.is_system() {
            return Ok(Vec::new());
        }
        self.0.indexes(table)
    }

    /// System tables have no indexes.
    fn index_progress(&self, table: &TableInfo, name: &str) -> Result<f64> {
        self.0.index_progress(table, name)
    }

    fn index_definition(&self, table: &TableInfo, name: &str) -> Result<Option<IndexDefinition>> {
        if table.is_system() {
            return Ok(None);
        }
        self.0.index_definition(table, name)
    }

    fn index_names(&self, table: &TableInfo) -> Result<Vec<String>> {
        if table.is_system() {
            return Ok(Vec::new());
        }
        self.0.index_names(table)
    }

    fn learn(&self) {
        self.0.learn();
    }

    fn pause(&self) {
        self.0.pause();
    }

    fn create_index(&self, env: &Env, table: &TableInfo, name: &str, definition: IndexDefinition) -> Result<()> {
        if table.is_system() {
            return Err(special("you can't create secondary indexes on the tables in it."));
        }
        self.0.create_index(env, table, name, definition)
    }

    fn drop_index(&self, table: &TableInfo, name: &str) -> Result<()> {
        if table.is_system() {
            return Err(table.no_index(name));
        }
        self.0.drop_index(table, name)
    }

    fn rename_index(&self, table: &TableInfo, from: &str, to: &str, overwrite: bool) -> Result<()> {
        if table.is_system() {
            return Err(table.no_index(from));
        }
        self.0.rename_index(table, from, to, overwrite)
    }

    fn time_left(&self, table: &TableInfo, key: &Value) -> Result<Option<u64>> {
        match SystemTable::of(table)? {
            Some(_) => Ok(None),
            None => self.0.time_left(table, key),
        }
    }

    fn get(&self, table: &TableInfo, key: &Value, reads: ReadMode) -> Result<Option<Value>> {
        match SystemTable::of(table)? {
            Some(system) => self.row(system, key),
            None => self.0.get(table, key, reads),
        }
    }

    fn get_all(&self, table: &TableInfo, keys: &[Value], reads: ReadMode) -> Result<Vec<Option<Value>>> {
        match SystemTable::of(table)? {
            Some(system) => {
                let rows: BTreeMap<Value, Value> = self.rows(system)?.into_iter().collect();
                Ok(keys.iter().map(|key| rows.get(key).cloned()).collect())
            }
            None => self.0.get_all(table, keys, reads),
        }
    }

    fn write_together(&self, env: &Env, documents: &[Replacement], durability: Durability) -> Result<Together> {
        self.0.write_together(env, documents, durability)
    }

    fn scan(&self, env: &Env, table: &TableInfo, scan: &Scan) -> Result<Page> {
        let Some(system) = SystemTable::of(table)? else { return self.0.scan(env, table, scan) };
        if let Some(index) = &scan.index {
            let message = format!("Index `{index}` was not found on table `{}`", table.full_name());
            return Err(Error::failed(message));
        }
        let range = (scan.range.lower.as_ref(), scan.range.upper.as_ref());
        let rows = self.rows(system)?.into_iter().filter(|(key, _)| range.contains(key)).map(|(_, row)| row);
        let mut rows: Vec<Value> = rows.collect();
        if scan.order == Order::Descending {
            rows.reverse();
        }
        Ok(Page { rows: rows.into_iter().map(Lazy::Value).collect(), next: None })
    }

    fn evaluate(&self, env: &Env, table: &TableInfo, scan: &Scan, pipeline: &Arc<Pipeline>) -> Result<Evaluated> {
        match table.is_system() {
            true => evaluate_page(env, pipeline, self.scan(env, table, scan)?),
            false => self.0.evaluate(env, table, scan, pipeline),
        }
    }

    fn subscribe(
        &self,
        env: &Env,
        table: &TableInfo,
        interest: &Interest,
        resume: Option<Resume>,
    ) -> Result<Box<dyn ChangeLog>> {
        match SystemTable::of(table)? {
            Some(system) => Ok(Box::new(changes::SystemChanges::begin(self.0.clone(), system)?)),
            None => self.0.subscribe(env, table, interest, resume),
        }
    }

    fn write(&self, env: &Env, table: &TableInfo, writes: Vec<Write>, durability: Durability) -> Result<Vec<Written>> {
        let Some(system) = SystemTable::of(table)? else { return self.0.write(env, table, writes, durability) };
        let carry_out = |write: Write| -> Result<Written> {
            env.check()?;
            let old = self.row(system, &write.key)?.unwrap_or(Value::Null);
            let new = write.apply(env, "id", &old);
            let changed = new.and_then(|new| match system {
                // To drop a user who is not there is an error.
                SystemTable::Users if new.is_null() || new != old => users::carry_out(self, &write.key, &old, &new),
                _ if new == old => Ok(new),
                SystemTable::DbConfig | SystemTable::TableConfig if old.is_null() => {
                    // Of an insert it is known already whether somebody gave the key. What else writes a row that is not there gives it.
                    let is_insert = matches!(write.change, Change::Insert { .. });
                    let refusal = if is_insert { None } else { made::with_key(self, table, &new)? };
                    refusal.map_or_else(|| made::make(self, system, &new), Err)
                }
                SystemTable::Permissions => permissions::carry_out(self, &write.key, &old, &new).map(|()| new),
                _ => write::carry_out(self, system, &old, &new).map(|()| new),
            });
            match changed {
                Ok(new) => Ok(Written { old, new, error: None }),
                Err(error) if [ErrorKind::Interrupted, ErrorKind::Internal].contains(&error.kind()) => Err(error),
                Err(error) => Ok(Written { old, new: Value::Null, error: Some(error) }),
            }
        };
        writes.into_iter().map(carry_out).collect()
    }

    fn sync(&self, table: &TableInfo) -> Result<()> {
        if table.is_system() {
            return Err(Error::failed("Artificial tables don't support `sync()`."));
        }
        self.0.sync(table)
    }
}
