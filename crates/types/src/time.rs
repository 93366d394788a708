use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds by the monotonic clock since some moment early in the process' life.
pub fn monotonic_millis() -> u64 {
    monotonic_millis_at(Instant::now())
}

/// What [`monotonic_millis`] was at a moment.
pub fn monotonic_millis_at(moment: Instant) -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let since = moment.saturating_duration_since(*BEGAN.get_or_init(|| moment));
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since the Unix epoch; never zero, so that an absent time costs no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnixMillis(NonZeroU64);

impl UnixMillis {
    /// The wall clock. Values before 1970 read as 1 ms after the epoch.
    pub fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    /// Zero becomes 1 ms after the epoch: equally far in the past.
    pub fn new(millis: u64) -> Self {
        Self(NonZeroU64::new(millis).unwrap_or(NonZeroU64::MIN))
    }

    /// Milliseconds since the Unix epoch; never zero.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// `None` past the end of time.
    pub fn checked_add_millis(self, millis: u64) -> Option<Self> {
        self.get().checked_add(millis).map(Self::new)
    }

    /// Milliseconds from `earlier` to `self`, zero if `earlier` is later.
    pub fn saturating_millis_since(self, earlier: Self) -> u64 {
        self.get().saturating_sub(earlier.get())
    }
}
