//! Pegasus' experiment on the size of the cluster, with its control: as many plain servers as there are nodes.

use super::Material;
use super::document::Block;
use super::shown::{
    REDIS, TESSERA, capital, client_count, control, cost, cost_ratio, cost_shown, line, mean, per_cpu, whole,
};
use crate::report::RunResult;
use crate::report::chart::Line;
use crate::suite::experiments;
use crate::suite::published::ScaleRow;
use crate::suite::result::CellResult;
use std::collections::BTreeSet;

const CONTROL: &str = "More processes on the same two cores find less to do each time they wake, so an operation becomes dearer whatever the \
    processes are. That part is measured by a control: under the same clients, right after Tessera, as many `redis-server` processes as \
    there are nodes, each alone, with keys spread over them by hash modulo their number. They copy nothing, so only how their cost grows is to \
    be compared, not what it is.";
const NO_CONTROL: &str = "More processes on the same two cores find less to do each time they wake, so an operation becomes dearer whatever the \
    processes are. How much that is was not measured in these cells: they have no control, which is as many `redis-server` processes as there \
    are nodes under the same clients.";

/// Whose figures are taken of a cell.
pub(super) type Shown = fn(&CellResult) -> Option<&RunResult>;

fn sizes(material: &Material) -> BTreeSet<u16> {
    material.published.scale.iter().map(|row| row.nodes).collect()
}

/// How often the CPU time of an operation on so many nodes is that on the fewest, on average over the numbers of clients of both.
fn growth_to(material: &Material, case: &str, nodes: u16, shown: Shown) -> Option<f64> {
    let first = *sizes(material).first()?;
    let at = |threads: &str, nodes| material.result(&experiments::scale(case, threads, nodes)).and_then(shown);
    let rows = material.published.scale.iter().filter(|row| row.case == case && row.nodes == first);
    let ratio = |threads: &str| cost_ratio(at(threads, nodes)?, at(threads, first)?);
    let ratios: Vec<f64> = rows.filter_map(|row| ratio(&row.threads)).collect();
    mean(&ratios)
}

/// From the fewest nodes to the most.
pub(super) fn growth(material: &Material, case: &str, shown: Shown) -> Option<f64> {
    growth_to(material, case, *sizes(material).last()?, shown)
}

pub(super) fn blocks(material: &Material) -> Vec<Block> {
    let published = &material.published.scale;
    let result = |row: &ScaleRow| material.result(&experiments::scale(&row.case, &row.threads, row.nodes));
    let has_control = published.iter().any(|row| result(row).is_some_and(|result| control(result).is_some()));
    let mut blocks = vec![
        Block::text(
            "Processes of one machine cannot show that more machines do more. What they show is what an operation costs, in CPU time of \
             all nodes together: if that does not grow with the number of nodes, throughput grows with the machines.",
        ),
        Block::text(if has_control { CONTROL } else { NO_CONTROL }),
        growth_figure(material),
    ];
    let mut head = vec![
        "case",
        "clients",
        "nodes",
        "published, ops/s",
        "Tessera, ops/s",
        "Tessera, CPU µs per op",
        "Tessera, ops per CPU-s",
    ];
    if has_control {
        head.extend(["as many redis-server, ops/s", "as many redis-server, CPU µs per op"]);
    }
    let rows = published.iter().filter_map(|row| {
        let run = result(row).and_then(CellResult::shown)?;
        let mut cells = vec![row.case.clone(), row.threads.clone(), row.nodes.to_string(), whole(row.qps)];
        cells.extend([whole(run.operations_per_second), cost_shown(run), per_cpu(run)]);
        match result(row).and_then(control) {
            Some(run) => cells.extend([whole(run.operations_per_second), cost_shown(run)]),
            None if has_control => cells.extend(["-"; 2].map(String::from)),
            None => {}
        }
        Some(cells)
    });
    blocks.push(Block::Table { head, rows: rows.collect() });
    let is_measured = |case: &&str| {
        let mut rows = published.iter().filter(|row| row.case == *case);
        rows.any(|row| result(row).and_then(CellResult::shown).is_some())
    };
    for case in ["write", "read"].into_iter().filter(is_measured) {
        let lines = |label: &str, first: usize, value: &dyn Fn(&str, u16, f64) -> Option<f64>| -> Vec<Line> {
            let of = |(number, nodes): (usize, u16)| {
                let rows = published.iter().filter(|row| row.case == case && row.nodes == nodes);
                let point = |threads: &str, qps| Some((client_count(threads), value(threads, nodes, qps)?));
                let points = rows.filter_map(|row| point(&row.threads, row.qps)).collect();
                line(format!("{nodes} {label}"), first + number, points)
            };
            sizes(material).into_iter().enumerate().map(of).collect()
        };
        let cost_of = |shown: Shown| {
            move |threads: &str, nodes, _| cost(shown(material.result(&experiments::scale(case, threads, nodes))?)?)
        };
        blocks.push(Block::lines(
            format!("scale-{case}-published"),
            format!("{}: throughput by clients, as published", capital(case)),
            ("clients", "operations/s"),
            lines("nodes", 1, &|_, _, qps| Some(qps)),
        ));
        blocks.push(Block::lines(
            format!("scale-{case}-cost"),
            format!(
                "{}: CPU time of an operation by clients{}",
                capital(case),
                if has_control { ", Tessera and the control" } else { "" }
            ),
            ("clients", "CPU, µs per operation"),
            [lines("nodes", 1, &cost_of(CellResult::shown)), lines("redis-server", 4, &cost_of(control))].concat(),
        ));
    }
    blocks
}

fn growth_figure(material: &Material) -> Block {
    let of = |label: &str, color, case: &str, shown: Shown| {
        let point = |nodes| Some((f64::from(nodes), 100.0 * growth_to(material, case, nodes, shown)?));
        line(label, color, sizes(material).into_iter().filter_map(point).collect())
    };
    Block::lines(
        "scale-growth",
        "CPU time of an operation by nodes, as a share of that on the fewest",
        ("nodes", "% of that on the fewest"),
        vec![
            of("Tessera, reads", TESSERA, "read", CellResult::shown),
            of("Tessera, writes", 3, "write", CellResult::shown),
            of("redis-server, reads", REDIS, "read", control),
            of("redis-server, writes", 5, "write", control),
        ],
    )
}
