//! What partitions are asked: which are hot, and which of their keys.

use crate::body::Body;
use crate::failure::{Failure, Reply};
use crate::server::AdminServer;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tessera_cluster::TableEntry;
use tessera_node::{Node, PartitionTraffic, hot_partitions};
use tessera_store::{HotKeysFound, LONGEST_COUNT, Store};
use tessera_types::{NodeId, RequestError, TableId};

/// What a partition is asked, as its leader told lately.
#[derive(Serialize)]
pub(crate) struct PartitionInfo {
    partition: u32,
    pub(crate) leader: Option<NodeId>,
    /// Absent if its leader has told nothing lately.
    #[serde(flatten)]
    pub(crate) traffic: Option<PartitionTraffic>,
    is_hot_for_reads: bool,
    is_hot_for_writes: bool,
}

impl PartitionInfo {
    fn is_hot(&self) -> bool {
        self.is_hot_for_reads || self.is_hot_for_writes
    }
}

/// The node that leads a partition, unless it is silent.
pub(crate) fn leader(store: &Store, table: TableId, partition: u32) -> Option<NodeId> {
    store.live_leader(&*store.table(table)?, partition)
}

pub(crate) fn of_table(node: &Node, entry: &TableEntry) -> Vec<PartitionInfo> {
    let partitions = 0..entry.schema.partitions;
    let traffic: Vec<_> = partitions.map(|partition| node.traffic_of(entry.id, partition)).collect();
    let hot = |units: fn(&PartitionTraffic) -> u64| {
        hot_partitions(&traffic.iter().map(|traffic| traffic.as_ref().map_or(0, units)).collect::<Vec<_>>())
    };
    let reads = hot(|traffic| traffic.per_second.read_units);
    let writes = hot(|traffic| traffic.per_second.write_units);
    (0..)
        .zip(&traffic)
        .zip(reads.into_iter().zip(writes))
        .map(|((partition, traffic), (is_hot_for_reads, is_hot_for_writes))| PartitionInfo {
            partition,
            leader: leader(node.store(), entry.id, partition),
            traffic: *traffic,
            is_hot_for_reads,
            is_hot_for_writes,
        })
        .collect()
}

/// The hot ones, in words.
pub(crate) fn describe_hot(name: &str, partitions: &[PartitionInfo]) -> Vec<String> {
    let hot = partitions.iter().filter(|partition| partition.is_hot());
    hot.map(|PartitionInfo { partition, traffic, .. }| {
        let units = traffic.unwrap_or_default().per_second.units();
        format!(
            "table {name}: partition {partition} is hot with {units} capacity units a second; `tessera table hot-keys {name} \
             --partition {partition}` finds out why"
        )
    })
    .collect()
}

pub(crate) async fn show(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
) -> Result<Json<Vec<PartitionInfo>>, Failure> {
    let catalog = server.store().catalog();
    let entry = catalog.by_name(&name).ok_or(RequestError::NoSuchTable(name))?;
    Ok(Json(of_table(&server.node, entry)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HotKeysWanted {
    seconds: u64,
}

pub(crate) async fn hot_keys(
    State(server): State<AdminServer>,
    Path((name, partition)): Path<(String, u32)>,
    Body(HotKeysWanted { seconds }): Body<HotKeysWanted>,
) -> Reply<HotKeysFound> {
    let table = server.store().table_named(&name).ok_or(RequestError::NoSuchTable(name))?;
    let (longest, partitions) = (LONGEST_COUNT.as_secs(), table.schema().partitions);
    if !(1..=longest).contains(&seconds) {
        let why = format!("requests can be counted for 1 to {longest} seconds, not {seconds}");
        return Err(Failure::unprocessable("invalid_seconds", why));
    }
    if partition >= partitions {
        let why = format!("the table has partitions 0 to {}, not {partition}", partitions - 1);
        return Err(Failure::unprocessable("no_such_partition", why));
    }
    Ok(Json(server.store().find_hot_keys(&table, partition, Duration::from_secs(seconds)).await?))
}
