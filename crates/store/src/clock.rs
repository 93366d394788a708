//! The time of the cluster.
//!
//! When records expire is decided by the nodes that lead their partitions, and any one of them may have a wrong clock. So a
//! node does not go by its own: each tells the others what its clock says, twice a second, and all go by the median. One
//! clock that is off by hours changes nothing where there are three nodes.
//!
//! What a clock says is kept as its distance from this process' monotonic clock, so that the last report of a node that is
//! down can still count: against a node that is cut off and whose own clock is wrong. A node that is down may come back with
//! another clock, though, so the median is taken twice, with such reports and without them. Of an even number of clocks, each of the
//! two in the middle could be the right one. So the clocks often allow a [span](Span) of times and not one.
//!
//! A time that is in this span goes on at the pace of the monotonic clock: it was right before, and nothing says that it is not any
//! more. A process that has just begun has no such time and takes the earliest one, since a record that lives too long does less
//! harm than one that is gone too early. To stand still where a clock becomes doubtful would do harm too: a record that is written
//! meanwhile with ten seconds to live would be gone at once when the doubt ends and the time leaps forward.
//!
//! A process that has not heard a majority of the nodes takes nothing for expired: its own clock may be the wrong one. Nodes that were let
//! in and have never held anything do not count for that, since they may never come again; what their clocks say does.
//!
//! A clock that is set does not show before the median was taken again. The time never goes back while a process runs: where all
//! that the clocks allow is earlier, it stands still until that has caught up.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;
use tessera_types::{UnixMillis, monotonic_millis, monotonic_millis_at};

/// A node's idea of the cluster's time.
pub struct ClusterClock {
    /// Milliseconds of the time above those of the monotonic clock.
    distance: AtomicI64,
    /// What the time was when it was last set back; it is not earlier.
    floor: AtomicU64,
    is_certain: AtomicBool,
    /// One at a time looks at the clocks.
    following: Mutex<()>,
}

/// What another node has reported of its clock.
#[derive(Clone, Copy, Debug)]
pub struct HeardClock {
    /// By how many milliseconds it is ahead of this process' monotonic clock.
    pub distance: i64,
    /// Whether the node reports: of one that is down it is not known what clock it will come back with.
    pub is_recent: bool,
}

/// How far this node's own clock is from its monotonic one.
fn own_distance() -> i64 {
    distance(UnixMillis::now().get(), monotonic_millis())
}

fn distance(time: u64, monotonic: u64) -> i64 {
    i64::try_from(i128::from(time) - i128::from(monotonic)).unwrap_or(i64::MAX)
}

/// The times that clocks allow, as distances from the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    earliest: i64,
    latest: i64,
    /// Whether a majority of the nodes that are not new was heard at one time or another.
    is_of_majority: bool,
}

impl Span {
    /// What the clocks allow that were heard, this node's `own` among them. The clocks of other nodes are `None` until they were heard.
    /// Those of `new` nodes were heard, and nobody misses them.
    fn of(own: i64, others: &[Option<HeardClock>], new: &[HeardClock]) -> Self {
        let missed = others.iter().filter(|clock| clock.is_none()).count();
        let heard = others.iter().flatten().chain(new);
        let medians = |mut distances: Vec<i64>| {
            distances.push(own);
            distances.sort_unstable();
            (distances[(distances.len() - 1) / 2], distances[distances.len() / 2])
        };
        let recent = medians(heard.clone().filter(|clock| clock.is_recent).map(|clock| clock.distance).collect());
        let all = medians(heard.clone().map(|clock| clock.distance).collect());
        Self {
            earliest: all.0.min(recent.0),
            latest: all.1.max(recent.1),
            is_of_majority: 2 * missed < others.len() + 1,
        }
    }
}

impl Default for ClusterClock {
    /// One that goes by this node's clock, until others are heard.
    fn default() -> Self {
        Self {
            distance: AtomicI64::new(own_distance()),
            floor: AtomicU64::new(0),
            is_certain: AtomicBool::new(false),
            following: Mutex::default(),
        }
    }
}

impl ClusterClock {
    /// The time.
    #[inline]
    pub fn now(&self) -> UnixMillis {
        self.at(monotonic_millis())
    }

    /// The time that it was at a moment, if that is a while ago at most: what the clocks say now counts.
    #[inline]
    pub fn time_at(&self, moment: Instant) -> UnixMillis {
        self.at(monotonic_millis_at(moment))
    }

    fn at(&self, monotonic: u64) -> UnixMillis {
        let time = monotonic.saturating_add_signed(self.distance.load(Ordering::Acquire));
        UnixMillis::new(time.max(self.floor.load(Ordering::Acquire)))
    }

    /// Whether a majority of the nodes that are not new was heard at one time or another. Until then nothing may be taken for expired
    /// that the log does not say has.
    #[inline]
    pub fn is_certain(&self) -> bool {
        self.is_certain.load(Ordering::Acquire)
    }

    /// Takes what the clocks say anew. `others` are the other nodes' clocks, `None` for those that were not heard; `new` are those that
    /// were heard of nodes which held nothing so far.
    pub fn follow(&self, others: &[Option<HeardClock>], new: &[HeardClock]) {
        self.follow_span(Span::of(own_distance(), others, new), monotonic_millis());
    }

    fn follow_span(&self, Span { earliest, latest, is_of_majority }: Span, monotonic: u64) {
        let _following = self.following.lock();
        let before = self.distance.load(Ordering::Acquire);
        // What was said before a majority was heard does not bind: nothing was taken for expired by it.
        let new = if self.is_certain() { before.clamp(earliest, latest) } else { earliest };
        if self.is_certain() && new < before {
            self.floor.store(self.at(monotonic).get(), Ordering::Release);
        }
        self.distance.store(new, Ordering::Release);
        if is_of_majority {
            self.is_certain.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn heard(clocks: &[Option<i64>]) -> Vec<Option<HeardClock>> {
        clocks.iter().map(|clock| clock.map(|distance| HeardClock { distance, is_recent: true })).collect()
    }

    fn silent(distance: i64) -> Option<HeardClock> {
        Some(HeardClock { distance, is_recent: false })
    }

    fn span(earliest: i64, latest: i64) -> Span {
        Span { earliest, latest, is_of_majority: true }
    }

    #[test]
    fn one_wrong_clock_of_three_changes_nothing_and_of_an_even_number_both_in_the_middle_are_possible() {
        for wrong in [-5 * HOUR, 5 * HOUR] {
            for clocks in [[wrong, 10, 20], [10, wrong, 20], [10, 20, wrong]] {
                let Span { earliest, latest, is_of_majority } =
                    Span::of(clocks[0], &heard(&[Some(clocks[1]), Some(clocks[2])]), &[]);
                assert!(earliest == latest && (10..=20).contains(&latest) && is_of_majority, "{clocks:?}: {latest}");
            }
        }
        assert_eq!(Span::of(7, &heard(&[]), &[]), span(7, 7));
        assert_eq!(Span::of(HOUR, &heard(&[Some(0)]), &[]), span(0, HOUR));
        assert_eq!(Span::of(0, &heard(&[Some(HOUR)]), &[]), span(0, HOUR));
        assert_eq!(Span::of(3, &heard(&[Some(1), Some(2), Some(4)]), &[]), span(2, 3));
        assert_eq!(Span::of(3, &heard(&[Some(1), Some(5), Some(HOUR), Some(-HOUR)]), &[]), span(3, 3));
    }

    #[test]
    fn a_majority_of_all_nodes_must_be_heard_not_of_those_that_were() {
        let is_of_majority = |others: &[Option<i64>]| Span::of(0, &heard(others), &[]).is_of_majority;
        assert!(!is_of_majority(&[None]));
        assert!(is_of_majority(&[None, Some(0)]));
        assert!(!is_of_majority(&[None, None, Some(0)]));
        assert!(!is_of_majority(&[None, None, None, Some(0)]));
        assert!(is_of_majority(&[None, None, Some(1), Some(0)]));
    }

    /// Nodes that were let in, and were gone before they held anything, once kept everything from expiring until somebody removed them.
    #[test]
    fn nobody_misses_the_clocks_of_nodes_that_never_held_anything_but_those_that_are_heard_count() {
        let new = |distance| HeardClock { distance, is_recent: true };
        assert!(Span::of(0, &[], &[]).is_of_majority);
        // They do not stand for those that are missed.
        assert!(!Span::of(0, &heard(&[None, None]), &[new(0), new(0), new(0)]).is_of_majority);
        assert_eq!(Span::of(HOUR, &heard(&[]), &[new(0), new(10)]), span(10, 10));
        assert_eq!(Span::of(0, &heard(&[Some(10)]), &[new(HOUR)]), span(10, 10));
    }

    #[test]
    fn time_stands_still_rather_than_going_back() {
        let clock = ClusterClock::default();
        assert!(!clock.is_certain());
        clock.follow_span(Span::of(HOUR, &heard(&[None, None]), &[]), 1_000);
        assert!(!clock.is_certain());
        // Heard by a majority for the first time: nothing rests on what it said before.
        clock.follow_span(Span::of(HOUR, &heard(&[None, Some(5_000)]), &[]), 1_000);
        assert!(clock.is_certain());
        assert_eq!(clock.at(1_000).get(), 6_000);
        clock.follow_span(Span::of(HOUR, &heard(&[Some(5_100), Some(5_000)]), &[]), 1_100);
        assert_eq!(clock.at(1_100).get(), 6_200);
        clock.follow_span(Span::of(HOUR, &heard(&[Some(4_000), Some(4_500)]), &[]), 1_200);
        assert_eq!([1_200, 1_800, 2_000].map(|at| clock.at(at).get()), [6_300, 6_300, 6_500]);
        // Once certain it stays so: the last words of nodes that are gone still count.
        clock.follow_span(Span::of(HOUR, &heard(&[None, None, None]), &[]), 2_000);
        assert!(clock.is_certain());
    }

    /// A node that had a wrong clock when it went may have a right one when it comes back, while another one's is wrong then.
    #[test]
    fn the_last_report_of_a_node_that_is_down_never_makes_the_time_later() {
        let recent = |distance| Some(HeardClock { distance, is_recent: true });
        assert_eq!(Span::of(0, &[silent(2 * HOUR), recent(2 * HOUR)], &[]), span(0, 2 * HOUR));
        // It still counts against a node that is cut off and whose own clock is ahead.
        assert_eq!(Span::of(2 * HOUR, &[silent(0), silent(10)], &[]), span(10, 2 * HOUR));
        assert_eq!(Span::of(2 * HOUR, &[silent(0), recent(10)], &[]), span(10, 2 * HOUR));
        assert!(Span::of(0, &[silent(2 * HOUR), None], &[]).is_of_majority);
    }

    /// A record that is written while one node is down and the clock of another one is wrong must not end early when all is well
    /// again.
    #[test]
    fn the_time_goes_on_while_clocks_are_doubtful() {
        let recent = |distance| Some(HeardClock { distance, is_recent: true });
        for wrong in [-2 * HOUR, 2 * HOUR] {
            let clock = ClusterClock::default();
            clock.follow_span(Span::of(0, &[recent(wrong), recent(10)], &[]), 1_000);
            let known = clock.at(1_000).get();
            assert!((1_000..=1_010).contains(&known), "{known}");
            for monotonic in [2_000, 60_000, 3_600_000] {
                clock.follow_span(Span::of(0, &[recent(wrong), silent(10)], &[]), monotonic);
                assert!((monotonic..=monotonic + 10).contains(&clock.at(monotonic).get()), "{monotonic}");
            }
            // The node whose clock is wrong goes by what it knew, too.
            let of_wrong = ClusterClock::default();
            of_wrong.follow_span(Span::of(wrong, &[recent(0), recent(10)], &[]), 1_000);
            of_wrong.follow_span(Span::of(wrong, &[recent(0), silent(10)], &[]), 60_000);
            assert!((60_000..=60_010).contains(&of_wrong.at(60_000).get()));
        }
        // Of two nodes, too, the time that was known before one clock was set goes on.
        let clock = ClusterClock::default();
        clock.follow_span(Span::of(0, &[recent(5)], &[]), 1_000);
        clock.follow_span(Span::of(0, &[recent(-2 * HOUR)], &[]), 2_000);
        assert_eq!(clock.at(5_000).get(), 5_000);
        // A process that has just begun takes the earlier one.
        let new = ClusterClock::default();
        new.follow_span(Span::of(0, &[recent(-2 * HOUR)], &[]), 3 * HOUR.unsigned_abs());
        assert_eq!(new.at(3 * HOUR.unsigned_abs()).get(), HOUR.unsigned_abs());
    }
}
