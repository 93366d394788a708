//! Of what and when results are: they may come of several days, and of several states of the sources.

use crate::suite::result::CellResult;
use std::collections::BTreeMap;

/// A commit, and a day on which it was measured, of the results that name them.
type Origin<'a> = (Option<&'a str>, Option<&'a str>);

fn origin(result: &CellResult) -> Option<Origin<'_>> {
    let run = result.shown()?;
    Some((run.host.tessera_commit.as_deref(), run.measured_on.as_deref()))
}

fn counts<'a>(results: impl Iterator<Item = &'a CellResult>) -> BTreeMap<Origin<'a>, usize> {
    let mut counts = BTreeMap::new();
    for origin in results.filter_map(origin) {
        *counts.entry(origin).or_default() += 1;
    }
    counts
}

fn shown((commit, day): Origin<'_>) -> String {
    match (commit, day) {
        (Some(commit), Some(day)) => format!("commit `{commit}` on {day}"),
        (Some(commit), None) => format!("commit `{commit}` on a day that they do not name"),
        (None, Some(day)) => format!("a commit that they do not name, on {day}"),
        (None, None) => "a commit and a day that they do not name".into(),
    }
}

/// Says where results come from; `None` if there are none.
pub(super) fn sentence<'a>(results: impl Iterator<Item = &'a CellResult>) -> Option<String> {
    let counts = counts(results);
    let all: usize = counts.values().sum();
    let cells = |count: usize| if count == 1 { "1 cell".to_string() } else { format!("{count} cells") };
    let parts: Vec<String> =
        counts.iter().map(|(origin, count)| format!("{} of {}", cells(*count), shown(*origin))).collect();
    match parts.as_slice() {
        [] => None,
        [_] if all == 1 => Some(format!("Measured: {}.", parts[0])),
        [_] => Some(format!("Measured: all {}.", parts[0])),
        _ => Some(format!(
            "Measured: {}. Between these, figures also differ by what was changed, and by how quick the machine was.",
            parts.join(", ")
        )),
    }
}

/// For each origin, how many results there are.
pub(super) fn rows<'a>(results: impl Iterator<Item = &'a CellResult>) -> Vec<Vec<String>> {
    let or_not = |named: Option<&str>| named.map_or("not named".to_string(), str::to_string);
    let row = |((commit, day), count): (Origin<'_>, usize)| vec![or_not(commit), or_not(day), count.to_string()];
    counts(results).into_iter().map(row).collect()
}
