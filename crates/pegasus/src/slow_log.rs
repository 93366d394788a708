//! Reads that take long, return much or look at many records go to the log, as in Pegasus.

use std::time::Duration;
use tessera_store::Table;
use tessera_types::RecordKey;

/// The app env with the milliseconds from which on a read is slow.
pub(crate) const THRESHOLD: &str = "replica.slow_query_threshold";
/// Where the table says nothing; as in Pegasus.
const SLOW: Duration = Duration::from_millis(100);
const LEAST: Duration = Duration::from_millis(20);

/// From where on a read is worth a line, however quick it was; as in Pegasus.
#[derive(Clone, Copy)]
pub(crate) struct Many {
    bytes: usize,
    /// That were looked at, whether they were returned or not.
    records: usize,
}

impl Many {
    pub(crate) const OF_ONE: Self = Self { bytes: 1 << 20, records: usize::MAX };
    pub(crate) const OF_MULTI_GET: Self = Self { bytes: 10 << 20, records: 1_000 };
    pub(crate) const OF_BATCH_GET: Self = Self { records: 2_000, ..Self::OF_MULTI_GET };
    pub(crate) const OF_OTHERS: Self = Self { records: usize::MAX, ..Self::OF_MULTI_GET };

    fn is_reached(self, cost: Cost) -> bool {
        cost.bytes >= self.bytes || cost.records >= self.records
    }
}

/// What a read came to.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) took: Duration,
    pub(crate) bytes: usize,
    pub(crate) records: usize,
}

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

/// Whether a read is worth a line.
pub(crate) fn is_due(table: &Table, many: Many, cost: Cost) -> bool {
    // The first looks cost nothing, and nearly always suffice.
    many.is_reached(cost) || cost.took >= LEAST && cost.took >= slow(table)
}

/// Notes a read that [is worth it](is_due).
pub(crate) fn note(table: &Table, partition: u32, call: &str, key: Option<RecordKey<'_>>, cost: Cost) {
    let key = key.map(|key| if key.hash_key.is_empty() { key.sort_key } else { key.hash_key }).unwrap_or_default();
    tracing::warn!(
        table = %table.name(),
        partition,
        call,
        key = %key[..key.len().min(SHOWN_BYTES)].escape_ascii(),
        milliseconds = cost.took.as_millis(),
        bytes = cost.bytes,
        records = cost.records,
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

    #[test]
    fn much_is_another_number_for_each_kind_of_read() {
        let is_much = |many: Many, bytes: usize, records: usize| many.is_reached(Cost { took: LEAST, bytes, records });
        assert!(is_much(Many::OF_ONE, 1 << 20, 1) && !is_much(Many::OF_MULTI_GET, 1 << 20, 999));
        assert!(is_much(Many::OF_MULTI_GET, 10 << 20, 1) && is_much(Many::OF_MULTI_GET, 0, 1_000));
        assert!(is_much(Many::OF_BATCH_GET, 0, 2_000) && !is_much(Many::OF_BATCH_GET, 0, 1_999));
        assert!(!is_much(Many::OF_OTHERS, 0, 1_000_000));
    }
}
