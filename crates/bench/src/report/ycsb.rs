//! A result as YCSB prints it.

use super::RunResult;
use crate::measure::Summary;
use std::fmt::Write;

/// The lines of YCSB's text measurements exporter; latencies are in microseconds. `write_name` is what writes are called.
pub fn ycsb(result: &RunResult, write_name: &str) -> String {
    let mut text = String::new();
    let mut line = |section: &str, what: &str, value: String| {
        writeln!(text, "[{section}], {what}, {value}").expect("a string takes all text");
    };
    line("OVERALL", "RunTime(ms)", format!("{:.0}", result.seconds * 1e3));
    line("OVERALL", "Throughput(ops/sec)", result.operations_per_second.to_string());
    for (section, summary) in [("READ", &result.reads), (write_name, &result.writes)] {
        let Summary { operations, errors, .. } = *summary;
        if operations == 0 {
            continue;
        }
        let micros = |ms: f64| format!("{:.0}", ms * 1e3);
        line(section, "Operations", operations.to_string());
        line(section, "AverageLatency(us)", (summary.mean_ms * 1e3).to_string());
        line(section, "MinLatency(us)", micros(summary.min_ms));
        line(section, "MaxLatency(us)", micros(summary.max_ms));
        line(section, "95thPercentileLatency(us)", micros(summary.p95_ms));
        line(section, "99thPercentileLatency(us)", micros(summary.p99_ms));
        // A write that reads first is a write, whatever it has found.
        let absent = summary.records_read.saturating_sub(summary.records_found).min(operations);
        let absent = if section == "READ" { absent } else { 0 };
        line(section, "Return=OK", operations.saturating_sub(errors + absent).to_string());
        if absent > 0 {
            line(section, "Return=NOT_FOUND", absent.to_string());
        }
        if errors > 0 {
            line(section, "Return=ERROR", errors.to_string());
        }
    }
    text
}
