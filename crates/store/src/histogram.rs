//! How often something took how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest durations of the buckets in nanoseconds, from 10 microseconds to 10 seconds. What takes longer has a bucket of its own.
const BOUNDS: [u64; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Counts durations by buckets. Noting one takes two additions and no lock.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

/// What a histogram has counted.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramCounts {
    /// For each bucket its longest duration in seconds, and how many durations are in it and in none before it. The last bucket, which
    /// has no longest duration, has infinity.
    pub buckets: Vec<(f64, u64)>,
    /// All durations together, in seconds.
    pub sum_seconds: f64,
}

impl HistogramCounts {
    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl Histogram {
    /// Counts a duration so many times.
    #[inline]
    pub(crate) fn note(&self, times: u64, took: Duration) {
        let nanoseconds = (took.as_secs().saturating_mul(1_000_000_000)).saturating_add(u64::from(took.subsec_nanos()));
        let bucket = BOUNDS.iter().position(|bound| nanoseconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(times, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds.saturating_mul(times), Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> HistogramCounts {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / 1e9).chain([f64::INFINITY]);
        HistogramCounts {
            buckets: bounds.zip(self.buckets.iter().map(|count| count.load(Ordering::Relaxed))).collect(),
            sum_seconds: self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_that_is_long_enough() {
        let histogram = Histogram::default();
        let took = [
            (1, Duration::ZERO),
            (2, Duration::from_micros(10)),
            (4, Duration::from_nanos(10_001)),
            (8, Duration::from_micros(25)),
            (16, Duration::from_secs(10)),
            (32, Duration::from_nanos(10_000_000_001)),
        ];
        for (times, took) in took {
            histogram.note(times, took);
        }
        let counts = histogram.counts();
        let filled: Vec<_> = counts.buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!(filled, [(0.000_01, 3), (0.000_025, 12), (10.0, 16), (f64::INFINITY, 32)]);
        assert_eq!(counts.count(), 63);
        let sum: f64 = took.iter().map(|(times, took)| *times as f64 * took.as_secs_f64()).sum();
        // It was made of other roundings.
        assert!((counts.sum_seconds - sum).abs() < 1e-6, "{} is not {sum}", counts.sum_seconds);
    }

    #[test]
    fn bounds_grow() {
        assert!(BOUNDS.is_sorted_by(|one, next| one < next));
    }
}
