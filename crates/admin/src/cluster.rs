//! The cluster as an operator sees it: nodes, where partitions are, where they are to be.

use crate::body::Body;
use crate::doors::Nothing;
use crate::drains::StuckDrain;
use crate::failure::{Failure, Reply};
use crate::scrape::Scrape;
use crate::server::AdminServer;
use crate::traffic;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use tessera_cluster::{CatalogCommand, CopyState, Placement, RecoveryNote, Split, TableState};
use tessera_node::{Node, PartitionTraffic, Progress};
use tessera_types::{ClusterId, Durability, NodeId, ReplicaId, RequestError, TableId, TableNumber};

/// A node that has heard nothing of the catalog for so long may tell of an old one.
const OLD_SECONDS: f64 = 2.0;

#[derive(Serialize)]
pub(crate) struct ClusterInfo {
    cluster: ClusterId,
    /// The node that tells.
    pub(crate) node: NodeId,
    catalog_leader: Option<NodeId>,
    /// How old what is told here may be; `None` if this node has not heard since its start what the catalog's leader has.
    catalog_age_seconds: Option<f64>,
    /// Why what is told here need not be so any more, in words.
    doubt: Option<String>,
    nodes: Vec<NodeInfo>,
    tables: Vec<TablePlacement>,
    /// What operators had the cluster go on without, the latest last.
    recoveries: Vec<RecoveryNote>,
}

#[derive(Serialize)]
struct NodeInfo {
    id: NodeId,
    peer: String,
    redis: String,
    admin: String,
    zone: String,
    is_draining: bool,
    /// Whether it was let in and has not been heard of since: it gets no replicas.
    is_expected: bool,
    /// Since the node that tells last heard of it; absent for that one itself, and for nodes never heard of.
    silent_seconds: Option<f64>,
    is_silent: bool,
    /// Why the node that tells cannot reach it; absent while they are connected.
    trouble: Option<String>,
    replicas: usize,
    /// Why a drain of it does not go on; absent if there is none, or if it does.
    stuck_drain: Option<StuckDrain>,
    leaders: usize,
    /// Of all replicas' records, as leaders told lately.
    bytes: u64,
    /// Capacity units that it is asked a second as a leader.
    units_per_second: u64,
}

#[derive(Serialize)]
struct TablePlacement {
    number: TableNumber,
    name: String,
    partitions: usize,
    replicas: u8,
    /// Partitions without a leader that this node knows of: they take no requests.
    leaderless: usize,
    /// Likewise, of the new partitions while the table is being split: the split waits for them.
    growing_leaderless: usize,
    /// Partitions with fewer replicas than there are to be, or with some, or the witness, on silent nodes, or about to be
    /// replaced since they have forgotten.
    under_replicated: usize,
    moving: usize,
    /// Partitions that nobody can lead before others come, or an operator says that older data is to count.
    awaiting_word: usize,
    split: Option<SplitInfo>,
    /// Partitions that are hot, in words.
    #[serde(skip)]
    hot: Vec<String>,
}

/// How far a table is with being split.
#[derive(Clone, Debug, Serialize)]
pub struct SplitInfo {
    into_partitions: usize,
    /// Old partitions whose records are copied, all but what is being written.
    copied: usize,
    /// Whether nothing is copied, and the table is truncated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_truncation: bool,
}

impl SplitInfo {
    pub(crate) fn of(split: &Split) -> Self {
        let is_copied = |copy: &&CopyState| matches!(copy, CopyState::CaughtUp(_) | CopyState::Done);
        let copied = split.copies.iter().filter(is_copied).count();
        let is_truncation = split.truncation.is_some();
        let times = if is_truncation { 1 } else { 2 };
        Self { into_partitions: times * split.copies.len(), copied, is_truncation }
    }
}

/// Where a partition is, and is to be.
#[derive(Serialize)]
struct PartitionPlacement {
    partition: u32,
    leader: Option<NodeId>,
    #[serde(flatten)]
    placement: Placement,
    is_moving: bool,
    /// How far nodes are with fetching the partition's records.
    fetches: Vec<Fetch>,
}

#[derive(Serialize)]
struct Fetch {
    node: NodeId,
    bytes: u64,
    of_bytes: u64,
}

fn fetches(node: &Node, table: TableId, partition: u32) -> Vec<Fetch> {
    let fetch = |(node, progress): (NodeId, Progress)| Fetch { node, bytes: progress.bytes, of_bytes: progress.of };
    node.fetches(table, partition).into_iter().map(fetch).collect()
}

pub(crate) fn info(node: &Node) -> ClusterInfo {
    let store = node.store();
    let catalog = store.catalog();
    let silence = |node: NodeId| store.silence(node).map(|silence| silence.as_secs_f64());
    let mut leaders: BTreeMap<NodeId, usize> = BTreeMap::new();
    // Bytes, and capacity units a second.
    let mut held: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
    let mut tables = Vec::new();
    for entry in catalog.tables().filter(|entry| entry.state == TableState::Active) {
        let mut table = TablePlacement {
            number: entry.number,
            name: entry.name.clone(),
            partitions: entry.placement.len(),
            replicas: entry.schema.replicas,
            leaderless: 0,
            growing_leaderless: entry.split.as_ref().map_or(0, |split| store.leaderless(split.into)),
            under_replicated: 0,
            moving: 0,
            awaiting_word: 0,
            split: entry.split.as_ref().map(SplitInfo::of),
            hot: Vec::new(),
        };
        let partitions = traffic::of_table(node, entry);
        table.hot = traffic::describe_hot(&entry.name, &partitions);
        for (placement, info) in entry.placement.iter().zip(&partitions) {
            let PartitionTraffic { bytes, per_second } = info.traffic.unwrap_or_default();
            for replica in placement.current.iter().filter(|replica| !replica.is_witness()) {
                held.entry(replica.node).or_default().0 += bytes;
            }
            match info.leader {
                Some(leader) => {
                    *leaders.entry(leader).or_default() += 1;
                    held.entry(leader).or_default().1 += per_second.units();
                }
                None => table.leaderless += 1,
            }
            let data_replicas = placement.current.iter().filter(|replica| !replica.is_witness()).count();
            let is_short = data_replicas < usize::from(entry.schema.replicas);
            // Another replica on its node is to take the place of one that has forgotten its votes, and has not yet.
            let is_replaced = |replica: &ReplicaId| placement.on(replica.node) != Some(*replica);
            let has_no_log = entry.schema.durability == Durability::None && entry.schema.replicas > 1;
            let is_out = |replica: &ReplicaId| {
                let may_be_empty = has_no_log && !replica.is_witness() && node.may_have_forgotten(replica.node);
                store.is_silent(replica.node) || placement.is_amnesiac(*replica) || is_replaced(replica) || may_be_empty
            };
            table.under_replicated += usize::from(is_short || placement.current.iter().any(is_out));
            table.awaiting_word += usize::from(placement.awaits_word());
            table.moving += usize::from(placement.is_moving());
        }
        tables.push(table);
    }
    let nodes = catalog.nodes().map(|node| NodeInfo {
        id: node.id,
        peer: node.site.peer.clone(),
        redis: node.site.redis.clone(),
        admin: node.site.admin.clone(),
        zone: node.site.zone.clone(),
        is_draining: node.is_draining,
        is_expected: node.is_expected,
        silent_seconds: silence(node.id).filter(|_| node.id != store.node()),
        is_silent: store.is_silent(node.id),
        trouble: store.trouble(node.id),
        replicas: catalog.replicas_on(node.id),
        stuck_drain: StuckDrain::of(&catalog, node, |other| store.is_silent(other)),
        leaders: leaders.get(&node.id).copied().unwrap_or_default(),
        bytes: held.get(&node.id).map_or(0, |held| held.0),
        units_per_second: held.get(&node.id).map_or(0, |held| held.1),
    });
    let catalog_age_seconds = store.catalog_age().map(|age| age.as_secs_f64());
    ClusterInfo {
        cluster: store.cluster(),
        node: store.node(),
        catalog_leader: store.catalog_leader(),
        catalog_age_seconds,
        doubt: doubt(store.node(), store.catalog_leader(), catalog_age_seconds),
        nodes: nodes.collect(),
        tables,
        recoveries: catalog.recoveries().to_vec(),
    }
}

/// Why what a node tells of the cluster need not be so any more, by the age of the catalog that it knows.
fn doubt(node: NodeId, leader: Option<NodeId>, catalog_age_seconds: Option<f64>) -> Option<String> {
    let since = match catalog_age_seconds {
        Some(age) if age < OLD_SECONDS => return None,
        // It has just been elected.
        None if leader == Some(node) => return None,
        Some(age) => format!("for {age:.0} seconds"),
        None => "since it started".into(),
    };
    Some(format!(
        "node {node} has heard nothing from the catalog's leader {since}, so nodes, replicas and tables may be others by now than \
         what it tells; ask another node before you stop or remove one"
    ))
}

impl ClusterInfo {
    /// Partitions that are hot, in words.
    pub(crate) fn hot(&self) -> Vec<&String> {
        self.tables.iter().flat_map(|table| &table.hot).collect()
    }

    /// What needs attention, in words.
    pub(crate) fn issues(&self) -> Vec<String> {
        let mut issues = Vec::new();
        issues.extend(self.doubt.clone());
        for node in self.nodes.iter().filter(|node| node.is_silent) {
            let silence = match node.silent_seconds {
                _ if node.is_expected => {
                    format!(
                        "node {0} was let in and has not arrived; if it never will, `tessera node remove {0}`",
                        node.id
                    )
                }
                Some(seconds) => format!("node {} has been silent for {seconds:.0} seconds", node.id),
                None => format!("node {} has not been heard of", node.id),
            };
            let trouble = node.trouble.as_ref().map(|trouble| format!("; it cannot be reached: {trouble}"));
            issues.push(silence + &trouble.unwrap_or_default());
        }
        issues.extend(self.nodes.iter().filter_map(|node| Some(node.stuck_drain.as_ref()?.describe(node.id))));
        let is_away = |node: &&NodeInfo| node.is_silent && !node.is_expected;
        let (away, arrived) = (self.nodes.iter().filter(is_away), self.nodes.iter().filter(|node| !node.is_expected));
        let (away, arrived) = (away.count(), arrived.count());
        if 2 * away >= arrived && away > 0 && self.tables.iter().any(|table| table.leaderless > 0) {
            issues.push(format!(
                "{away} of {arrived} nodes are away, and those that are left are too few to elect leaders; if the others are gone for \
                 good, `tessera recover` has those that are left go on (`tessera recover --help`)"
            ));
        }
        for table in &self.tables {
            let TablePlacement { name, partitions, replicas, .. } = table;
            if table.leaderless > 0 {
                issues.push(format!("table {name}: {} of {partitions} partitions have no leader", table.leaderless));
            }
            if table.growing_leaderless > 0 {
                let count = table.growing_leaderless;
                issues.push(format!("table {name}: {count} of the new partitions of its split have no leader"));
            }
            if table.awaiting_word > 0 {
                let waiting = table.awaiting_word;
                issues.push(format!(
                    "table {name}: {waiting} of {partitions} partitions wait for nodes that are away, since a node with older \
                     data than it had lacks what it acknowledged; if they cannot come back, `tessera start \
                     --accept-older-data` on that node makes what it holds count"
                ));
            }
            if table.under_replicated > 0 && !self.is_alone() {
                let under = table.under_replicated;
                issues.push(format!(
                    "table {name}: {under} of {partitions} partitions have fewer than {replicas} live replicas"
                ));
            }
        }
        issues
    }

    /// Whether there is no other node, so that no table can have more than one copy.
    fn is_alone(&self) -> bool {
        self.nodes.len() == 1
    }

    /// What is as it has to be for now, and will change, in words.
    pub(crate) fn notes(&self) -> Vec<String> {
        let is_lonely = |table: &&TablePlacement| self.is_alone() && table.under_replicated > 0;
        let note = |table: &TablePlacement| {
            let (name, replicas) = (&table.name, table.replicas);
            format!("table {name} has one copy instead of {replicas}, until more nodes join (`tessera start --join`)")
        };
        self.tables.iter().filter(is_lonely).map(note).collect()
    }
}

/// Adds what the node knows of the cluster to the metrics.
pub(crate) fn measure(node: &Node, scrape: &mut Scrape) {
    let cluster = info(node);
    scrape.set("tessera_replicas_held", "Replicas on this node", &[], node.replicas_held() as f64);
    let help = "Replicas on this node whose log and state do not fit together";
    scrape.set("tessera_replicas_set_aside", help, &[], node.set_aside().len() as f64);
    let help = "Times that an operator had the cluster go on without nodes that were lost for good";
    scrape.set("tessera_recoveries", help, &[], cluster.recoveries.len() as f64);
    for node in &cluster.nodes {
        let id = node.id.to_string();
        let labels = [("node", id.as_str())];
        scrape.set("tessera_node_replicas", "Replicas that a node holds or is to hold", &labels, node.replicas as f64);
        scrape.set("tessera_node_leaders", "Partitions that a node leads", &labels, node.leaders as f64);
        if let Some(seconds) = node.silent_seconds {
            scrape.set("tessera_node_silent_seconds", "Since this node heard of another one", &labels, seconds);
        }
    }
    for table in &cluster.tables {
        let labels = [("table", table.name.as_str())];
        let values: [(&str, &str, usize); 3] = [
            ("tessera_table_leaderless_partitions", "Partitions without a leader", table.leaderless),
            ("tessera_table_under_replicated_partitions", "Partitions that lack live replicas", table.under_replicated),
            ("tessera_table_moving_partitions", "Partitions whose replicas move", table.moving),
        ];
        for (name, help, value) in values {
            scrape.set(name, help, &labels, value as f64);
        }
    }
}

pub(crate) async fn show(State(server): State<AdminServer>) -> Json<ClusterInfo> {
    Json(info(&server.node))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drain {
    is_draining: bool,
}

pub(crate) async fn drain(
    State(server): State<AdminServer>,
    Path(node): Path<NodeId>,
    Body(Drain { is_draining }): Body<Drain>,
) -> Reply<serde_json::Value> {
    server.change(CatalogCommand::Drain { node, is_draining }).await?;
    Ok(Json(json!({})))
}

pub(crate) async fn remove(
    State(server): State<AdminServer>,
    Path(node): Path<NodeId>,
    Body(Nothing {}): Body<Nothing>,
) -> Reply<serde_json::Value> {
    server.change(CatalogCommand::RemoveNode { node }).await?;
    Ok(Json(json!({})))
}

pub(crate) async fn cancel_split(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Reply<serde_json::Value> {
    server.change(CatalogCommand::CancelSplit { name }).await?;
    Ok(Json(json!({})))
}

pub(crate) async fn placement(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
) -> Result<Json<serde_json::Value>, Failure> {
    let catalog = server.store().catalog();
    let entry = catalog.by_name(&name).ok_or(RequestError::NoSuchTable(name))?;
    let partitions = (0..).zip(&entry.placement).map(|(partition, placement)| PartitionPlacement {
        partition,
        leader: traffic::leader(server.store(), entry.id, partition),
        placement: placement.clone(),
        is_moving: placement.is_moving(),
        fetches: fetches(&server.node, entry.id, partition),
    });
    Ok(Json(json!(partitions.collect::<Vec<_>>())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u32, is_silent: bool, is_expected: bool) -> NodeInfo {
        NodeInfo {
            id: NodeId(id),
            peer: String::new(),
            redis: String::new(),
            admin: String::new(),
            zone: String::new(),
            is_draining: false,
            is_expected,
            silent_seconds: is_silent.then_some(9.0),
            is_silent,
            trouble: None,
            replicas: 1,
            stuck_drain: None,
            leaders: 0,
            bytes: 0,
            units_per_second: 0,
        }
    }

    fn info(nodes: Vec<NodeInfo>, leaderless: usize) -> ClusterInfo {
        let table = TablePlacement {
            number: TableNumber(0),
            name: "t".into(),
            partitions: 4,
            replicas: 2,
            leaderless,
            growing_leaderless: 0,
            under_replicated: 0,
            moving: 0,
            awaiting_word: 0,
            split: None,
            hot: Vec::new(),
        };
        let (cluster, node) = (ClusterId(1), NodeId(1));
        ClusterInfo {
            cluster,
            node,
            catalog_leader: None,
            catalog_age_seconds: Some(0.1),
            doubt: None,
            nodes,
            tables: vec![table],
            recoveries: Vec::new(),
        }
    }

    /// Who trusted a node that had just joined, and knew an old catalog, once stopped a node that still held replicas.
    #[test]
    fn who_may_know_an_old_catalog_says_so() {
        let doubt = |age| doubt(NodeId(7), Some(NodeId(1)), age);
        assert_eq!(doubt(Some(0.3)), None);
        assert!(doubt(Some(9.0)).unwrap().contains("node 7 has heard nothing from the catalog's leader for 9 seconds"));
        assert!(doubt(None).unwrap().contains("since it started"));
        assert_eq!(super::doubt(NodeId(7), Some(NodeId(7)), None), None, "it leads the catalog itself");
    }

    #[test]
    fn a_node_that_is_alone_has_a_note_and_no_issue() {
        let lacking = |nodes| {
            let mut info = info(nodes, 0);
            info.tables[0].under_replicated = 3;
            (info.issues().len(), info.notes().len())
        };
        assert_eq!(lacking(vec![node(1, false, false)]), (0, 1));
        assert_eq!(lacking(vec![node(1, false, false), node(2, false, false)]), (1, 0));
    }

    #[test]
    fn whoever_is_left_with_too_few_is_told_of_the_way_on() {
        let is_told = |info: ClusterInfo| info.issues().iter().any(|issue| issue.contains("`tessera recover`"));
        assert!(is_told(info(vec![node(1, false, false), node(2, true, false)], 4)));
        assert!(!is_told(info(vec![node(1, false, false), node(2, false, false)], 4)), "an election is under way");
        assert!(!is_told(info(vec![node(1, false, false), node(2, true, false)], 0)), "all goes on");
        assert!(!is_told(info(vec![node(1, false, false), node(2, true, true)], 1)), "it has never been there");
        let three = vec![node(1, false, false), node(2, false, false), node(3, true, false)];
        assert!(!is_told(info(three, 1)), "two of three will elect");
    }
}
