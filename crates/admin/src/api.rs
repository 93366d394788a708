//! The HTTP API. Everything is JSON; an error is `{"error": "...", "outcome": "not done" | "outcome unknown"}`.

use crate::failure::Failure;
use crate::listener::Patience;
use crate::metrics_format::MetricsFormat;
use crate::server::AdminServer;
use crate::tables::all_counted;
use crate::{AdminListener, access, cluster, compaction, comparison, doors, metrics, queries, tables, traffic, users};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use std::future::Future;
use tessera_consensus::LogStatus;
use tessera_types::RequestError;

/// The longest reason for a refusal.
const REASON_BYTES: usize = 4 << 10;

impl AdminServer {
    /// Serves until `stop` is ready.
    pub async fn serve(self, listener: AdminListener, stop: impl Future<Output = ()> + Send + 'static) {
        listener.serve(self.router(), Patience::default(), stop).await;
    }

    fn router(self) -> Router {
        let of_catalog = Router::new()
            .route("/v1/cluster", get(cluster::show))
            .route("/v1/nodes/{id}", axum::routing::delete(cluster::remove))
            .route("/v1/nodes/{id}/drain", post(cluster::drain))
            .route("/v1/tables/{name}/placement", get(cluster::placement))
            .route("/v1/tables/{name}/traffic", get(traffic::show))
            .route("/v1/tables/{name}/partitions/{partition}/hot-keys", post(traffic::hot_keys))
            .route("/v1/tables/{name}/split", axum::routing::delete(cluster::cancel_split))
            .route("/v1/tables", get(tables::list).post(tables::create))
            .route("/v1/tables/{name}", get(tables::show).patch(tables::alter).delete(tables::drop))
            .route("/v1/tables/{name}/rename", post(tables::rename))
            .route("/v1/tables/{name}/truncate", post(tables::truncate))
            .route("/v1/tables/{name}/compact", post(compaction::begin))
            .route("/v1/tables/{name}/compaction", get(compaction::show))
            .route("/v1/tables/{name}/compare", post(comparison::compare))
            .route("/v1/tables/{name}/partitions/{partition}/replace", post(comparison::replace))
            .route("/v1/users", get(users::list).post(users::create))
            .route("/v1/users/{name}", axum::routing::patch(users::alter).delete(users::drop))
            .route("/v1/users/{name}/grant", post(users::grant))
            .route("/v1/dropped", get(tables::list_dropped))
            .route("/v1/dropped/{number}/recall", post(tables::recall))
            .layer(axum::middleware::from_fn_with_state(self.clone(), refuse_if_removed));
        let guarded = Router::new()
            .route("/v1/status", get(status))
            .route("/metrics", get(show_metrics))
            .merge(of_catalog)
            .layer(axum::middleware::from_fn(doors::guard_changes))
            // Behind the layers before, so that a method that a path does not take is refused as such, whatever the body is.
            .method_not_allowed_fallback(other_method)
            .layer(axum::middleware::map_response(in_json))
            .layer(axum::middleware::from_fn_with_state(self.clone(), access::authenticate))
            .layer(axum::middleware::from_fn_with_state(self.clone(), doors::guard));
        let queries = match self.queries.clone() {
            None => Router::new(),
            Some(sessions) => queries::router(sessions)
                .layer(axum::middleware::from_fn_with_state(self.clone(), access::log_in))
                .layer(axum::middleware::from_fn_with_state(self.clone(), doors::guard)),
        };
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .method_not_allowed_fallback(other_method)
            .merge(guarded)
            .merge(queries)
            .fallback(no_such_path)
            .with_state(self)
    }
}

/// A node that was removed knows the catalog of an earlier time, and hears of no change.
async fn refuse_if_removed(State(server): State<AdminServer>, request: Request, next: Next) -> Response {
    if server.store().is_removed() {
        return Failure::from(RequestError::Removed).into_response();
    }
    next.run(request).await
}

async fn no_such_path(request: Request) -> Failure {
    let reason = format!("the admin API has no path {}", request.uri().path());
    Failure::of_status(StatusCode::NOT_FOUND, reason)
}

async fn other_method(request: Request) -> Failure {
    let reason = format!("{} does not take {}", request.uri().path(), request.method());
    Failure::of_status(StatusCode::METHOD_NOT_ALLOWED, reason)
}

/// What axum itself refuses, such as a number in the path that is none, comes as text.
async fn in_json(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_text = kind.and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.starts_with("text/plain"));
    if !response.status().is_client_error() || !is_text {
        return response;
    }
    let (status, body) = (response.status(), response.into_body());
    let text = axum::body::to_bytes(body, REASON_BYTES).await.unwrap_or_default();
    Failure::of_status(status, String::from_utf8_lossy(&text).trim_end()).into_response()
}

async fn ready(State(server): State<AdminServer>) -> (StatusCode, &'static str) {
    if server.store().is_removed() {
        (StatusCode::SERVICE_UNAVAILABLE, "removed: this node is not part of its cluster any more\n")
    } else if server.store().is_serving() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting: not every partition serves yet\n")
    }
}

async fn status(State(server): State<AdminServer>) -> Json<serde_json::Value> {
    let statistics = server.store().statistics();
    let tables = all_counted(&server, statistics.tables).await;
    let partitions: u32 = tables.iter().map(|table| table.schema.partitions).sum();
    let serving: u32 = tables.iter().map(|table| table.serving_partitions).sum();
    let log = server.store().log_status();
    let cluster = cluster::info(&server.node);
    let mut issues = if server.store().is_removed() {
        // What it knows of its former cluster says nothing, and what is proposed against it would do harm there.
        vec![RequestError::Removed.to_string()]
    } else {
        let mut issues = cluster.issues();
        issues.extend(server.node.set_aside());
        issues.extend(server.node.damage());
        issues.extend(server.node.lack_of_time());
        issues.extend(comparison::issues(&server.node));
        issues
    };
    if server.node.is_overtaken() {
        issues.push(
            "the data directory of this node is older than what the node had; it takes part in nothing until other nodes \
             have given it new replicas. `tessera start --accept-older-data` makes what it holds count instead"
                .into(),
        );
    }
    match &log {
        LogStatus::Ok => {}
        LogStatus::Reserve | LogStatus::Full => issues.push(RequestError::DiskFull.to_string()),
        LogStatus::Failed(error) => issues.push(RequestError::DiskFailed(error.clone()).to_string()),
    }
    issues.extend(server.node.refused_writes().map(|error| RequestError::NotApplied(error).to_string()));
    Json(json!({
        "cluster": cluster,
        "version": env!("CARGO_PKG_VERSION"),
        "is_removed": server.store().is_removed(),
        "partitions": partitions,
        "serving_partitions": serving,
        "issues": issues,
        "notes": cluster.notes(),
        "doors": (server.doors)(),
        "hot": cluster.hot(),
        "memory_used_bytes": statistics.memory_used_bytes,
        "memory_limit_bytes": statistics.memory_limit_bytes,
        "log_bytes": statistics.log.disk_bytes,
        "log_syncs": statistics.log.syncs,
        "tables": tables,
    }))
}

async fn show_metrics(State(server): State<AdminServer>, headers: HeaderMap) -> Response {
    let format = MetricsFormat::wanted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    let mut statistics = server.store().statistics();
    server.record_counter.count(server.store(), &mut statistics.tables, metrics::COUNTED).await;
    let text = format.write(metrics::render(&server.node, &statistics, &server.extra_metrics));
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}
