//! How the evaluator gets at the cluster's tables. Queries run on threads of their own, which wait here for what the nodes that
//! lead the partitions answer.
//!
//! What is done to databases, tables and indexes is here. Documents are read in [`crate::scan`], evaluated where they are in
//! [`crate::pushdown`], and written in [`crate::write`]; how tables are spread over nodes is in [`crate::cluster`].

use crate::definition::{definition_of, read_definition, write_hook_of};
use crate::identity::{database_info, full_name, table_id};
use crate::indexes::IndexList;
use crate::route::Place;
use crate::tables::{Tables, catalog_outcome, damaged, decoded, failed, key_of, mode};
use crate::work::{Reply, Work};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tessera_cluster::{CatalogCommand, CatalogError, IndexEntry};
use tessera_document::Value;
use tessera_reql::{
    Account, AccountChange, ChangeLog, DatabaseInfo, Durability, Env, Error, Evaluated, HttpClient, IndexDefinition,
    IndexInfo, Interest, Monitor, Page, Pipeline, ReadMode as Reads, Replacement, Result, Resume, Scan, ScriptEngine,
    ServerStatus, Shape, ShardStatus, Source, TableChange, TableConfig, TableInfo, TableOptions, Together, Write,
    WriteHook, Written,
};
use tessera_store::Table;
use tessera_types::{Acks, Model, Partitioner, ReadMode, Space, StoredDocument, TableSchema, TableSettings};

/// Before something is looked at again that takes time.
const PAUSE: Duration = Duration::from_millis(20);

impl Source for Tables {
    fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        Ok(self.0.store.catalog().databases().iter().map(|name| database_info(name)).collect())
    }

    /// Whoever asks may have been told by another node that the database was made, so the catalog's leader is asked before it is said
    /// that there is none.
    fn database(&self, name: &str) -> Result<Option<DatabaseInfo>> {
        let is_known = || self.0.store.catalog().databases().contains(name);
        if !is_known() {
            self.learn();
        }
        Ok(is_known().then(|| database_info(name)))
    }

    fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        let exists = || Error::failed(format!("Database `{name}` already exists."));
        if name == "rethinkdb" || self.0.store.catalog().databases().contains(name) {
            return Err(exists());
        }
        match self.wait(self.0.store.change_catalog(CatalogCommand::CreateDatabase { name: name.into() })) {
            // Another node has just made it.
            Ok(Err(CatalogError::DatabaseExists(_))) => return Err(exists()),
            outcome => catalog_outcome(outcome)?,
        }
        self.wait(self.0.until(|store| store.catalog().databases().contains(name)));
        Ok(database_info(name))
    }

    fn drop_database(&self, name: &str) -> Result<(DatabaseInfo, usize)> {
        let database = database_info(name);
        if !self.0.store.catalog().databases().contains(name) {
            return Err(Error::failed(format!("Database `{name}` does not exist.")));
        }
        let tables = self.tables(&database)?;
        for table in &tables {
            self.drop_named(&full_name(&database, &table.name))?;
        }
        let command = || CatalogCommand::DropDatabase { name: name.into() };
        let outcome = self.wait(self.0.store.change_catalog(command()));
        // One that nobody made by name is gone with its last table.
        if !matches!(outcome, Ok(Err(CatalogError::NoSuchDatabase(_)))) {
            catalog_outcome(outcome)?;
        }
        self.wait(self.0.until(|store| !store.catalog().databases().contains(name)));
        Ok((database, tables.len()))
    }

    fn tables(&self, database: &DatabaseInfo) -> Result<Vec<TableInfo>> {
        let prefix = format!("{}.", database.name);
        let mut tables = Vec::new();
        for table in self.0.store.tables() {
            let full = table.name();
            if let (Model::Document, Some(name)) = (table.schema().model, full.strip_prefix(&prefix)) {
                tables.push(self.info(database, name, &table));
            }
        }
        tables.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(tables)
    }

    fn table(&self, database: &DatabaseInfo, name: &str) -> Result<Option<TableInfo>> {
        let full = full_name(database, name);
        let mut table = self.found(&full)?;
        if table.is_none() {
            self.learn();
            table = self.found(&full)?;
        }
        if let Some(table) = table {
            return Ok(Some(self.info(database, name, &table)));
        }
        // Somebody who tries a name that Redis clients use is told so.
        if database.name == tessera_cluster::Catalog::FIRST_DATABASE {
            self.found(name)?;
        }
        Ok(None)
    }

    fn create_table(&self, database: &DatabaseInfo, name: &str, options: &TableOptions) -> Result<TableInfo> {
        let full = full_name(database, name);
        let exists = || Error::failed(format!("Table `{full}` already exists."));
        if self.0.store.table_named(&full).is_some() {
            return Err(exists());
        }
        let partitions = u32::try_from(options.shards.max(1)).unwrap_or(u32::MAX);
        let schema = TableSchema {
            engine: tessera_engine::DEFAULT_ENGINE,
            partitions,
            partitioner: Partitioner::Crc64,
            model: Model::Document,
            primary_key: Some(options.primary_key.clone()),
            durability: if options.is_hard { tessera_types::Durability::Hard } else { tessera_types::Durability::Soft },
            replicas: match options.replicas {
                None => TableSchema::DEFAULT_REPLICAS,
                Some(replicas) => u8::try_from(replicas).unwrap_or(u8::MAX),
            },
        };
        let acks = if options.waits_for_majority { Acks::Majority } else { Acks::Single };
        let default_ttl_seconds = options.ttl_seconds.unwrap_or_default();
        let settings = TableSettings { acks, default_ttl_seconds, ..TableSettings::default() };
        let create = CatalogCommand::Create { name: full.clone(), schema, settings, absent: Default::default() };
        match self.wait(self.0.store.change_catalog(create)) {
            // Another node has just made it.
            Ok(Err(CatalogError::Exists(_))) => return Err(exists()),
            outcome => catalog_outcome(outcome)?,
        }
        self.wait(async {
            self.0.until(|store| store.table_named(&full).is_some()).await;
            if let Some(table) = self.0.store.table_named(&full) {
                self.0.until(|store| store.leaderless(table.id()) == 0).await;
            }
        });
        let missing = || Error::failed(format!("Table `{full}` was dropped by somebody else."));
        let table = self.0.store.table_named(&full).ok_or_else(missing)?;
        Ok(self.info(database, name, &table))
    }

    fn drop_table(&self, database: &DatabaseInfo, name: &str) -> Result<TableInfo> {
        let missing = || Error::failed(format!("Table `{}.{name}` does not exist.", database.name));
        let info = self.table(database, name)?.ok_or_else(missing)?;
        self.drop_named(&full_name(database, name))?;
        Ok(info)
    }

    fn table_config(&self, info: &TableInfo) -> Result<TableConfig> {
        self.config_of(info)
    }

    fn table_status(&self, info: &TableInfo) -> Result<Vec<ShardStatus>> {
        self.status_of(info)
    }

    fn document_counts(&self, info: &TableInfo) -> Result<Vec<u64>> {
        self.estimated_counts(info)
    }

    fn servers(&self) -> Result<Vec<ServerStatus>> {
        Ok(self.servers_now())
    }

    fn monitor(&self) -> Option<&dyn Monitor> {
        Some(self)
    }

    fn http(&self) -> Option<&dyn HttpClient> {
        Some(self)
    }

    fn scripts(&self) -> Option<&dyn ScriptEngine> {
        self.0.config.scripts.as_ref().map(|workers| workers as &dyn ScriptEngine)
    }

    fn accounts(&self) -> Result<Vec<Account>> {
        Ok(self.all_accounts())
    }

    fn change_account(&self, name: &str, change: AccountChange) -> Result<()> {
        self.change_one_account(name, change)
    }

    fn reconfigure(&self, env: &Env, info: &TableInfo, shape: &Shape) -> Result<()> {
        self.spread(env, info, shape)
    }

    fn change_table(&self, info: &TableInfo, change: &TableChange) -> Result<()> {
        self.change(info, change)
    }

    fn write_hook(&self, info: &TableInfo) -> Result<Option<Arc<WriteHook>>> {
        let table = self.open(info)?;
        write_hook_of(&table)
    }

    fn indexes(&self, info: &TableInfo) -> Result<Vec<IndexInfo>> {
        let table = self.open(info)?;
        let indexes = table.indexes();
        if indexes.iter().next().is_none() {
            return Ok(Vec::new());
        }
        let partitions = table.schema().partitions;
        let work = (0..partitions).map(|partition| (Place::Partition(partition), Work::List)).collect();
        let list = |reply| match reply {
            Reply::List(bytes) => IndexList::decode(bytes).ok_or_else(damaged),
            _ => Err(damaged()),
        };
        let lists =
            self.reach(&table, ReadMode::Single, work)?.into_iter().map(list).collect::<Result<Vec<IndexList>>>()?;
        let info = |(name, index): (&str, &IndexEntry)| {
            let has_it = |list: &IndexList| list.get(Space(index.space)).is_some_and(|index| index.is_built);
            let hindrance = |list: &IndexList| {
                let hindrance = list.get(Space(index.space))?.hindrance.as_ref()?;
                Some(String::from_utf8_lossy(hindrance).into_owned())
            };
            Ok(IndexInfo {
                name: name.into(),
                definition: read_definition(&index.definition).ok_or_else(damaged)?,
                is_ready: lists.iter().all(has_it),
                hindrance: lists.iter().find_map(hindrance),
            })
        };
        indexes.iter().map(info).collect()
    }

    /// Documents are spread evenly over the partitions.
    fn index_progress(&self, info: &TableInfo, name: &str) -> Result<f64> {
        let table = self.open(info)?;
        // One that was dropped since is not built any further.
        let Some(index) = self.index(&table, name) else { return Ok(0.0) };
        let work = Work::Progress { space: Space(index.space) };
        let partitions = table.schema().partitions;
        let work = (0..partitions).map(|partition| (Place::Partition(partition), work.clone())).collect();
        let share = |reply| match reply {
            Reply::Progress(share) => Ok(share),
            _ => Err(damaged()),
        };
        let shares = self.reach(&table, ReadMode::Single, work)?.into_iter().map(share).sum::<Result<f64>>()?;
        Ok(shares / f64::from(partitions))
    }

    /// The catalog tells them, also while partitions have no leaders.
    fn index_names(&self, info: &TableInfo) -> Result<Vec<String>> {
        Ok(self.open(info)?.indexes().iter().map(|(name, _)| name.into()).collect())
    }

    fn time_left(&self, info: &TableInfo, key: &Value) -> Result<Option<u64>> {
        let key = key_of(key)?;
        let work = vec![(Place::Key(key.clone()), Work::Stored { key })];
        match self.reach(&self.open(info)?, ReadMode::Single, work)?.pop() {
            Some(Reply::Stored(stored, now)) => {
                let ends = stored.and_then(|stored| StoredDocument::decode(&stored).ends);
                Ok(ends.map(|ends| ends.get().saturating_sub(now)).filter(|left| *left > 0))
            }
            _ => Err(damaged()),
        }
    }

    fn index_definition(&self, info: &TableInfo, name: &str) -> Result<Option<IndexDefinition>> {
        let table = self.open(info)?;
        let index = self.index(&table, name);
        index.map(|index| read_definition(&index.definition).ok_or_else(damaged)).transpose()
    }

    fn learn(&self) {
        self.wait(self.0.store.learn_of_changes());
    }

    fn pause(&self) {
        self.1.wait_long(tokio::time::sleep(PAUSE));
    }

    fn create_index(&self, _env: &Env, info: &TableInfo, name: &str, definition: IndexDefinition) -> Result<()> {
        let table = self.open(info)?.number();
        if definition.unique && !self.0.store.may_transact() {
            return Err(Error::failed("Cannot create index: unique indexes need all nodes to be of this version."));
        }
        let text = definition_of(&definition.source, &definition.query);
        let create =
            CatalogCommand::CreateIndex { table, name: name.into(), definition: text, is_unique: definition.unique };
        self.change_index(create, |error| {
            matches!(error, CatalogError::IndexExists(_)).then(|| info.index_exists(name))
        })?;
        self.known(info, |table| table.indexes().get(name).is_some())
    }

    fn drop_index(&self, info: &TableInfo, name: &str) -> Result<()> {
        let table = self.open(info)?.number();
        let drop = CatalogCommand::DropIndex { table, name: name.into() };
        self.change_index(drop, |error| matches!(error, CatalogError::NoSuchIndex(_)).then(|| info.no_index(name)))?;
        self.known(info, |table| table.indexes().get(name).is_none())
    }

    fn rename_index(&self, info: &TableInfo, from: &str, to: &str, overwrite: bool) -> Result<()> {
        let table = self.open(info)?.number();
        let rename = CatalogCommand::RenameIndex { table, name: from.into(), to: to.into(), overwrites: overwrite };
        self.change_index(rename, |error| match error {
            CatalogError::NoSuchIndex(_) if overwrite => Some(info.no_index(from)),
            CatalogError::NoSuchIndex(_) | CatalogError::IndexExists(_) => Some(info.cannot_rename_index(from, to)),
            _ => None,
        })?;
        self.known(info, |table| {
            table.indexes().get(to).is_some() && (from == to || table.indexes().get(from).is_none())
        })
    }

    fn get(&self, info: &TableInfo, key: &Value, reads: Reads) -> Result<Option<Value>> {
        let found = self.document(&self.open(info)?, key, reads)?;
        found.map(|document| decoded(Some(&document))).transpose()
    }

    fn scan(&self, env: &Env, info: &TableInfo, scan: &Scan) -> Result<Page> {
        self.page(env, info, scan)
    }

    fn evaluate(&self, env: &Env, info: &TableInfo, scan: &Scan, pipeline: &Arc<Pipeline>) -> Result<Evaluated> {
        self.evaluated(env, info, scan, pipeline)
    }

    fn subscribe(
        &self,
        env: &Env,
        info: &TableInfo,
        interest: &Interest,
        resume: Option<Resume>,
    ) -> Result<Box<dyn ChangeLog>> {
        Ok(Box::new(self.follow(info, interest, resume, env.pacer().clone())?))
    }

    fn write(&self, env: &Env, info: &TableInfo, writes: Vec<Write>, durability: Durability) -> Result<Vec<Written>> {
        self.write_all(env, info, writes, durability)
    }

    fn get_all(&self, info: &TableInfo, keys: &[Value], reads: Reads) -> Result<Vec<Option<Value>>> {
        let keys = keys.iter().map(key_of).collect::<Result<Vec<_>>>()?;
        let found = self.read(&self.open(info)?, mode(reads), keys.into_iter())?;
        let value = |document: Option<Bytes>| document.map(|document| decoded(Some(&document))).transpose();
        found.into_iter().map(value).collect()
    }

    fn write_together(&self, env: &Env, documents: &[Replacement], durability: Durability) -> Result<Together> {
        self.replace_together(env, documents, durability)
    }

    fn sync(&self, info: &TableInfo) -> Result<()> {
        let table = self.open(info)?;
        let partitions = table.schema().partitions;
        let work = (0..partitions).map(|partition| (Place::Partition(partition), Work::Sync)).collect();
        self.reach(&table, ReadMode::Single, work).map(drop)
    }
}

impl Tables {
    fn info(&self, database: &DatabaseInfo, name: &str, table: &Table) -> TableInfo {
        TableInfo {
            id: table_id(table.number()),
            name: name.into(),
            database: database.clone(),
            primary_key: Arc::from(table.schema().primary_key()),
        }
    }

    fn drop_named(&self, full: &str) -> Result<()> {
        let purge_at = self.0.store.purge_time();
        catalog_outcome(self.wait(self.0.store.change_catalog(CatalogCommand::drop(full, purge_at))))?;
        // The next term of the query is to see it.
        self.wait(async {
            for _ in 0..100 {
                if self.0.store.table_named(full).is_none() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        });
        Ok(())
    }

    fn change_index(&self, command: CatalogCommand, refused: impl Fn(&CatalogError) -> Option<Error>) -> Result<()> {
        match self.wait(self.0.store.change_catalog(command)) {
            Ok(Err(error)) => Err(refused(&error).unwrap_or_else(|| Error::failed(format!("{error}.")))),
            Ok(Ok(_)) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    }
}
