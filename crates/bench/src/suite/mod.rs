//! `tessera bench suite`: every table and figure of the published reports, measured here, on clusters that it starts and
//! stops itself.
//!
//! An [`experiment`](experiments) is a published table or figure. It needs [cells](cell), each a workload on a table of a
//! cluster; cells that several experiments need are measured once. What came of a cell is a file, so that an
//! interrupted suite goes on where it was, and [reports](report) are made from files alone.

mod cell;
mod cluster;
mod compare;
mod experiments;
mod limits;
mod peer;
mod published;
mod report;
mod result;
mod run_cell;

use crate::cpu::{self, Cores};
use crate::report::Host;
use crate::search;
use anyhow::{Context, bail};
use cell::{Cell, ClusterSpec, Loop};
use clap::{Args, ValueEnum};
use cluster::Cluster;
pub use compare::compare;
use experiments::Experiment;
use indicatif::{ProgressBar, ProgressStyle};
use peer::PeerAddress;
use published::Published;
pub use report::write as write_report;
use result::CellResult;
pub use result::runs_of;
use run_cell::{Runner, Scale};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Which cells to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Selection {
    /// A few cells of each experiment; how long they take is told first
    Quick,
    /// Every published table and figure
    Published,
}

#[derive(Args)]
pub struct SuiteArgs {
    #[arg(value_enum)]
    selection: Selection,
    /// Seconds of a run, and bytes of a table: what the machine and your patience allow
    #[arg(long, value_enum, default_value = "small")]
    scale: Scale,
    /// Only these experiments; may be repeated
    #[arg(long, value_enum)]
    experiment: Vec<Experiment>,
    /// Only cells with this in their name
    #[arg(long)]
    only: Option<String>,
    /// List the cells and the time they take, and measure nothing
    #[arg(long)]
    list: bool,
    /// Keep the results that are there, and measure what is missing
    #[arg(long)]
    resume: bool,
    /// Measure a cluster that runs already instead of starting some: the address of a node's admin API, such as
    /// http://127.0.0.1:8080. Tables called tessera_bench_... are created on it, and dropped afterwards
    #[arg(long, value_name = "URL")]
    cluster: Option<String>,
    /// Password of the nodes of that cluster
    #[arg(long, env = "TESSERA_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Measure a server that runs already beside Tessera: redis://HOST:PORT, redis-cluster://HOST:PORT,
    /// memcached://HOST:PORT, etcd://HOST:PORT, pegasus://HOST:PORT/TABLE or rethinkdb://HOST:PORT/DATABASE.TABLE; may be repeated.
    /// The suite writes its records to it
    #[arg(long, value_name = "PEER")]
    peer: Vec<PeerAddress>,
    /// Cores for the servers that the suite starts, Tessera's and peers', such as 0-2; all, if this is left out
    #[arg(long, value_name = "CORES", requires = "core", conflicts_with = "cluster")]
    server_cores: Option<Cores>,
    /// Core on which to generate load; any, if this is left out
    #[arg(long)]
    core: Option<usize>,
    /// Runs of each cell; the one with the median throughput is shown
    #[arg(long, default_value_t = 1)]
    repeats: usize,
    /// Where results and the report go
    #[arg(long, default_value = "report")]
    output: PathBuf,
}

const DATA_OF_PEERS: &str = "data-of-peers";

/// Most cells of an experiment in a quick suite. Of searches, which are many runs each, there is one.
const QUICK: usize = 2;
/// Rates that a search tries in a quick suite.
const QUICK_ATTEMPTS: usize = 3;

impl SuiteArgs {
    /// The cells to measure; on a running cluster, if there is one.
    fn cells(&self, published: &Published, running: Option<&ClusterSpec>) -> Vec<Cell> {
        let wanted = if self.experiment.is_empty() { experiments::ALL.to_vec() } else { self.experiment.clone() };
        let mut cells = match self.selection {
            Selection::Published => experiments::cells(&wanted, published),
            Selection::Quick => {
                let few = wanted.iter().flat_map(|experiment| {
                    let mut cells = experiment.cells(published);
                    // Starting many nodes takes long.
                    cells.retain(|cell| {
                        cell.cluster.nodes <= 5 && (running.is_none() || cell.runs_on_others_clusters())
                    });
                    cells.truncate(if cells.iter().any(|cell| cell.kind == Loop::Search) { 1 } else { QUICK });
                    cells
                });
                experiments::in_order(few.collect())
            }
        };
        if let Some(running) = running {
            cells.retain(Cell::runs_on_others_clusters);
            cells = experiments::in_order(cells.into_iter().map(|cell| cell.on(running)).collect());
        }
        cells.retain(|cell| self.only.as_ref().is_none_or(|only| cell.id().contains(only)));
        cells
    }

    /// Carries out the suite and writes its report.
    ///
    /// # Errors
    /// If nothing can be measured or written. What came of other cells is kept.
    pub fn run(&self) -> anyhow::Result<()> {
        let published = Published::read();
        let running = self.cluster.as_ref().map(|url| self.find(url)).transpose()?;
        let mut cells = self.cells(&published, running.as_ref().map(|(_, spec)| spec));
        if cells.is_empty() {
            bail!("no cell is called so; --list shows them");
        }
        if self.repeats == 0 {
            bail!("--repeats is at least 1");
        }
        peer::check_used(&cells, &self.peer)?;
        cpu::check(self.core.as_slice())?;
        self.server_cores.as_ref().map_or(Ok(()), Cores::check)?;
        let is_quick = self.selection == Selection::Quick;
        let runner = Runner {
            scale: self.scale,
            repeats: self.repeats,
            peers: self.peer.clone(),
            server_cores: self.server_cores.clone(),
            core: self.core,
            attempts: if is_quick { QUICK_ATTEMPTS } else { search::ATTEMPTS },
            is_quick,
        };
        if self.resume {
            cells.retain(|cell| !is_done(&self.output, &runner, cell));
        }
        if self.list {
            for cell in &cells {
                println!("{:>4.0} s  {}", runner.seconds(cell), cell.id());
            }
        }
        // Of nothing it is zero, with a sign.
        let minutes = estimate(&runner, &cells).abs() / 60.0;
        let summary = format!("{} cells, about {minutes:.0} minutes with clusters and loading", cells.len());
        if self.list {
            println!("{summary}");
            return Ok(());
        }
        eprintln!("{summary}");
        std::fs::create_dir_all(&self.output).with_context(|| self.output.display().to_string())?;
        let stop = stop_on_interrupt();
        if let Some(cores) = &self.server_cores {
            Host::this();
            // This thread starts the servers; load comes from others, each on its core.
            cores.pin().with_context(|| format!("servers cannot run on cores {cores}"))?;
        }
        let mut progress = SuiteProgress::new(estimate(&runner, &cells));
        for cells in cells.chunk_by(|one, other| one.cluster == other.cluster) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            match &running {
                Some((cluster, _)) => measure_cluster(&runner, cluster, cells, &self.output, &stop, &mut progress)?,
                None => {
                    progress.show(&format!("starting {} nodes", cells[0].cluster.nodes));
                    let cluster = Cluster::start(&cells[0].cluster, &self.output.join("data"))?;
                    progress.done(Runner::start_seconds(&cells[0]));
                    measure_cluster(&runner, &cluster, cells, &self.output, &stop, &mut progress)?;
                }
            }
        }
        progress.bar.finish_and_clear();
        let (failed, wanted) = (progress.failed, cells.len());
        // What was in it went with the peers.
        let _ = std::fs::remove_dir(self.output.join(DATA_OF_PEERS));
        let is_stopped = stop.load(Ordering::Relaxed);
        if let Some(why) = why_no_report(&self.output, wanted, is_stopped) {
            bail!("{why}, so there is no report");
        }
        let page = write_report(&self.output)?;
        println!("{}", page.display());
        if is_stopped {
            println!("interrupted: the report has what was measured; --resume goes on");
        }
        let missing = wanted - progress.measured;
        if missing > 0 {
            bail!("{missing} of {wanted} cells were not measured, {failed} of them because they failed");
        }
        Ok(())
    }

    fn find(&self, url: &str) -> anyhow::Result<(Cluster, ClusterSpec)> {
        let cluster = Cluster::find(url, self.password.as_deref())?;
        let nodes = u16::try_from(cluster.redis.len())?;
        Ok((cluster, ClusterSpec { nodes, settings: Vec::new(), running: Some(url.to_string()) }))
    }
}

/// Why there is nothing to report; `None` if a cell was measured, now or before.
fn why_no_report(output: &Path, wanted: usize, is_stopped: bool) -> Option<String> {
    let is_empty = match result::read_all(output) {
        Ok(results) => results.values().all(|result| result.shown().is_none()),
        // What else is wrong is told by whoever writes the report.
        Err(error) => error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound),
    };
    let why = || match is_stopped {
        true => "interrupted before the first cell was measured".into(),
        false => format!("none of {wanted} cells could be measured"),
    };
    is_empty.then(why)
}

/// Whether a cell was measured already, for as long and as often as it is to be now.
fn is_done(output: &Path, runner: &Runner, cell: &Cell) -> bool {
    std::fs::read(CellResult::path(output, cell))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<CellResult>(&bytes).ok())
        .is_some_and(|result| result.failure.is_none() && result.cell == *cell && runner.has_measured(&result))
}

/// Seconds that cells take with their clusters and tables.
fn estimate(runner: &Runner, cells: &[Cell]) -> f64 {
    let clusters = cells.chunk_by(|one, other| one.cluster == other.cluster);
    let starts: f64 = clusters.map(|cells| Runner::start_seconds(&cells[0])).sum();
    let tables = cells.chunk_by(|one, other| (&one.cluster, &one.table) == (&other.cluster, &other.table));
    let loads: f64 = tables.map(|_| runner.load_seconds()).sum();
    starts + loads + cells.iter().map(|cell| runner.seconds(cell)).sum::<f64>()
}

fn measure_cluster(
    runner: &Runner,
    cluster: &Cluster,
    cells: &[Cell],
    output: &Path,
    stop: &Arc<AtomicBool>,
    progress: &mut SuiteProgress,
) -> anyhow::Result<()> {
    let nodes = cells[0].cluster.nodes;
    for cells in cells.chunk_by(|one, other| one.table == other.table) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        progress.show(&format!("{nodes} nodes, loading {}", cells[0].table.name()));
        let created = cluster.create(&cells[0].table, runner.ttl_seconds(&cells[0]));
        let is_created = created.is_ok();
        let peers = created.and_then(|()| runner.load(cluster, &cells[0], &output.join(DATA_OF_PEERS), stop));
        progress.done(runner.load_seconds());
        for cell in cells {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.show(&cell.id());
            let mut result = CellResult { is_quick: runner.is_quick, ..CellResult::new(cell.clone()) };
            let measured = match &peers {
                Ok(peers) => runner.measure(cluster, peers, &mut result, stop).map_err(|error| format!("{error:#}")),
                Err(error) => Err(format!("{error:#}")),
            };
            result.failure = measured.err();
            // What was interrupted counts for nothing.
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if let Some(failure) = &result.failure {
                progress.tell(&format!("{} was not measured: {failure}", cell.id()));
                progress.failed += 1;
            }
            let disturbance = result.shown().and_then(|run| run.machine?.warning()).filter(|_| !progress.was_disturbed);
            if let Some(disturbance) = disturbance {
                progress.tell(&format!("note: {}: {disturbance} (told once; the report counts such cells)", cell.id()));
                progress.was_disturbed = true;
            }
            result.write(output)?;
            progress.measured += usize::from(result.failure.is_none());
            progress.done(runner.seconds(cell));
        }
        // One that could not be created may be somebody else's.
        if is_created {
            cluster.drop_table(&cells[0].table)?;
        }
    }
    Ok(())
}

/// True once somebody has pressed Ctrl-C.
fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if runtime.is_ok_and(|runtime| runtime.block_on(tokio::signal::ctrl_c()).is_ok()) {
            told.store(true, Ordering::Relaxed);
        }
    });
    stop
}

/// How far the suite is. The time to go is what is left of the estimate, corrected by how wrong that was so far.
struct SuiteProgress {
    bar: ProgressBar,
    began: Instant,
    estimated: f64,
    done: f64,
    measured: usize,
    failed: usize,
    /// Whether it was told that something else kept the machine busy.
    was_disturbed: bool,
}

impl SuiteProgress {
    fn new(estimated: f64) -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {prefix} to go, {msg}").expect("a constant template");
        let bar = ProgressBar::new(estimated as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, began: Instant::now(), estimated, done: 0.0, measured: 0, failed: 0, was_disturbed: false }
    }

    /// Says it in a line that stays.
    fn tell(&self, what: &str) {
        // A bar that is not shown drops lines.
        if self.bar.is_hidden() {
            eprintln!("{what}");
        } else {
            self.bar.println(what);
        }
    }

    /// What happens now. Where no bar is shown, a line for each says so.
    fn show(&self, what: &str) {
        let error = if self.done > 0.0 { self.began.elapsed().as_secs_f64() / self.done } else { 1.0 };
        let left = (self.estimated - self.done).max(0.0) * error;
        self.bar.set_prefix(format!("{:.0}:{:02.0}", (left / 60.0).floor(), left % 60.0));
        self.bar.set_message(what.to_string());
        if self.bar.is_hidden() {
            eprintln!("{:3.0} % {what}", 100.0 * self.done / self.estimated.max(1.0));
        }
    }

    fn done(&mut self, seconds: f64) {
        self.done += seconds;
        self.bar.set_position(self.done as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interrupt before the first cell once ended with the error that there is no such directory.
    #[test]
    fn a_suite_without_a_result_says_why_there_is_no_report() {
        let directory = tempfile::TempDir::new().unwrap();
        let why = |is_stopped| why_no_report(directory.path(), 7, is_stopped);
        assert_eq!(why(true).unwrap(), "interrupted before the first cell was measured");
        let cell = experiments::nubase_steady();
        let failed = CellResult { failure: Some("no answer".into()), ..CellResult::new(cell.clone()) };
        failed.write(directory.path()).unwrap();
        assert_eq!(why(false).unwrap(), "none of 7 cells could be measured");
        let runs = vec![report::tests::run(&cell, 1_000)];
        let tessera = result::Measurement { runs, ..result::Measurement::default() };
        CellResult { tessera, ..CellResult::new(cell) }.write(directory.path()).unwrap();
        assert_eq!(why(true), None);
    }
}
