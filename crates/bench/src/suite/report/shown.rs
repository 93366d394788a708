//! How figures are shown in tables and charts.

use crate::measure::Summary;
use crate::report::RunResult;
pub(super) use crate::report::chart::PUBLISHED;
use crate::report::chart::{Bars, Line};
pub(super) use crate::report::number::{exact, whole};
use crate::suite::peer;
use crate::suite::published::clients;
use crate::suite::result::CellResult;

/// Colours that mean the same in all charts where they are not those of several sizes or settings.
pub(super) const TESSERA: usize = 1;
pub(super) const REDIS: usize = 2;
pub(super) const MEMCACHED: usize = 3;
pub(super) const ETCD: usize = 4;

/// CPU time of an operation, microseconds.
pub(super) fn cost(run: &RunResult) -> Option<f64> {
    run.operations_per_server_cpu_second.map(|rate| 1e6 / rate)
}

/// How many times the CPU time of an operation in another run it is in one; `None` of runs of different commits or days, whose
/// difference may be theirs.
pub(super) fn cost_ratio(one: &RunResult, other: &RunResult) -> Option<f64> {
    let origin = |run: &RunResult| (run.host.tessera_commit.clone(), run.measured_on.clone());
    (origin(one) == origin(other)).then(|| Some(cost(one)? / cost(other)?)).flatten()
}

pub(super) fn cost_shown(run: &RunResult) -> String {
    cost(run).map_or("-".into(), |micros| format!("{micros:.1}"))
}

pub(super) fn or_dash(value: Option<f64>) -> String {
    value.map_or("-".into(), whole)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

pub(super) fn per_cpu(run: &RunResult) -> String {
    or_dash(run.operations_per_server_cpu_second)
}

/// Heads of [`figures`] of reads and writes.
pub(super) const FIGURES: [&str; 8] =
    ["reads, per s", "avg, µs", "P99, µs", "P99.9, µs", "writes, per s", "avg, µs", "P99, µs", "P99.9, µs"];

/// Rate and latencies of one kind of operation: per second, and in microseconds.
pub(super) fn figures(summary: &Summary, seconds: f64) -> [Option<f64>; 4] {
    let micros = |ms: f64| (summary.operations > 0).then_some(ms * 1e3);
    let rate = (summary.operations > 0).then_some(summary.operations as f64 / seconds);
    [rate, micros(summary.mean_ms), micros(summary.p99_ms), micros(summary.p999_ms)]
}

pub(super) fn line(label: impl Into<String>, color: usize, points: Vec<(f64, f64)>) -> Line {
    Line { label: label.into(), color, points }
}

pub(super) fn bars(label: impl Into<String>, color: usize, values: Vec<Option<f64>>) -> Bars {
    Bars { label: label.into(), color, values }
}

/// A word as it begins a title.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// How many clients `processes*threads` are.
pub(super) fn client_count(threads: &str) -> f64 {
    let (processes, threads) = clients(threads);
    (processes * threads) as f64
}

/// What was measured of other servers.
pub(super) fn peers(result: &CellResult) -> impl Iterator<Item = (&str, &RunResult)> {
    result.peers.iter().filter_map(|(name, measured)| Some((name.as_str(), measured.shown()?)))
}

/// What was measured of as many plain servers as there are nodes.
pub(super) fn control(result: &CellResult) -> Option<&RunResult> {
    peers(result).find(|(name, _)| peer::is_control(name)).map(|(_, run)| run)
}

/// The geometric mean, which that of inverses is the inverse of.
pub(super) fn mean(ratios: &[f64]) -> Option<f64> {
    (!ratios.is_empty()).then(|| (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp())
}
