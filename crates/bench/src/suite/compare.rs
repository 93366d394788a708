//! What is different between two suites, beyond what repeats differ by anyway.

use super::result::{CellResult, read_all};
use crate::report::RunResult;
use std::fmt::Write;
use std::path::Path;

/// What single runs are taken to differ by that were too short to tell.
const UNKNOWN_SPREAD: f64 = 0.1;

/// Cells that both directories have, with how throughput and cost changed, as a Markdown table. A change counts when it is
/// larger than the spread of either's repeats, or of the seconds of a single run.
///
/// # Errors
/// If a directory has no results, or a file is none.
pub fn compare(before: &Path, after: &Path) -> anyhow::Result<String> {
    let (before, after) = (read_all(before)?, read_all(after)?);
    let mut text = String::from(
        "| cell | ops/s before | after | change | ops per server-CPU-s before | after | change | noise |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let (mut compared, mut changed) = (0, 0);
    for (id, old) in &before {
        let Some(new) = after.get(id) else { continue };
        let (Some(one), Some(other)) = (old.shown(), new.shown()) else { continue };
        compared += 1;
        let noise = noise(old).max(noise(new));
        let rate = (one.operations_per_second, other.operations_per_second);
        let cost = one.operations_per_server_cpu_second.zip(other.operations_per_server_cpu_second);
        let is_beyond = |(old, new): (f64, f64)| (new / old - 1.0).abs() > noise;
        if !is_beyond(rate) && !cost.is_some_and(is_beyond) {
            continue;
        }
        changed += 1;
        let change = |(old, new): (f64, f64)| format!("{old:.0} | {new:.0} | {:+.0} %", 100.0 * (new / old - 1.0));
        let cost = cost.map_or("- | - | -".into(), change);
        writeln!(text, "| {id} | {} | {cost} | {:.0} % |", change(rate), 100.0 * noise)?;
    }
    writeln!(text, "\n{compared} cells are in both; {changed} changed by more than noise.")?;
    Ok(text)
}

fn noise(result: &CellResult) -> f64 {
    let of_seconds = || result.shown().and_then(RunResult::spread_of_seconds);
    result.tessera.spread().or_else(of_seconds).unwrap_or(UNKNOWN_SPREAD)
}
