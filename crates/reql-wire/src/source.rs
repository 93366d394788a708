//! How the evaluator gets at the cluster's tables. Queries run on threads of their own, which wait here for what the nodes that
//! lead the partitions answer.

use crate::indexes::{IndexList, definition_of, read_definition, value_at};
use crate::partition;
use crate::pushdown::Question;
use crate::route::{Place, reach};
use crate::shared::Shared;
use crate::work::{Reply, ScanWork, Work, WriteWork};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tessera_cluster::{CatalogCommand, CatalogError, IndexEntry};
use tessera_document::{Document, EncodedValue, EntryKey, KeyRange as Keys, SecondaryRange, Value};
use tessera_engine::Order as KeyOrder;
use tessera_reql::{
    DatabaseInfo, Durability, Env, Error, ErrorKind, Evaluated, IndexDefinition, IndexInfo, Lazy, Order, Page,
    Pipeline, Position, ReadMode as Reads, Result, Scan, ServerStatus, Shape, ShardStatus, Source, TableChange,
    TableConfig, TableInfo, TableOptions, Write, Written, evaluate_page,
};
use tessera_store::{Leader, Table};
use tessera_types::{
    EngineKind, Model, NodeId, Outcome, Partitioner, ReadMode, RecordKey, RequestError, Space, TableNumber,
    TableSchema, TableSettings,
};

/// How often a write is computed anew because others were faster. One of all those who try succeeds each time.
const WRITE_TRIES: usize = 1000;

/// Before something is looked at again that takes time.
const PAUSE: Duration = Duration::from_millis(20);

/// The fewest rows that a partition is asked for if several are: most of a small page may be in one of them. More than these, about as
/// many more than an even share as chance makes of the largest one.
const FEWEST_ROWS: usize = 16;

/// Keys of a space with their documents, and where the next page begins.
type KeyedPage = (Vec<(Bytes, Bytes)>, Option<Position>);

/// The tables of documents of a cluster.
pub(crate) struct Tables(pub(crate) Arc<Shared>);

pub(crate) fn failed(error: &RequestError) -> Error {
    let (kind, what) = match error.outcome() {
        Outcome::NotDone => (ErrorKind::OpFailed, "Cannot perform the operation"),
        Outcome::Unknown => (ErrorKind::OpIndeterminate, "The operation may or may not have been performed"),
    };
    Error::new(kind, format!("{what}: {error}."))
}

pub(crate) fn catalog_outcome(
    outcome: std::result::Result<std::result::Result<tessera_cluster::Changed, CatalogError>, RequestError>,
) -> Result<()> {
    match outcome {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::failed(format!("{error}."))),
        Err(error) => Err(failed(&error)),
    }
}

pub(crate) fn mode(reads: Reads) -> ReadMode {
    match reads {
        Reads::Single => ReadMode::Single,
        Reads::Majority => ReadMode::Majority,
        Reads::Outdated => ReadMode::Outdated,
    }
}

pub(crate) fn damaged() -> Error {
    Error::new(ErrorKind::Internal, "A stored document is damaged.")
}

fn decoded(document: Option<&Bytes>) -> Result<Value> {
    let Some(bytes) = document else { return Ok(Value::Null) };
    EncodedValue::trusted(bytes).to_value().map_err(|_| damaged())
}

fn row(document: Bytes) -> Lazy {
    Lazy::Document(Document::trusted(document))
}

pub(crate) fn split() -> Error {
    Error::failed("The table was split while it was read; run the query again.")
}

pub(crate) fn not_built(info: &TableInfo, scan: &Scan) -> Error {
    let (index, full) = (scan.index.as_deref().unwrap_or_default(), info.full_name());
    Error::failed(format!("Index `{index}` on table `{full}` was accessed before its construction was finished."))
}

fn encoded(value: &Value) -> Option<Bytes> {
    (!matches!(value, Value::Null)).then(|| Document::encode(value).into_bytes())
}

/// The bytes of a primary key, in the words of RethinkDB if it cannot be one.
pub(crate) fn key_of(value: &Value) -> Result<Bytes> {
    tessera_reql::primary_key(value)?;
    let mut key = Vec::new();
    tessera_document::primary_key(Document::encode(value).value(), &mut key)
        .map_err(|error| Error::logic(error.to_string()))?;
    Ok(key.into())
}

/// A number as an identifier of RethinkDB's form.
fn id(kind: u16, number: u64) -> String {
    format!("00000000-0000-4000-{:04x}-{number:012x}", 0x8000 | kind)
}

fn database_info(name: &str) -> DatabaseInfo {
    let hash = RecordKey::new(name.as_bytes(), b"").hash();
    DatabaseInfo { id: id(1, hash & 0xffff_ffff_ffff), name: name.into() }
}

impl Tables {
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.runtime.block_on(future)
    }

    fn found(&self, full: &str) -> Result<Option<Arc<Table>>> {
        match self.0.store.table_named(full) {
            Some(table) if table.schema().model != Model::Document => Err(Error::failed(format!(
                "Table `{full}` is a table of keys and values, which the Redis and Pegasus ports serve. ReQL works on tables \
                 of documents: make one with `tessera table create NAME --model document`, or with `table_create`."
            ))),
            found => Ok(found),
        }
    }

    pub(crate) fn open(&self, info: &TableInfo) -> Result<Arc<Table>> {
        let full = full_name(&info.database, &info.name);
        let missing = || Error::failed(format!("Table `{full}` does not exist."));
        self.found(&full)?.filter(|table| table_id(table.number()) == info.id).ok_or_else(missing)
    }

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
        catalog_outcome(self.wait(self.0.store.change_catalog(CatalogCommand::Drop { name: full.into(), purge_at })))?;
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

    /// Has reads made where they are to be made.
    pub(crate) fn reach(&self, table: &Arc<Table>, reads: ReadMode, work: Vec<(Place, Work)>) -> Result<Vec<Reply>> {
        let is_here = |(place, work): &(Place, Work)| self.is_read_here(table, reads, place, work);
        let here: Option<Vec<Reply>> = match work.iter().all(is_here) {
            true => work.iter().map(|(place, work)| self.read_here(table, reads, place, work)).collect(),
            false => None,
        };
        let replies = match here {
            Some(replies) => replies,
            None => self.wait(reach(&self.0, table, reads, work)).map_err(|error| failed(&error))?,
        };
        for reply in &replies {
            if let Reply::Refused(reason) = reply {
                return Err(Error::failed(format!("Cannot perform the operation: {reason}.")));
            }
        }
        Ok(replies)
    }

    /// Whether a read can be made without leaving the thread: this node answers for the partition.
    fn is_read_here(&self, table: &Table, reads: ReadMode, place: &Place, work: &Work) -> bool {
        reads != ReadMode::Majority
            && matches!(work, Work::Get { .. } | Work::Scan(_))
            && table.reader_of(place.partition_in(table), reads) == Leader::Here
    }

    /// Makes a read that [can be made here](Self::is_read_here). What goes wrong is left to those who can try again.
    fn read_here(&self, table: &Table, reads: ReadMode, place: &Place, work: &Work) -> Option<Reply> {
        let partition = place.partition_in(table);
        match work {
            Work::Get { key } => partition::get(&self.0.store, table, partition, reads, key).ok(),
            Work::Scan(scan) => partition::scan(&self.0.store, table, partition, reads, scan).ok(),
            _ => None,
        }
    }

    /// The document with a primary key.
    pub(crate) fn document(&self, table: &Arc<Table>, key: &Value, reads: Reads) -> Result<Option<Bytes>> {
        let found = self.read(table, mode(reads), std::iter::once(key_of(key)?))?;
        Ok(found.into_iter().next().flatten())
    }

    fn read(
        &self,
        table: &Arc<Table>,
        reads: ReadMode,
        keys: impl Iterator<Item = Bytes>,
    ) -> Result<Vec<Option<Bytes>>> {
        let work = keys.map(|key| (Place::Key(key.clone()), Work::Get { key })).collect();
        let replies = self.reach(table, reads, work)?.into_iter();
        replies.map(|reply| if let Reply::Document(found) = reply { Ok(found) } else { Err(damaged()) }).collect()
    }

    /// Pages in any order go from one partition to the next.
    fn scan_any(&self, table: &Arc<Table>, keys: &Keys, scan: &Scan) -> Result<Page> {
        let partitions = table.schema().partitions;
        let (mut partition, mut after) = match &scan.after {
            None => (0, None),
            Some(Position(bytes)) => {
                let numbers = bytes.first_chunk::<8>().ok_or_else(damaged)?;
                let number =
                    |at: usize| u32::from_le_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]]);
                if number(0) != partitions {
                    return Err(split());
                }
                (number(4), Some(Bytes::copy_from_slice(&bytes[8..])).filter(|after| !after.is_empty()))
            }
        };
        let mut rows = Vec::new();
        while partition < partitions && rows.len() < scan.limit.max(1) {
            let limit = scan.limit.max(1) - rows.len();
            let work = Work::Scan(scan_work(Space::DOCUMENTS, keys, KeyOrder::Ascending, after.take(), limit));
            let replies = self.reach(table, mode(scan.reads), vec![(Place::Partition(partition), work)])?;
            let Some(Reply::Page(found, has_more)) = replies.into_iter().next() else { return Err(damaged()) };
            after = found.last().filter(|_| has_more).map(|(key, _)| key.clone());
            rows.extend(found.into_iter().map(|(_, document)| row(document)));
            if has_more {
                break;
            }
            partition += 1;
        }
        let next = (partition < partitions).then(|| {
            let numbers = [partitions.to_le_bytes(), partition.to_le_bytes()].concat();
            Position(numbers.into_iter().chain(after.unwrap_or_default()).collect())
        });
        Ok(Page { rows, next })
    }

    /// A page in the order of a space's keys, merged from all partitions.
    fn scan_in_order(
        &self,
        table: &Arc<Table>,
        space: Space,
        keys: &Keys,
        info: &TableInfo,
        scan: &Scan,
    ) -> Result<KeyedPage> {
        let order = key_order(scan.order);
        let (limit, partitions) = (scan.limit.max(1), table.schema().partitions);
        let even = limit.div_ceil(partitions as usize);
        let share = (even + 2 * even.isqrt()).max(FEWEST_ROWS).min(limit);
        let after = scan.after.as_ref().map(|Position(bytes)| Bytes::copy_from_slice(bytes));
        let work = |after| Work::Scan(scan_work(space, keys, order, after, share));
        let place = |partition| (Place::Partition(partition), work(after.clone()));
        let replies = self.reach(table, mode(scan.reads), (0..partitions).map(place).collect())?;
        let mut merged = BTreeMap::new();
        let mut end: Option<Bytes> = None;
        for reply in replies {
            let (rows, has_more) = match reply {
                Reply::Page(rows, has_more) => (rows, has_more),
                Reply::NotBuilt => return Err(not_built(info, scan)),
                _ => return Err(damaged()),
            };
            // Behind the last key of a page that is not the last one, that partition may have more.
            if let Some((last, _)) = rows.last().filter(|_| has_more)
                && end.as_ref().is_none_or(|end| order.compare(last, end).is_lt())
            {
                end = Some(last.clone());
            }
            merged.extend(rows);
        }
        let is_inside = |key: &Bytes| end.as_ref().is_none_or(|end| order.compare(key, end).is_le());
        let total = merged.len();
        let sorted: Vec<(Bytes, Bytes)> = match order {
            KeyOrder::Ascending => merged.into_iter().filter(|(key, _)| is_inside(key)).take(limit).collect(),
            KeyOrder::Descending => merged.into_iter().rev().filter(|(key, _)| is_inside(key)).take(limit).collect(),
        };
        let has_more = sorted.len() < total || end.is_some();
        let next = sorted.last().filter(|_| has_more).map(|(key, _)| Position(key.to_vec()));
        Ok((sorted, next))
    }

    /// The index of this name, also if another node has just made it.
    fn index(&self, table: &Arc<Table>, name: &str) -> Option<IndexEntry> {
        if let Some(index) = table.indexes().get(name) {
            return Some(index.clone());
        }
        let has_it = |table: &Arc<Table>| table.indexes().get(name).is_some();
        let number = table.number();
        let found = self.wait(self.0.store.find_table(|store| store.table_numbered(number).filter(has_it)));
        found.and_then(|table| table.indexes().get(name).cloned())
    }

    fn scan_index(&self, env: &Env, info: &TableInfo, table: &Arc<Table>, name: &str, scan: &Scan) -> Result<Page> {
        let index = self.index(table, name).ok_or_else(|| info.index_not_found(name))?;
        let range = index_range(scan)?;
        let (found, next) = self.scan_in_order(table, Space(index.space), &range.keys, info, scan)?;
        let mut rows = Vec::with_capacity(found.len());
        for (entry, document) in found {
            let entry = EntryKey::decode(&entry).map_err(|_| damaged())?;
            let is_inside = !range.is_doubtful(&entry)
                || self.is_in_range(env, &index, scan, &decoded(Some(&document))?, entry.place)?;
            if is_inside {
                rows.push(row(document));
            }
        }
        Ok(Page { rows, next })
    }

    /// Whether a document belongs to a range that its entry's key, which was cut, leaves open.
    fn is_in_range(
        &self,
        env: &Env,
        index: &IndexEntry,
        scan: &Scan,
        document: &Value,
        place: Option<u32>,
    ) -> Result<bool> {
        let definition = read_definition(&index.definition).ok_or_else(damaged)?;
        let Some(value) = value_at(env, &definition, document, place)? else { return Ok(false) };
        let key = tessera_reql::secondary_key(&value)?;
        let bound = |bound: &Bound<Value>| {
            let key = |value: &Value| match value {
                Value::MinVal | Value::MaxVal => None,
                value => tessera_reql::secondary_key(value).ok(),
            };
            match bound {
                Bound::Included(value) => key(value).map_or(Bound::Unbounded, Bound::Included),
                Bound::Excluded(value) => key(value).map_or(Bound::Unbounded, Bound::Excluded),
                Bound::Unbounded => Bound::Unbounded,
            }
        };
        use std::ops::RangeBounds as _;
        Ok((bound(&scan.range.lower), bound(&scan.range.upper)).contains(&key))
    }

    /// Waits until this node knows what was changed of a table.
    pub(crate) fn known(&self, info: &TableInfo, is_known: impl Fn(&Table) -> bool) -> Result<()> {
        let number = self.open(info)?.number();
        let table = |store: &tessera_store::Store| store.table_numbered(number);
        self.wait(self.0.until(|store| table(store).is_none_or(|table| is_known(&table))));
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

fn key_order(order: Order) -> KeyOrder {
    if order == Order::Descending { KeyOrder::Descending } else { KeyOrder::Ascending }
}

pub(crate) fn scan_work(space: Space, keys: &Keys, order: KeyOrder, after: Option<Bytes>, limit: usize) -> ScanWork {
    ScanWork {
        space,
        start: Bytes::copy_from_slice(&keys.start),
        end: keys.end.as_ref().map(|end| Bytes::copy_from_slice(end)),
        order,
        after,
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
    }
}

/// The key of the only document that a scan may find.
fn only_key(scan: &Scan) -> Option<&Value> {
    match (&scan.index, &scan.range.lower, &scan.range.upper) {
        (None, Bound::Included(lower), Bound::Included(upper))
            if lower == upper && !matches!(lower, Value::MinVal | Value::MaxVal) =>
        {
            Some(lower)
        }
        _ => None,
    }
}

/// Refuses a range whose ends can be no keys, in the words of RethinkDB. `r.minval` and `r.maxval` are ends of every range.
fn check_bounds<Key>(scan: &Scan, key: impl Fn(&Value) -> Result<Key>) -> Result<()> {
    for bound in [&scan.range.lower, &scan.range.upper] {
        match bound {
            Bound::Unbounded | Bound::Included(Value::MinVal | Value::MaxVal) => {}
            Bound::Excluded(Value::MinVal | Value::MaxVal) => {}
            Bound::Included(value) | Bound::Excluded(value) => drop(key(value)?),
        }
    }
    Ok(())
}

/// The primary keys of a scan.
fn document_range(scan: &Scan) -> Result<Keys> {
    check_bounds(scan, tessera_reql::primary_bound)?;
    let bound = |bound: &Bound<Value>| bound.as_ref().map(Document::encode);
    let (lower, upper) = (bound(&scan.range.lower), bound(&scan.range.upper));
    tessera_document::primary_range(lower.as_ref().map(Document::value), upper.as_ref().map(Document::value))
        .map_err(|error| Error::logic(error.to_string()))
}

/// The entries of an index that a scan is about.
fn index_range(scan: &Scan) -> Result<SecondaryRange> {
    check_bounds(scan, tessera_reql::secondary_key)?;
    let bound = |bound: &Bound<Value>| bound.as_ref().map(Document::encode);
    let (lower, upper) = (bound(&scan.range.lower), bound(&scan.range.upper));
    let (lower, upper) = (lower.as_ref().map(Document::value), upper.as_ref().map(Document::value));
    tessera_document::secondary_range(lower, upper).map_err(|error| Error::logic(error.to_string()))
}

fn full_name(database: &DatabaseInfo, name: &str) -> String {
    format!("{}.{name}", database.name)
}

pub(crate) fn server_id(node: NodeId) -> String {
    id(3, u64::from(node.0))
}

fn table_id(number: TableNumber) -> String {
    id(2, u64::from(number.0))
}

impl Source for Tables {
    fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        Ok(self.0.store.catalog().databases().iter().map(|name| database_info(name)).collect())
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
        if let Some(table) = self.found(&full_name(database, name))? {
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
            engine: EngineKind::Rocksdb,
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
        let (settings, absent) = (TableSettings::default(), Default::default());
        let create = CatalogCommand::Create { name: full.clone(), schema, settings, absent };
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

    fn reconfigure(&self, env: &Env, info: &TableInfo, shape: &Shape) -> Result<()> {
        self.spread(env, info, shape)
    }

    fn change_table(&self, info: &TableInfo, change: &TableChange) -> Result<()> {
        self.change(info, change)
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
            let has_it = |list: &&IndexList| list.get(Space(index.space)).is_some_and(|index| index.is_built);
            let built = lists.iter().filter(has_it).count();
            Ok(IndexInfo {
                name: name.into(),
                definition: read_definition(&index.definition).ok_or_else(damaged)?,
                is_ready: built == lists.len(),
                progress: built as f64 / f64::from(partitions),
            })
        };
        indexes.iter().map(info).collect()
    }

    fn learn(&self) {
        self.wait(self.0.store.learn_of_changes());
    }

    fn pause(&self) {
        std::thread::sleep(PAUSE);
    }

    fn create_index(&self, _env: &Env, info: &TableInfo, name: &str, definition: IndexDefinition) -> Result<()> {
        if definition.geo {
            return Err(Error::failed("Geospatial indexes are not supported by Tessera yet."));
        }
        let table = self.open(info)?.number();
        let text = definition_of(&definition.source, &definition.query);
        let create = CatalogCommand::CreateIndex { table, name: name.into(), definition: text };
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
        let table = self.open(info)?;
        if let Some(index) = &scan.index {
            return self.scan_index(env, info, &table, index, scan);
        }
        if let Some(key) = only_key(scan) {
            let rows = self.document(&table, key, scan.reads)?.into_iter().map(row).collect();
            return Ok(Page { rows, next: None });
        }
        let keys = document_range(scan)?;
        if scan.order == Order::Any {
            return self.scan_any(&table, &keys, scan);
        }
        let (found, next) = self.scan_in_order(&table, Space::DOCUMENTS, &keys, info, scan)?;
        Ok(Page { rows: found.into_iter().map(|(_, document)| row(document)).collect(), next })
    }

    fn evaluate(&self, env: &Env, info: &TableInfo, scan: &Scan, pipeline: &Arc<Pipeline>) -> Result<Evaluated> {
        let table = &self.open(info)?;
        if only_key(scan).is_some() {
            return evaluate_page(env, pipeline, self.scan(env, info, scan)?);
        }
        let (space, keys) = match &scan.index {
            None => (Space::DOCUMENTS, document_range(scan)?),
            Some(name) => {
                let index = self.index(table, name).ok_or_else(|| info.index_not_found(name))?;
                let range = index_range(scan)?;
                if range.has_doubts() {
                    // The index's function decides here which documents belong to it.
                    return evaluate_page(env, pipeline, self.scan(env, info, scan)?);
                }
                (Space(index.space), range.keys)
            }
        };
        let keys = scan_work(space, &keys, key_order(scan.order), None, scan.limit);
        let question = Question { table, info, scan, keys, pipeline };
        if scan.order == Order::Any || pipeline.terminal.is_some() {
            self.evaluate_in_any_order(env, &question)
        } else {
            self.evaluate_in_order(env, &question)
        }
    }

    fn write(&self, env: &Env, info: &TableInfo, writes: Vec<Write>, durability: Durability) -> Result<Vec<Written>> {
        let table = self.open(info)?;
        let keys: Vec<Bytes> = writes.iter().map(|write| key_of(&write.key)).collect::<Result<_>>()?;
        let is_insert = |write: &Write| matches!(write.change, tessera_reql::Change::Insert { .. });
        // What is inserted is mostly not there; a comparison that fails tells what is.
        let mut there: Vec<Option<Bytes>> = match writes.iter().all(is_insert) {
            true => vec![None; writes.len()],
            false => self.read(&table, ReadMode::Single, keys.iter().cloned())?,
        };
        let mut is_known = vec![!writes.iter().all(is_insert); writes.len()];
        let mut written: Vec<Option<Written>> = writes.iter().map(|_| None).collect();
        let mut tries = WRITE_TRIES;
        while tries > 0 {
            let mut work = Vec::new();
            let mut under_way = Vec::new();
            let (mut in_turn, mut waiting) = (BTreeSet::new(), Vec::new());
            let left = written.iter().filter(|written| written.is_none()).count();
            for (at, write) in writes.iter().enumerate() {
                if written[at].is_some() {
                    continue;
                }
                // Of several writes of one document, each one is computed from what the one before it has made.
                if !in_turn.insert(&keys[at]) {
                    is_known[at] = false;
                    waiting.push(at);
                    continue;
                }
                let old = decoded(there[at].as_ref())?;
                let new = match write.change.apply(env, &info.primary_key, &write.key, &old) {
                    Ok(new) => new,
                    Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                    // Only what was read counts: an assumption is looked at first.
                    Err(error) if is_known[at] => {
                        written[at] = Some(Written { old, new: Value::Null, error: Some(error) });
                        continue;
                    }
                    Err(_) => {
                        there[at] =
                            self.read(&table, ReadMode::Single, std::iter::once(keys[at].clone()))?.pop().flatten();
                        is_known[at] = true;
                        under_way.push((at, None));
                        continue;
                    }
                };
                let new_bytes = encoded(&new);
                if is_known[at] && new_bytes == there[at] {
                    written[at] = Some(Written { old, new, error: None });
                    continue;
                }
                let partition = table.partition_of(&RecordKey::new(&keys[at], b""));
                let keeper = self.0.lists.keeper(table.id(), partition);
                let write = WriteWork {
                    entries: keeper.changes(env, &old, &new, &keys[at])?,
                    key: keys[at].clone(),
                    old: there[at].clone(),
                    new: new_bytes,
                    is_soft: durability == Durability::Soft,
                    is_hard: durability == Durability::Hard,
                };
                work.push((Place::Key(keys[at].clone()), Work::Write(write)));
                under_way.push((at, Some((old, new))));
            }
            let sent = under_way.into_iter().filter_map(|(at, states)| Some((at, states?)));
            let replies = self.wait(reach(&self.0, &table, ReadMode::Single, work)).map_err(|error| failed(&error))?;
            for ((at, (old, new)), reply) in sent.zip(replies) {
                match reply {
                    Reply::Written => {
                        let next = waiting.iter().find(|next| keys[**next] == keys[at]);
                        next.inspect(|next| there[**next] = encoded(&new));
                        written[at] = Some(Written { old, new, error: None });
                    }
                    Reply::Differs(found) => {
                        there[at] = found;
                        is_known[at] = true;
                    }
                    Reply::Refused(reason) => {
                        let error = Error::failed(format!("Cannot perform write: {reason}."));
                        written[at] = Some(Written { old, new: Value::Null, error: Some(error) });
                    }
                    Reply::List(list) => {
                        let partition = table.partition_of(&RecordKey::new(&keys[at], b""));
                        self.0.lists.learn(table.id(), partition, &list)?;
                    }
                    Reply::Document(_) | Reply::Page(..) | Reply::Slice(_) | Reply::NotBuilt | Reply::Synced => {
                        return Err(damaged());
                    }
                }
            }
            match written.iter().filter(|written| written.is_none()).count() {
                0 => return Ok(written.into_iter().flatten().collect()),
                now if now < left => tries = WRITE_TRIES,
                _ => tries -= 1,
            }
            env.step()?;
        }
        Err(Error::failed("Cannot perform write: others change the document all the time."))
    }

    fn sync(&self, info: &TableInfo) -> Result<()> {
        let table = self.open(info)?;
        let partitions = table.schema().partitions;
        let work = (0..partitions).map(|partition| (Place::Partition(partition), Work::Sync)).collect();
        self.reach(&table, ReadMode::Single, work).map(drop)
    }
}
