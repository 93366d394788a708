//! Until when a partition may be read here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

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

    /// Whether the lease holds now.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == u64::MAX || elapsed(Instant::now()) < until
    }
}
