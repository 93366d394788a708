//! Tables in memory that are cut into parts, whose documents are encoded and evaluated where they are: pipelines go there as bytes,
//! and partial results and errors come back as bytes and are merged. So the recorded answers judge the way that queries take through
//! a cluster.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use tessera_document::{EncodedValue, Value};
use tessera_reql::{
    Account, AccountChange, ChangeLog, DatabaseInfo, Durability, Env, Error, Evaluated, IndexDefinition, IndexInfo,
    Interest, Lazy, MemorySource, Order, Page, Partial, Pipeline, ReadMode, Replacement, Result, Resume, Scan,
    ScriptEngine, ServerStatus, Shape, ShardStatus, Source, Stop, TableChange, TableConfig, TableInfo, TableOptions,
    Together, Write, Written,
};

const PARTS: usize = 3;
/// Documents of a page that ends in a value: few, so that there are several pages to merge.
const PAGE_DOCUMENTS: usize = 7;

pub struct CutSource(pub Arc<MemorySource>);

fn encoded(row: &Lazy) -> Lazy {
    Lazy::Document(row.to_document())
}

fn part_of(row: &Lazy, table: &TableInfo) -> usize {
    let document = row.to_document();
    let key = document.value().get_field(&table.primary_key).map(EncodedValue::as_bytes);
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() % PARTS as u64) as usize
}

/// What a part answers for some of its documents.
fn evaluate_part(pipeline: &[u8], rows: Vec<Lazy>) -> Result<Vec<u8>, Vec<u8>> {
    let (pipeline, env) =
        Pipeline::from_bytes(pipeline, Arc::new(Stop::default())).map_err(|error| error.to_bytes())?;
    let mut run = pipeline.run();
    rows.into_iter().try_for_each(|row| run.add(&env, row)).map_err(|error| error.to_bytes())?;
    Ok(run.finish().to_bytes())
}

impl Source for CutSource {
    fn scan(&self, env: &Env, table: &TableInfo, scan: &Scan) -> Result<Page> {
        let page = self.0.scan(env, table, scan)?;
        Ok(Page { rows: page.rows.iter().map(encoded).collect(), next: page.next })
    }

    fn evaluate(&self, env: &Env, table: &TableInfo, scan: &Scan, pipeline: &Arc<Pipeline>) -> Result<Evaluated> {
        let mut scan = scan.clone();
        if pipeline.terminal.is_some() {
            scan.limit = PAGE_DOCUMENTS;
        }
        let page = self.scan(env, table, &scan)?;
        let bytes = pipeline.to_bytes(env)?;
        let mut all = pipeline.nothing();
        let mut take = |rows: Vec<Lazy>| {
            let partial = evaluate_part(&bytes, rows).map_err(|error| Error::from_bytes(&error))?;
            all.merge(env, pipeline, Partial::from_bytes(&partial.into(), pipeline)?)
        };
        if scan.order == Order::Any || pipeline.terminal.is_some() {
            let mut parts: [Vec<Lazy>; PARTS] = Default::default();
            for row in page.rows {
                parts[part_of(&row, table)].push(row);
            }
            parts.into_iter().filter(|rows| !rows.is_empty()).try_for_each(&mut take)?;
        } else {
            page.rows.into_iter().try_for_each(|row| take(vec![row]))?;
        }
        Ok(Evaluated { partial: all, next: page.next })
    }

    fn scripts(&self) -> Option<&dyn ScriptEngine> {
        self.0.scripts()
    }

    fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.0.databases()
    }

    fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        self.0.create_database(name)
    }

    fn drop_database(&self, name: &str) -> Result<(DatabaseInfo, usize)> {
        self.0.drop_database(name)
    }

    fn tables(&self, database: &DatabaseInfo) -> Result<Vec<TableInfo>> {
        self.0.tables(database)
    }

    fn table(&self, database: &DatabaseInfo, name: &str) -> Result<Option<TableInfo>> {
        self.0.table(database, name)
    }

    fn create_table(&self, database: &DatabaseInfo, name: &str, options: &TableOptions) -> Result<TableInfo> {
        self.0.create_table(database, name, options)
    }

    fn drop_table(&self, database: &DatabaseInfo, name: &str) -> Result<TableInfo> {
        self.0.drop_table(database, name)
    }

    fn table_config(&self, table: &TableInfo) -> Result<TableConfig> {
        self.0.table_config(table)
    }

    fn document_counts(&self, table: &TableInfo) -> Result<Vec<u64>> {
        self.0.document_counts(table)
    }

    fn table_status(&self, table: &TableInfo) -> Result<Vec<ShardStatus>> {
        self.0.table_status(table)
    }

    fn servers(&self) -> Result<Vec<ServerStatus>> {
        self.0.servers()
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

    fn write_hook(&self, table: &TableInfo) -> Result<Option<Arc<tessera_reql::WriteHook>>> {
        self.0.write_hook(table)
    }

    fn indexes(&self, table: &TableInfo) -> Result<Vec<IndexInfo>> {
        self.0.indexes(table)
    }

    fn index_progress(&self, table: &TableInfo, name: &str) -> Result<f64> {
        self.0.index_progress(table, name)
    }

    fn pause(&self) {
        self.0.pause();
    }

    fn create_index(&self, env: &Env, table: &TableInfo, name: &str, definition: IndexDefinition) -> Result<()> {
        self.0.create_index(env, table, name, definition)
    }

    fn drop_index(&self, table: &TableInfo, name: &str) -> Result<()> {
        self.0.drop_index(table, name)
    }

    fn rename_index(&self, table: &TableInfo, from: &str, to: &str, overwrite: bool) -> Result<()> {
        self.0.rename_index(table, from, to, overwrite)
    }

    fn get(&self, table: &TableInfo, key: &Value, reads: ReadMode) -> Result<Option<Value>> {
        self.0.get(table, key, reads)
    }

    fn subscribe(
        &self,
        env: &Env,
        table: &TableInfo,
        interest: &Interest,
        resume: Option<Resume>,
    ) -> Result<Box<dyn ChangeLog>> {
        self.0.subscribe(env, table, interest, resume)
    }

    fn write(&self, env: &Env, table: &TableInfo, writes: Vec<Write>, durability: Durability) -> Result<Vec<Written>> {
        self.0.write(env, table, writes, durability)
    }

    fn write_together(&self, env: &Env, documents: &[Replacement], durability: Durability) -> Result<Together> {
        self.0.write_together(env, documents, durability)
    }

    fn sync(&self, table: &TableInfo) -> Result<()> {
        self.0.sync(table)
    }
}
