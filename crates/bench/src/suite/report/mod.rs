//! The report of a suite, made from its files: every published table and figure with ours beside it.

mod behind;
mod document;
mod model;
mod nubase;
mod origin;
mod pegasus;
mod rethinkdb;
mod running;
mod scale;
mod shown;
mod summary;
#[cfg(test)]
pub(super) mod tests;

use super::cell::Cell;
use super::experiments::{ALL, Experiment};
use super::published::Published;
use super::result::{CellResult, read_all};
use crate::report::RunResult;
use anyhow::bail;
use document::Block;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was measured, and what was published.
struct Material {
    results: BTreeMap<String, CellResult>,
    published: Published,
}

impl Material {
    fn result(&self, cell: &Cell) -> Option<&CellResult> {
        self.results.get(&cell.id())
    }

    fn run(&self, cell: &Cell) -> Option<&RunResult> {
        self.result(cell)?.shown()
    }

    /// Whether all that was measured is of quick suites.
    fn is_quick(&self) -> bool {
        self.results.values().filter(|result| result.shown().is_some()).all(|result| result.is_quick)
    }

    /// What was measured of an experiment.
    fn of(&self, experiment: Experiment) -> Vec<&CellResult> {
        let results = experiment.cells(&self.published).into_iter().filter_map(|cell| self.results.get(&cell.id()));
        results.filter(|result| result.shown().is_some()).collect()
    }
}

/// Writes the report of the results in a directory into it. Returns where its HTML form is.
///
/// # Errors
/// If there are no results, or a file cannot be written.
pub fn write(directory: &Path) -> anyhow::Result<PathBuf> {
    let material = Material { results: read_all(directory)?, published: Published::read() };
    let mut started = material.results.values().filter(|result| result.cell.cluster.running.is_none());
    let first = started.find_map(CellResult::shown);
    let mut blocks = first.map_or(Vec::new(), |first| summary::blocks(&material, first));
    blocks.extend(running::blocks(&material));
    if blocks.is_empty() {
        bail!("nothing was measured yet");
    }
    // Below the title.
    blocks.splice(1..1, summary::notes(&material));
    for experiment in ALL {
        let measured = material.of(experiment);
        if !measured.is_empty() {
            blocks.push(Block::Heading(2, experiment.title().into()));
            blocks.extend(origin::sentence(measured.into_iter()).map(Block::Text));
            blocks.extend(section(experiment, &material));
        }
    }
    if first.is_some() {
        blocks.extend(model::blocks(&material));
        blocks.extend(summary::how(&material));
    }
    blocks.retain(has_something_to_show);
    document::write(&blocks, directory)?;
    Ok(directory.join("index.html"))
}

fn has_something_to_show(block: &Block) -> bool {
    match block {
        Block::Figure { chart, .. } => !chart.is_bare(),
        Block::Table { rows, .. } => !rows.is_empty(),
        _ => true,
    }
}

fn section(experiment: Experiment, material: &Material) -> Vec<Block> {
    match experiment {
        Experiment::Versions => pegasus::versions(material),
        Experiment::Latency => pegasus::latency(material),
        Experiment::Limiter => pegasus::limiter(material),
        Experiment::Scale => scale::blocks(material),
        Experiment::Partitions => pegasus::partitions(material),
        Experiment::Rethinkdb => rethinkdb::workloads(material),
        Experiment::MapReduce => rethinkdb::map_reduce(material),
        Experiment::Nubase => nubase::blocks(material),
    }
}
