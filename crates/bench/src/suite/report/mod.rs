//! The report of a suite, made from its files: every published table and figure with ours beside it.

mod behind;
mod document;
mod rethinkdb;
mod running;
mod sections;
mod shown;

use super::cell::Cell;
use super::experiments::{self, ALL, Experiment};
use super::published::Published;
use super::result::{CellResult, read_all};
use crate::machine::MachineLoad;
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

    /// Whether anything of an experiment was measured.
    fn has(&self, experiment: Experiment) -> bool {
        experiment.cells(&self.published).iter().any(|cell| self.run(cell).is_some())
    }
}

/// Writes the report of the results in a directory into it. Returns where its HTML form is.
///
/// # Errors
/// If there are no results, or a file cannot be written.
pub fn write(directory: &Path) -> anyhow::Result<PathBuf> {
    let material = Material { results: read_all(directory)?, published: Published::read() };
    let mut started = material.results.values().filter(|result| result.cell.cluster.running.is_none());
    let mut blocks = started.find_map(CellResult::shown).map_or(Vec::new(), |first| summary(&material, first));
    blocks.extend(running::blocks(&material));
    if blocks.is_empty() {
        bail!("nothing was measured yet");
    }
    for experiment in ALL.into_iter().filter(|experiment| material.has(*experiment)) {
        blocks.push(Block::Heading(2, experiment.title().into()));
        blocks.extend(sections::of(experiment, &material));
    }
    document::write(&blocks, directory)?;
    Ok(directory.join("index.html"))
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
            "Meanwhile processes that were neither servers nor load generator used {:.1} % of the machine on average, {:.0} % at \
             most in a run, and the hypervisor took {:.0} % at most; {disturbed} of {runs} runs were disturbed by more than a tenth.",
            100.0 * mean,
            100.0 * most(others),
            100.0 * most(|load| load.steal_share)
        )
    })
}

fn summary(material: &Material, first: &RunResult) -> Vec<Block> {
    let host = &first.host;
    let cores = match (&first.settings.server_cores, first.settings.core) {
        (Some(servers), Some(core)) => {
            format!("Servers, Tessera's and peers' alike, ran on cores {servers}, the load generator on core {core}.")
        }
        _ => "All nodes of a cluster and the load generator share it.".into(),
    };
    let scale = first.settings.command.split(" --scale ").nth(1).and_then(|rest| rest.split(' ').next());
    let all = experiments::cells(&ALL, &material.published);
    let measured = all.iter().filter(|cell| material.run(cell).is_some()).count();
    let what = match all.len() - measured {
        0 => "Every published table and figure".to_string(),
        _ => format!("A part, {measured} of {} cells, of the published tables and figures", all.len()),
    };
    let mut blocks = vec![
        Block::Heading(1, "The published experiments, measured here".into()),
        Block::Text(format!(
            "{what} of Apache Pegasus, RethinkDB 2.1.5 and nubase, repeated with Tessera {}; {}. \
             `tessera bench suite published --scale {}` repeats all.",
            host.tessera_version,
            lengths(material),
            scale.unwrap_or("small"),
        )),
        Block::Text(format!(
            "One machine: {}, {} cores, {} GiB, Linux {}. {cores} The published \
             figures are of clusters of servers (Pegasus: five with two Xeon Silver 4210, 128 GB, eight SSDs and 10 Gbit/s each), so \
             throughputs are not to be compared as they stand. What can be compared is the shape of a table or a figure, \
             and Tessera's operations per CPU-second of all its nodes' processes together.",
            host.cpu,
            host.cores,
            host.memory_bytes >> 30,
            host.kernel
        )),
        Block::Text(
            "Pegasus answers before its log is fsynced, so its experiments have durability `soft` here, and go through \
             Pegasus' protocol to the nodes that lead. RethinkDB's have `hard`, and go through ReQL and through \
             Redis' protocol; nubase's memory engine `none` and its RocksDB \
             engine `soft`, through Redis' protocol; nubase's clients know where keys are, so here they go straight to the leaders as \
             those of Redis Cluster do. Every figure's settings, timeline and command are in `cells/`."
                .into(),
        ),
    ];
    blocks.extend(disturbances(material).map(Block::Text));
    let measured = |experiment: &Experiment| {
        let cells = experiment.cells(&material.published);
        let done = cells.iter().filter(|cell| material.run(cell).is_some()).count();
        vec![experiment.title().to_string(), cells.len().to_string(), done.to_string()]
    };
    let head = vec!["experiment", "published figures", "measured"];
    blocks.push(Block::Table { head, rows: ALL.iter().map(measured).collect() });
    let places = behind::places(material);
    if !places.is_empty() {
        blocks.push(Block::Heading(2, "Where Tessera is behind".into()));
        blocks.extend(places.into_iter().map(Block::Text));
    }
    let failed: Vec<&CellResult> = material.results.values().filter(|result| result.failure.is_some()).collect();
    for result in failed {
        let failure = result.failure.as_deref().unwrap_or_default();
        blocks.push(Block::Text(format!("Not measured: `{}`: {failure}", result.cell.id())));
    }
    let is_bound = |result: &&CellResult| result.shown().is_some_and(|run| !run.warnings.is_empty());
    let bound = material.results.values().filter(is_bound).count();
    if bound > 0 {
        blocks.push(Block::Text(format!(
            "In {bound} of {} cells the load generator used up its core, or the server did not keep up with the rate that was \
             asked: their files say so under `warnings`.",
            material.results.len()
        )));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Latencies, Second};
    use crate::report::Settings;
    use crate::run::Measured;
    use crate::suite::compare;
    use crate::suite::result::Measurement;
    use std::time::Duration;

    /// A run of so many reads and writes in two seconds.
    fn run(cell: &Cell, operations: u64) -> RunResult {
        let (mut reads, writes) = (Latencies::new(Duration::from_secs(1)), Latencies::new(Duration::from_secs(1)));
        reads.record(Duration::from_micros(123), operations);
        let (elapsed, cpu) = (Duration::from_secs(2), Duration::from_secs(1));
        // Seconds of a run differ by a tenth, so runs that differ by less are alike.
        let second = |second| Second {
            second,
            operations: operations * (19 + second) / 20,
            read_p99_ms: 1.0,
            write_p99_ms: 1.0,
            server_read_bytes: Some(0),
            server_written_bytes: Some(1_000_000),
        };
        let seconds = vec![second(0), second(2)];
        let measured = Measured { reads, writes, seconds, elapsed, cpu, last_error: None, machine: None };
        let settings = Settings {
            name: cell.id(),
            server: "here".into(),
            protocol: Some(cell.protocol),
            table: None,
            mix: cell.mix.clone(),
            distribution: cell.distribution,
            records: 1,
            fields: cell.table.fields,
            field_bytes: cell.table.field_bytes,
            processes: cell.processes,
            threads: cell.threads,
            pipeline: 1,
            batch: 1,
            rate: None,
            limit_ms: 10.0,
            warm_up_seconds: 0.0,
            seed: 1,
            server_cores: None,
            core: None,
            command: "tessera bench suite published --scale small --only x".into(),
        };
        RunResult::new(settings, &measured, Some(cpu))
    }

    fn measure_all(directory: &Path, operations: u64) {
        for cell in experiments::cells(&ALL, &Published::read()) {
            let mut result = CellResult::new(cell.clone());
            result.tessera = Measurement { runs: vec![run(&cell, operations)], ..Measurement::default() };
            result.peers.insert("redis-server 0".into(), result.tessera.clone());
            result.write(directory).unwrap();
        }
    }

    #[test]
    fn every_published_figure_has_its_counterpart() {
        let directory = tempfile::TempDir::new().unwrap();
        measure_all(directory.path(), 24_690);
        write(directory.path()).unwrap();
        let markdown = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
        let published = Published::read();
        let rows = markdown.lines().filter(|line| line.contains("| Tessera") && line.contains("12,345")).count();
        assert_eq!(
            rows,
            published.versions.len()
                + published.limiter.len()
                + published.nubase.len()
                + experiments::MAP_REDUCE_NODES.len()
        );
        let figures = markdown.lines().filter(|line| line.starts_with("![")).count();
        assert_eq!(figures, std::fs::read_dir(directory.path().join("figures")).unwrap().count());
        let queries = markdown.lines().filter(|line| line.starts_with("| Tessera |") && line.contains("| 12,345 |"));
        let queries: Vec<&str> = queries.filter(|line| line.contains(" | 59 |") || line.contains(" | 4.4 |")).collect();
        assert_eq!(queries.len(), 2, "the query on one node and on sixteen: {queries:?}");
        for experiment in ALL {
            assert!(markdown.contains(experiment.title()));
        }
        let page = std::fs::read_to_string(directory.path().join("index.html")).unwrap();
        assert_eq!(page.matches("<svg").count(), figures, "the page needs no other file");
        assert!(!page.contains("src=") && !page.contains("href="));
    }

    #[test]
    fn what_changed_by_more_than_noise_is_told() {
        let [before, same, after] = [(); 3].map(|()| tempfile::TempDir::new().unwrap());
        measure_all(before.path(), 10_000);
        measure_all(same.path(), 10_500);
        measure_all(after.path(), 20_000);
        assert!(compare(before.path(), same.path()).unwrap().contains("; 0 changed"));
        let changes = compare(before.path(), after.path()).unwrap();
        assert!(changes.contains("+100 %") && !changes.contains("; 0 changed"), "{changes}");
    }

    #[test]
    fn results_of_another_version_are_refused() {
        let directory = tempfile::TempDir::new().unwrap();
        let cell = experiments::nubase_steady();
        let result = CellResult { version: 0, ..CellResult::new(cell) };
        result.write(directory.path()).unwrap();
        assert!(write(directory.path()).unwrap_err().to_string().contains("no result of this version"));
    }

    #[test]
    fn a_directory_without_results_says_so() {
        let directory = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("cells")).unwrap();
        assert!(write(directory.path()).is_err());
    }
}
