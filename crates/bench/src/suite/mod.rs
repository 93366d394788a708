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
mod peer;
mod published;
mod report;
mod result;
mod run_cell;
mod search;

use anyhow::{Context, bail};
use cell::Cell;
use clap::{Args, ValueEnum};
use cluster::Cluster;
pub use compare::compare;
use experiments::Experiment;
use indicatif::{ProgressBar, ProgressStyle};
use published::Published;
pub use report::write as write_report;
use result::CellResult;
use run_cell::{Runner, Scale};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Which cells to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Selection {
    /// A few cells of each kind, in less than five minutes
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
    /// Runs of each cell; the one with the median throughput is shown
    #[arg(long, default_value_t = 1)]
    repeats: usize,
    /// Where results and the report go
    #[arg(long, default_value = "report")]
    output: PathBuf,
}

/// Most cells of an experiment in a quick suite.
const QUICK: usize = 2;

impl SuiteArgs {
    fn cells(&self, published: &Published) -> Vec<Cell> {
        let wanted = if self.experiment.is_empty() { experiments::ALL.to_vec() } else { self.experiment.clone() };
        let mut cells = match self.selection {
            Selection::Published => experiments::cells(&wanted, published),
            Selection::Quick => {
                let few = wanted.iter().flat_map(|experiment| {
                    let mut cells = experiment.cells(published);
                    // Starting many nodes takes long.
                    cells.retain(|cell| cell.cluster.nodes <= 5);
                    cells.truncate(QUICK);
                    cells
                });
                experiments::in_order(few.collect())
            }
        };
        cells.retain(|cell| self.only.as_ref().is_none_or(|only| cell.id().contains(only)));
        cells
    }

    /// Carries out the suite and writes its report.
    ///
    /// # Errors
    /// If nothing can be measured or written. What came of other cells is kept.
    pub fn run(&self) -> anyhow::Result<()> {
        let published = Published::read();
        let mut cells = self.cells(&published);
        if cells.is_empty() {
            bail!("no cell is called so; --list shows them");
        }
        if self.repeats == 0 {
            bail!("--repeats is at least 1");
        }
        if self.resume {
            cells.retain(|cell| !is_done(&self.output, cell));
        }
        let runner = Runner { scale: self.scale, repeats: self.repeats };
        if self.list {
            for cell in &cells {
                println!("{:>4.0} s  {}", runner.seconds(cell), cell.id());
            }
            let total = estimate(&runner, &cells) / 60.0;
            println!("{} cells, about {total:.0} minutes with clusters and loading", cells.len());
            return Ok(());
        }
        std::fs::create_dir_all(&self.output).with_context(|| self.output.display().to_string())?;
        let stop = stop_on_interrupt();
        let mut progress = SuiteProgress::new(estimate(&runner, &cells));
        let of_cluster = cells.chunk_by(|one, other| one.cluster == other.cluster);
        for cells in of_cluster {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            measure_cluster(&runner, cells, &self.output, &stop, &mut progress)?;
        }
        progress.bar.finish_and_clear();
        let page = write_report(&self.output)?;
        println!("{}", page.display());
        if stop.load(Ordering::Relaxed) {
            println!("interrupted: the report has what was measured; --resume goes on");
        }
        Ok(())
    }
}

fn is_done(output: &Path, cell: &Cell) -> bool {
    std::fs::read(CellResult::path(output, cell))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<CellResult>(&bytes).ok())
        .is_some_and(|result| result.failure.is_none() && result.cell == *cell)
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
    cells: &[Cell],
    output: &Path,
    stop: &Arc<AtomicBool>,
    progress: &mut SuiteProgress,
) -> anyhow::Result<()> {
    let nodes = cells[0].cluster.nodes;
    progress.show(&format!("starting {nodes} nodes"));
    let cluster = Cluster::start(&cells[0].cluster, &output.join("data"))?;
    progress.done(Runner::start_seconds(&cells[0]));
    for cells in cells.chunk_by(|one, other| one.table == other.table) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        progress.show(&format!("{nodes} nodes, loading {}", cells[0].table.name()));
        let targets = runner.load(&cluster, &cells[0], &output.join("data-of-peers"), stop);
        progress.done(runner.load_seconds());
        for cell in cells {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.show(&cell.id());
            let mut result = CellResult::new(cell.clone());
            let measured = match &targets {
                Ok(targets) => {
                    runner.measure(&cluster, targets, &mut result, stop).map_err(|error| format!("{error:#}"))
                }
                Err(error) => Err(format!("{error:#}")),
            };
            result.failure = measured.err();
            if let Some(failure) = &result.failure {
                progress.bar.println(format!("{}: {failure}", cell.id()));
            }
            // What was interrupted counts for nothing.
            if !stop.load(Ordering::Relaxed) {
                result.write(output)?;
            }
            progress.done(runner.seconds(cell));
        }
        cluster.drop_table(&cells[0].table)?;
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
}

impl SuiteProgress {
    fn new(estimated: f64) -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {prefix} to go, {msg}").expect("a constant template");
        let bar = ProgressBar::new(estimated as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, began: Instant::now(), estimated, done: 0.0 }
    }

    fn show(&self, what: &str) {
        let error = if self.done > 0.0 { self.began.elapsed().as_secs_f64() / self.done } else { 1.0 };
        let left = (self.estimated - self.done).max(0.0) * error;
        self.bar.set_prefix(format!("{:.0}:{:02.0}", (left / 60.0).floor(), left % 60.0));
        self.bar.set_message(what.to_string());
    }

    fn done(&mut self, seconds: f64) {
        self.done += seconds;
        self.bar.set_position(self.done as u64);
    }
}
