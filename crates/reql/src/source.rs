//! Where the evaluator gets its data: databases, tables, documents and indexes, behind a trait.
//!
//! Everything that crosses it is owned data. Reads come in pages with a [`Position`] to go on from, so that whoever
//! answers them holds nothing between two pages and may be another node each time. Writes are [`Change`]s: what becomes
//! of a document is computed from what is there, by [`Change::apply`], where and whenever the source can make it atomic.
//! Evaluation blocks its thread while it waits for a source.

use std::sync::Arc;

use crate::account::{Account, AccountChange, Place};
use crate::change_log::{ChangeLog, Interest, Resume};
use crate::cluster::{ServerStatus, Shape, ShardStatus, TableChange, TableConfig};
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::function::Function;
use crate::gathered::{Replacement, Together};
use crate::http::HttpClient;
use crate::monitor::Monitor;
pub use crate::scan::{
    DatabaseInfo, Durability, IndexDefinition, IndexInfo, KeyRange, Lifetime, Order, Page, Position, ReadMode, Scan,
    TableInfo, TableOptions,
};
use crate::script::ScriptEngine;
use crate::stream::{Partial, Pipeline};
use crate::val::Val;
use crate::value::{self, Value, ValueExt as _};
use crate::write_hook::WriteHook;
use tessera_types::Right;

/// What a pipeline has made of the documents of a page.
#[derive(Debug)]
pub struct Evaluated {
    /// What the pipeline made of them.
    pub partial: Partial,
    /// Where the next page begins, unless this was the last one.
    pub next: Option<Position>,
}

/// What an insert does with a document that is there already.
#[derive(Debug, Clone)]
pub enum Conflict {
    /// The document is not written, and the write reports an error.
    Error,
    /// The new document takes the place of the old one.
    Replace,
    /// The fields of the new document are merged into the old one.
    Update,
    /// What the function makes of the name of the primary key, old and new document.
    Function(Arc<Function>),
}

/// What a write makes of a document.
#[derive(Debug, Clone)]
pub enum Change {
    /// Adds a document.
    Insert {
        /// The new document, with its primary key.
        document: Value,
        /// What happens if a document has that key already.
        conflict: Conflict,
    },
    /// Writes what a function makes of the document.
    Replace {
        /// A function from the old document to the new one; `null` deletes the document.
        function: Arc<Function>,
    },
    /// Puts the fields of an object into the document, and into the objects in it. A document that is not there stays so.
    Update {
        /// The fields that change.
        document: Value,
    },
    /// The new document, computed before from an older state of it.
    Set {
        /// The document to write; `null` deletes it.
        document: Value,
    },
}

/// A change of the document with this key.
#[derive(Debug, Clone)]
pub struct Write {
    /// The primary key.
    pub key: Value,
    /// What to do with the document.
    pub change: Change,
    /// What has the last word.
    pub hook: Option<Arc<WriteHook>>,
    /// How long the document is to be there then.
    pub lifetime: Lifetime,
}

impl Write {
    /// What the document becomes: a function of what is there.
    ///
    /// # Errors
    /// What the functions of the change and of the hook complain about, or that the result cannot take the document's place.
    pub fn apply(&self, env: &Env, primary_key: &str, old: &Value) -> Result<Value> {
        let new = self.change.apply(env, primary_key, &self.key, old)?;
        let Some(hook) = &self.hook else { return Ok(new) };
        let new = called(hook, env, &self.key, old, &new)?;
        check_replacement(primary_key, &self.key, old, &new)?;
        Ok(new)
    }
}

/// What a hook writes in place of `new`. The key is that of the document.
///
/// # Errors
/// What the function complains about, or that it makes a deletion of something else, or something else of a deletion.
fn called(hook: &WriteHook, env: &Env, key: &Value, old: &Value, new: &Value) -> Result<Value> {
    let context = value::object([("primary_key", key.clone()), ("timestamp", env.now.clone())])?;
    let called = hook.function().call(env, &[context, old.clone(), new.clone()], false);
    let hooked = called.and_then(Val::into_datum).map_err(|error| match error.kind() {
        ErrorKind::Interrupted => error,
        _ => {
            let message = format!("Error in write hook: {}", error.message());
            error.with_message(message)
        }
    })?;
    match (new.is_null(), hooked.is_null()) {
        (false, true) => Err(Error::logic("A write hook function must not turn a replace/insert into a deletion.")),
        (true, false) => Err(Error::logic("A write hook function must not turn a deletion into a replace/insert.")),
        _ => Ok(hooked),
    }
}

/// What became of a write: the document before and after it, `null` where there is none.
#[derive(Debug)]
pub struct Written {
    /// The document before the write.
    pub old: Value,
    /// The document after the write.
    pub new: Value,
    /// Why the document was left as it was.
    pub error: Option<Error>,
}

/// The largest array in a stored document.
const MAX_STORED_ARRAY: usize = 100_000;

impl Change {
    /// What the document becomes: a function of what is there.
    ///
    /// # Errors
    /// What the function complains about, or that its result cannot take the document's place.
    pub fn apply(&self, env: &Env, primary_key: &str, key: &Value, old: &Value) -> Result<Value> {
        let new = match self {
            Self::Replace { function } => function.call(env, std::slice::from_ref(old), true)?.into_datum()?,
            Self::Update { .. } if old.is_null() => Value::Null,
            Self::Update { document } => old.merge(document)?,
            Self::Set { document } => document.clone(),
            Self::Insert { document, .. } if old.is_null() => document.clone(),
            Self::Insert { document, conflict } => match conflict {
                Conflict::Error => {
                    return Err(Error::logic(format!(
                        "Duplicate primary key `{primary_key}`:\n{}\n{}",
                        old.print()?,
                        document.print()?
                    )));
                }
                Conflict::Replace => document.clone(),
                Conflict::Update => old.merge(document)?,
                Conflict::Function(function) => {
                    let args = [Value::from(primary_key), old.clone(), document.clone()];
                    function.call(env, &args, true)?.into_datum()?
                }
            },
        };
        check_replacement(primary_key, key, old, &new)?;
        Ok(new)
    }
}

/// Whether `new` may take the place of `old`.
fn check_replacement(primary_key: &str, key: &Value, old: &Value, new: &Value) -> Result<()> {
    if new.is_null() {
        return Ok(());
    }
    if !new.is_object() {
        return Err(Error::typed(
            new,
            format!("Inserted value must be an OBJECT (got {}):\n{}", new.type_name(), new.print()?),
        ));
    }
    if new.literal().is_some() {
        return Err(tessera_document::ValueError::StrayLiteral.into());
    }
    let Some(new_key) = new.get_field(primary_key) else {
        return Err(Error::logic(format!("Inserted object must have primary key `{primary_key}`:\n{}", new.print()?)));
    };
    let old_key = old.get_field(primary_key).unwrap_or_else(|| key.clone());
    if new_key != old_key {
        let new = new.print()?;
        return Err(Error::logic(if old.is_null() {
            format!("Primary key `{primary_key}` cannot be changed (null -> {new})")
        } else {
            format!("Primary key `{primary_key}` cannot be changed (`{}` -> `{new}`).", old.print()?)
        }));
    }
    check_stored(new)
}

/// Whether the value may stand in a document.
fn check_stored(value: &Value) -> Result<()> {
    match value {
        Value::Array(items) if items.len() > MAX_STORED_ARRAY => {
            Err(Error::logic("Array too large for disk writes (limit 100,000 elements)."))
        }
        Value::Array(items) => items.iter().try_for_each(check_stored),
        Value::Object(object) => object.values().try_for_each(check_stored),
        Value::MinVal | Value::MaxVal => Err(Error::logic("`r.minval` and `r.maxval` cannot be written to disk.")),
        _ => Ok(()),
    }
}

/// What a pipeline makes of a page, evaluated here.
///
/// # Errors
/// What the pipeline complains about.
pub fn evaluate_page(env: &Env, pipeline: &Arc<Pipeline>, page: Page) -> Result<Evaluated> {
    let mut run = pipeline.run();
    page.rows.into_iter().try_for_each(|row| run.add(env, row))?;
    Ok(Evaluated { partial: run.finish(), next: page.next })
}

/// Where data is. All names have been checked for their characters.
pub trait Source: Send + Sync {
    /// Whether whoever asks has a right. A source that knows nobody is asked by those who may do everything.
    ///
    /// # Errors
    /// If the right was not given.
    fn require(&self, _right: Right, _place: Place<'_>) -> Result<()> {
        Ok(())
    }
    /// # Errors
    /// If the source cannot tell.
    fn databases(&self) -> Result<Vec<DatabaseInfo>>;
    /// The database, or `None` if there is none of this name.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn database(&self, name: &str) -> Result<Option<DatabaseInfo>> {
        Ok(self.databases()?.into_iter().find(|database| database.name == name))
    }
    /// # Errors
    /// If there is one of this name.
    fn create_database(&self, name: &str) -> Result<DatabaseInfo>;
    /// Drops a database and its tables; says how many these were.
    ///
    /// # Errors
    /// If there is none of this name.
    fn drop_database(&self, name: &str) -> Result<(DatabaseInfo, usize)>;

    /// # Errors
    /// If the source cannot tell.
    fn tables(&self, database: &DatabaseInfo) -> Result<Vec<TableInfo>>;
    /// The table, or `None` if there is none of this name.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn table(&self, database: &DatabaseInfo, name: &str) -> Result<Option<TableInfo>>;
    /// # Errors
    /// If there is one of this name, or it cannot be made as asked.
    fn create_table(&self, database: &DatabaseInfo, name: &str, options: &TableOptions) -> Result<TableInfo>;
    /// # Errors
    /// If there is none of this name.
    fn drop_table(&self, database: &DatabaseInfo, name: &str) -> Result<TableInfo>;
    /// How a table is to be.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn table_config(&self, table: &TableInfo) -> Result<TableConfig>;
    /// How the shards of a table are.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn table_status(&self, table: &TableInfo) -> Result<Vec<ShardStatus>>;
    /// About how many documents each shard of a table holds, without reading much.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn document_counts(&self, table: &TableInfo) -> Result<Vec<u64>>;
    /// The servers of the cluster.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn servers(&self) -> Result<Vec<ServerStatus>>;
    /// Whoever tells what the servers do, if anybody does.
    fn monitor(&self) -> Option<&dyn Monitor> {
        None
    }
    /// Whoever makes requests of HTTP for queries, if anybody does.
    fn http(&self) -> Option<&dyn HttpClient> {
        None
    }
    /// Whoever runs JavaScript for queries, if anybody does.
    fn scripts(&self) -> Option<&dyn ScriptEngine> {
        None
    }
    /// The users of the cluster.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn accounts(&self) -> Result<Vec<Account>>;
    /// Makes, changes or drops a user. Returns when queries that begin later go by it.
    ///
    /// # Errors
    /// If that cannot be.
    fn change_account(&self, name: &str, change: AccountChange) -> Result<()>;
    /// Gives a table another number of shards and replicas. Returns when that is decided; data may move for longer.
    ///
    /// # Errors
    /// If the table cannot be spread so.
    fn reconfigure(&self, env: &Env, table: &TableInfo, shape: &Shape) -> Result<()>;
    /// # Errors
    /// If the table cannot be changed so.
    fn change_table(&self, table: &TableInfo, change: &TableChange) -> Result<()>;

    /// The write hook of a table.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn write_hook(&self, table: &TableInfo) -> Result<Option<Arc<WriteHook>>>;

    /// # Errors
    /// If the source cannot tell.
    fn indexes(&self, table: &TableInfo) -> Result<Vec<IndexInfo>>;

    /// Which share of the table an index that is not ready holds, 0 to 1.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn index_progress(&self, table: &TableInfo, name: &str) -> Result<f64>;

    /// The names of the indexes, whatever their state.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn index_names(&self, table: &TableInfo) -> Result<Vec<String>> {
        Ok(self.indexes(table)?.into_iter().map(|index| index.name).collect())
    }

    /// For how many milliseconds more a document is there; `None` if it does not end, or is not there.
    ///
    /// # Errors
    /// If it cannot be read.
    fn time_left(&self, _table: &TableInfo, _key: &Value) -> Result<Option<u64>> {
        Ok(None)
    }
    /// How an index derives keys, if there is one of this name.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn index_definition(&self, table: &TableInfo, name: &str) -> Result<Option<IndexDefinition>> {
        Ok(self.indexes(table)?.into_iter().find(|index| index.name == name).map(|index| index.definition))
    }
    /// Waits a little before something is looked at again that takes time, such as the building of an index.
    fn pause(&self);

    /// Learns what was changed of databases, tables and indexes before, also by other clients of other nodes. Whoever waits for
    /// something that another client has just made would otherwise not know that there is anything to wait for.
    fn learn(&self) {}
    /// # Errors
    /// If there is one of this name.
    fn create_index(&self, env: &Env, table: &TableInfo, name: &str, definition: IndexDefinition) -> Result<()>;
    /// # Errors
    /// If there is none of this name.
    fn drop_index(&self, table: &TableInfo, name: &str) -> Result<()>;
    /// # Errors
    /// If there is no index of the old name, or one of the new name that must not be overwritten.
    fn rename_index(&self, table: &TableInfo, from: &str, to: &str, overwrite: bool) -> Result<()>;

    /// The document with this primary key.
    ///
    /// # Errors
    /// If the value can be no key, or the source cannot tell.
    fn get(&self, table: &TableInfo, key: &Value, reads: ReadMode) -> Result<Option<Value>>;
    /// A page of documents.
    ///
    /// # Errors
    /// If a bound can be no key, the index is not there, or the source cannot tell.
    fn scan(&self, env: &Env, table: &TableInfo, scan: &Scan) -> Result<Page>;
    /// What a pipeline makes of a page of documents. A source that knows how has it done where the documents are; then pages are
    /// as long as it thinks best, but one whose pipeline has no terminal ends soon after there are as many rows as the scan's
    /// limit says.
    ///
    /// # Errors
    /// As [`Source::scan`], and what the pipeline complains about.
    fn evaluate(&self, env: &Env, table: &TableInfo, scan: &Scan, pipeline: &Arc<Pipeline>) -> Result<Evaluated> {
        evaluate_page(env, pipeline, self.scan(env, table, scan)?)
    }

    /// The changes of documents of a table, from now on or from where a feed was before. The query's [pacer](Env::pacer) is woken when
    /// something comes.
    ///
    /// # Errors
    /// If the source cannot tell of changes, or not of those since then any more.
    fn subscribe(
        &self,
        env: &Env,
        table: &TableInfo,
        interest: &Interest,
        resume: Option<Resume>,
    ) -> Result<Box<dyn ChangeLog>>;

    /// Carries out writes, each one atomically, in any order; answers them in the order given.
    ///
    /// # Errors
    /// If not all writes were carried out or refused one by one.
    fn write(&self, env: &Env, table: &TableInfo, writes: Vec<Write>, durability: Durability) -> Result<Vec<Written>>;
    /// The documents with these primary keys, in that order.
    ///
    /// # Errors
    /// As [`Source::get`].
    fn get_all(&self, table: &TableInfo, keys: &[Value], reads: ReadMode) -> Result<Vec<Option<Value>>> {
        keys.iter().map(|key| self.get(table, key, reads)).collect()
    }

    /// Puts documents in the places of others, all at one instant, if all of these are what they must be. None comes twice.
    ///
    /// # Errors
    /// If they were not written, but for documents that have changed, or nobody knows whether they were.
    fn write_together(&self, env: &Env, documents: &[Replacement], durability: Durability) -> Result<Together>;

    /// Makes earlier soft writes durable.
    ///
    /// # Errors
    /// If that failed.
    fn sync(&self, table: &TableInfo) -> Result<()>;
}
