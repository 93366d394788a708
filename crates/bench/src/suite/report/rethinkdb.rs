//! RethinkDB's experiments: YCSB's workloads, and a query over a whole table.

use super::Material;
use super::document::Block;
use super::shown::{
    ETCD, PUBLISHED, REDIS, TESSERA, bars, cost, cost_shown, exact, line, or_dash, peers, per_cpu, whole,
};
use crate::driver::Protocol;
use crate::measure::Summary;
use crate::report::RunResult;
use crate::report::chart::Line;
use crate::suite::cell::Cell;
use crate::suite::experiments::{self, MAP_REDUCE_NODES, RETHINKDB_NODES, RETHINKDB_PROTOCOLS};
use crate::suite::published::RethinkRow;

/// A workload of YCSB.
pub(super) struct Workload {
    /// Of the file of a figure.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// How what was published of it begins.
    published: &'static str,
    mix: &'static str,
    reads: Option<&'static str>,
}

pub(super) const WORKLOADS: [Workload; 3] = [
    Workload { name: "a", title: "A, hard durability", published: "A 50/50", mix: "a", reads: None },
    Workload { name: "c", title: "C, reads single", published: "C read only, read_mode single", mix: "c", reads: None },
    Workload {
        name: "c-outdated",
        title: "C, reads outdated",
        published: "C read only, read_mode outdated",
        mix: "c",
        reads: Some("outdated"),
    },
];

impl Workload {
    pub(super) fn cell(&self, protocol: Protocol, nodes: u16) -> Cell {
        experiments::rethinkdb(protocol, self.mix, nodes, self.reads)
    }

    fn published(&self, material: &Material, nodes: u16, metric: &str) -> Option<f64> {
        let is_it =
            |row: &&RethinkRow| row.workload.starts_with(self.published) && row.nodes == nodes && row.metric == metric;
        material.published.rethinkdb.iter().find(is_it).map(|row| row.value)
    }

    /// Throughput by nodes.
    pub(super) fn published_points(&self, material: &Material) -> Vec<(f64, f64)> {
        let point = |nodes| Some((f64::from(nodes), self.published(material, nodes, "throughput")?));
        RETHINKDB_NODES.into_iter().filter_map(point).collect()
    }

    /// A figure of Tessera's by nodes.
    fn points(
        &self,
        material: &Material,
        protocol: Protocol,
        value: impl Fn(&RunResult) -> Option<f64>,
    ) -> Vec<(f64, f64)> {
        let point = |nodes| Some((f64::from(nodes), value(material.run(&self.cell(protocol, nodes))?)?));
        RETHINKDB_NODES.into_iter().filter_map(point).collect()
    }
}

fn face(protocol: Protocol) -> &'static str {
    if protocol == Protocol::Rethinkdb { "ReQL" } else { "Redis' protocol" }
}

/// Of reads or writes, whichever are slower.
fn slower(run: &RunResult, value: fn(&Summary) -> f64) -> f64 {
    value(&run.reads).max(value(&run.writes))
}

fn measured(run: &RunResult) -> [String; 5] {
    [
        whole(run.operations_per_second),
        format!("{:.1}", slower(run, |summary| summary.p95_ms)),
        format!("{:.1}", slower(run, |summary| summary.p99_ms)),
        cost_shown(run),
        per_cpu(run),
    ]
}

pub(super) fn workloads(material: &Material) -> Vec<Block> {
    let head = vec![
        "workload",
        "nodes",
        "who",
        "throughput, ops/s",
        "P95, ms",
        "P99, ms",
        "cost, CPU µs per op",
        "ops, per CPU-s",
    ];
    let mut rows = Vec::new();
    for workload in &WORKLOADS {
        for nodes in RETHINKDB_NODES {
            let is_measured = |protocol| material.run(&workload.cell(protocol, nodes)).is_some();
            if !RETHINKDB_PROTOCOLS.into_iter().any(is_measured) {
                continue;
            }
            let begin = rows.len();
            let mut row = |who: &str, cells: [String; 5]| {
                let is_first = rows.len() == begin;
                let about = if is_first { [workload.title.into(), nodes.to_string()] } else { Default::default() };
                rows.push([&about[..], &[who.to_string()], &cells].concat());
            };
            if let Some(theirs) = workload.published(material, nodes, "throughput") {
                let p95 = workload.published(material, nodes, "p95 latency").map_or("-".into(), exact);
                row("RethinkDB, published", [whole(theirs), p95, "-".into(), "-".into(), "-".into()]);
            }
            for protocol in RETHINKDB_PROTOCOLS {
                let Some(result) = material.result(&workload.cell(protocol, nodes)) else { continue };
                if let Some(run) = result.shown() {
                    row(&format!("Tessera, {}", face(protocol)), measured(run));
                }
                peers(result).for_each(|(name, run)| row(name, measured(run)));
            }
        }
    }
    let mut blocks = vec![
        Block::text(
            "YCSB A (half reads, half updates of a field) and C (reads), through ReQL on documents of ten fields of 100 bytes, and through \
             Redis' protocol on hashes of the same; two copies (one on one node), 64 connections to all nodes in turn. The published latencies \
             are of 16 nodes: P95 26 ms for A with 2,048 connections, 3 ms for C.",
        ),
        Block::text(
            "RethinkDB's nodes had a machine each, so its throughput grows with them. Tessera's share the two cores of one, so theirs can only \
             fall; what is to be seen is how much dearer an operation becomes. Lines of what was published join the only points that were told in numbers.",
        ),
        Block::Table { head, rows },
    ];
    blocks.extend(WORKLOADS.iter().map(|workload| throughput(material, workload)));
    let lines = |value: fn(&RunResult) -> Option<f64>| -> Vec<Line> {
        let through =
            RETHINKDB_PROTOCOLS.into_iter().flat_map(|protocol| WORKLOADS.iter().map(move |one| (protocol, one)));
        let one = |(number, (protocol, workload)): (usize, (Protocol, &Workload))| {
            let mode = workload.reads.map_or(String::new(), |mode| format!(" {mode}"));
            let through = if protocol == Protocol::Rethinkdb { "ReQL" } else { "Redis" };
            let label = format!("{}{mode}, {through}", workload.mix.to_uppercase());
            line(label, number + 1, workload.points(material, protocol, value))
        };
        through.enumerate().map(one).collect()
    };
    blocks.push(Block::lines(
        "rethinkdb-cost",
        "Tessera: CPU time of an operation by nodes of one machine, through ReQL and Redis' protocol",
        ("nodes", "CPU, µs per operation"),
        lines(cost),
    ));
    blocks.push(Block::lines(
        "rethinkdb-p95",
        "Tessera: P95 by nodes of one machine, through ReQL and Redis' protocol",
        ("nodes", "P95, ms"),
        lines(|run| Some(slower(run, |summary| summary.p95_ms))),
    ));
    blocks
}

fn throughput(material: &Material, workload: &Workload) -> Block {
    let rate = |run: &RunResult| Some(run.operations_per_second);
    let of_peer = |program: &str| {
        let point = |nodes| {
            let result = material.result(&workload.cell(Protocol::Redis, nodes))?;
            let (_, run) = peers(result).find(|(name, _)| name.starts_with(program))?;
            Some((f64::from(nodes), run.operations_per_second))
        };
        RETHINKDB_NODES.into_iter().filter_map(point).collect::<Vec<_>>()
    };
    Block::lines(
        format!("rethinkdb-{}", workload.name),
        format!("YCSB {}: throughput by nodes, RethinkDB's on a machine each, all others on one", workload.title),
        ("nodes", "operations/s"),
        vec![
            line("RethinkDB, published", PUBLISHED, workload.published_points(material)),
            line("Tessera, ReQL", TESSERA, workload.points(material, Protocol::Rethinkdb, rate)),
            line("Tessera, Redis' protocol", 3, workload.points(material, Protocol::Redis, rate)),
            line("redis-server", REDIS, of_peer("redis-server")),
            line("etcd", ETCD, of_peer("etcd")),
        ],
    )
}

/// How the published response time of the query is called.
const QUERY: &str = "map(";

/// The published response time of the query, seconds.
pub(super) fn published_query(material: &Material, nodes: u16) -> Option<f64> {
    let is_it = |row: &&RethinkRow| row.workload.starts_with(QUERY) && row.nodes == nodes;
    material.published.rethinkdb.iter().find(is_it).map(|row| row.value)
}

/// CPU time of a document in the query, microseconds.
pub(super) fn document_cost(run: &RunResult) -> Option<f64> {
    cost(run).map(|micros| micros / run.settings.records as f64)
}

pub(super) fn map_reduce(material: &Material) -> Vec<Block> {
    let head = vec![
        "who",
        "nodes",
        "published, s",
        "share of one node's",
        "response time, ms",
        "P99, ms",
        "documents, per s",
        "cost, CPU µs per document",
        "documents, per CPU-s",
    ];
    let run = |nodes| material.run(&experiments::map_reduce(nodes));
    let measured = |run: &RunResult| {
        let documents = run.settings.records as f64;
        [
            format!("{:.1}", run.reads.mean_ms),
            format!("{:.1}", run.reads.p99_ms),
            whole(run.operations_per_second * documents),
            document_cost(run).map_or("-".into(), |micros| format!("{micros:.3}")),
            or_dash(run.operations_per_server_cpu_second.map(|rate| rate * documents)),
        ]
    };
    let (mut rows, mut costs) = (Vec::new(), Vec::new());
    for nodes in MAP_REDUCE_NODES {
        let Some(of_nodes) = run(nodes) else { continue };
        let seconds = published_query(material, nodes);
        let share = seconds.zip(published_query(material, 1)).map(|(seconds, one)| seconds / one);
        let shown = seconds.map_or("-".into(), |seconds| seconds.to_string());
        let share = share.map_or("-".into(), |share| format!("{share:.3}"));
        costs.extend(document_cost(of_nodes).map(|cost| (f64::from(nodes), cost)));
        let about = ["Tessera".into(), nodes.to_string(), shown, share];
        rows.push([&about[..], &measured(of_nodes)].concat());
        for (name, run) in material.result(&experiments::map_reduce(nodes)).into_iter().flat_map(peers) {
            let blank = [name.to_string(), String::new(), String::new(), String::new()];
            rows.push([&blank[..], &measured(run)].concat());
        }
    }
    let groups = || MAP_REDUCE_NODES.iter().map(ToString::to_string).collect();
    let published = MAP_REDUCE_NODES.iter().map(|nodes| published_query(material, *nodes)).collect();
    let ours = MAP_REDUCE_NODES.iter().map(|nodes| run(*nodes).map(|run| run.reads.mean_ms)).collect();
    vec![
        Block::text(
            "`table.map(r.row(\"field0\").split(\".\").count()).sum()`: how many sentences the first field of all documents has. One client \
             asks one query after the other, over documents of ten fields of 100 bytes with two copies. The published report does not say how many \
             documents its table had, so its seconds can only be compared among themselves. All nodes share this \
             machine, so the response time does not shrink with them here. RethinkDB 2.4.4 did 143,000 documents per CPU-second on such a \
             machine.",
        ),
        Block::Table { head, rows },
        Block::bars(
            "map-reduce-published",
            "Response time of the query by nodes, as published",
            ("nodes, a machine each", "response time, s"),
            groups(),
            vec![bars("RethinkDB, published", PUBLISHED, published)],
        ),
        Block::bars(
            "map-reduce-measured",
            "Response time of the query by nodes, Tessera",
            ("nodes of one machine", "response time, ms"),
            groups(),
            vec![bars("Tessera", TESSERA, ours)],
        ),
        Block::lines(
            "map-reduce-cost",
            "CPU time of a document in the query by nodes, Tessera",
            ("nodes", "CPU, µs per document"),
            vec![line("Tessera", TESSERA, costs)],
        ),
    ]
}
