//! Moments that the partition's loop sets and readers look at: until when a partition may be read here, and as of when.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tessera_consensus::Moment;

/// A time, or for ever.
#[derive(Default)]
pub struct Lease {
    /// [`Moment::nanos`]; zero is never, the largest number for ever.
    until: AtomicU64,
}

impl Lease {
    pub fn set(&self, until: Option<Moment>) {
        self.until.store(until.map_or(u64::MAX, Moment::nanos), Ordering::Release);
    }

    /// How long ago the time was; nothing for a time to come, and for ever.
    pub fn ago(&self) -> Duration {
        Duration::from_nanos(Moment::now().nanos().saturating_sub(self.until.load(Ordering::Acquire)))
    }

    /// Whether it was never set.
    pub fn is_unset(&self) -> bool {
        self.until.load(Ordering::Acquire) == 0
    }

    /// Whether the lease holds now.
    #[inline]
    pub fn holds(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == u64::MAX || Moment::now().nanos() < until
    }
}
