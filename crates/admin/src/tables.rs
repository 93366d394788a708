//! Tables: what there are, how they are made, changed, dropped and recalled.

use crate::body::Body;
use crate::cluster::SplitInfo;
use crate::doors::Nothing;
use crate::failure::{Failure, Reply};
use crate::server::AdminServer;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use tessera_cluster::{CatalogCommand, TableEntry};
use tessera_engine::{DEFAULT_ENGINE, EngineStatistics, PageLimit, RocksStatistics};
use tessera_store::{AlterError, Counts, TableStatistics};
use tessera_types::{
    Acks, Denial, Durability, EngineKind, Model, Partitioner, Rate, RequestError, Rule, TableNumber, TableSchema,
    TableSettings, UsageScenario, WhenFull,
};

/// A table to create; what is left out gets its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTable {
    /// How clients name the table.
    pub name: String,
    /// Where records are: in memory or in RocksDB.
    pub engine: Option<EngineKind>,
    /// A power of two.
    pub partitions: Option<u32>,
    /// How keys are given to partitions.
    pub partitioner: Option<Partitioner>,
    /// What the table holds.
    pub model: Option<Model>,
    /// Of tables of documents.
    pub primary_key: Option<String>,
    /// When writes are answered, if their connection does not say otherwise.
    pub durability: Option<Durability>,
    /// Copies of each partition, on as many nodes.
    pub replicas: Option<u8>,
    /// Settings that can be changed later.
    #[serde(flatten)]
    pub settings: SettingsChange,
}

/// What is to change about a table; what is left out stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableChange {
    replicas: Option<u8>,
    /// Twice as many as there are.
    partitions: Option<u32>,
    #[serde(flatten)]
    settings: SettingsChange,
}

/// Settings to change; what is left out stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SettingsChange {
    /// Time to live of records that are written without one; 0 for none.
    pub default_ttl_seconds: Option<u64>,
    /// Whether a memory table refuses writes or evicts records when memory is used up.
    pub when_full: Option<WhenFull>,
    /// What RocksDB is tuned for.
    pub usage_scenario: Option<UsageScenario>,
    /// Whether a write is answered when a majority has it, or the leader alone.
    pub acks: Option<Acks>,
    /// How long changes are kept for changefeeds.
    pub feed_retention_seconds: Option<u64>,
    /// The most bytes of changes that are kept for changefeeds.
    pub feed_retention_bytes: Option<u64>,
    /// By which records are removed or get another time to live.
    pub rules: Option<Vec<Rule>>,
    /// Writes a second.
    pub write_rate: Option<Rate>,
    /// Bytes written a second.
    pub write_byte_rate: Option<Rate>,
    /// Reads a second.
    pub read_rate: Option<Rate>,
    /// Bytes read a second.
    pub read_byte_rate: Option<Rate>,
    /// What clients may not do with the table for now.
    pub deny: Option<Denial>,
}

impl SettingsChange {
    /// Why a setting means nothing to such a table. Defaults may always be said.
    fn inapplicable(&self, schema: &TableSchema) -> Option<&'static str> {
        let default = TableSettings::default();
        let evicts = self.when_full.is_some_and(|setting| setting != default.when_full);
        let tunes = self.usage_scenario.is_some_and(|setting| setting != default.usage_scenario);
        let retention = default.feed_retention;
        let retains = self.feed_retention_seconds.is_some_and(|setting| setting != retention.feed_retention_seconds)
            || self.feed_retention_bytes.is_some_and(|setting| setting != retention.feed_retention_bytes);
        match (schema.engine, schema.model) {
            (EngineKind::Rocksdb, _) if evicts => {
                Some("`when_full` is for tables of the memory engine; a table of RocksDB is as large as the disk")
            }
            (EngineKind::Memory, _) if tunes => Some("`usage_scenario` is for tables of the RocksDB engine"),
            (_, Model::Kv) if retains => Some("`feed_retention` is for tables of documents, which have changefeeds"),
            _ => None,
        }
    }

    fn apply(&self, settings: &mut TableSettings) {
        settings.default_ttl_seconds = self.default_ttl_seconds.unwrap_or(settings.default_ttl_seconds);
        settings.when_full = self.when_full.unwrap_or(settings.when_full);
        settings.usage_scenario = self.usage_scenario.unwrap_or(settings.usage_scenario);
        settings.acks = self.acks.unwrap_or(settings.acks);
        let retention = &mut settings.feed_retention;
        retention.feed_retention_seconds = self.feed_retention_seconds.unwrap_or(retention.feed_retention_seconds);
        retention.feed_retention_bytes = self.feed_retention_bytes.unwrap_or(retention.feed_retention_bytes);
        settings.rules = self.rules.as_ref().unwrap_or(&settings.rules).clone();
        let admission = &mut settings.admission;
        for (now, change) in [
            (&mut admission.write_rate, &self.write_rate),
            (&mut admission.write_byte_rate, &self.write_byte_rate),
            (&mut admission.read_rate, &self.read_rate),
            (&mut admission.read_byte_rate, &self.read_byte_rate),
        ] {
            if let Some(change) = change {
                now.clone_from(change);
            }
        }
        admission.deny = self.deny.unwrap_or(admission.deny);
    }
}

/// A table as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub struct TableInfo {
    /// By which Redis clients SELECT it.
    pub number: TableNumber,
    /// How clients name it.
    pub name: String,
    /// What cannot be changed.
    #[serde(flatten)]
    pub schema: TableSchema,
    /// What can.
    #[serde(flatten)]
    pub settings: TableSettings,
    /// Partitions that have a leader, as far as this node knows.
    pub serving_partitions: u32,
    /// While it is being split.
    pub split: Option<SplitInfo>,
    /// What this node was asked of it since it started.
    #[serde(flatten)]
    pub counts: Counts,
    /// How far the replica on this node that is furthest behind may be.
    pub lag_seconds: Option<f64>,
    /// What the engine tells of the replicas on this node.
    pub statistics: EngineStatistics,
    /// Of a table on RocksDB: the share of what was looked for that the caches had, 0 to 1. All tables on RocksDB
    /// share an instance and its caches.
    pub cache_hit_rate: Option<f64>,
    /// What the RocksDB instance of the node tells.
    pub rocksdb: Option<RocksStatistics>,
}

impl From<TableStatistics> for TableInfo {
    fn from(table: TableStatistics) -> Self {
        Self {
            number: table.number,
            name: table.name,
            schema: table.schema,
            settings: table.settings,
            serving_partitions: table.serving_partitions,
            split: table.split.as_ref().map(SplitInfo::of),
            counts: table.counts,
            lag_seconds: table.lag.map(|lag| lag.as_secs_f64()),
            statistics: table.engine,
            cache_hit_rate: table.rocksdb.and_then(|rocksdb| rocksdb.cache_hit_rate()),
            rocksdb: table.rocksdb,
        }
    }
}

/// What is shown of tables is counted, however many records they have in all, if no partition has too many.
const EACH_PARTITION_ALONE: PageLimit = PageLimit { records: usize::MAX, bytes: usize::MAX };

pub(crate) async fn list(State(server): State<AdminServer>) -> Json<Vec<TableInfo>> {
    let tables = server.store().statistics().tables;
    Json(all_counted(&server, tables).await)
}

/// Tables as the API shows them, with how many records they have.
pub(crate) async fn all_counted(server: &AdminServer, mut tables: Vec<TableStatistics>) -> Vec<TableInfo> {
    server.record_counter.count(server.store(), &mut tables, EACH_PARTITION_ALONE).await;
    tables.into_iter().map(TableInfo::from).collect()
}

pub(crate) async fn show(State(server): State<AdminServer>, Path(name): Path<String>) -> Reply<TableInfo> {
    let mut table = server.table_statistics(&name)?;
    server.record_counter.count(server.store(), std::slice::from_mut(&mut table), EACH_PARTITION_ALONE).await;
    Ok(Json(table.into()))
}

/// # Errors
/// That the settings say something that means nothing to such a table, so whoever says it is mistaken.
fn refuse_inapplicable(settings: &SettingsChange, schema: &TableSchema) -> Result<(), Failure> {
    let inapplicable = settings.inapplicable(schema);
    inapplicable.map_or(Ok(()), |reason| Err(Failure::unprocessable("inapplicable_setting", reason)))
}

pub(crate) async fn create(State(server): State<AdminServer>, Body(new): Body<NewTable>) -> Reply<TableInfo> {
    let engine = new.engine.unwrap_or(DEFAULT_ENGINE);
    let durability = new.durability.unwrap_or(TableSchema::default_durability(engine));
    let schema = TableSchema {
        engine,
        partitions: new.partitions.unwrap_or(TableSchema::DEFAULT_PARTITIONS),
        partitioner: new.partitioner.unwrap_or_default(),
        model: new.model.unwrap_or_default(),
        primary_key: new.primary_key,
        durability,
        replicas: new.replicas.unwrap_or(TableSchema::DEFAULT_REPLICAS),
    };
    refuse_inapplicable(&new.settings, &schema)?;
    let mut settings = TableSettings::default();
    new.settings.apply(&mut settings);
    server
        .change(CatalogCommand::Create { name: new.name.clone(), schema, settings, absent: Default::default() })
        .await?;
    Ok(Json(server.table_statistics(&new.name)?.into()))
}

pub(crate) async fn alter(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(change): Body<TableChange>,
) -> Reply<TableInfo> {
    let table = server.store().find_table(|store| store.table_named(&name)).await;
    let table = table.ok_or_else(|| RequestError::NoSuchTable(name.clone()))?;
    refuse_inapplicable(&change.settings, table.schema())?;
    // These are more likely to be refused than settings, which are read already.
    let mut changed = Vec::new();
    if let Some(replicas) = change.replicas {
        server.change(CatalogCommand::SetReplicas { name: name.clone(), replicas }).await?;
        changed.push("the number of replicas");
    }
    if let Some(partitions) = change.partitions {
        let split = CatalogCommand::Split { name: name.clone(), partitions, absent: Default::default() };
        server.change(split).await.map_err(|failure| failure.after(&changed))?;
        changed.push("the number of partitions");
    }
    let altered = server.store().alter_table(&name, |settings| {
        change.settings.apply(settings);
        Ok::<(), Infallible>(())
    });
    let failure = match altered.await {
        Ok(()) => return Ok(Json(server.table_statistics(&name)?.into())),
        Err(AlterError::Change(never)) => match never {},
        Err(AlterError::Catalog(error)) => Failure::from(error),
        Err(AlterError::Request(error)) => Failure::from(error),
    };
    Err(failure.after(&changed))
}

pub(crate) async fn drop(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Reply<serde_json::Value> {
    let purge_at = server.store().purge_time();
    let number = server.table_statistics(&name)?.number;
    let command = CatalogCommand::drop(name, purge_at);
    let (_, behind) = server.store().change_catalog_and_tell(command).await??;
    Ok(Json(json!({ "number": number, "purge_at_unix_ms": purge_at, "nodes_behind": behind })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rename {
    to: String,
}

pub(crate) async fn rename(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(rename): Body<Rename>,
) -> Reply<serde_json::Value> {
    let command = CatalogCommand::Rename { name, to: rename.to.clone() };
    let (_, behind) = server.store().change_catalog_and_tell(command).await??;
    let mut answer = json!(TableInfo::from(server.table_statistics(&rename.to)?));
    answer["nodes_behind"] = json!(behind);
    Ok(Json(answer))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Truncate {
    /// Whether nothing is kept that could be recalled.
    #[serde(default)]
    purge: bool,
}

pub(crate) async fn truncate(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(Truncate { purge }): Body<Truncate>,
) -> Reply<serde_json::Value> {
    let purge_at = if purge { server.store().now() } else { server.store().purge_time() };
    let number = server.store().truncate(&name, purge_at).await??;
    Ok(Json(json!({ "number": (!purge).then_some(number), "purge_at_unix_ms": purge_at })))
}

pub(crate) async fn list_dropped(State(server): State<AdminServer>) -> Reply<Vec<TableEntry>> {
    let catalog = server.store().catalog();
    Ok(Json(catalog.tables().filter(|entry| entry.is_dropped()).cloned().collect()))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recall {
    name: Option<String>,
}

pub(crate) async fn recall(
    State(server): State<AdminServer>,
    Path(number): Path<u32>,
    Body(recall): Body<Recall>,
) -> Reply<TableInfo> {
    let number = TableNumber(number);
    let recalled = server.change(CatalogCommand::Recall { number, to: recall.name }).await;
    let advice = "recall the table under another name (`tessera table recall NUMBER --as NAME`), or rename the one that is there";
    recalled.map_err(|failure| failure.advise("table_exists", advice))?;
    let tables = server.store().statistics().tables;
    let table = tables.into_iter().find(|table| table.number == number);
    let table = table.ok_or_else(|| RequestError::NoSuchTable(number.to_string()))?;
    Ok(Json(table.into()))
}
