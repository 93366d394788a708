//! Databases and tables in memory: the plainest source there can be. Tests of the evaluator run on it, and it is the
//! model that other sources are compared with.

mod accounts;
mod changes;
mod subscribers;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accounts::Accounts;
use changes::MemoryChanges;
use table::TableData;

use crate::account::{Account, AccountChange};
use crate::change_log::{ChangeLog, Interest, Resume};
use crate::cluster::{
    Process, ReplicaState, Server, ServerStatus, Shape, ShardConfig, ShardStatus, TableChange, TableConfig,
};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::gathered::{Replacement, Together};
use crate::scan::{DatabaseInfo, IndexDefinition, IndexInfo, Page, ReadMode, Scan, TableInfo, TableOptions};
use crate::script::ScriptEngine;
use crate::source::{Durability, Lifetime, Source, Write, Written};
use crate::uuid;
use crate::value::Value;
use crate::write_hook::WriteHook;

#[derive(Default)]
struct Database {
    id: String,
    tables: BTreeMap<String, Arc<Mutex<TableData>>>,
}

/// Databases in memory.
pub struct MemorySource {
    databases: Mutex<BTreeMap<String, Database>>,
    accounts: Mutex<Accounts>,
    /// The name of the only server, which `config` and `status` name.
    server: String,
    scripts: Option<Box<dyn ScriptEngine>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_database(name: &str) -> Error {
    Error::failed(format!("Database `{name}` does not exist."))
}

impl MemorySource {
    /// A source without databases.
    pub fn new(server: &str) -> Self {
        Self { databases: Mutex::default(), accounts: Mutex::default(), server: server.into(), scripts: None }
    }

    /// The same with somebody who runs JavaScript.
    #[must_use]
    pub fn with_scripts(self, engine: Box<dyn ScriptEngine>) -> Self {
        Self { scripts: Some(engine), ..self }
    }

    fn server(&self) -> Server {
        Server { id: uuid::of_name(&self.server), name: self.server.clone() }
    }

    fn find(&self, info: &TableInfo) -> Result<Arc<Mutex<TableData>>> {
        let databases = lock(&self.databases);
        let database = databases.get(&info.database.name).filter(|database| database.id == info.database.id);
        let table = database.and_then(|database| database.tables.get(&info.name)).cloned();
        table
            .filter(|table| lock(table).info.id == info.id)
            .ok_or_else(|| Error::failed(format!("Table `{}.{}` does not exist.", info.database.name, info.name)))
    }
}

impl Source for MemorySource {
    fn scripts(&self) -> Option<&dyn ScriptEngine> {
        self.scripts.as_deref()
    }

    fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        let databases = lock(&self.databases);
        Ok(databases
            .iter()
            .map(|(name, database)| DatabaseInfo { id: database.id.clone(), name: name.clone() })
            .collect())
    }

    fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        let mut databases = lock(&self.databases);
        if databases.contains_key(name) {
            return Err(Error::failed(format!("Database `{name}` already exists.")));
        }
        let id = uuid::random();
        databases.insert(name.into(), Database { id: id.clone(), tables: BTreeMap::new() });
        Ok(DatabaseInfo { id, name: name.into() })
    }

    fn drop_database(&self, name: &str) -> Result<(DatabaseInfo, usize)> {
        let dropped = lock(&self.databases).remove(name).ok_or_else(|| no_database(name))?;
        dropped.tables.values().for_each(|table| lock(table).subscribers.end());
        lock(&self.accounts).database_was_dropped(name);
        Ok((DatabaseInfo { id: dropped.id, name: name.into() }, dropped.tables.len()))
    }

    fn tables(&self, database: &DatabaseInfo) -> Result<Vec<TableInfo>> {
        let databases = lock(&self.databases);
        let found = databases.get(&database.name).ok_or_else(|| no_database(&database.name))?;
        Ok(found.tables.values().map(|table| lock(table).info.clone()).collect())
    }

    fn table(&self, database: &DatabaseInfo, name: &str) -> Result<Option<TableInfo>> {
        let databases = lock(&self.databases);
        let found = databases.get(&database.name).ok_or_else(|| no_database(&database.name))?;
        Ok(found.tables.get(name).map(|table| lock(table).info.clone()))
    }

    fn create_table(&self, database: &DatabaseInfo, name: &str, options: &TableOptions) -> Result<TableInfo> {
        let mut databases = lock(&self.databases);
        let found = databases.get_mut(&database.name).ok_or_else(|| no_database(&database.name))?;
        if found.tables.contains_key(name) {
            return Err(Error::failed(format!("Table `{}.{name}` already exists.", database.name)));
        }
        let info = TableInfo {
            id: uuid::random(),
            name: name.into(),
            database: database.clone(),
            primary_key: Arc::from(&*options.primary_key),
        };
        let data = TableData::new(info.clone(), options.clone());
        found.tables.insert(name.into(), Arc::new(Mutex::new(data)));
        Ok(info)
    }

    fn drop_table(&self, database: &DatabaseInfo, name: &str) -> Result<TableInfo> {
        let mut databases = lock(&self.databases);
        let found = databases.get_mut(&database.name).ok_or_else(|| no_database(&database.name))?;
        let dropped = found
            .tables
            .remove(name)
            .ok_or_else(|| Error::failed(format!("Table `{}.{name}` does not exist.", database.name)))?;
        let mut dropped = lock(&dropped);
        dropped.subscribers.end();
        lock(&self.accounts).table_was_renamed(&dropped.info.full_name(), None);
        Ok(dropped.info.clone())
    }

    fn table_config(&self, table: &TableInfo) -> Result<TableConfig> {
        let data = self.find(table)?;
        let data = lock(&data);
        let shard = ShardConfig { primary: Some(self.server()), replicas: vec![self.server()] };
        Ok(TableConfig {
            shards: vec![shard; data.options.shards],
            indexes: data.indexes.keys().cloned().collect(),
            is_hard: data.options.is_hard,
            write_acks: if data.options.waits_for_majority { "majority" } else { "single" },
            write_hook: data.write_hook.clone(),
        })
    }

    fn table_status(&self, table: &TableInfo) -> Result<Vec<ShardStatus>> {
        let data = self.find(table)?;
        let shards = lock(&data).options.shards;
        let replicas = vec![(self.server(), ReplicaState::Ready)];
        Ok(vec![ShardStatus { primary: Some(self.server()), replicas }; shards])
    }

    fn document_counts(&self, table: &TableInfo) -> Result<Vec<u64>> {
        let data = self.find(table)?;
        let data = lock(&data);
        let mut counts = vec![0; data.options.shards];
        if let Some(first) = counts.first_mut() {
            *first = data.documents.len() as u64;
        }
        Ok(counts)
    }

    fn servers(&self) -> Result<Vec<ServerStatus>> {
        let process = Process { pid: std::process::id(), started: 0.0 };
        Ok(vec![ServerStatus {
            server: self.server(),
            host: "localhost".into(),
            cluster_port: None,
            reql_port: None,
            admin_port: None,
            is_connected: true,
            version: Some("rethinkdb 2.4.4 (in memory)".into()),
            process: Some(process),
        }])
    }

    fn accounts(&self) -> Result<Vec<Account>> {
        Ok(lock(&self.accounts).all())
    }

    fn change_account(&self, name: &str, change: AccountChange) -> Result<()> {
        lock(&self.accounts).change(name, change)
    }

    fn reconfigure(&self, _env: &Env, table: &TableInfo, shape: &Shape) -> Result<()> {
        let data = self.find(table)?;
        lock(&data).options.shards = shape.shards;
        Ok(())
    }

    fn change_table(&self, table: &TableInfo, change: &TableChange) -> Result<()> {
        let data = self.find(table)?;
        let (database, name) = match change {
            TableChange::WriteAcks { majority } => {
                lock(&data).options.waits_for_majority = *majority;
                return Ok(());
            }
            TableChange::WriteHook(hook) => {
                lock(&data).write_hook.clone_from(hook);
                return Ok(());
            }
            TableChange::Rename { database, name } => (database, name),
        };
        let mut databases = lock(&self.databases);
        let id = databases.get(database).ok_or_else(|| no_database(database))?.id.clone();
        lock(&self.accounts).table_was_renamed(&table.full_name(), Some(&format!("{database}.{name}")));
        if let Some(old) = databases.get_mut(&table.database.name) {
            old.tables.remove(&table.name);
        }
        {
            let info = &mut lock(&data).info;
            info.name = name.clone();
            info.database = DatabaseInfo { id, name: database.clone() };
        }
        databases.get_mut(database).ok_or_else(|| no_database(database))?.tables.insert(name.clone(), data);
        Ok(())
    }

    fn write_hook(&self, table: &TableInfo) -> Result<Option<Arc<WriteHook>>> {
        let data = self.find(table)?;
        let hook = lock(&data).write_hook.clone();
        Ok(hook)
    }

    fn indexes(&self, table: &TableInfo) -> Result<Vec<IndexInfo>> {
        let data = self.find(table)?;
        let data = lock(&data);
        Ok(data
            .indexes
            .iter()
            .map(|(name, index)| IndexInfo {
                name: name.clone(),
                definition: index.definition.clone(),
                is_ready: index.hindrance.is_none(),
                hindrance: index.hindrance.clone(),
            })
            .collect())
    }

    /// What an index is to hold it holds at once.
    fn index_progress(&self, _table: &TableInfo, _name: &str) -> Result<f64> {
        Ok(1.0)
    }

    /// Nothing takes time here.
    fn pause(&self) {}

    fn create_index(&self, env: &Env, table: &TableInfo, name: &str, definition: IndexDefinition) -> Result<()> {
        let data = self.find(table)?;
        let mut data = lock(&data);
        if data.indexes.contains_key(name) {
            return Err(table.index_exists(name));
        }
        data.build_index(env, name, definition);
        Ok(())
    }

    fn drop_index(&self, table: &TableInfo, name: &str) -> Result<()> {
        let data = self.find(table)?;
        let mut data = lock(&data);
        match data.indexes.remove(name) {
            Some(_) => Ok(()),
            None => Err(table.no_index(name)),
        }
    }

    fn rename_index(&self, table: &TableInfo, from: &str, to: &str, overwrite: bool) -> Result<()> {
        let data = self.find(table)?;
        let mut data = lock(&data);
        let is_there = data.indexes.contains_key(from);
        if !is_there && overwrite {
            return Err(table.no_index(from));
        }
        if !is_there || (from != to && !overwrite && data.indexes.contains_key(to)) {
            return Err(table.cannot_rename_index(from, to));
        }
        if let Some(index) = data.indexes.remove(from) {
            data.indexes.insert(to.into(), index);
        }
        Ok(())
    }

    fn get(&self, table: &TableInfo, key: &Value, _reads: ReadMode) -> Result<Option<Value>> {
        let key = crate::key::primary_key(key)?;
        let data = self.find(table)?;
        let found = lock(&data).documents.get(&key).cloned();
        Ok(found)
    }

    fn scan(&self, _env: &Env, table: &TableInfo, scan: &Scan) -> Result<Page> {
        let data = self.find(table)?;
        let data = lock(&data);
        data.page(scan)
    }

    /// Nothing is retained here, so that no feed can go on.
    fn subscribe(
        &self,
        env: &Env,
        table: &TableInfo,
        _interest: &Interest,
        resume: Option<Resume>,
    ) -> Result<Box<dyn ChangeLog>> {
        if resume.is_some() {
            return Err(Error::failed("Tables in memory retain no changes."));
        }
        Ok(Box::new(MemoryChanges::begin(self.find(table)?, env.pacer().clone())))
    }

    fn write(&self, env: &Env, table: &TableInfo, writes: Vec<Write>, _durability: Durability) -> Result<Vec<Written>> {
        let data = self.find(table)?;
        writes
            .into_iter()
            .map(|write| {
                if write.lifetime != Lifetime::Kept {
                    let error = Some(Error::failed("Tables in memory have no times to live."));
                    return Ok(Written { old: Value::Null, new: Value::Null, error });
                }
                // The function of a write may read this table, so it must not run under the lock. Whether the document
                // is still the one that it saw is looked at before its result is stored.
                loop {
                    let key = crate::key::primary_key(&write.key)?;
                    let old = lock(&data).documents.get(&key).cloned().unwrap_or(Value::Null);
                    let new = match write.apply(env, &table.primary_key, &old) {
                        Ok(new) => new,
                        Err(error) if error.kind() == crate::ErrorKind::Interrupted => return Err(error),
                        Err(error) => return Ok(Written { old, new: Value::Null, error: Some(error) }),
                    };
                    let mut data = lock(&data);
                    if *data.documents.get(&key).unwrap_or(&Value::Null) == old {
                        if let Err(error) = data.check_unique(env, &BTreeMap::from([(key.clone(), new.clone())])) {
                            return Ok(Written { old, new: Value::Null, error: Some(error) });
                        }
                        data.store(env, key, &old, &new);
                        return Ok(Written { old, new, error: None });
                    }
                }
            })
            .collect()
    }

    fn write_together(&self, env: &Env, documents: &[Replacement], _durability: Durability) -> Result<Together> {
        // Tables are locked in the order of their identifiers, so nobody waits in a circle.
        let mut tables = BTreeMap::new();
        for document in documents {
            tables.insert(document.table.id.clone(), self.find(&document.table)?);
        }
        let mut locked: BTreeMap<&String, _> = tables.iter().map(|(id, table)| (id, lock(table))).collect();
        let mut changed = Vec::new();
        for (at, document) in documents.iter().enumerate() {
            let key = crate::key::primary_key(&document.key)?;
            let there = locked.get(&document.table.id).and_then(|table| table.documents.get(&key));
            let there = there.cloned().unwrap_or(Value::Null);
            if there != document.old {
                changed.push((at, there));
            }
        }
        if !changed.is_empty() {
            return Ok(Together::Changed(changed));
        }
        for (id, table) in &locked {
            let of_table = documents.iter().filter(|document| document.table.id == **id);
            let change = |document: &Replacement| Ok((crate::key::primary_key(&document.key)?, document.new.clone()));
            table.check_unique(env, &of_table.map(change).collect::<Result<_>>()?)?;
        }
        for document in documents.iter().filter(|document| document.old != document.new) {
            if let Some(table) = locked.get_mut(&document.table.id) {
                table.store(env, crate::key::primary_key(&document.key)?, &document.old, &document.new);
            }
        }
        Ok(Together::Done)
    }

    fn sync(&self, table: &TableInfo) -> Result<()> {
        self.find(table).map(drop)
    }
}
