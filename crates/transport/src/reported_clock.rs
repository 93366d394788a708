//! What another node has reported of its clock.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many of a node's latest reports are kept.
const REPORTS: usize = 4;
/// A report that is behind earlier ones by more milliseconds was not held up on its way: the clock was set back, or the node was
/// started again with another one. Earlier reports say nothing of it any more.
const SET_BACK_MS: i64 = 1_000;
/// Reports come twice a second. A node of which none came for so long is down, or cut off.
const RECENT: Duration = Duration::from_millis(1_500);

/// The clock of a node, by what the node has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeClock {
    /// By how many milliseconds it is ahead of this process' [`monotonic_millis`](tessera_types::monotonic_millis).
    pub distance: i64,
    /// Whether the node has reported it lately. Where it has not, the node may have been started with another clock since.
    pub is_recent: bool,
}

#[derive(Default)]
pub(crate) struct ReportedClock {
    reports: Mutex<Reports>,
}

#[derive(Default)]
struct Reports {
    distances: VecDeque<i64>,
    last: Option<Instant>,
}

impl ReportedClock {
    pub(crate) fn report(&self, distance: i64, now: Instant) {
        let mut reports = self.reports.lock();
        if reports.distances.iter().any(|earlier| earlier.saturating_sub(distance) > SET_BACK_MS) {
            reports.distances.clear();
        }
        reports.distances.truncate(REPORTS - 1);
        reports.distances.push_front(distance);
        reports.last = Some(now);
    }

    /// The longer a report was on its way, the smaller is its distance: the largest is nearest to the truth.
    pub(crate) fn get(&self, now: Instant) -> Option<NodeClock> {
        let reports = self.reports.lock();
        let is_recent = reports.last.is_some_and(|last| now.saturating_duration_since(last) < RECENT);
        Some(NodeClock { distance: reports.distances.iter().copied().max()?, is_recent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_that_came_fastest_counts_until_the_clock_is_set_back() {
        let (clock, now) = (ReportedClock::default(), Instant::now());
        assert_eq!(clock.get(now), None);
        let mut report = |distance| {
            clock.report(distance, now);
            clock.get(now).unwrap().distance
        };
        assert_eq!([7_200_000, 7_199_900, 7_200_010].map(&mut report), [7_200_000, 7_200_000, 7_200_010]);
        // A node that was started again with a clock that is right counts with it at its first report.
        assert_eq!([10, 0, 20, -30, -40, -50].map(&mut report), [10, 10, 20, 20, 20, 20]);
        assert_eq!([-60, 3_600_000].map(&mut report), [-30, 3_600_000]);
    }

    #[test]
    fn a_node_that_reports_no_more_is_not_recent() {
        let (clock, now) = (ReportedClock::default(), Instant::now());
        clock.report(5, now);
        let later = |after| clock.get(now + after).unwrap();
        assert_eq!(later(Duration::from_secs(1)), NodeClock { distance: 5, is_recent: true });
        assert_eq!(later(Duration::from_secs(2)), NodeClock { distance: 5, is_recent: false });
    }
}
