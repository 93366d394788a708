//! Comparing a table's replicas because somebody asks, wherever its partitions are led.

use super::asked::Job;
use super::outcome::{Comparison, ComparisonOutcome, PartitionComparison};
use crate::node_context::NodeContext;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_store::Table;
use tessera_store::hosting::number;
use tessera_types::{NodeId, TableId};

/// How often leaders are asked how far they are.
const POLL: Duration = Duration::from_millis(100);
/// How long a partition may be without a leader that can be asked.
const PATIENCE: Duration = Duration::from_secs(30);
/// To compare partitions, unless that was asked by the same request before, and tell what came of it.
#[derive(Serialize, Deserialize)]
struct Request {
    request: u64,
    table: TableId,
    partitions: Vec<u32>,
    bytes_per_second: Option<u64>,
}

/// The outcomes of the partitions that are done.
type Done = Vec<PartitionComparison>;

/// Does what another node asked.
pub(crate) fn answer(context: &NodeContext, request: &[u8]) -> Done {
    serde_json::from_slice(request).map(|request| compare_here(context, &request)).unwrap_or_default()
}

fn compare_here(context: &NodeContext, request: &Request) -> Done {
    let mut asked = context.comparisons.asked.lock();
    let Request { request, table, ref partitions, bytes_per_second } = *request;
    let partitions_here = context.registry.any(table).map_or(0, |table| table.schema().partitions);
    let mut done = Done::new();
    for partition in partitions.iter().copied() {
        if partition >= partitions_here {
            let gone = PartitionComparison::begun(partition).lacks("the node does not know the partition".into());
            done.push(PartitionComparison { leads_no_longer: true, ..gone });
            continue;
        }
        done.extend(asked.ask(Job { table, partition, bytes_per_second, request }));
    }
    drop(asked);
    context.comparisons.wake.notify_one();
    done
}

/// Compares the replicas of all partitions of a table now, each on the node that leads it, and waits until that is done.
/// `bytes_per_second` takes the place of the configured rate; zero is as fast as it goes.
///
/// Cancellation: partitions that are being compared are compared to the end.
pub(crate) async fn compare(context: &NodeContext, table: &Arc<Table>, bytes_per_second: Option<u64>) -> Comparison {
    let request = rand::random::<u64>().max(1);
    let mut found: BTreeMap<u32, PartitionComparison> = BTreeMap::new();
    // The node that was asked. It may hand over to replace its replica, and still has the outcome.
    let mut asked_of: BTreeMap<u32, NodeId> = BTreeMap::new();
    // Since when a partition has had nobody to ask.
    let mut lost: BTreeMap<u32, Instant> = BTreeMap::new();
    loop {
        let mut by_node: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for partition in (0..table.schema().partitions).filter(|partition| !found.contains_key(partition)) {
            match asked_of.get(&partition).copied().or_else(|| table.known_leader(partition)) {
                Some(node) => by_node.entry(node).or_default().push(partition),
                None => _ = lost.entry(partition).or_insert_with(Instant::now),
            }
        }
        for (node, partitions) in by_node {
            let asked = Request { request, table: table.id(), partitions: partitions.clone(), bytes_per_second };
            let Some(done) = ask_to_compare(context, node, &asked).await else {
                for partition in partitions {
                    asked_of.remove(&partition);
                    lost.entry(partition).or_insert_with(Instant::now);
                }
                continue;
            };
            for partition in partitions {
                asked_of.insert(partition, node);
                match done.iter().find(|done| done.partition == partition) {
                    // Whoever leads now is asked.
                    Some(done) if done.leads_no_longer => {
                        asked_of.remove(&partition);
                        lost.entry(partition).or_insert_with(Instant::now);
                    }
                    Some(done) => _ = found.insert(partition, done.clone()),
                    None => _ = lost.remove(&partition),
                }
            }
        }
        let is_gone = table.is_dropped();
        for partition in 0..table.schema().partitions {
            let is_lost = lost.get(&partition).is_some_and(|since| since.elapsed() > PATIENCE);
            let reason = match is_gone {
                true => "the table was dropped or split meanwhile",
                false if is_lost => "it has no leader that can be asked",
                false => continue,
            };
            found.entry(partition).or_insert_with(|| PartitionComparison::begun(partition).lacks(reason.into()));
        }
        if found.len() >= table.schema().partitions as usize {
            let outcome = found.values().map(|found| found.outcome).max().unwrap_or(ComparisonOutcome::Equal);
            return Comparison { outcome, partitions: found.into_values().collect() };
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn ask_to_compare(context: &NodeContext, node: NodeId, request: &Request) -> Option<Done> {
    if node == context.identity.node {
        return Some(compare_here(context, request));
    }
    let encoded = serde_json::to_vec(request).expect("numbers have a JSON form");
    let answer = context.transport.request(node, number::COMPARE, &encoded);
    let answer = tokio::time::timeout(PATIENCE / 3, answer).await.ok()?.ok()?;
    serde_json::from_slice(&answer).ok()
}
