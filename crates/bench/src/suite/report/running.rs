//! What was measured on clusters that were running already.

use super::Material;
use super::document::Block;
use super::shown::{FIGURES, figures, or_dash, peers, whole};
use crate::measure::Summary;
use crate::report::RunResult;
use crate::suite::cell::Loop;
use crate::suite::result::CellResult;
use std::collections::BTreeMap;

const ABOUT: [&str; 8] = ["workload", "engine", "durability", "partitions", "replicas", "record, B", "clients", "who"];

pub(super) fn blocks(material: &Material) -> Vec<Block> {
    let mut by_cluster: BTreeMap<&str, Vec<&CellResult>> = BTreeMap::new();
    for result in material.results.values() {
        if let Some(url) = &result.cell.cluster.running {
            by_cluster.entry(url).or_default().push(result);
        }
    }
    by_cluster.into_iter().flat_map(|(url, results)| of_cluster(url, &results)).collect()
}

fn of_cluster(url: &str, results: &[&CellResult]) -> Vec<Block> {
    let Some(run) = results.iter().find_map(|result| result.shown()) else { return Vec::new() };
    let host = &run.host;
    let mut rows = Vec::new();
    for result in results {
        rows.extend(result.shown().map(|run| [about(result), row("Tessera", run)].concat()));
        let blank = || vec![String::new(); about(result).len()];
        rows.extend(peers(result).map(|(name, run)| [blank(), row(name, run)].concat()));
    }
    vec![
        Block::Heading(1, format!("The cluster at {url}")),
        Block::Text(format!(
            "{} nodes, as they were set up; what machines they are on is not known here. The load came from a machine with {} cores \
             ({}), in runs of {:.0} seconds. A workload that is \
             searched is the highest rate, of those tried, that kept 99.9 % of requests under 10 ms from when they were due; CPU time \
             was not measured. Every figure's settings and timeline are in `cells/`.",
            results[0].cell.cluster.nodes, host.cores, host.cpu, run.seconds
        )),
        Block::Table { head: [&ABOUT[..], &FIGURES].concat(), rows },
    ]
}

/// What was measured.
fn about(result: &CellResult) -> Vec<String> {
    let cell = &result.cell;
    let table = &cell.table;
    let kind = if cell.kind == Loop::Search { ", searched" } else { "" };
    let reads = cell.reads.as_ref().map_or(String::new(), |mode| format!(", {mode}"));
    vec![
        format!("{}{reads}{kind}", cell.mix),
        table.engine.clone(),
        table.durability.clone(),
        table.partitions.to_string(),
        table.replicas.to_string(),
        whole(table.record_bytes() as f64),
        format!("{}*{}", cell.processes, cell.threads),
    ]
}

fn row(who: &str, run: &RunResult) -> Vec<String> {
    let of = |summary: &Summary| figures(summary, run.seconds).map(or_dash);
    [&[who.to_string()][..], &of(&run.reads), &of(&run.writes)].concat()
}
