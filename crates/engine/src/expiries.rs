//! What a partition's engine knows of time: the partition's own, and when its records expire.
//!
//! A partition's time comes from its log, as a mutation of its leader, so it is the same on every replica that has
//! applied the same entries, whatever the clocks of their nodes say. Only what had expired by that time may be removed:
//! then a replica lacks nothing that could be asked of it once it leads.

use std::sync::atomic::{AtomicU64, Ordering};
use tessera_types::{StoredValue, UnixMillis};

/// How much later than the last expiry that is known the one kept is, so that records with ever later ones do not change
/// it all the time.
const SLACK_MILLIS: u64 = 10 * 60 * 1_000;
/// How long after the partition's time something may expire next, if it is not known when: a share of what is left until
/// the last record expires, within these bounds.
const SHARE: u64 = 16;
const LEAST_PAUSE_MILLIS: u64 = 1_000;
const LONGEST_PAUSE_MILLIS: u64 = 60_000;
const NEVER: u64 = u64::MAX;

/// A partition's time and expiries, in milliseconds since the Unix epoch. One thread at a time changes them.
#[derive(Debug)]
pub(crate) struct Expiries {
    /// Zero before the log has told any.
    time: AtomicU64,
    /// No record expires between `time` and this.
    next: AtomicU64,
    /// No record expires after this.
    last: AtomicU64,
}

/// What log entries say about time and expiries, gathered before it takes effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    clears: bool,
    time: u64,
    first: u64,
    last: u64,
}

impl Default for Noted {
    fn default() -> Self {
        Self { clears: false, time: 0, first: NEVER, last: 0 }
    }
}

impl Noted {
    #[inline]
    pub(crate) fn put(&mut self, stored: &StoredValue<'_>) {
        if let Some(expiry) = stored.expiry.earliest() {
            self.first = self.first.min(expiry.get());
            self.last = self.last.max(expiry.get());
        }
    }

    pub(crate) fn time(&mut self, time: UnixMillis) {
        self.time = self.time.max(time.get());
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { clears: true, ..Self::default() };
    }
}

impl Default for Expiries {
    fn default() -> Self {
        Self { time: AtomicU64::new(0), next: AtomicU64::new(NEVER), last: AtomicU64::new(0) }
    }
}

impl Expiries {
    /// The partition's time; the beginning of time if the log has told none.
    #[inline]
    pub(crate) fn time(&self) -> UnixMillis {
        UnixMillis::new(self.time.load(Ordering::Acquire))
    }

    /// When a record may expire next, `None` if none does.
    #[inline]
    pub(crate) fn next(&self) -> Option<UnixMillis> {
        Some(self.next.load(Ordering::Relaxed)).filter(|next| *next != NEVER).map(UnixMillis::new)
    }

    /// Whether a record has expired by the partition's time.
    pub(crate) fn has_expired(&self, stored: &StoredValue<'_>) -> bool {
        !stored.is_live(self.time())
    }

    fn after(&self, noted: &Noted) -> [u64; 3] {
        let before = [&self.time, &self.next, &self.last].map(|word| word.load(Ordering::Relaxed));
        let [time, next, last] = if noted.clears { [0, NEVER, 0] } else { before };
        let time = time.max(noted.time);
        let last = if noted.last > last { noted.last.saturating_add(SLACK_MILLIS) } else { last };
        let next = match next.min(noted.first) {
            next if next > time => next,
            // What it stood for has expired, and may be followed by others.
            _ if last > time => time + ((last - time) / SHARE).clamp(LEAST_PAUSE_MILLIS, LONGEST_PAUSE_MILLIS),
            _ => NEVER,
        };
        [time, next, last]
    }

    /// The time and the last expiry as they will be, if they change.
    pub(crate) fn changed_by(&self, noted: &Noted) -> Option<[u64; 2]> {
        let [time, _, last] = self.after(noted);
        let is_same = time == self.time.load(Ordering::Relaxed) && last == self.last.load(Ordering::Relaxed);
        (!is_same).then_some([time, last])
    }

    pub(crate) fn take(&self, noted: &Noted) {
        let [time, next, last] = self.after(noted);
        self.last.store(last, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        self.time.store(time, Ordering::Release);
    }

    /// What is stored of them.
    pub(crate) fn stored(&self) -> [u64; 2] {
        [&self.time, &self.last].map(|word| word.load(Ordering::Relaxed))
    }

    /// Makes them what was stored of them.
    pub(crate) fn set(&self, [time, last]: [u64; 2]) {
        self.last.store(last, Ordering::Relaxed);
        self.next.store(if last > time { time + 1 } else { NEVER }, Ordering::Relaxed);
        self.time.store(time, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::{Expiry, ValueKind};

    fn put(expiries: &Expiries, expiry: u64) {
        let mut noted = Noted::default();
        let expiry = Expiry::at_key(Some(UnixMillis::new(expiry)));
        noted.put(&StoredValue { expiry, kind: ValueKind::Plain, payload: b"" });
        expiries.take(&noted);
    }

    fn advance(expiries: &Expiries, time: u64) {
        let mut noted = Noted::default();
        noted.time(UnixMillis::new(time));
        expiries.take(&noted);
    }

    #[test]
    fn time_only_grows_and_what_expires_next_is_never_missed() {
        let expiries = Expiries::default();
        assert_eq!((expiries.time().get(), expiries.next()), (1, None));
        let ends = [5_000, 3_000, 4_000_000, 70_000];
        ends.iter().for_each(|end| put(&expiries, *end));
        assert_eq!(expiries.next(), Some(UnixMillis::new(3_000)));
        let mut rounds = 0;
        while let Some(next) = expiries.next() {
            let before = expiries.time();
            advance(&expiries, next.get());
            advance(&expiries, before.get());
            assert_eq!(expiries.time(), next, "an earlier time changes nothing");
            // Whatever has expired did so within a minute, and long before that where its time was short.
            assert!(next.get() - before.get() <= LONGEST_PAUSE_MILLIS + 3_000);
            rounds += 1;
        }
        assert!(expiries.time().get() >= 4_000_000 && rounds < 200, "{rounds} rounds");
        let mut noted = Noted::default();
        noted.clear();
        expiries.take(&noted);
        assert_eq!((expiries.time().get(), expiries.next()), (1, None));
    }

    #[test]
    fn expiries_that_grow_little_by_little_need_not_be_stored_each_time() {
        let expiries = Expiries::default();
        let mut changes = 0;
        for expiry in (3_600_000..7_200_000).step_by(1_000) {
            let mut noted = Noted::default();
            let expiry = Expiry::at_key(Some(UnixMillis::new(expiry)));
            noted.put(&StoredValue { expiry, kind: ValueKind::Plain, payload: b"" });
            changes += usize::from(expiries.changed_by(&noted).is_some());
            expiries.take(&noted);
        }
        assert!((1..10).contains(&changes), "{changes} changes");
    }
}
