//! RethinkDB's experiments: YCSB's workloads, and a query over a whole table.

use super::Material;
use super::document::Block;
use super::shown::{cost, cost_shown, line, or_dash, peers, per_cpu, projected, text, whole};
use crate::driver::Protocol;
use crate::measure::Summary;
use crate::report::RunResult;
use crate::suite::experiments::{self, MAP_REDUCE_NODES, RETHINKDB_NODES, RETHINKDB_PROTOCOLS};
use crate::suite::published::RethinkRow;

pub(super) fn workloads(material: &Material) -> Vec<Block> {
    let head = [
        &["workload", "nodes", "published", "ops/s", "P95, ms", "P99, ms", "CPU us per operation", "ops per CPU-s"][..],
        &["projected ops/s"],
    ];
    let workloads = [
        ("A, hard durability", "A 50/50", "a", None),
        ("C, reads single", "C read only, read_mode single", "c", None),
        ("C, reads outdated", "C read only, read_mode outdated", "c", Some("outdated")),
    ];
    let (mut rows, mut costs, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let through = RETHINKDB_PROTOCOLS.into_iter().flat_map(|protocol| workloads.map(|workload| (protocol, workload)));
    for (number, (protocol, (title, published, workload, reads))) in through.enumerate() {
        let face = if protocol == Protocol::Rethinkdb { "ReQL" } else { "Redis' protocol" };
        let title = format!("{title}, {face}");
        let cell = |nodes| experiments::rethinkdb(protocol, workload, nodes, reads);
        let (mut cost_points, mut published_points, mut projected_points) = (Vec::new(), Vec::new(), Vec::new());
        for nodes in RETHINKDB_NODES {
            let is_it = |row: &&RethinkRow| {
                row.workload.starts_with(published) && row.nodes == nodes && row.metric == "throughput"
            };
            let theirs = material.published.rethinkdb.iter().find(is_it).map(|row| row.value);
            published_points.extend(theirs.map(|rate| (f64::from(nodes), rate)));
            let mut cells = vec![title.clone(), nodes.to_string(), or_dash(theirs)];
            match material.run(&cell(nodes)) {
                Some(run) => {
                    let slower = |value: fn(&Summary) -> f64| value(&run.reads).max(value(&run.writes));
                    cost_points.extend(cost(run).map(|cost| (f64::from(nodes), cost)));
                    projected_points.extend(projected(run, nodes).map(|rate| (f64::from(nodes), rate)));
                    cells.extend([
                        whole(run.operations_per_second),
                        format!("{:.1}", slower(|summary| summary.p95_ms)),
                        format!("{:.1}", slower(|summary| summary.p99_ms)),
                        cost_shown(run),
                        per_cpu(run),
                        or_dash(projected(run, nodes)),
                    ]);
                }
                None => cells.extend(["-"; 6].map(String::from)),
            }
            rows.push(cells);
            let result = material.result(&cell(nodes));
            for (name, run) in result.into_iter().flat_map(peers) {
                let slower = |value: fn(&Summary) -> f64| format!("{:.1}", value(&run.reads).max(value(&run.writes)));
                rows.push(vec![
                    name.to_string(),
                    String::new(),
                    String::new(),
                    whole(run.operations_per_second),
                    slower(|summary| summary.p95_ms),
                    slower(|summary| summary.p99_ms),
                    cost_shown(run),
                    per_cpu(run),
                    String::new(),
                ]);
            }
        }
        costs.push(line(&title, number + 1, cost_points));
        // What was published is one line for each workload, whatever it is compared with.
        if protocol == Protocol::Rethinkdb {
            rates.push(line(format!("{title}: published"), 0, published_points));
        }
        rates.push(line(format!("{title}: projected"), number + 1, projected_points));
    }
    vec![
        text(
            "YCSB A (half reads, half updates of a field) and C (reads), through ReQL on documents of ten fields of 100 bytes, and through \
             Redis' protocol on hashes of the same; two replicas (one on one node), 64 connections to all nodes in turn. The published latencies are of 16 nodes: P95 26 ms for A with 2,048 connections, \
             3 ms for C. The last column projects as above.",
        ),
        Block::Table { head: head.concat(), rows },
        Block::Figure {
            name: "rethinkdb-projected".into(),
            title:
                "Operations by nodes: RethinkDB's as published, Tessera's projected on servers of 20 cores, 60 % busy"
                    .into(),
            x: "nodes",
            y: "operations/s",
            lines: rates,
        },
        Block::Figure {
            name: "rethinkdb-cost".into(),
            title: "CPU time of an operation by nodes, Tessera".into(),
            x: "nodes",
            y: "microseconds",
            lines: costs,
        },
    ]
}

/// How the published response time of the query is called.
const QUERY: &str = "map(";

pub(super) fn map_reduce(material: &Material) -> Vec<Block> {
    let head = vec![
        "who",
        "nodes",
        "published, s",
        "share of one node's",
        "response time, ms",
        "P99, ms",
        "documents/s",
        "CPU us per document",
        "documents per CPU-s",
        "projected share",
    ];
    let published = |nodes: u16| {
        let is_it = |row: &&RethinkRow| row.workload.starts_with(QUERY) && row.nodes == nodes;
        material.published.rethinkdb.iter().find(is_it).map(|row| row.value)
    };
    let run = |nodes| material.run(&experiments::map_reduce(nodes));
    let document_cost = |run: &RunResult| cost(run).map(|micros| micros / run.settings.records as f64);
    let of_one_node = run(1).and_then(document_cost);
    // If a document costs what it does here, and each node has a machine of its own.
    let projected = |run: &RunResult, nodes: u16| Some(document_cost(run)? / of_one_node? / f64::from(nodes));
    let share = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let measured = |run: &RunResult| {
        let documents = run.settings.records as f64;
        [
            format!("{:.1}", run.reads.mean_ms),
            format!("{:.1}", run.reads.p99_ms),
            whole(run.operations_per_second * documents),
            share(document_cost(run)),
            or_dash(run.operations_per_server_cpu_second.map(|rate| rate * documents)),
        ]
    };
    let (mut rows, mut theirs, mut ours, mut costs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for nodes in MAP_REDUCE_NODES {
        let (x, seconds) = (f64::from(nodes), published(nodes));
        let published_share = seconds.zip(published(1)).map(|(seconds, one)| seconds / one);
        theirs.extend(published_share.map(|share| (x, 100.0 * share)));
        let shown = seconds.map_or("-".into(), |seconds| seconds.to_string());
        let mut cells = vec!["Tessera".into(), nodes.to_string(), shown, share(published_share)];
        match run(nodes) {
            Some(run) => {
                costs.extend(document_cost(run).map(|cost| (x, cost)));
                ours.extend(projected(run, nodes).map(|share| (x, 100.0 * share)));
                cells.extend(measured(run));
                cells.push(share(projected(run, nodes)));
            }
            None => cells.extend(["-"; 6].map(String::from)),
        }
        rows.push(cells);
        for (name, run) in material.result(&experiments::map_reduce(nodes)).into_iter().flat_map(peers) {
            let blank = [name.to_string(), String::new(), String::new(), String::new()];
            rows.push([&blank[..], &measured(run), &[String::new()]].concat());
        }
    }
    vec![
        text(
            "`table.map(r.row(\"field0\").split(\".\").count()).sum()`: how many sentences the first field of all documents has. One client \
             asks one query after the other, over documents of ten fields of 100 bytes with two copies. The published report does not say how many \
             documents its table had, so its seconds can only be compared among themselves, as shares of the time on one node. All nodes share this \
             machine, so the response time does not shrink with them here: the projected share follows from the CPU time of a document, if each \
             node had a machine of its own. RethinkDB 2.4.4 did 143,000 documents per CPU-second on such a machine.",
        ),
        Block::Table { head, rows },
        Block::Figure {
            name: "map-reduce-share".into(),
            title: "Response time of the query by nodes, as a share of one node's".into(),
            x: "nodes",
            y: "% of one node's",
            lines: vec![line("published", 0, theirs), line("Tessera, projected", 1, ours)],
        },
        Block::Figure {
            name: "map-reduce-cost".into(),
            title: "CPU time of a document in the query by nodes, Tessera".into(),
            x: "nodes",
            y: "microseconds",
            lines: vec![line("Tessera", 1, costs)],
        },
    ]
}
