//! Databases and tables, and which documents of them are read. Data that the evaluator and its sources exchange.

use std::ops::Bound;
use std::sync::Arc;

use crate::cells::Cells;
use crate::error::{Error, until_nul};
use crate::function::Function;
use crate::lazy::Lazy;
use crate::value::{Value, ValueExt as _};
pub use tessera_types::SYSTEM_DATABASE;

/// A database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// The identifier, a UUID in text.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// The identifier, a UUID in text.
    pub id: String,
    /// Its name, without the database.
    pub name: String,
    /// The database that the table is in.
    pub database: DatabaseInfo,
    /// The field by which its documents are found.
    pub primary_key: Arc<str>,
}

impl TableInfo {
    /// Whether it is one of the tables that tell how the cluster is.
    pub fn is_system(&self) -> bool {
        self.database.name == SYSTEM_DATABASE
    }

    /// Both names, as errors have them.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.database.name, self.name)
    }

    /// The error when a query uses an index that does not exist.
    pub fn no_index(&self, index: &str) -> Error {
        Error::failed(format!("Index `{}` does not exist on table `{}`.", until_nul(index), self.full_name()))
    }

    /// As reads say it.
    pub fn index_not_found(&self, index: &str) -> Error {
        Error::failed(format!("Index `{}` was not found on table `{}`.", until_nul(index), self.full_name()))
    }

    /// The error when something else than a search by geometry reads a geospatial index.
    pub fn geospatial_index(&self, index: &str) -> Error {
        Error::logic(format!(
            "Index `{}` is a geospatial index.  Only get_nearest and get_intersecting can use a geospatial index.",
            until_nul(index)
        ))
    }

    /// The error when an index is to be created and exists.
    pub fn index_exists(&self, index: &str) -> Error {
        Error::failed(format!("Index `{}` already exists on table `{}`.", until_nul(index), self.full_name()))
    }

    /// The error of a document that is to get a key of a unique index which another one has; `key` is `None` if it is too long to be told.
    pub fn duplicate_key(&self, index: &str, key: Option<&Value>, holder: &Value) -> Error {
        let print = |value: &Value| value.print().unwrap_or_else(|_| value.type_name().into());
        let key = key.map_or_else(|| "the key".into(), |key| format!("`{}`", print(key)));
        Error::failed(format!(
            "Duplicate key of unique index `{}`: {key} belongs to the document with primary key `{}`.",
            until_nul(index),
            print(holder)
        ))
    }

    /// The error when an index cannot get another name.
    pub fn cannot_rename_index(&self, from: &str, to: &str) -> Error {
        let (from, to) = (until_nul(from), until_nul(to));
        Error::failed(format!(
            "Index `{from}` does not exist or index `{to}` already exists on table `{}`.",
            self.full_name()
        ))
    }
}

/// What a table is created with.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// The field by which documents are found.
    pub primary_key: String,
    /// The number of partitions.
    pub shards: usize,
    /// As many as the source thinks best, unless they are said.
    pub replicas: Option<usize>,
    /// Whether a write is fsynced before it is acknowledged.
    pub is_hard: bool,
    /// For how many seconds documents are there that are inserted without saying for how long; `None` if they do not end.
    pub ttl_seconds: Option<u64>,
    /// Whether most replicas have a write before it is acknowledged.
    pub waits_for_majority: bool,
}

/// How an index derives keys from a document.
#[derive(Debug, Clone)]
pub struct IndexDefinition {
    /// The function that gives the key, or the keys, of a document.
    pub function: Arc<Function>,
    /// The function as clients store it, opaque to them.
    pub source: Arc<[u8]>,
    /// Its text for people.
    pub query: String,
    /// Whether each element of an array that the function gives is a key.
    pub multi: bool,
    /// Whether the keys are geometry objects.
    pub geo: bool,
    /// Whether no two documents may have the same key.
    pub unique: bool,
}

/// A secondary index.
#[derive(Debug, Clone)]
pub struct IndexInfo {
    /// Its name, unique in its table.
    pub name: String,
    /// How it derives keys.
    pub definition: IndexDefinition,
    /// Whether it holds the whole table, so that queries can use it.
    pub is_ready: bool,
    /// Why it cannot be built as long as documents are as they are.
    pub hindrance: Option<String>,
}

/// Values from one to another; the ends belong to it or do not.
#[derive(Debug, Clone)]
pub struct KeyRange {
    /// Where the range begins.
    pub lower: Bound<Value>,
    /// Where the range ends.
    pub upper: Bound<Value>,
}

impl KeyRange {
    /// The range of all values.
    pub const ALL: Self = Self { lower: Bound::Unbounded, upper: Bound::Unbounded };

    /// The range of one value.
    pub fn only(key: Value) -> Self {
        Self { lower: Bound::Included(key.clone()), upper: Bound::Included(key) }
    }
}

/// The order in which a scan gives documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As it is cheapest.
    Any,
    /// From the lowest key up.
    Ascending,
    /// From the highest key down.
    Descending,
}

/// How sure a read is to see what was acknowledged before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadMode {
    /// The server that leads answers.
    #[default]
    Single,
    /// A majority of the replicas confirms that it leads.
    Majority,
    /// Any replica answers, from what it has.
    Outdated,
}

/// A place in a table or index, opaque to the evaluator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position(pub Vec<u8>);

/// Which documents to read, and from where on.
#[derive(Debug, Clone)]
pub struct Scan {
    /// A secondary index; without one, the primary key.
    pub index: Option<Arc<str>>,
    /// The keys that the documents have.
    pub range: KeyRange,
    /// Instead of keys the cells that the entries of a geospatial index have.
    pub cells: Option<Arc<Cells>>,
    /// The order in which the documents come.
    pub order: Order,
    /// Where the page before this one ended; `None` for the first page.
    pub after: Option<Position>,
    /// The most documents that the page may hold.
    pub limit: usize,
    /// How sure the read must be.
    pub reads: ReadMode,
}

/// Documents of a scan.
#[derive(Debug)]
pub struct Page {
    /// The documents.
    pub rows: Vec<Lazy>,
    /// Where the next page begins, unless this was the last one.
    pub next: Option<Position>,
}

/// What is promised for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As the table says.
    Default,
    /// The write is fsynced before it is acknowledged.
    Hard,
    /// The write survives the process, and is fsynced within an interval.
    Soft,
}

/// How long a document is to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// It is there as long as it was to be before; a new document is there as long as the table says.
    #[default]
    Kept,
    /// It is there as long as the table says, also where there was another document before.
    Fresh,
    /// It is there until it is deleted.
    Endless,
    /// It is there for so many milliseconds from the write on.
    Millis(u64),
}

impl Lifetime {
    /// Whether a write that leaves everything else as it is has nothing to do: there is a document afterwards, or there is none.
    pub fn is_nothing(self, is_there: bool) -> bool {
        self == Self::Kept || !is_there
    }
}
