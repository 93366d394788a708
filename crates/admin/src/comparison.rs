//! Comparing the replicas of tables.

use crate::body::Body;
use crate::failure::Reply;
use crate::scrape::Scrape;
use crate::server::AdminServer;
use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use tessera_cluster::CatalogCommand;
use tessera_node::{Comparison, Node};
use tessera_types::{ReplicaId, RequestError, UnixMillis};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compare {
    /// In the place of the configured rate; zero is as fast as it goes.
    bytes_per_second: Option<u64>,
}

/// Compares all partitions of a table, and answers when that is done.
pub(crate) async fn compare(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(Compare { bytes_per_second }): Body<Compare>,
) -> Reply<Comparison> {
    let table = server.store().table_named(&name).ok_or(RequestError::NoSuchTable(name))?;
    Ok(Json(server.node.compare(&table, bytes_per_second).await))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replace {
    replica: ReplicaId,
}

/// Has a new replica take the place of one that an operator knows to be wrong.
pub(crate) async fn replace(
    State(server): State<AdminServer>,
    Path((name, partition)): Path<(String, u32)>,
    Body(Replace { replica }): Body<Replace>,
) -> Reply<serde_json::Value> {
    let table = server.store().table_named(&name).ok_or(RequestError::NoSuchTable(name))?.id();
    server.change(CatalogCommand::Replace { table, partition, replica }).await?;
    Ok(Json(serde_json::json!({})))
}

/// What needs attention, in words.
pub(crate) fn issues(node: &Node) -> Vec<String> {
    node.store().tables().iter().flat_map(|table| node.compared(table).0).collect()
}

/// Adds what the node knows of comparisons to the metrics.
pub(crate) fn measure(node: &Node, scrape: &mut Scrape) {
    let found = node.differences_found() as f64;
    scrape.set("tessera_replica_differences_total", "Slices in which this node found replicas to differ", &[], found);
    let now = UnixMillis::now();
    for table in node.store().tables() {
        let (differences, compared) = node.compared(&table);
        let name = table.name();
        let labels = [("table", name.as_str())];
        let help = "Partitions whose replicas are known to differ";
        scrape.set("tessera_table_differing_partitions", help, &labels, differences.len() as f64);
        let help = "Partitions whose records on this node are known to be damaged";
        let damaged = node.damaged_here(&table) as f64;
        scrape.set("tessera_table_damaged_partitions", help, &labels, damaged);
        if let Some(compared) = compared {
            let seconds = now.saturating_millis_since(compared) as f64 / 1_000.0;
            let help = "Since the partition compared least lately was; absent until all were since the node started";
            scrape.set("tessera_replica_comparison_age_seconds", help, &labels, seconds);
        }
    }
}
