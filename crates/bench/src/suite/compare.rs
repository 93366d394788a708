//! What is different between two suites, beyond what repeats differ by anyway.

use super::cell::Loop;
use super::result::{CellResult, read_all};
use crate::report::{Host, RunResult};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// What runs are taken to differ by whose noise is not known.
const UNKNOWN_NOISE: f64 = 0.1;

/// Cells that both directories have, with how throughput and cost changed, as a Markdown table. A change counts when it is
/// larger than the spread of either's repeats, or of the seconds of a single run. Before it, it is said if they were measured on
/// different machines.
///
/// # Errors
/// If a directory has no results, or a file is none.
pub fn compare(before: &Path, after: &Path) -> anyhow::Result<String> {
    let (before, after) = (read_all(before)?, read_all(after)?);
    let mut rows = String::new();
    let (mut compared, mut changed, mut unknown) = (0, 0, 0);
    let [mut machines_before, mut machines_after] = [BTreeSet::new(), BTreeSet::new()];
    for (id, old) in &before {
        let Some(new) = after.get(id) else { continue };
        let (Some(one), Some(other)) = (old.shown(), new.shown()) else { continue };
        compared += 1;
        machines_before.insert(machine(&one.host));
        machines_after.insert(machine(&other.host));
        let noise = noise(old).zip(noise(new)).map(|(old, new)| old.max(new));
        unknown += usize::from(noise.is_none());
        let rate = (one.operations_per_second, other.operations_per_second);
        let cost = one.operations_per_server_cpu_second.zip(other.operations_per_server_cpu_second);
        let is_beyond = |(old, new): (f64, f64)| (new / old - 1.0).abs() > noise.unwrap_or(UNKNOWN_NOISE);
        if !is_beyond(rate) && !cost.is_some_and(is_beyond) {
            continue;
        }
        changed += 1;
        let change = |(old, new): (f64, f64)| format!("{old:.0} | {new:.0} | {:+.0} %", 100.0 * (new / old - 1.0));
        let cost = cost.map_or("- | - | -".into(), change);
        let noise = noise.map_or("not known".into(), |noise| format!("{:.0} %", 100.0 * noise));
        writeln!(rows, "| {id} | {} | {cost} | {noise} |", change(rate))?;
    }
    let mut text = String::new();
    if machines_before != machines_after {
        let list = |machines: BTreeSet<String>| Vec::from_iter(machines).join(", and ");
        writeln!(
            text,
            "> They were not measured on the same machine, so what changed may be the machine's: before on {}; after on {}.\n",
            list(machines_before),
            list(machines_after)
        )?;
    }
    text += "| cell | ops/s before | after | change | ops per server-CPU-s before | after | change | noise |\n\
             |---|---|---|---|---|---|---|---|\n";
    text += &rows;
    writeln!(text, "\n{compared} cells are in both; {changed} changed by more than noise.")?;
    if unknown > 0 {
        writeln!(
            text,
            "The noise of {unknown} of them is not known, since they are searches, or single runs that were too short; \
             of these, changes of more than {:.0} % are told.",
            100.0 * UNKNOWN_NOISE
        )?;
    }
    Ok(text)
}

/// `None` if it is not known. What a search has found is a single run at a fixed rate: its seconds are alike, however much two searches
/// differ in the rates that they find.
fn noise(result: &CellResult) -> Option<f64> {
    let of_seconds = || result.shown().and_then(RunResult::spread_of_seconds);
    let is_search = result.cell.kind == Loop::Search;
    result.tessera.spread().or_else(of_seconds).filter(|_| !is_search)
}

/// What tells machines apart. How much memory a kernel leaves differs a little from one to the next.
fn machine(host: &Host) -> String {
    format!("{} with {} cores and {} GiB", host.cpu, host.cores, host.memory_bytes >> 30)
}
