//! When operations of an open loop are due. What waits for connections counts time in whole milliseconds, too coarse for that: at
//! 2,000 operations a second each would begin half a millisecond late, and its latency would be longer by as much.

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use timerfd::{ClockId, SetTimeFlags, TimerFd, TimerState};

/// Operations at a fixed rate.
pub struct Pace {
    /// Per second.
    rate: f64,
    began: Instant,
    issued: u64,
    timer: TimerFd,
    /// How many had been issued when the timer was set.
    armed: Option<u64>,
}

impl Pace {
    /// Wakes the poll under this token when the next operation is due.
    ///
    /// # Errors
    /// If the system has no timer left.
    pub fn new(rate: f64, poll: &Poll, token: Token) -> io::Result<Self> {
        let timer = TimerFd::new_custom(ClockId::Monotonic, true, true)?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { rate, began: Instant::now(), issued: 0, timer, armed: None })
    }

    fn next(&self) -> Instant {
        self.began + Duration::from_secs_f64(self.issued as f64 / self.rate)
    }

    /// When the next operation was due, if it is.
    pub fn take_due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next();
        let is_due = due <= now;
        self.issued += u64::from(is_due);
        is_due.then_some(due)
    }

    /// The poll is woken for the next operation, at once if that is due.
    pub fn arm(&mut self) {
        if self.armed.replace(self.issued) == Some(self.issued) {
            return;
        }
        // A timer of zero never ends.
        let left = self.next().saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        self.timer.set_state(TimerState::Oneshot(left), SetTimeFlags::Default);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::Events;

    #[test]
    fn operations_are_due_at_the_rate_and_none_is_left_out() {
        let mut poll = Poll::new().unwrap();
        let mut pace = Pace::new(10_000.0, &poll, Token(7)).unwrap();
        let began = pace.began;
        let mut events = Events::with_capacity(8);
        let (mut taken, mut wakes) = (Vec::new(), 0);
        while taken.len() < 500 {
            while let Some(due) = pace.take_due(Instant::now()) {
                taken.push(due);
            }
            pace.arm();
            poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
            wakes += events.iter().filter(|event| event.token() == Token(7)).count();
        }
        for (number, due) in (0..).zip(&taken) {
            assert_eq!(*due, began + Duration::from_secs_f64(f64::from(number) / 10_000.0));
        }
        assert!(wakes > 0);
    }
}
