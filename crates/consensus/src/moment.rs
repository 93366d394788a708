//! The clock that leases go by.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment of the clock that counts since the machine was started, and goes on while it sleeps (`CLOCK_BOOTTIME`). The
/// one behind [`std::time::Instant`] stands still then, and so would a lease, while others elect another leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self(Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or_default()))
    }

    /// Time since then.
    pub fn elapsed(self) -> Duration {
        Self::now() - self
    }

    /// Nanoseconds since the machine was started, more than 0.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX - 1).max(1)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// Nothing if the other one is later.
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/uptime` counts the time that a machine slept.
    #[test]
    fn time_that_the_machine_sleeps_counts() {
        let uptime = || {
            let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(uptime.split(' ').next().unwrap().parse().unwrap())
        };
        let (before, now, after) = (uptime(), Moment::now(), uptime());
        let hundredth = Duration::from_millis(10);
        assert!(now.0 + hundredth >= before && now.0 <= after + hundredth, "{before:?} {now:?} {after:?}");
        assert!(Moment::now() >= now && now - (now + hundredth) == Duration::ZERO);
    }
}
