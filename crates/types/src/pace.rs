use std::time::{Duration, Instant};

/// Spreads work over time, so that no more than so many bytes are worked on in a second: what comes next begins when all before it
/// has had its time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    next: Option<Instant>,
}

impl Pace {
    /// When the next piece of work may begin that is there `now`.
    pub fn next(&self, now: Instant) -> Instant {
        self.next.map_or(now, |next| next.max(now))
    }

    /// Notes a piece of work with its beginning and its bytes. Zero `bytes_per_second` set no limit.
    pub fn note(&mut self, began: Instant, bytes: u64, bytes_per_second: u64) {
        let takes = if bytes_per_second == 0 { 0.0 } else { bytes as f64 / bytes_per_second as f64 };
        self.next = Some(began + Duration::from_secs_f64(takes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_until_what_was_before_it_has_had_its_time() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut begin = |after: Duration, bytes, bytes_per_second| {
            let began = pace.next(start + after);
            pace.note(began, bytes, bytes_per_second);
            began - start
        };
        let second = Duration::from_secs(1);
        assert_eq!(begin(Duration::ZERO, 500, 1_000), Duration::ZERO);
        assert_eq!(begin(Duration::ZERO, 1_000, 1_000), second / 2);
        assert_eq!(begin(second, 2_000, 1_000), second * 3 / 2);
        // What nobody used is not made up for.
        assert_eq!(begin(second * 10, 1_000, 1_000), second * 10);
        assert_eq!(begin(second * 10, 1_000, 0), second * 11);
        assert_eq!(begin(second * 10, 1_000, 0), second * 11, "without a limit nothing waits");
    }
}
