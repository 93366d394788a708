//! The perf counters by which tools of Apache Pegasus show the load of nodes, tables and partitions.
//!
//! Those tools know several calls that read and several that write. A partition here counts its reads and its writes, whatever the
//! client is, so all reads are told as GETs and all writes as PUTs.

use super::disk;
use super::replicas_here::{self, ReplicaHere};
use crate::server::PegasusServer;
use serde::Serialize;
use std::time::{Duration, Instant};
use tessera_face::resident_bytes;
use tessera_store::Counts;
use tessera_types::UnixMillis;

/// How long requests are counted to tell how many there are in a second. Tools wait for five seconds.
const COUNTED: Duration = Duration::from_secs(1);

/// The name of a counter of something that is counted, and how often that was.
type Rate = (&'static str, fn(Counts) -> u64);

/// Counters of what the partitions that a node leads are asked in a second.
const RATES: [Rate; 4] = [
    ("get_qps", |counts| counts.reads),
    ("put_qps", |counts| counts.writes),
    ("recent.read.cu", |counts| counts.read_units),
    ("recent.write.cu", |counts| counts.write_units),
];

/// The counter of what a replica's records take, in mebibytes.
const SIZE: &str = "disk.storage.sst(MB)";

#[derive(Serialize)]
struct Answer {
    result: &'static str,
    /// Seconds since 1970.
    timestamp: u64,
    counters: Vec<Counter>,
}

#[derive(Serialize)]
struct Counter {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    value: f64,
}

impl Counter {
    fn new(name: String, value: f64) -> Self {
        Self { name, kind: "NUMBER", value }
    }
}

/// The name of a partition's counter.
fn of_partition(counter: &str, replica: &ReplicaHere) -> String {
    let (table, partition) = replica.gpid().parts();
    format!("replica*app.pegasus*{counter}@{table}.{partition}")
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The counters whose names contain one of `parts`, as JSON.
pub(super) async fn by_part_of_name(server: &PegasusServer, parts: Vec<String>) -> String {
    let is_wanted = |name: &str| parts.iter().any(|part| name.contains(part));
    let mut counters = rates(server, &is_wanted).await;
    let sizes: Vec<(String, ReplicaHere)> = replicas_here::all(server)
        .into_iter()
        .map(|replica| (of_partition(SIZE, &replica), replica))
        .filter(|(name, _)| is_wanted(name))
        .collect();
    let measure = move || -> Vec<Counter> {
        sizes.into_iter().map(|(name, replica)| Counter::new(name, mebibytes(replica.bytes()))).collect()
    };
    counters.extend(tokio::task::spawn_blocking(measure).await.unwrap_or_default());
    counters.extend(of_node(server).into_iter().filter(|counter| is_wanted(&counter.name)));
    let answer = Answer { result: "OK", timestamp: UnixMillis::now().get() / 1_000, counters };
    serde_json::to_string(&answer).expect("it has a JSON form")
}

/// The [`RATES`] of the partitions that this node leads.
async fn rates(server: &PegasusServer, is_wanted: impl Fn(&str) -> bool) -> Vec<Counter> {
    let replicas = replicas_here::all(server).into_iter().filter(ReplicaHere::leads);
    let is_asked = |replica: &ReplicaHere| RATES.iter().any(|(name, _)| is_wanted(&of_partition(name, replica)));
    let with_counts = |replica: ReplicaHere| {
        let counts = replica.counts();
        (replica, counts)
    };
    let before: Vec<(ReplicaHere, Counts)> = replicas.filter(is_asked).map(with_counts).collect();
    if before.is_empty() {
        return Vec::new();
    }
    let began = Instant::now();
    tokio::time::sleep(COUNTED).await;
    let took = began.elapsed();
    let mut counters = Vec::new();
    for (replica, earlier) in &before {
        let per_second = (replica.counts() - *earlier).in_a_second(took);
        let all = RATES.iter().map(|(name, of)| Counter::new(of_partition(name, replica), of(per_second) as f64));
        counters.extend(all.filter(|counter| is_wanted(&counter.name)));
    }
    counters
}

/// The counters of the node.
fn of_node(server: &PegasusServer) -> Vec<Counter> {
    let mut counters = vec![Counter::new("replica*server*memused.res(MB)".into(), mebibytes(resident_bytes()))];
    if let Ok(disk::Space { capacity, available }) = disk::space(&server.config.data_directory) {
        let ratio = 100 * available / capacity;
        let of_disk =
            [("capacity.total(MB)", capacity), ("available.total(MB)", available), ("available.total.ratio", ratio)];
        counters.extend(
            of_disk.map(|(name, value)| Counter::new(format!("replica*eon.replica_stub*disk.{name}"), value as f64)),
        );
    }
    counters
}
