//! The HTTP API. Everything is JSON; an error is `{"error": "...", "outcome": "not done" | "outcome unknown"}`.

use crate::body::Body;
use crate::cluster::SplitInfo;
use crate::doors::{self, Nothing};
use crate::listener::Patience;
use crate::{AdminListener, cluster, compaction, comparison, metrics, traffic};
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use tessera_store::{
    AlterError, CatalogCommand, CatalogError, Changed, Counts, EngineStatistics, RocksStatistics, Store, TableEntry,
    TableStatistics,
};
use tessera_types::{
    Acks, Denial, Durability, EngineKind, Model, Outcome, Partitioner, Rate, RequestError, Rule, TableNumber,
    TableSchema, TableSettings, UsageScenario, WhenFull,
};

/// Answers whether a bearer token is the right one.
pub type TokenCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Lines of Prometheus text that other parts of the process add to `/metrics`.
pub type ExtraMetrics = Arc<dyn Fn(&mut metrics::Gauges) + Send + Sync>;

/// The admin face of a node.
#[derive(Clone)]
pub struct AdminServer {
    pub(crate) store: Store,
    token: Option<TokenCheck>,
    /// Names under which requests may come.
    pub(crate) hosts: Arc<[String]>,
    /// Which doors of the node are open to whom, in words.
    doors: Arc<[String]>,
    extra_metrics: ExtraMetrics,
}

/// A table to create; what is left out gets its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTable {
    pub name: String,
    pub engine: Option<EngineKind>,
    pub partitions: Option<u32>,
    pub partitioner: Option<Partitioner>,
    pub model: Option<Model>,
    pub durability: Option<Durability>,
    pub replicas: Option<u8>,
    #[serde(flatten)]
    pub settings: SettingsChange,
}

/// What is to change about a table; what is left out stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableChange {
    replicas: Option<u8>,
    /// Twice as many as there are.
    partitions: Option<u32>,
    #[serde(flatten)]
    settings: SettingsChange,
}

/// Settings to change; what is left out stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SettingsChange {
    pub default_ttl_seconds: Option<u64>,
    pub when_full: Option<WhenFull>,
    pub usage_scenario: Option<UsageScenario>,
    pub acks: Option<Acks>,
    pub rules: Option<Vec<Rule>>,
    pub write_rate: Option<Rate>,
    pub write_byte_rate: Option<Rate>,
    pub read_rate: Option<Rate>,
    pub read_byte_rate: Option<Rate>,
    pub deny: Option<Denial>,
}

impl SettingsChange {
    fn apply(&self, settings: &mut TableSettings) {
        settings.default_ttl_seconds = self.default_ttl_seconds.unwrap_or(settings.default_ttl_seconds);
        settings.when_full = self.when_full.unwrap_or(settings.when_full);
        settings.usage_scenario = self.usage_scenario.unwrap_or(settings.usage_scenario);
        settings.acks = self.acks.unwrap_or(settings.acks);
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
    pub number: TableNumber,
    pub name: String,
    #[serde(flatten)]
    pub schema: TableSchema,
    #[serde(flatten)]
    pub settings: TableSettings,
    pub serving_partitions: u32,
    /// While it is being split.
    pub split: Option<SplitInfo>,
    #[serde(flatten)]
    pub counts: Counts,
    /// How far the replica on this node that is furthest behind may be.
    pub lag_seconds: Option<f64>,
    pub statistics: EngineStatistics,
    /// Of a table on RocksDB: the share of what was looked for that the caches had, 0 to 1, and what else the node's RocksDB
    /// instance tells. All tables on RocksDB share the instance.
    pub cache_hit_rate: Option<f64>,
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

pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) String, pub(crate) Outcome);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1, "outcome": self.2.to_string() }))).into_response()
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let status = match error {
            RequestError::NoSuchTable(_) => StatusCode::NOT_FOUND,
            RequestError::Removed => StatusCode::SERVICE_UNAVAILABLE,
            _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string(), error.outcome())
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        let status = match error {
            CatalogError::NoSuchTable(_) => StatusCode::NOT_FOUND,
            CatalogError::Exists(_) | CatalogError::AlteredMeanwhile(_) => StatusCode::CONFLICT,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self(status, error.to_string(), Outcome::NotDone)
    }
}

pub(crate) type Reply<T> = Result<Json<T>, Failure>;

impl AdminServer {
    /// With `token`, requests other than health checks need it as bearer token. They come under an address, as `localhost`, or
    /// under one of the names in `hosts`.
    /// `doors` says which doors of the node are open to whom.
    pub fn new(
        store: Store,
        token: Option<TokenCheck>,
        hosts: Vec<String>,
        doors: Vec<String>,
        extra_metrics: ExtraMetrics,
    ) -> Self {
        Self { store, token, hosts: hosts.into(), doors: doors.into(), extra_metrics }
    }

    /// Serves until `stop` is ready.
    pub async fn serve(self, listener: AdminListener, stop: impl Future<Output = ()> + Send + 'static) {
        listener.serve(self.router(), Patience::default(), stop).await;
    }

    fn router(self) -> Router {
        let guarded = Router::new()
            .route("/v1/status", get(status))
            .route("/v1/cluster", get(cluster::show))
            .route("/v1/nodes/{id}", axum::routing::delete(cluster::remove))
            .route("/v1/nodes/{id}/drain", post(cluster::drain))
            .route("/v1/tables/{name}/placement", get(cluster::placement))
            .route("/v1/tables/{name}/traffic", get(traffic::show))
            .route("/v1/tables/{name}/partitions/{partition}/hot-keys", post(traffic::hot_keys))
            .route("/v1/tables/{name}/split", axum::routing::delete(cluster::cancel_split))
            .route("/v1/tables", get(list_tables).post(create_table))
            .route("/v1/tables/{name}", get(show_table).patch(alter_table).delete(drop_table))
            .route("/v1/tables/{name}/rename", post(rename_table))
            .route("/v1/tables/{name}/truncate", post(truncate_table))
            .route("/v1/tables/{name}/compact", post(compaction::begin))
            .route("/v1/tables/{name}/compaction", get(compaction::show))
            .route("/v1/tables/{name}/compare", post(comparison::compare))
            .route("/v1/tables/{name}/partitions/{partition}/replace", post(comparison::replace))
            .route("/v1/dropped", get(list_dropped))
            .route("/v1/dropped/{number}/recall", post(recall_table))
            .route("/metrics", get(show_metrics))
            .layer(axum::middleware::from_fn_with_state(self.clone(), authenticate))
            .layer(axum::middleware::from_fn_with_state(self.clone(), doors::guard));
        Router::new()
            .merge(guarded)
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(self)
    }

    fn table_statistics(&self, name: &str) -> Result<TableStatistics, Failure> {
        let tables = self.store.statistics().tables;
        let found = tables.into_iter().find(|table| table.name == name);
        found.ok_or_else(|| RequestError::NoSuchTable(name.into()).into())
    }

    pub(crate) async fn change(&self, command: CatalogCommand) -> Result<Changed, Failure> {
        let is_new = matches!(command, CatalogCommand::Create { .. });
        let changed = self.store.change_catalog(command).await??;
        // Whoever created a table wants to use it.
        if let (Changed::Table(table), true) = (&changed, is_new) {
            self.store.wait_until_served(*table).await;
        }
        Ok(changed)
    }
}

async fn authenticate(State(server): State<AdminServer>, request: Request, next: Next) -> Response {
    if let Some(check) = &server.token {
        let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer "));
        if !token.is_some_and(|token| check(token)) {
            let message = "this needs the header `Authorization: Bearer TOKEN` with the token of `admin.token_sha256`";
            return Failure(StatusCode::UNAUTHORIZED, message.into(), Outcome::NotDone).into_response();
        }
    }
    next.run(request).await
}

async fn ready(State(server): State<AdminServer>) -> (StatusCode, &'static str) {
    if server.store.is_removed() {
        (StatusCode::SERVICE_UNAVAILABLE, "removed: this node is not part of its cluster any more\n")
    } else if server.store.is_serving() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting: not every partition serves yet\n")
    }
}

async fn status(State(server): State<AdminServer>) -> Json<serde_json::Value> {
    let statistics = server.store.statistics();
    let tables: Vec<TableInfo> = statistics.tables.into_iter().map(TableInfo::from).collect();
    let partitions: u32 = tables.iter().map(|table| table.schema.partitions).sum();
    let serving: u32 = tables.iter().map(|table| table.serving_partitions).sum();
    let log = server.store.log_status();
    let cluster = cluster::info(&server.store);
    let mut issues = cluster.issues();
    issues.extend(server.store.set_aside());
    issues.extend(comparison::issues(&server.store));
    if server.store.is_removed() {
        issues.push(RequestError::Removed.to_string());
    }
    if server.store.is_overtaken() {
        issues.push(
            "the data directory of this node is older than what the node had; it takes part in nothing until other nodes \
             have given it new replicas. `tessera start --accept-older-data` makes what it holds count instead"
                .into(),
        );
    }
    if log != tessera_store::LogStatus::Ok {
        issues.push(format!("the log takes no writes: {log:?}"));
    }
    Json(json!({
        "cluster": cluster,
        "version": env!("CARGO_PKG_VERSION"),
        "partitions": partitions,
        "serving_partitions": serving,
        "issues": issues,
        "doors": *server.doors,
        "hot": cluster.hot(),
        "memory_used_bytes": statistics.memory_used_bytes,
        "memory_limit_bytes": statistics.memory_limit_bytes,
        "log_bytes": statistics.log.disk_bytes,
        "log_syncs": statistics.log.syncs,
        "tables": tables,
    }))
}

async fn list_tables(State(server): State<AdminServer>) -> Json<Vec<TableInfo>> {
    Json(server.store.statistics().tables.into_iter().map(TableInfo::from).collect())
}

async fn show_table(State(server): State<AdminServer>, Path(name): Path<String>) -> Reply<TableInfo> {
    Ok(Json(server.table_statistics(&name)?.into()))
}

async fn create_table(State(server): State<AdminServer>, Body(new): Body<NewTable>) -> Reply<TableInfo> {
    let engine = new.engine.unwrap_or(TableSchema::DEFAULT_ENGINE);
    let durability = new.durability.unwrap_or(TableSchema::default_durability(engine));
    let schema = TableSchema {
        engine,
        partitions: new.partitions.unwrap_or(TableSchema::DEFAULT_PARTITIONS),
        partitioner: new.partitioner.unwrap_or_default(),
        model: new.model.unwrap_or_default(),
        durability,
        replicas: new.replicas.unwrap_or(TableSchema::DEFAULT_REPLICAS),
    };
    let mut settings = TableSettings::default();
    new.settings.apply(&mut settings);
    server
        .change(CatalogCommand::Create { name: new.name.clone(), schema, settings, absent: Default::default() })
        .await?;
    Ok(Json(server.table_statistics(&new.name)?.into()))
}

async fn alter_table(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(change): Body<TableChange>,
) -> Reply<TableInfo> {
    let altered = server.store.alter_table(&name, |settings| {
        change.settings.apply(settings);
        Ok::<(), Infallible>(())
    });
    match altered.await {
        Ok(()) => {}
        Err(AlterError::Change(never)) => match never {},
        Err(AlterError::Catalog(error)) => return Err(error.into()),
        Err(AlterError::Request(error)) => return Err(error.into()),
    }
    if let Some(replicas) = change.replicas {
        server.change(CatalogCommand::SetReplicas { name: name.clone(), replicas }).await?;
    }
    if let Some(partitions) = change.partitions {
        server.change(CatalogCommand::Split { name: name.clone(), partitions, absent: Default::default() }).await?;
    }
    Ok(Json(server.table_statistics(&name)?.into()))
}

async fn drop_table(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Reply<serde_json::Value> {
    let purge_at = server.store.purge_time();
    let number = server.table_statistics(&name)?.number;
    server.change(CatalogCommand::Drop { name, purge_at }).await?;
    Ok(Json(json!({ "number": number, "purge_at_unix_ms": purge_at })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rename {
    to: String,
}

async fn rename_table(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(rename): Body<Rename>,
) -> Reply<TableInfo> {
    server.change(CatalogCommand::Rename { name, to: rename.to.clone() }).await?;
    Ok(Json(server.table_statistics(&rename.to)?.into()))
}

async fn truncate_table(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Reply<serde_json::Value> {
    let table = server.store.table_named(&name).ok_or(RequestError::NoSuchTable(name))?;
    server.store.truncate(&table).await?;
    Ok(Json(json!({})))
}

async fn list_dropped(State(server): State<AdminServer>) -> Reply<Vec<TableEntry>> {
    let catalog = server.store.catalog();
    Ok(Json(catalog.tables().filter(|entry| entry.is_dropped()).cloned().collect()))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recall {
    name: Option<String>,
}

async fn recall_table(
    State(server): State<AdminServer>,
    Path(number): Path<u32>,
    Body(recall): Body<Recall>,
) -> Reply<TableInfo> {
    let number = TableNumber(number);
    server.change(CatalogCommand::Recall { number, to: recall.name }).await?;
    let tables = server.store.statistics().tables;
    let table = tables.into_iter().find(|table| table.number == number);
    let table = table.ok_or_else(|| RequestError::NoSuchTable(number.to_string()))?;
    Ok(Json(table.into()))
}

async fn show_metrics(State(server): State<AdminServer>) -> Response {
    let text = metrics::render(&server.store, &server.extra_metrics);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
