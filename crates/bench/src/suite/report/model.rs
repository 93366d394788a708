//! What is calculated, not measured: larger clusters, of what an operation costs here.

use super::Material;
use super::document::Block;
use super::shown::{PUBLISHED, REDIS, TESSERA, bars, line, whole};
use crate::driver::Protocol;
use crate::report::RunResult;
use crate::suite::experiments::{self, MAP_REDUCE_NODES, RETHINKDB_NODES};
use crate::suite::report::rethinkdb::{WORKLOADS, Workload, document_cost, published_query};

/// Cores of the published servers, Pegasus' and RethinkDB's: two processors of ten each.
const SERVER_CORES: f64 = 20.0;
/// How busy they would be: as busy as nubase's were allowed to be.
const BUSY_SHARE: f64 = 0.6;

/// Operations per second of as many such servers with cores like this machine's, if an operation costs there what it costs here.
fn rate(run: &RunResult, nodes: u16) -> Option<f64> {
    let cores = f64::from(nodes) * SERVER_CORES;
    run.operations_per_server_cpu_second.map(|rate| rate * cores * BUSY_SHARE)
}

/// A section, if anything was measured from which to calculate.
pub(super) fn blocks(material: &Material) -> Vec<Block> {
    let mut blocks: Vec<Block> = pegasus(material).into_iter().collect();
    blocks.extend(WORKLOADS.iter().filter_map(|workload| rethinkdb(material, workload)));
    blocks.extend(map_reduce(material));
    if blocks.is_empty() {
        return blocks;
    }
    let head = vec![
        Block::Heading(2, "A model of larger machines: calculated, not measured".into()),
        Block::Note(
            "No figure of this section was measured. Each follows from one assumption: an operation costs the same CPU time on a machine for \
             each node as it does here, where all nodes share two cores."
                .into(),
        ),
        Block::Text(format!(
            "Servers have {SERVER_CORES:.0} cores, as the published ones had, each like this machine's and {:.0} % busy. A network between \
             them and disks that are waited for are not in the model; that so many processes share a machine here makes operations dearer \
             than they would be. Of the published figures, only how they grow is to be compared.",
            100.0 * BUSY_SHARE
        )),
    ];
    head.into_iter().chain(blocks).collect()
}

/// The highest rates by the number of nodes.
fn pegasus(material: &Material) -> Option<Block> {
    let rows = &material.published.scale;
    let mut table = Vec::new();
    for of_case in rows.chunk_by(|one, other| one.case == other.case) {
        let mut sizes: Vec<u16> = of_case.iter().map(|row| row.nodes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for nodes in sizes {
            let of_size = || of_case.iter().filter(|row| row.nodes == nodes);
            let published = of_size().map(|row| row.qps).fold(0.0, f64::max);
            let runs = of_size().filter_map(|row| material.run(&experiments::scale(&row.case, &row.threads, nodes)));
            let Some(highest) = runs.filter_map(|run| rate(run, nodes)).reduce(f64::max) else { continue };
            table.push(vec![of_case[0].case.clone(), nodes.to_string(), whole(published), whole(highest)]);
        }
    }
    let head = vec!["case", "nodes", "highest as published, ops/s", "highest of the model, ops/s"];
    (!table.is_empty()).then_some(Block::Table { head, rows: table })
}

fn rethinkdb(material: &Material, workload: &Workload) -> Option<Block> {
    let through = |protocol| {
        let point = |nodes| Some((f64::from(nodes), rate(material.run(&workload.cell(protocol, nodes))?, nodes)?));
        RETHINKDB_NODES.into_iter().filter_map(point).collect::<Vec<_>>()
    };
    let (reql, redis) = (through(Protocol::Rethinkdb), through(Protocol::Redis));
    (!reql.is_empty() || !redis.is_empty()).then(|| {
        Block::lines(
            format!("model-rethinkdb-{}", workload.name),
            format!(
                "YCSB {}: operations by nodes, RethinkDB's as published and Tessera's of the model",
                workload.title
            ),
            ("nodes", "operations/s"),
            vec![
                line("RethinkDB, published", PUBLISHED, workload.published_points(material)),
                line("model, ReQL", TESSERA, reql),
                line("model, Redis' protocol", REDIS, redis),
            ],
        )
    })
}

/// The response time of the query, as a share of one node's.
fn map_reduce(material: &Material) -> Option<Block> {
    let cost = |nodes| material.run(&experiments::map_reduce(nodes)).and_then(document_cost);
    let of_one_node = cost(1)?;
    let model = |nodes: &u16| Some(100.0 * cost(*nodes)? / of_one_node / f64::from(*nodes));
    let published = |nodes: &u16| Some(100.0 * published_query(material, *nodes)? / published_query(material, 1)?);
    Some(Block::bars(
        "model-map-reduce",
        "The map-reduce query: response time by nodes, as a share of one node's",
        ("nodes", "% of one node's"),
        MAP_REDUCE_NODES.iter().map(ToString::to_string).collect(),
        vec![
            bars("RethinkDB, published", PUBLISHED, MAP_REDUCE_NODES.iter().map(published).collect()),
            bars("model", TESSERA, MAP_REDUCE_NODES.iter().map(model).collect()),
        ],
    ))
}
