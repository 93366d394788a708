//! Compactions, and how far they are.

use crate::body::Body;
use crate::doors::Nothing;
use crate::failure::Reply;
use crate::server::AdminServer;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use serde_json::json;
use tessera_node::RulesApplied;
use tessera_store::CompactionState;
use tessera_types::{NodeId, RequestError};

/// How far a node is with compacting a table.
#[derive(Serialize)]
pub(crate) struct CompactionInfo {
    node: NodeId,
    /// Absent if the node cannot be asked.
    #[serde(flatten)]
    state: Option<CompactionState>,
}

/// Compacts what this node has of a table, and answers when that is done.
pub(crate) async fn begin(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Reply<serde_json::Value> {
    let table = server.store().table_named(&name).ok_or(RequestError::NoSuchTable(name))?;
    let RulesApplied { deleted, changed } = server.node.compact(&table).await?;
    Ok(Json(json!({ "deleted_by_rules": deleted, "changed_by_rules": changed })))
}

pub(crate) async fn show(State(server): State<AdminServer>, Path(name): Path<String>) -> Reply<Vec<CompactionInfo>> {
    let table = server.store().table_named(&name).ok_or(RequestError::NoSuchTable(name))?;
    let states = server.store().compactions(&table).await;
    Ok(Json(states.into_iter().map(|(node, state)| CompactionInfo { node, state }).collect()))
}
