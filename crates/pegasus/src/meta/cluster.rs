//! What there is to know about the cluster.

use super::messages::{ClusterInfoResponse, LevelRequest, LevelResponse, ListNodesResponse, NodeInfo, RemoteCommand};
use super::perf_counters;
use super::routing::address;
use crate::server::PegasusServer;
use crate::wire::{Address, ErrorCode};
use std::collections::BTreeMap;
use tessera_types::NodeId;

/// States of a node.
const ANY: i32 = 0;
const ALIVE: i32 = 1;
const SILENT: i32 = 2;

/// Levels of what a meta server does by itself: everything, and the one that only asks.
const LIVELY: i32 = 500;
const ASKED: i32 = 10_000;

pub(super) fn nodes(server: &PegasusServer, status: i32) -> ListNodesResponse {
    let catalog = server.store.catalog();
    let node = |id: NodeId| NodeInfo {
        status: if server.store.is_heard(id) { ALIVE } else { SILENT },
        address: address(&catalog, id),
    };
    let nodes = catalog.nodes().map(|entry| node(entry.id));
    // A node without a port for these clients is none of theirs.
    let nodes = nodes.filter(|node| node.address != Address::default());
    let nodes = nodes.filter(|node| status == ANY || node.status == status).collect();
    ListNodesResponse { error: ErrorCode("ERR_OK".into()), nodes }
}

pub(super) fn info(server: &PegasusServer) -> ClusterInfoResponse {
    let catalog = server.store.catalog();
    let addresses = catalog.nodes().map(|node| node.site.pegasus_meta());
    let meta_servers: Vec<&str> = addresses.filter(|address| !address.is_empty()).collect();
    let primary = server.store.catalog_leader().and_then(|leader| catalog.node(leader));
    let (primaries, all) = replicas_by_node(server);
    let pairs = [
        ("meta_servers", meta_servers.join(",")),
        ("primary_meta_server", primary.map(|node| node.site.pegasus_meta().into()).unwrap_or_default()),
        ("zookeeper_hosts", String::new()),
        ("zookeeper_root", String::new()),
        ("meta_function_level", "lively".into()),
        ("primary_replica_count_stddev", deviation(&primaries)),
        ("total_replica_count_stddev", deviation(&all)),
        ("cluster_name", server.store.cluster().to_string()),
    ];
    let (keys, values) = pairs.into_iter().map(|(key, value)| (key.to_string(), value)).unzip();
    ClusterInfoResponse { error: ErrorCode("ERR_OK".into()), keys, values }
}

/// How many partitions each node leads, and how many replicas it holds.
fn replicas_by_node(server: &PegasusServer) -> (Vec<u32>, Vec<u32>) {
    let catalog = server.store.catalog();
    let mut counts: BTreeMap<NodeId, (u32, u32)> = catalog.nodes().map(|node| (node.id, (0, 0))).collect();
    for table in server.store.tables() {
        let Some(entry) = catalog.get(table.id()) else { continue };
        for (partition, placement) in (0..).zip(&entry.placement) {
            for member in placement.current.iter().filter(|replica| !replica.is_witness()) {
                counts.entry(member.node).or_default().1 += 1;
            }
            if let Some(leader) = table.known_leader(partition) {
                counts.entry(leader).or_default().0 += 1;
            }
        }
    }
    counts.into_values().unzip()
}

/// The standard deviation, as text.
fn deviation(counts: &[u32]) -> String {
    let number = counts.len().max(1) as f64;
    let mean = counts.iter().map(|count| f64::from(*count)).sum::<f64>() / number;
    let variance = counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum::<f64>() / number;
    format!("{:.2}", variance.sqrt())
}

/// There is one level: nodes see to the balance themselves.
pub(super) fn level(request: &LevelRequest) -> LevelResponse {
    let error = if [LIVELY, ASKED].contains(&request.level) { "ERR_OK" } else { "ERR_OPERATION_DISABLED" };
    LevelResponse { error: ErrorCode(error.into()), level: LIVELY }
}

const COMMANDS: [&str; 4] = ["help", "server-info", "server-stat", "perf-counters-by-substr"];

/// What Pegasus' tools ask a server in words.
pub(super) async fn remote_command(server: &PegasusServer, command: RemoteCommand) -> String {
    match command.name.as_str() {
        "help" => COMMANDS.join(" | "),
        "perf-counters-by-substr" => perf_counters::by_part_of_name(server, command.arguments).await,
        "server-info" => format!("Tessera {}, node {}", env!("CARGO_PKG_VERSION"), server.store.node()),
        "server-stat" => {
            let (requests, forwarded) = server.request_counts();
            let connections = server.connection_count();
            format!("connections={connections}, requests={requests}, forwarded={forwarded}")
        }
        name => format!("unknown command '{name}'; known: {}", COMMANDS.join(", ")),
    }
}
