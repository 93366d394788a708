//! How much of a partition's log of changes is kept.

use super::record::{LogState, number_at};
use tessera_store::Table;

/// The shortest time for which changes are kept, and for which a log goes on after its last feed: one that is connected must have time to
/// read.
const LEAST_MILLIS: u64 = 60_000;
/// A log looks for changes that are too old so many times in the time for which it keeps them.
const TRIMS: u64 = 64;

/// What a partition of a table keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    pub(super) millis: u64,
    /// Bytes in this partition.
    pub(super) bytes: u64,
    /// Partitions of the table.
    partitions: u32,
}

impl Retention {
    pub(super) fn of(table: &Table) -> Self {
        let (retention, partitions) = (table.settings().feed_retention, table.schema().partitions);
        let millis = retention.feed_retention_seconds.saturating_mul(1_000).max(LEAST_MILLIS);
        Self { millis, bytes: retention.feed_retention_bytes / u64::from(partitions), partitions }
    }

    /// Takes account of one more change, of so many bytes.
    pub(super) fn add(&self, state: &mut LogState, bytes: u64) {
        let (before, now) = (state.partitions, self.partitions);
        if before != 0 && before < now {
            // The table was split: each of the new partitions has about its share of what the old one had.
            state.bytes /= u64::from(now / before);
        }
        state.partitions = now;
        state.bytes += bytes;
    }

    /// Whether it is to be looked whether changes are to go.
    pub(super) fn is_to_be_trimmed(&self, state: &LogState, now: u64) -> bool {
        state.bytes > self.bytes || now >= state.trim_at
    }

    /// Takes account of changes that are to go because they are too old or too many, but never of the last one. `oldest` are numbers
    /// and bytes of the oldest changes, all of them unless it `is_cut`. Returns how many of these are to go.
    pub(super) fn trim(&self, state: &mut LogState, now: u64, oldest: &[(u64, u64)], is_cut: bool) -> usize {
        let (too_old, is_full) = (number_at(now.saturating_sub(self.millis)), state.bytes > self.bytes);
        // Some room is made, so that not each write makes room for itself.
        let enough = self.bytes - self.bytes / 8;
        let mut gone = 0;
        for (number, bytes) in oldest {
            let goes = *number < too_old || (is_full && state.bytes > enough);
            if !goes || *number >= state.last {
                break;
            }
            (state.floor, gone) = (*number, gone + 1);
            state.bytes = state.bytes.saturating_sub(*bytes);
        }
        let rest = &oldest[gone..];
        if !rest.is_empty() || !is_cut {
            state.trim_at = now + self.millis / TRIMS;
        }
        if rest.len() <= 1 && !is_cut {
            // What is left is known, so what a split has estimated is corrected.
            state.bytes = rest.iter().map(|(_, bytes)| bytes).sum();
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A log with its changes: their numbers and bytes.
    #[derive(Clone, Default)]
    struct Log {
        state: LogState,
        changes: VecDeque<(u64, u64)>,
        now: u64,
    }

    const MOST_AT_ONCE: usize = 64;

    impl Log {
        /// Writes in different milliseconds.
        fn write(&mut self, retention: &Retention, count: u64, bytes: u64) {
            for _ in 0..count {
                self.now += 1;
                self.state.last = number_at(self.now);
                self.changes.push_back((self.state.last, bytes));
                retention.add(&mut self.state, bytes);
                if retention.is_to_be_trimmed(&self.state, self.now) {
                    let oldest: Vec<_> = self.changes.iter().take(MOST_AT_ONCE).copied().collect();
                    let is_cut = self.changes.len() > MOST_AT_ONCE;
                    let gone = retention.trim(&mut self.state, self.now, &oldest, is_cut);
                    self.changes.drain(..gone);
                }
                assert!(self.state.floor < self.changes.front().unwrap().0);
            }
        }

        fn kept(&self) -> u64 {
            self.changes.iter().map(|(_, bytes)| bytes).sum()
        }

        /// One of the partitions that have taken its place, with each so many of its changes.
        fn split(&self, each: usize) -> Self {
            Self { changes: self.changes.iter().step_by(each).copied().collect(), ..self.clone() }
        }
    }

    fn retention(partitions: u32) -> Retention {
        Retention { millis: 3_600_000, bytes: (1 << 20) / u64::from(partitions), partitions }
    }

    #[test]
    fn a_full_log_keeps_most_of_what_it_may() {
        let mut log = Log::default();
        log.write(&retention(1), 5_000, 1_000);
        assert!(((7 << 17) - 1_000..=1 << 20).contains(&log.kept()), "{}", log.kept());
        assert_eq!(log.kept(), log.state.bytes);
    }

    #[test]
    fn splits_keep_what_was_kept() {
        let mut log = Log::default();
        log.write(&retention(1), 5_000, 1_000);
        let first = log.split(2);
        let mut log = first.clone();
        log.write(&retention(2), 10, 1_000);
        assert!(log.kept() >= first.kept() * 3 / 4, "{} of {}", log.kept(), first.kept());
        log = log.split(2);
        log.write(&retention(4), 1_000, 1_000);
        assert!((200_000..=280_000).contains(&log.kept()), "{}", log.kept());
    }

    #[test]
    fn an_estimate_that_was_wrong_is_corrected() {
        let mut log = Log::default();
        log.write(&retention(1), 5_000, 1_000);
        // Nearly all of it was of documents that are in the other partition; and an older version has noted no partitions.
        for partitions in [1, 0] {
            let mut log = log.split(100);
            log.state.partitions = partitions;
            log.write(&retention(2), 3_000, 1_000);
            assert!((450_000..=1 << 19).contains(&log.kept()), "{}", log.kept());
            assert_eq!(log.kept(), log.state.bytes);
        }
    }

    #[test]
    fn changes_that_are_too_old_go_but_not_the_last_one() {
        let (mut log, retention) = (Log::default(), retention(1));
        log.write(&retention, 10, 100);
        log.now += 2 * retention.millis;
        log.write(&retention, 1, 100);
        assert_eq!((log.changes.len(), log.state.bytes), (1, 100));
    }
}
