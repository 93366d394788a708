//! Queries of drivers in browsers, in the form in which RethinkDB takes them: a connection is opened, and each query comes as a
//! request of its own. What queries say is not looked at here.

use crate::access::QueryUser;
use crate::failure::Failure;
use crate::listener::ClientAddress;
use crate::query_sessions::{NotAnswered, QuerySessions};
use crate::server::AdminServer;
use axum::body::{Body, Bytes};
use axum::extract::Query;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use serde::Deserialize;
use std::sync::Arc;

type Sessions = Arc<dyn QuerySessions>;

/// Which connection a request is for.
#[derive(Deserialize)]
struct Named {
    conn_id: String,
}

pub(crate) fn router(sessions: Sessions) -> Router<AdminServer> {
    Router::new()
        .route("/ajax/reql", post(ask))
        .route("/ajax/reql/", post(ask))
        .route("/ajax/reql/open-new-connection", post(open))
        .route("/ajax/reql/close-connection", post(close))
        .layer(Extension(sessions))
}

/// No browser may keep it, or take it for something else.
fn plain(kind: &'static str, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}

async fn open(
    Extension(sessions): Extension<Sessions>,
    Extension(QueryUser(user)): Extension<QueryUser>,
    Extension(ClientAddress(client)): Extension<ClientAddress>,
) -> Result<Response, Failure> {
    match sessions.open(&user, client) {
        Ok(id) => Ok(plain("text/plain", id.into())),
        Err(reason) => Err(Failure::of_status(StatusCode::SERVICE_UNAVAILABLE, reason)),
    }
}

async fn ask(
    Extension(sessions): Extension<Sessions>,
    Extension(QueryUser(user)): Extension<QueryUser>,
    Query(Named { conn_id }): Query<Named>,
    request: Bytes,
) -> Result<Response, Failure> {
    match sessions.ask(&conn_id, &user, request).await {
        Ok(answer) => Ok(plain("application/octet-stream", answer.into())),
        Err(NotAnswered::NoRequest(reason)) => Err(Failure::of_status(StatusCode::BAD_REQUEST, reason)),
        Err(NotAnswered::Busy(reason)) => Err(Failure::of_status(StatusCode::SERVICE_UNAVAILABLE, reason)),
        Err(NotAnswered::Closed(reason)) => Err(Failure::in_doubt(StatusCode::CONFLICT, "connection_closed", reason)),
    }
}

async fn close(
    Extension(sessions): Extension<Sessions>,
    Extension(QueryUser(user)): Extension<QueryUser>,
    Query(Named { conn_id }): Query<Named>,
) -> Response {
    sessions.close(&conn_id, &user);
    plain("text/plain", Body::empty())
}
