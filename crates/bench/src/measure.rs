//! Latencies and counts of a run.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds that a latency is recorded up to; three significant digits.
const LONGEST_NANOS: u64 = 600_000_000_000;

/// Latencies of one kind of operation.
pub struct Latencies {
    histogram: Histogram<u64>,
    /// Operations that took longer than the limit of the run.
    pub over_limit: u64,
    limit: Duration,
    pub errors: u64,
    /// Records that these operations have asked for, and how many of them were there.
    pub records_read: u64,
    pub records_found: u64,
}

impl Latencies {
    pub fn new(limit: Duration) -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NANOS, 3).expect("the bounds are constants");
        Self { histogram, over_limit: 0, limit, errors: 0, records_read: 0, records_found: 0 }
    }

    /// So many records were asked for, of which some are not there.
    #[inline]
    pub fn looked_up(&mut self, records: u64, absent: u64) {
        self.records_read += records;
        self.records_found += records.saturating_sub(absent);
    }

    #[inline]
    pub fn record(&mut self, latency: Duration, times: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NANOS).clamp(1, LONGEST_NANOS);
        self.histogram.record_n(nanos, times).expect("clamped to the bounds");
        if latency > self.limit {
            self.over_limit += times;
        }
    }

    pub fn clear(&mut self) {
        self.histogram.reset();
        self.over_limit = 0;
        self.errors = 0;
        self.records_read = 0;
        self.records_found = 0;
    }

    pub fn summary(&self) -> Summary {
        let millis = |nanos: u64| nanos as f64 / 1e6;
        let at = |quantile: f64| millis(self.histogram.value_at_quantile(quantile));
        let count = self.histogram.len();
        if count == 0 {
            return Summary { errors: self.errors, ..Summary::default() };
        }
        Summary {
            operations: count,
            errors: self.errors,
            records_read: self.records_read,
            records_found: self.records_found,
            mean_ms: self.histogram.mean() / 1e6,
            p50_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            p9999_ms: at(0.9999),
            max_ms: millis(self.histogram.max()),
            min_ms: millis(self.histogram.min()),
            share_over_limit: self.over_limit as f64 / count as f64,
        }
    }

    /// Points of the latency distribution: share of operations at or below, and the latency in milliseconds.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let steps = self.histogram.iter_quantiles(4);
        steps.map(|step| (step.quantile(), step.value_iterated_to() as f64 / 1e6)).collect()
    }
}

/// Histograms, each with a tag, of so long a time in the standard text format for logs of HDR histograms, version 2. Values are
/// nanoseconds; the largest of each line is written in milliseconds.
///
/// # Errors
/// If one cannot be encoded.
pub fn hdr_log(histograms: &[(&str, &Latencies)], elapsed: Duration) -> anyhow::Result<Vec<u8>> {
    let (mut log, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("[Latencies of operations in nanoseconds, by tessera bench]").with_max_value_divisor(1e6);
    let mut writer = builder.begin_log_with(&mut log, &mut serializer)?;
    for (tag, latencies) in histograms.iter().filter(|(_, latencies)| !latencies.histogram.is_empty()) {
        writer
            .write_histogram(&latencies.histogram, Duration::ZERO, elapsed, Tag::new(tag))
            .map_err(|error| anyhow::anyhow!("a histogram cannot be written: {error:?}"))?;
    }
    Ok(log)
}

/// Latencies of one kind of operation in numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    pub operations: u64,
    pub errors: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub p9999_ms: f64,
    pub max_ms: f64,
    #[serde(default)]
    pub min_ms: f64,
    /// Share of operations over the limit of the run, 0 to 1.
    pub share_over_limit: f64,
    /// Records that were asked for, and how many of them were there. A write that reads first asks for one too. Results that do not
    /// tell have 0.
    #[serde(default)]
    pub records_read: u64,
    #[serde(default)]
    pub records_found: u64,
}

/// One second of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Second {
    pub second: u64,
    pub operations: u64,
    pub read_p99_ms: f64,
    pub write_p99_ms: f64,
    /// What the servers read from disks and wrote to them, if that can be told.
    #[serde(default)]
    pub server_read_bytes: Option<u64>,
    #[serde(default)]
    pub server_written_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::*;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn a_log_of_histograms_can_be_read_back() {
        let (mut reads, writes) = (Latencies::new(Duration::from_secs(1)), Latencies::new(Duration::from_secs(1)));
        reads.record(Duration::from_micros(250), 7);
        let log = hdr_log(&[("READ", &reads), ("WRITE", &writes)], Duration::from_secs(3)).unwrap();
        let intervals: Vec<_> = IntervalLogIterator::new(&log)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(intervals.len(), 1, "nothing was written");
        assert_eq!(intervals[0].tag().map(|tag| tag.as_str()), Some("READ"));
        assert_eq!(intervals[0].duration(), Duration::from_secs(3));
        let bytes = BASE64_STANDARD.decode(intervals[0].encoded_histogram()).unwrap();
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!((histogram.len(), histogram.equivalent(histogram.max(), 250_000)), (7, true));
    }
}
