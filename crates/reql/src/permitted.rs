//! What a user may do with a source: every request is checked as it is made, so that a right that is lost ends a query that runs.
//!
//! RethinkDB shows to everybody which databases, tables and indexes there are, and whether tables are ready; so does this.

use std::sync::Arc;
use std::time::Duration;

use tessera_types::Right;

use crate::account::{Account, AccountChange, Place, Requester, unexpected};
use crate::change_log::{ChangeLog, Interest, LogEvent, Reached, Resume, StampedPage, Unread};
use crate::cluster::{ServerStatus, Shape, ShardStatus, TableChange, TableConfig};
use crate::env::Env;
use crate::error::Result;
use crate::gathered::{Replacement, Together};
use crate::http::HttpClient;
use crate::scan::{
    DatabaseInfo, IndexDefinition, IndexInfo, Page, ReadMode, SYSTEM_DATABASE, Scan, TableInfo, TableOptions,
};
use crate::script::ScriptEngine;
use crate::source::{Durability, Evaluated, Source, Write, Written};
use crate::stream::Pipeline;
use crate::value::Value;
use crate::write_hook::WriteHook;

/// A source for one user.
pub(crate) struct Permitted<S> {
    source: S,
    requester: Arc<dyn Requester>,
}

/// Changes of a table, for as long as the user may read it, whatever its name is by then.
struct PermittedLog {
    log: Box<dyn ChangeLog>,
    table: TableInfo,
    requester: Arc<dyn Requester>,
}

impl PermittedLog {
    fn check(&self) -> Result<()> {
        let check = || {
            let name = self.log.table_name();
            let place = name.as_ref().map_or(Place::Table(&self.table), |name| Place::Named(name));
            place.check(&*self.requester, Right::Read)
        };
        // The table may have got another name, and its rights with it, between the two looks.
        check().or_else(|_| check())
    }
}

impl<S: Source> Permitted<S> {
    pub(crate) fn new(source: S, requester: Arc<dyn Requester>) -> Self {
        Self { source, requester }
    }

    fn read(&self, table: &TableInfo) -> Result<()> {
        self.require(Right::Read, Place::Table(table))
    }

    fn config(&self, table: &TableInfo) -> Result<()> {
        // That the system's tables cannot be configured is told to everybody.
        if table.is_system() { Ok(()) } else { self.require(Right::Config, Place::Table(table)) }
    }
}

impl<S: Source> Source for Permitted<S> {
    fn require(&self, right: Right, place: Place<'_>) -> Result<()> {
        place.check(&*self.requester, right)
    }

    fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.source.databases()
    }

    fn database(&self, name: &str) -> Result<Option<DatabaseInfo>> {
        self.source.database(name)
    }

    fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        self.require(Right::Config, Place::Global)?;
        self.source.create_database(name)
    }

    fn drop_database(&self, name: &str) -> Result<(DatabaseInfo, usize)> {
        // That there is none of this name, or that it cannot be dropped, is told to everybody.
        if name != SYSTEM_DATABASE
            && let Some(database) = self.source.database(name)?
        {
            self.require(Right::Config, Place::Database(name))?;
            // What is decided for a table holds for it, whatever holds in its database.
            self.source.tables(&database)?.iter().try_for_each(|table| self.config(table))?;
        }
        self.source.drop_database(name)
    }

    fn tables(&self, database: &DatabaseInfo) -> Result<Vec<TableInfo>> {
        self.source.tables(database)
    }

    fn table(&self, database: &DatabaseInfo, name: &str) -> Result<Option<TableInfo>> {
        self.source.table(database, name)
    }

    fn create_table(&self, database: &DatabaseInfo, name: &str, options: &TableOptions) -> Result<TableInfo> {
        if database.name != SYSTEM_DATABASE {
            self.require(Right::Config, Place::Database(&database.name))?;
        }
        self.source.create_table(database, name, options)
    }

    fn drop_table(&self, database: &DatabaseInfo, name: &str) -> Result<TableInfo> {
        if let Some(table) = self.source.table(database, name)? {
            self.config(&table)?;
        }
        self.source.drop_table(database, name)
    }

    fn table_config(&self, table: &TableInfo) -> Result<TableConfig> {
        self.config(table)?;
        self.source.table_config(table)
    }

    fn table_status(&self, table: &TableInfo) -> Result<Vec<ShardStatus>> {
        self.source.table_status(table)
    }

    fn document_counts(&self, table: &TableInfo) -> Result<Vec<u64>> {
        self.read(table)?;
        self.source.document_counts(table)
    }

    fn servers(&self) -> Result<Vec<ServerStatus>> {
        self.source.servers()
    }

    fn http(&self) -> Option<&dyn HttpClient> {
        self.source.http()
    }

    fn scripts(&self) -> Option<&dyn ScriptEngine> {
        self.source.scripts()
    }

    fn accounts(&self) -> Result<Vec<Account>> {
        self.source.accounts()
    }

    fn change_account(&self, name: &str, change: AccountChange) -> Result<()> {
        self.source.change_account(name, change)
    }

    fn reconfigure(&self, env: &Env, table: &TableInfo, shape: &Shape) -> Result<()> {
        self.config(table)?;
        self.source.reconfigure(env, table, shape)
    }

    fn change_table(&self, table: &TableInfo, change: &TableChange) -> Result<()> {
        self.config(table)?;
        self.source.change_table(table, change)
    }

    fn write_hook(&self, table: &TableInfo) -> Result<Option<Arc<WriteHook>>> {
        self.source.write_hook(table)
    }

    fn indexes(&self, table: &TableInfo) -> Result<Vec<IndexInfo>> {
        self.source.indexes(table)
    }

    fn index_progress(&self, table: &TableInfo, name: &str) -> Result<f64> {
        self.source.index_progress(table, name)
    }

    fn index_names(&self, table: &TableInfo) -> Result<Vec<String>> {
        self.source.index_names(table)
    }

    fn time_left(&self, table: &TableInfo, key: &Value) -> Result<Option<u64>> {
        self.read(table)?;
        self.source.time_left(table, key)
    }

    fn index_definition(&self, table: &TableInfo, name: &str) -> Result<Option<IndexDefinition>> {
        self.source.index_definition(table, name)
    }

    fn pause(&self) {
        self.source.pause();
    }

    fn learn(&self) {
        self.source.learn();
    }

    fn create_index(&self, env: &Env, table: &TableInfo, name: &str, definition: IndexDefinition) -> Result<()> {
        self.config(table)?;
        self.source.create_index(env, table, name, definition)
    }

    fn drop_index(&self, table: &TableInfo, name: &str) -> Result<()> {
        self.config(table)?;
        self.source.drop_index(table, name)
    }

    fn rename_index(&self, table: &TableInfo, from: &str, to: &str, overwrite: bool) -> Result<()> {
        self.config(table)?;
        self.source.rename_index(table, from, to, overwrite)
    }

    fn get(&self, table: &TableInfo, key: &Value, reads: ReadMode) -> Result<Option<Value>> {
        self.read(table)?;
        self.source.get(table, key, reads)
    }

    fn scan(&self, env: &Env, table: &TableInfo, scan: &Scan) -> Result<Page> {
        self.read(table)?;
        self.source.scan(env, table, scan)
    }

    fn evaluate(&self, env: &Env, table: &TableInfo, scan: &Scan, pipeline: &Arc<Pipeline>) -> Result<Evaluated> {
        self.read(table)?;
        self.source.evaluate(env, table, scan, pipeline)
    }

    fn subscribe(
        &self,
        env: &Env,
        table: &TableInfo,
        interest: &Interest,
        resume: Option<Resume>,
    ) -> Result<Box<dyn ChangeLog>> {
        self.read(table).map_err(unexpected)?;
        let log = self.source.subscribe(env, table, interest, resume)?;
        Ok(Box::new(PermittedLog { log, table: table.clone(), requester: self.requester.clone() }))
    }

    fn write(&self, env: &Env, table: &TableInfo, writes: Vec<Write>, durability: Durability) -> Result<Vec<Written>> {
        if table.is_system() {
            self.read(table)?;
        }
        self.require(Right::Write, Place::Table(table))?;
        self.source.write(env, table, writes, durability)
    }

    fn get_all(&self, table: &TableInfo, keys: &[Value], reads: ReadMode) -> Result<Vec<Option<Value>>> {
        self.read(table)?;
        self.source.get_all(table, keys, reads)
    }

    fn write_together(&self, env: &Env, documents: &[Replacement], durability: Durability) -> Result<Together> {
        for document in documents {
            let table = &document.table;
            // What has changed is told to the query, also if it has only written.
            self.read(table)?;
            if !document.only_looks() {
                self.require(Right::Write, Place::Table(table))?;
            }
        }
        self.source.write_together(env, documents, durability)
    }

    fn sync(&self, table: &TableInfo) -> Result<()> {
        if !table.is_system() {
            self.require(Right::Write, Place::Table(table))?;
        }
        self.source.sync(table)
    }
}

impl ChangeLog for PermittedLog {
    fn begin(&self) -> Vec<Reached> {
        self.log.begin()
    }

    fn scheme(&self) -> u32 {
        self.log.scheme()
    }

    fn next(&mut self, limit: usize) -> Result<Vec<LogEvent>> {
        let events = self.log.next(limit)?;
        self.check()?;
        Ok(events)
    }

    fn look_again(&self) -> Option<Duration> {
        self.log.look_again()
    }

    fn pages(&self, wanted: Vec<(u32, Scan)>) -> Result<Vec<StampedPage>, Unread> {
        self.check()?;
        self.log.pages(wanted)
    }

    fn table_name(&self) -> Option<String> {
        self.log.table_name()
    }

    fn index_key(&self, value: &Value) -> Option<Vec<u8>> {
        self.log.index_key(value)
    }
}
