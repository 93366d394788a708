//! Reads that take long or return much go to the log, as in Pegasus.

use std::time::Duration;
use tessera_store::Table;
use tessera_types::RecordKey;

/// The app env with the milliseconds from which on a read is slow.
pub(crate) const THRESHOLD: &str = "replica.slow_query_threshold";
/// Where the table says nothing; as in Pegasus.
const SLOW: Duration = Duration::from_millis(100);
const LEAST: Duration = Duration::from_millis(20);

/// Bytes from which on a reply is worth a line: of one record, and of several.
const MANY_BYTES: (usize, usize) = (1 << 20, 10 << 20);
/// As much of a key as is shown.
const SHOWN_BYTES: usize = 100;

/// Reads a [`THRESHOLD`].
///
/// # Errors
/// What is wrong, for a person.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let millis = text.parse().ok().map(Duration::from_millis).filter(|slow| *slow >= LEAST);
    millis.ok_or_else(|| format!("'{text}' is no number of milliseconds from {} on", LEAST.as_millis()))
}

fn slow(table: &Table) -> Duration {
    let settings = table.settings();
    settings.app_envs.get(THRESHOLD).and_then(|text| parse(text).ok()).unwrap_or(SLOW)
}

/// Whether a read that took so long and was answered with so many bytes is worth a line.
pub(crate) fn is_due(table: &Table, is_of_one: bool, took: Duration, bytes: usize) -> bool {
    let many = if is_of_one { MANY_BYTES.0 } else { MANY_BYTES.1 };
    // The first looks cost nothing, and nearly always suffice.
    bytes >= many || took >= LEAST && took >= slow(table)
}

/// Notes a read that [is worth it](is_due).
pub(crate) fn note(
    table: &Table,
    partition: u32,
    call: &str,
    key: Option<RecordKey<'_>>,
    took: Duration,
    bytes: usize,
) {
    let key = key.map(|key| if key.hash_key.is_empty() { key.sort_key } else { key.hash_key }).unwrap_or_default();
    tracing::warn!(
        table = %table.name(),
        partition,
        call,
        key = %key[..key.len().min(SHOWN_BYTES)].escape_ascii(),
        milliseconds = took.as_millis(),
        bytes,
        "a slow or large read"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read() {
        assert_eq!(parse("20"), Ok(LEAST));
        assert!(parse("19").is_err() && parse("fast").is_err());
    }
}
