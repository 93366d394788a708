//! What the report begins and ends with: the most important figures, where Tessera is behind, and how it was measured.

use super::document::Block;
use super::scale::growth;
use super::shown::{control, mean, percent, whole};
use super::{Material, behind, origin};
use crate::machine::MachineLoad;
use crate::report::RunResult;
use crate::suite::experiments::{self, ALL};
use crate::suite::result::CellResult;

/// The beginning, up to where Tessera is behind. `first` is any run.
pub(super) fn blocks(material: &Material, first: &RunResult) -> Vec<Block> {
    let host = &first.host;
    let all = experiments::cells(&ALL, &material.published);
    let measured = all.iter().filter(|cell| material.run(cell).is_some()).count();
    let (title, what) = match all.len() - measured {
        0 => ("The published experiments, measured here", "Every published table and figure".to_string()),
        _ => {
            let is_quick = material.is_quick();
            let (title, part) = if is_quick {
                ("A quick look at the published experiments, measured here", "A quick selection")
            } else {
                ("A part of the published experiments, measured here", "A part")
            };
            (title, format!("{part}, {measured} of {} cells, of the published tables and figures", all.len()))
        }
    };
    let scale = first.settings.command.split(" --scale ").nth(1).and_then(|rest| rest.split(' ').next());
    let mut blocks = vec![
        Block::Heading(1, title.into()),
        Block::Tiles(tiles(material, measured, all.len())),
        Block::Text(format!(
            "{what} of Apache Pegasus, RethinkDB 2.1.5 and nubase, repeated with Tessera {}; {}. \
             `tessera bench suite published --scale {}` repeats all. A cell is a workload on a table of a cluster; several published \
             figures may share one. What was not measured has no row and no chart.",
            host.tessera_version,
            lengths(material),
            scale.unwrap_or("small"),
        )),
        Block::Text(format!(
            "One machine: {}, {} cores, {} GiB, Linux {}. {} The published \
             figures are of clusters of servers (Pegasus: five with two Xeon Silver 4210, 128 GB, eight SSDs and 10 Gbit/s each), so \
             throughputs are not to be compared as they stand. What can be compared is the shape of a table or a figure, \
             and Tessera's operations per CPU-second of all its nodes' processes together.",
            host.cpu,
            host.cores,
            host.memory_bytes >> 30,
            host.kernel,
            placement(first)
        )),
    ];
    blocks.extend(origin::sentence(material.results.values()).map(Block::Text));
    let row = |experiment: &experiments::Experiment| {
        let published = experiment.cells(&material.published).len();
        vec![experiment.title().to_string(), published.to_string(), material.of(*experiment).len().to_string()]
    };
    let head = vec!["experiment", "published figures", "measured"];
    blocks.push(Block::Table { head, rows: ALL.iter().map(row).collect() });
    let places = behind::places(material);
    if !places.is_empty() {
        blocks.push(Block::Heading(2, "Where Tessera is behind".into()));
        blocks.extend(places.into_iter().map(Block::Text));
    }
    blocks
}

/// What is to be known before anything else is read.
pub(super) fn notes(material: &Material) -> Vec<Block> {
    let quick = material.is_quick().then(|| {
        "This is the report of a quick suite: a few cells of each experiment, none of them on more than five nodes, and searches that try \
         few rates. `tessera bench suite published` measures all."
            .to_string()
    });
    let loads = || material.results.values().filter_map(|result| result.shown()?.machine);
    let disturbed = loads().filter(|load| load.warning().is_some()).count();
    let busy = (disturbed > 0).then(|| {
        format!(
            "In {disturbed} of {} cells the machine was busy with something else: compare ratios of one cell, not figures, or measure these \
             cells again on a quiet machine. How busy it was is told at the end.",
            loads().count()
        )
    });
    quick.into_iter().chain(busy).map(Block::Note).collect()
}

fn placement(first: &RunResult) -> String {
    match (&first.settings.server_cores, first.settings.core) {
        (Some(servers), Some(core)) => {
            format!("Servers, Tessera's and peers' alike, ran on cores {servers}, the load generator on core {core}.")
        }
        _ => "All nodes of a cluster and the load generator share it.".into(),
    }
}

fn tiles(material: &Material, measured: usize, all: usize) -> Vec<(String, String)> {
    let mut tiles = vec![(format!("{measured} of {all}"), "cells of the published experiments measured".to_string())];
    for case in ["read", "write"] {
        let rows = material.published.scale.iter().filter(|row| row.case == case);
        let runs = rows.filter_map(|row| material.run(&experiments::scale(case, &row.threads, row.nodes)));
        let rates: Vec<f64> = runs.filter_map(|run| run.operations_per_server_cpu_second).collect();
        tiles.extend(mean(&rates).map(|rate| {
            (
                whole(rate),
                format!("{case}s per CPU-second of all nodes together, records of 1 KB with three copies, on average"),
            )
        }));
    }
    tiles.extend(behind::ratios_to_peers(material).into_iter().filter_map(|(peer, ratios)| {
        // Beside a peer: what Tessera does, where the rules look at what the peer does.
        let ours = 1.0 / mean(&ratios)?;
        let cells = if ratios.len() == 1 { "cell" } else { "cells" };
        Some((
            format!("{ours:.2} ×"),
            format!("operations per CPU-second of {peer}, on average over {} {cells}", ratios.len()),
        ))
    }));
    for case in ["read", "write"] {
        tiles.extend(growth(material, case, CellResult::shown).map(|ours| {
            let beside = growth(material, case, control)
                .map_or(String::new(), |control| format!("; as many redis-server processes: {control:.2} ×"));
            (format!("{ours:.2} ×"), format!("CPU time of a {case} on seven nodes, as against five{beside}"))
        }));
    }
    tiles
}

/// How long runs took.
fn lengths(material: &Material) -> String {
    let seconds = || material.results.values().filter_map(CellResult::shown).map(|run| run.seconds.round());
    let (shortest, longest) = (seconds().fold(f64::MAX, f64::min), seconds().fold(0.0, f64::max));
    match shortest < longest {
        false => format!("runs of {shortest:.0} seconds"),
        true => format!("runs of {shortest:.0} to {longest:.0} seconds, each as its file in `cells/` says"),
    }
}

/// The end: how and of what it was measured, and what was not.
pub(super) fn how(material: &Material) -> Vec<Block> {
    let mut blocks = vec![
        Block::Heading(2, "How it was measured".into()),
        Block::text(
            "Pegasus answers before its log is fsynced, so its experiments have durability `soft` here, and go through \
             Pegasus' protocol to the nodes that lead. RethinkDB's have `hard`, and go through ReQL and through \
             Redis' protocol; nubase's memory engine `none` and its RocksDB \
             engine `soft`, through Redis' protocol; nubase's clients know where keys are, so here they go straight to the leaders as \
             those of Redis Cluster do. Every figure's settings, timeline and command are in `cells/`.",
        ),
        Block::text("Each cell names the commit that its program was built of and the day on which it was measured:"),
        Block::Table { head: vec!["commit", "day", "cells"], rows: origin::rows(material.results.values()) },
    ];
    blocks.extend(disturbances(material).map(Block::Text));
    let is_bound = |result: &&CellResult| result.shown().is_some_and(|run| !run.warnings.is_empty());
    let bound = material.results.values().filter(is_bound).count();
    if bound > 0 {
        blocks.push(Block::Note(format!(
            "In {bound} of {} cells the load generator used up its core, the server did not keep up with the rate that was \
             asked, reads did not find what they asked for, or something else disturbed the run: their files say so under `warnings`.",
            material.results.len()
        )));
    }
    for result in material.results.values() {
        let failure = result.failure.as_ref().map(|failure| format!("Not measured: `{}`: {failure}", result.cell.id()));
        blocks.extend(failure.map(Block::Note));
    }
    blocks
}

/// What else the machine did meanwhile.
fn disturbances(material: &Material) -> Option<String> {
    let loads = || material.results.values().filter_map(|result| result.shown()?.machine);
    let (runs, most) =
        (loads().count(), |share: fn(&MachineLoad) -> f64| loads().map(|load| share(&load)).fold(0.0, f64::max));
    let others = |load: &MachineLoad| load.others_share.unwrap_or(0.0);
    let mean = loads().map(|load| others(&load)).sum::<f64>() / runs.max(1) as f64;
    let disturbed = loads().filter(|load| load.warning().is_some()).count();
    (runs > 0).then(|| {
        format!(
            "Of {runs} cells it was measured what else the machine did meanwhile: processes that were neither servers nor load generator \
             used {} of it on average, {} at most in a run, and the hypervisor took {} at most; {disturbed} were disturbed by more \
             than a tenth.",
            percent(mean),
            percent(most(others)),
            percent(most(|load| load.steal_share))
        )
    })
}
