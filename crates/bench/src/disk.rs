//! What processes read from disks and write to them.

use std::time::Duration;

/// Bytes read and written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    pub read: u64,
    pub written: u64,
}

/// What processes have read and written; `None` if one is not there, or somebody else's.
pub fn of_processes(pids: &[u32]) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for pid in pids {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let value = |key: &str| io.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        sum.read += value("read_bytes:")?;
        sum.written += value("write_bytes:")?;
    }
    (!pids.is_empty()).then_some(sum)
}

/// What was read and written in each of so many seconds, from counts at times that ascend.
pub fn by_second(counts: &[(Duration, Bytes)], seconds: usize) -> Vec<Bytes> {
    let at = |time: f64| {
        let after = counts.partition_point(|(at, _)| at.as_secs_f64() < time).min(counts.len().saturating_sub(1));
        let (before, after) = (counts.get(after.saturating_sub(1))?, counts.get(after)?);
        let (from, to) = (before.0.as_secs_f64(), after.0.as_secs_f64());
        let share = if to > from { ((time - from) / (to - from)).clamp(0.0, 1.0) } else { 0.0 };
        let between = |one: u64, other: u64| one + (other.saturating_sub(one) as f64 * share) as u64;
        Some(Bytes { read: between(before.1.read, after.1.read), written: between(before.1.written, after.1.written) })
    };
    let of_second = |second: usize| {
        let (begin, end) = (at(second as f64)?, at(second as f64 + 1.0)?);
        Some(Bytes { read: end.read.saturating_sub(begin.read), written: end.written.saturating_sub(begin.written) })
    };
    (0..seconds).filter_map(of_second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_at_odd_times_become_seconds() {
        let count = |millis, written| (Duration::from_millis(millis), Bytes { read: 0, written });
        let counts = [count(0, 100), count(500, 150), count(1_500, 350), count(2_000, 350)];
        let written = |seconds| by_second(&counts, seconds).iter().map(|bytes| bytes.written).collect::<Vec<_>>();
        assert_eq!(written(2), [150, 100]);
        assert_eq!(written(3), [150, 100, 0], "nothing is known of the last one");
        assert_eq!(by_second(&[], 3), []);
    }
}
