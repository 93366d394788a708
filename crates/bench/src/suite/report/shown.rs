//! How figures are shown in tables and charts.

use super::document::Block;
use crate::measure::Summary;
use crate::report::RunResult;
use crate::report::page::{COLORS, Line};
use crate::suite::result::CellResult;

/// Cores of the published servers, Pegasus' and RethinkDB's: two processors of ten each.
const SERVER_CORES: f64 = 20.0;
/// How busy they would be: as busy as nubase's were allowed to be.
const PROJECTED_SHARE: f64 = 0.6;

/// Operations per second of as many such servers with cores like this machine's, if an operation costs there what it costs here.
pub(super) fn projected(run: &RunResult, nodes: u16) -> Option<f64> {
    let cores = f64::from(nodes) * SERVER_CORES;
    run.operations_per_server_cpu_second.map(|rate| rate * cores * PROJECTED_SHARE)
}

/// CPU time of an operation, microseconds.
pub(super) fn cost(run: &RunResult) -> Option<f64> {
    run.operations_per_server_cpu_second.map(|rate| 1e6 / rate)
}

pub(super) fn cost_shown(run: &RunResult) -> String {
    cost(run).map_or("-".into(), |micros| format!("{micros:.1}"))
}

/// Thousands apart, nothing behind the point.
pub(super) fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
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

pub(super) fn text(words: &str) -> Block {
    Block::Text(words.into())
}

/// Heads of [`figures`] of reads and writes.
pub(super) const FIGURES: [&str; 8] =
    ["R-QPS", "R-avg, us", "R-P99, us", "R-P999, us", "W-QPS", "W-avg, us", "W-P99, us", "W-P999, us"];

/// Rate and latencies of one kind of operation: per second, and in microseconds.
pub(super) fn figures(summary: &Summary, seconds: f64) -> [Option<f64>; 4] {
    let micros = |ms: f64| (summary.operations > 0).then_some(ms * 1e3);
    let rate = (summary.operations > 0).then_some(summary.operations as f64 / seconds);
    [rate, micros(summary.mean_ms), micros(summary.p99_ms), micros(summary.p999_ms)]
}

/// A line of published figures, or of ours.
pub(super) fn line(label: impl Into<String>, color: usize, points: Vec<(f64, f64)>) -> Line {
    Line { label: label.into(), color: COLORS[color % COLORS.len()], points }
}

/// What was measured of other servers.
pub(super) fn peers(result: &CellResult) -> impl Iterator<Item = (&str, &RunResult)> {
    result.peers.iter().filter_map(|(name, measured)| Some((name.as_str(), measured.shown()?)))
}
