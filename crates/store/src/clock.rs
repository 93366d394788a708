//! The time of the cluster.
//!
//! When records expire is decided by the nodes that lead their partitions, and any one of them may have a wrong clock. So a
//! node does not go by its own: each tells the others what its clock says, twice a second, and all go by the median. One
//! clock that is off by hours changes nothing where there are three nodes; of an even number the earlier of the two in the
//! middle counts, since a record that lives too long does less harm than one that is gone too early.
//!
//! What a clock says is kept as its distance from this process' monotonic clock, so that the last report of a node that is
//! down can still count: against a node that is cut off and whose own clock is wrong. A node that is down may come back with
//! another clock, though, so the median is taken twice, with such reports and without them, and the earlier one counts. A clock that is set does not show before the median was taken again. The time never goes back
//! while a process runs: where the median does, it stands still until that has caught up.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use tessera_types::{UnixMillis, monotonic_millis};

/// A node's idea of the cluster's time.
pub struct ClusterClock {
    /// Milliseconds of the time above those of the monotonic clock.
    distance: AtomicI64,
    /// What the time was when it was last set back; it is not earlier.
    floor: AtomicU64,
    is_certain: AtomicBool,
    /// One at a time takes the median.
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

/// The median of the clocks that were heard, this node's own among them, and whether those are a majority. The clocks of
/// other nodes are `None` until they were heard.
fn median(own: i64, others: &[Option<HeardClock>]) -> (i64, bool) {
    let heard = others.iter().flatten();
    let of = |distances: &mut Vec<i64>| {
        distances.sort_unstable();
        distances[(distances.len() - 1) / 2]
    };
    let mut recent: Vec<i64> = heard.clone().filter(|clock| clock.is_recent).map(|clock| clock.distance).collect();
    recent.push(own);
    let mut all: Vec<i64> = heard.map(|clock| clock.distance).collect();
    all.push(own);
    (of(&mut all).min(of(&mut recent)), 2 * all.len() > others.len() + 1)
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

    fn at(&self, monotonic: u64) -> UnixMillis {
        let time = monotonic.saturating_add_signed(self.distance.load(Ordering::Acquire));
        UnixMillis::new(time.max(self.floor.load(Ordering::Acquire)))
    }

    /// Whether a majority of the nodes was heard at one time or another. Until then nothing may be taken for expired that
    /// the log does not say has.
    #[inline]
    pub fn is_certain(&self) -> bool {
        self.is_certain.load(Ordering::Acquire)
    }

    /// Takes the median anew. `others` are the other nodes' clocks, `None` for those that were not heard.
    pub fn follow(&self, others: &[Option<HeardClock>]) {
        self.follow_at(own_distance(), others, monotonic_millis());
    }

    fn follow_at(&self, own: i64, others: &[Option<HeardClock>], monotonic: u64) {
        let _following = self.following.lock();
        let (new, is_majority) = median(own, others);
        // What was said before a majority was heard does not bind: nothing was taken for expired by it.
        if self.is_certain() && new < self.distance.load(Ordering::Acquire) {
            self.floor.store(self.at(monotonic).get(), Ordering::Release);
        }
        self.distance.store(new, Ordering::Release);
        if is_majority {
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

    #[test]
    fn one_wrong_clock_of_three_changes_nothing_and_of_an_even_number_the_earlier_counts() {
        for wrong in [-5 * HOUR, 5 * HOUR] {
            for clocks in [[wrong, 10, 20], [10, wrong, 20], [10, 20, wrong]] {
                let (time, is_majority) = median(clocks[0], &heard(&[Some(clocks[1]), Some(clocks[2])]));
                assert!((10..=20).contains(&time) && is_majority, "{clocks:?}: {time}");
            }
        }
        assert_eq!(median(7, &heard(&[])), (7, true));
        assert_eq!(median(HOUR, &heard(&[Some(0)])), (0, true));
        assert_eq!(median(0, &heard(&[Some(HOUR)])), (0, true));
        assert_eq!(median(3, &heard(&[Some(1), Some(2), Some(4)])), (2, true));
        assert_eq!(median(3, &heard(&[Some(1), Some(5), Some(HOUR), Some(-HOUR)])), (3, true));
    }

    #[test]
    fn a_majority_of_all_nodes_must_be_heard_not_of_those_that_were() {
        assert!(!median(0, &heard(&[None])).1);
        assert!(median(0, &heard(&[None, Some(0)])).1);
        assert!(!median(0, &heard(&[None, None, Some(0)])).1);
        assert!(!median(0, &heard(&[None, None, None, Some(0)])).1);
        assert!(median(0, &heard(&[None, None, Some(1), Some(0)])).1);
    }

    #[test]
    fn time_stands_still_rather_than_going_back() {
        let clock = ClusterClock::default();
        assert!(!clock.is_certain());
        clock.follow_at(HOUR, &heard(&[None, None]), 1_000);
        assert!(!clock.is_certain());
        // Heard by a majority for the first time: nothing rests on what it said before.
        clock.follow_at(HOUR, &heard(&[None, Some(5_000)]), 1_000);
        assert!(clock.is_certain());
        assert_eq!(clock.at(1_000).get(), 6_000);
        clock.follow_at(HOUR, &heard(&[Some(5_100), Some(5_000)]), 1_100);
        assert_eq!(clock.at(1_100).get(), 6_200);
        clock.follow_at(HOUR, &heard(&[Some(4_000), Some(4_500)]), 1_200);
        assert_eq!([1_200, 1_800, 2_000].map(|at| clock.at(at).get()), [6_300, 6_300, 6_500]);
        // Once certain it stays so: the last words of nodes that are gone still count.
        clock.follow_at(HOUR, &heard(&[None, None, None]), 2_000);
        assert!(clock.is_certain());
    }

    /// A node that had a wrong clock when it went may have a right one when it comes back, while another one's is wrong then.
    #[test]
    fn the_last_report_of_a_node_that_is_down_never_makes_the_time_later() {
        let ahead = Some(HeardClock { distance: 2 * HOUR, is_recent: true });
        assert_eq!(median(0, &[silent(2 * HOUR), ahead]).0, 0);
        // It still counts against a node that is cut off and whose own clock is ahead.
        assert_eq!(median(2 * HOUR, &[silent(0), silent(10)]).0, 10);
        assert_eq!(median(2 * HOUR, &[silent(0), Some(HeardClock { distance: 10, is_recent: true })]).0, 10);
        assert!(median(0, &[silent(0), None]).1);
    }
}
