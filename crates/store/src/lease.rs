//! Moments that the partition's loop sets and readers look at: until when a partition may be read here, and as of when.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A time, or for ever.
#[derive(Default)]
pub(crate) struct Lease {
    /// Nanoseconds of [`elapsed`]; the largest number is for ever.
    until: AtomicU64,
}

/// Nanoseconds since some moment early in the process' life.
fn elapsed(at: Instant) -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let began = *BEGAN.get_or_init(Instant::now);
    u64::try_from(at.saturating_duration_since(began).as_nanos()).unwrap_or(u64::MAX - 1)
}

impl Lease {
    pub(crate) fn set(&self, until: Option<Instant>) {
        self.until.store(until.map_or(u64::MAX, elapsed), Ordering::Release);
    }

    /// How long ago the time was; nothing for a time to come, and for ever.
    pub(crate) fn ago(&self) -> Duration {
        Duration::from_nanos(elapsed(Instant::now()).saturating_sub(self.until.load(Ordering::Acquire)))
    }

    /// Whether it was never set.
    pub(crate) fn is_unset(&self) -> bool {
        self.until.load(Ordering::Acquire) == 0
    }

    /// Whether the lease holds now.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == u64::MAX || elapsed(Instant::now()) < until
    }
}
