//! Results: as JSON, as a table in the published shape, as a page.

pub(crate) mod chart;
mod day;
pub(crate) mod html;
pub(crate) mod markup;
pub(crate) mod number;
mod page;
mod ycsb;

use crate::cpu::Cores;
use crate::driver::Protocol;
use crate::machine::MachineLoad;
use crate::measure::{Second, Summary};
use crate::run::Measured;
use crate::workload::KeyDistribution;
use anyhow::{Context, ensure};
pub use page::html;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
pub use ycsb::ycsb;

/// Version of the JSON form.
const VERSION: u32 = 1;
/// Share of what was due that has to be done.
const KEPT_UP: f64 = 0.98;
/// Share of a core at which a load generator has nothing left to give.
const BUSY: f64 = 0.95;
/// Share of the records that reads ask for that has to be there. A read of the newest record may be quicker than its insert.
const ENOUGH_FOUND: f64 = 0.9;

/// What was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    pub name: String,
    pub server: String,
    /// None for an engine in this process.
    #[serde(default)]
    pub protocol: Option<Protocol>,
    pub table: Option<String>,
    pub mix: String,
    pub distribution: KeyDistribution,
    pub records: u64,
    pub fields: usize,
    pub field_bytes: usize,
    pub processes: usize,
    pub threads: usize,
    pub pipeline: usize,
    pub batch: usize,
    pub rate: Option<f64>,
    pub limit_ms: f64,
    pub warm_up_seconds: f64,
    pub seed: u64,
    /// Where servers and load generator ran, if they were kept apart.
    #[serde(default)]
    pub server_cores: Option<Cores>,
    #[serde(default)]
    pub core: Option<usize>,
    pub command: String,
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    pub version: u32,
    pub settings: Settings,
    pub host: Host,
    pub seconds: f64,
    pub operations: u64,
    pub operations_per_second: f64,
    pub reads: Summary,
    pub writes: Summary,
    /// Share of the records that reads asked for that were there, 0 to 1; `None` without such reads.
    #[serde(default)]
    pub found_share: Option<f64>,
    pub server_cpu_seconds: Option<f64>,
    pub operations_per_server_cpu_second: Option<f64>,
    /// Share of one core that the load generator used, 0 to 1.
    pub client_cpu_share: f64,
    pub timeline: Vec<Second>,
    /// Share of operations at or below, latency in milliseconds.
    pub read_distribution: Vec<(f64, f64)>,
    pub write_distribution: Vec<(f64, f64)>,
    pub warnings: Vec<String>,
    /// What else the machine did meanwhile, if that can be told.
    #[serde(default)]
    pub machine: Option<MachineLoad>,
    /// The day, in universal time: 2026-11-27.
    #[serde(default)]
    pub measured_on: Option<String>,
}

/// The machine of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub tessera_version: String,
    /// That this program, which is Tessera too, was built of; `None` if who built it did not say.
    #[serde(default)]
    pub tessera_commit: Option<String>,
}

impl Host {
    /// As it is when this is first asked: later, this process may be kept to a part of it.
    pub fn this() -> Self {
        static THIS: LazyLock<Host> = LazyLock::new(Host::look);
        THIS.clone()
    }

    fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kilobytes: u64 = memory.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        Self {
            cpu: after(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            tessera_version: env!("CARGO_PKG_VERSION").to_string(),
            tessera_commit: option_env!("TESSERA_COMMIT").filter(|commit| !commit.is_empty()).map(str::to_string),
        }
    }
}

fn keeps_up(operations_per_second: f64, rate: f64) -> bool {
    operations_per_second >= rate * KEPT_UP
}

impl RunResult {
    /// How far the throughput of single seconds is apart, as a share of the mean; `None` of a run that was too short.
    pub fn spread_of_seconds(&self) -> Option<f64> {
        let rates = || self.timeline.iter().map(|second| second.operations as f64);
        let (low, high, sum) = rates().fold((f64::MAX, 0.0, 0.0), |(low, high, sum), rate| {
            (f64::min(low, rate), f64::max(high, rate), sum + rate)
        });
        (self.timeline.len() > 1 && sum > 0.0).then(|| (high - low) * self.timeline.len() as f64 / sum)
    }

    /// Whether what was due was done, in an open loop.
    pub fn kept_up(&self) -> bool {
        self.settings.rate.is_none_or(|rate| keeps_up(self.operations_per_second, rate))
    }

    pub fn new(settings: Settings, measured: &Measured, server_cpu: Option<Duration>) -> Self {
        let (reads, writes) = (measured.reads.summary(), measured.writes.summary());
        let operations = reads.operations + writes.operations;
        let seconds = measured.elapsed.as_secs_f64();
        let client_cpu_share = measured.cpu.as_secs_f64() / seconds;
        let mut warnings = Vec::new();
        if client_cpu_share > BUSY && settings.rate.is_none() {
            warnings.push(format!(
                "the load generator used {:.0} % of its core, so it may have been the bottleneck: compare operations per \
                 server-CPU-second, not throughput",
                client_cpu_share * 100.0
            ));
        }
        if let Some(rate) = settings.rate.filter(|rate| !keeps_up(operations as f64 / seconds, *rate)) {
            warnings.push(format!("the server did not keep up with {rate:.0} operations per second"));
        }
        let records_read = reads.records_read + writes.records_read;
        let records_found = reads.records_found + writes.records_found;
        let found_share = (records_read > 0).then(|| records_found as f64 / records_read as f64);
        if let Some(share) = found_share.filter(|share| *share < ENOUGH_FOUND) {
            warnings.push(format!(
                "reads found {:.1} % of the records that they asked for, and to find nothing is quicker: have all {} records been \
                 loaded into this table (--load)?",
                100.0 * share,
                settings.records
            ));
        }
        warnings.extend(measured.machine.and_then(|load| load.warning()));
        let server_cpu_seconds = server_cpu.map(|cpu| cpu.as_secs_f64());
        Self {
            version: VERSION,
            settings,
            host: Host::this(),
            seconds,
            operations,
            operations_per_second: operations as f64 / seconds,
            operations_per_server_cpu_second: server_cpu_seconds
                .filter(|cpu| *cpu > 0.0)
                .map(|cpu| operations as f64 / cpu),
            server_cpu_seconds,
            client_cpu_share,
            timeline: measured.seconds.clone(),
            read_distribution: measured.reads.distribution(),
            write_distribution: measured.writes.distribution(),
            reads,
            writes,
            found_share,
            warnings,
            machine: measured.machine,
            measured_on: Some(day::today()),
        }
    }

    /// What was measured, and when.
    pub fn build(&self) -> String {
        let commit = self.host.tessera_commit.as_deref().map_or(String::new(), |commit| format!(" of commit {commit}"));
        let day = self.measured_on.as_deref().map_or(String::new(), |day| format!(", measured on {day}"));
        format!("Tessera {}{commit}{day}", self.host.tessera_version)
    }

    /// Share of all operations that took longer than the limit of the run, 0 to 1.
    pub fn share_over_limit(&self) -> f64 {
        let over = |summary: &Summary| summary.share_over_limit * summary.operations as f64;
        (over(&self.reads) + over(&self.writes)) / self.operations.max(1) as f64
    }

    /// Share of their cores that the servers used, 0 to 1.
    pub fn server_cpu_share(&self) -> Option<f64> {
        let cores = self.settings.server_cores.as_ref().map_or(self.host.cores, Cores::count);
        Some(self.server_cpu_seconds? / self.seconds / cores as f64)
    }

    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let foreign = || format!("{} is no result of this version", path.display());
        let result: Self = serde_json::from_slice(&bytes).with_context(foreign)?;
        ensure!(result.version == VERSION, foreign());
        Ok(result)
    }
}

/// The columns of the published reports, and the share of records that reads have found.
const COLUMNS: [&str; 15] = [
    "name",
    "mix",
    "record",
    "clients",
    "pipeline",
    "ops/s",
    "ops per server-CPU-s",
    "read avg, ms",
    "read P99, ms",
    "read P999, ms",
    "write avg, ms",
    "write P99, ms",
    "write P999, ms",
    "over limit",
    "found",
];

fn row(result: &RunResult) -> Vec<String> {
    let settings = &result.settings;
    let record = if settings.fields == 1 {
        format!("{} B", settings.field_bytes)
    } else {
        format!("{} x {} B", settings.fields, settings.field_bytes)
    };
    let latency = |summary: &Summary| {
        let shown = |value: f64| if summary.operations == 0 { "-".into() } else { format!("{value:.3}") };
        [summary.mean_ms, summary.p99_ms, summary.p999_ms].map(shown)
    };
    let per_cpu = result.operations_per_server_cpu_second.map_or("-".into(), |value| format!("{value:.0}"));
    let about = [settings.name.clone(), settings.mix.clone(), record];
    let clients = [format!("{}*{}", settings.processes, settings.threads), settings.pipeline.to_string()];
    let rates = [format!("{:.0}", result.operations_per_second), per_cpu];
    let over = format!("{:.3} %", result.share_over_limit() * 100.0);
    let found = result.found_share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
    [&about[..], &clients, &rates, &latency(&result.reads), &latency(&result.writes), &[over, found]].concat()
}

/// Results as a Markdown table with the columns of the published reports.
pub fn table(results: &[RunResult]) -> String {
    let mut text = format!("| {} |\n|{}\n", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len()));
    for result in results {
        text += &format!("| {} |\n", row(result).join(" | "));
    }
    text
}
