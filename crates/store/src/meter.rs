//! How much is asked of a partition.

use serde::Serialize;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a capacity unit stands for, as in Apache Pegasus. A command on a partition takes one at least.
pub const CAPACITY_UNIT_BYTES: usize = 4096;

/// Counts what a replica is asked since it was opened.
#[derive(Debug, Default)]
pub struct Meter {
    reads: AtomicU64,
    writes: AtomicU64,
    /// Units beyond the first one of each read, and of each write.
    more_read_units: AtomicU64,
    more_write_units: AtomicU64,
}

impl Meter {
    pub fn begin_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a read that has found this many bytes in all.
    pub fn end_read(&self, bytes: usize) {
        count_more(&self.more_read_units, bytes);
    }

    pub fn begin_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a write that changes this many bytes in all.
    pub fn end_write(&self, bytes: usize) {
        count_more(&self.more_write_units, bytes);
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn counts(&self) -> Counts {
        let [reads, writes, more_read, more_write] =
            [&self.reads, &self.writes, &self.more_read_units, &self.more_write_units]
                .map(|count| count.load(Ordering::Relaxed));
        Counts { reads, writes, read_units: reads + more_read, write_units: writes + more_write }
    }
}

#[inline]
fn count_more(units: &AtomicU64, bytes: usize) {
    if bytes > CAPACITY_UNIT_BYTES {
        units.fetch_add((bytes.div_ceil(CAPACITY_UNIT_BYTES) - 1) as u64, Ordering::Relaxed);
    }
}

/// Requests and capacity units of partitions: as totals, or per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// Capacity units: each read takes one for every [`CAPACITY_UNIT_BYTES`] that it finds, and one if it finds less.
    pub read_units: u64,
    /// Capacity units of writes, by the bytes that they change.
    pub write_units: u64,
}

impl Counts {
    /// Capacity units, read and written.
    pub fn units(&self) -> u64 {
        self.read_units + self.write_units
    }

    /// What was counted in some time as a number in a second, rounded.
    pub fn in_a_second(self, time: std::time::Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        self.zip(Self { reads: millis, writes: millis, read_units: millis, write_units: millis }, |count, millis| {
            (count * 1_000 + millis / 2) / millis
        })
    }

    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            reads: with(self.reads, other.reads),
            writes: with(self.writes, other.writes),
            read_units: with(self.read_units, other.read_units),
            write_units: with(self.write_units, other.write_units),
        }
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, |one, other| one + other)
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_counted_by_four_kibibytes() {
        let meter = Meter::default();
        for bytes in [0, 1, 4096, 4097, 8192, 8193] {
            meter.begin_read();
            meter.end_read(bytes);
        }
        meter.begin_write();
        meter.end_write(100_000);
        assert_eq!(meter.counts(), Counts { reads: 6, writes: 1, read_units: 10, write_units: 25 });
    }
}
