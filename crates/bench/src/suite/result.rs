//! What came of a cell, as a file.

use super::cell::Cell;
use super::limits::Attempt;
use crate::report::RunResult;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Version of the JSON form.
const VERSION: u32 = 1;

/// What was measured of one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measurement {
    /// Repeats, as they were made.
    pub runs: Vec<RunResult>,
    /// Of a search, in order.
    pub attempts: Vec<Attempt>,
    /// What crossed the network in the last run, replication included.
    pub network_bits_per_second: f64,
}

/// What was measured in one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellResult {
    pub version: u32,
    pub cell: Cell,
    pub tessera: Measurement,
    /// Other servers, by their names.
    pub peers: BTreeMap<String, Measurement>,
    /// RocksDB's level table after the runs, of the replicas on the first node.
    pub levels: Option<Value>,
    /// Seconds that writers of the RocksDB table on the first node were held back, since flushes or compactions lagged.
    #[serde(default)]
    pub stall_seconds: Option<f64>,
    /// Share of what reads on the first node looked for that its caches had, 0 to 1.
    #[serde(alias = "block_cache_hit_rate")]
    pub cache_hit_rate: Option<f64>,
    /// Why there is no run.
    pub failure: Option<String>,
    /// Whether it is of a quick suite.
    #[serde(default)]
    pub is_quick: bool,
}

impl CellResult {
    pub fn new(cell: Cell) -> Self {
        Self {
            version: VERSION,
            cell,
            tessera: Measurement::default(),
            peers: BTreeMap::new(),
            levels: None,
            stall_seconds: None,
            cache_hit_rate: None,
            failure: None,
            is_quick: false,
        }
    }

    /// The run to show of Tessera.
    pub fn shown(&self) -> Option<&RunResult> {
        self.tessera.shown()
    }

    pub fn path(directory: &Path, cell: &Cell) -> PathBuf {
        directory.join("cells").join(cell.id() + ".json")
    }

    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = Self::path(directory, &self.cell);
        let text = serde_json::to_vec(self)?;
        std::fs::create_dir_all(path.parent().expect("it is in a directory"))?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

impl Measurement {
    /// Rates that a search has tried. One that was too high is tried again at once.
    pub fn rates(&self) -> usize {
        self.attempts.chunk_by(|one, other| one.rate == other.rate).count()
    }

    /// The run with the median throughput.
    pub fn shown(&self) -> Option<&RunResult> {
        let mut runs: Vec<&RunResult> = self.runs.iter().collect();
        runs.sort_by(|one, other| one.operations_per_second.total_cmp(&other.operations_per_second));
        runs.get(runs.len() / 2).copied()
    }

    /// How far the runs' throughputs are apart, as a share of the one shown; `None` of a single run.
    pub fn spread(&self) -> Option<f64> {
        let shown = self.shown()?.operations_per_second;
        let rates = || self.runs.iter().map(|run| run.operations_per_second);
        let (low, high) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
        (self.runs.len() > 1).then_some((high - low) / shown)
    }
}

/// The runs to show of a file: one that `bench run --json` wrote, or that of a cell, whose first is Tessera's, if it was measured, and the
/// others its peers'.
///
/// # Errors
/// If it is no result of this version.
pub fn runs_of(path: &Path) -> anyhow::Result<Vec<RunResult>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let Ok(result) = serde_json::from_slice::<CellResult>(&bytes) else { return Ok(vec![RunResult::read(path)?]) };
    ensure!(result.version == VERSION, "{} is no result of this version", path.display());
    let mut runs = Vec::from_iter(result.shown().cloned());
    for (name, measured) in &result.peers {
        let of_peer = measured.shown().cloned().map(|mut run| {
            run.settings.name = format!("{}: {name}", run.settings.name);
            run
        });
        runs.extend(of_peer);
    }
    Ok(runs)
}

/// The results in a directory, by the names of their cells.
///
/// # Errors
/// If a file is no result of this version.
pub fn read_all(directory: &Path) -> anyhow::Result<BTreeMap<String, CellResult>> {
    let mut results = BTreeMap::new();
    let cells = directory.join("cells");
    for entry in std::fs::read_dir(&cells).with_context(|| cells.display().to_string())? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        let foreign = || format!("{} is no result of this version", path.display());
        let result: CellResult = serde_json::from_slice(&bytes).with_context(foreign)?;
        ensure!(result.version == VERSION, foreign());
        results.insert(result.cell.id(), result);
    }
    Ok(results)
}
