//! For how long keys could not be used while all nodes were well.

use super::load::{Answer, Session};
use crate::cluster::Cluster;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long it may take after a fault until all nodes are well, and how long they then stay so.
const RECOVERY: Duration = Duration::from_secs(2);
const MOST_REST: Duration = Duration::from_secs(1);
/// A rest that is long enough to show whether keys [can be used](super::work) again.
const LONG_REST: Duration = Duration::from_secs(8);
const STEP: Duration = Duration::from_millis(20);

/// When all nodes ran and every partition had a leader: from when until when. The last one may go on.
#[derive(Default)]
pub struct WellTimes(Mutex<Vec<(u64, u64)>>);

impl WellTimes {
    pub fn begin(&self, now: u64) {
        self.0.lock().unwrap().push((now, u64::MAX));
    }

    pub fn end(&self, now: u64) {
        if let Some((_, end)) = self.0.lock().unwrap().last_mut() {
            *end = now.min(*end);
        }
    }

    /// How much of some time was in one of them, at most.
    fn within(&self, from: u64, until: u64) -> Duration {
        let times = self.0.lock().unwrap();
        let shared = times.iter().map(|(begin, end)| until.min(*end).saturating_sub(from.max(*begin)));
        Duration::from_nanos(shared.max().unwrap_or(0))
    }
}

/// Lets clients go on for a while in which all nodes are well, if they are soon.
pub fn rest(cluster: &Cluster, well: &WellTimes, now: impl Fn() -> u64, random: &mut StdRng) {
    let began = Instant::now();
    while began.elapsed() < RECOVERY {
        if cluster.running().into_iter().all(|at| cluster.lacks_nothing(at)) {
            well.begin(now());
            let most = if random.random_bool(0.2) { LONG_REST } else { MOST_REST };
            std::thread::park_timeout(random.random_range(Duration::ZERO..most));
            return well.end(now());
        }
        std::thread::park_timeout(STEP);
    }
}

/// Which keys somebody waits for, and the longest time for which somebody did.
#[derive(Default)]
pub struct Waits(Mutex<(HashMap<String, Vain>, Option<Wait>)>);

/// When a key was asked for in vain since it was last of use.
struct Vain {
    /// When the first attempt began.
    from: u64,
    /// When it was known of the last one.
    until: u64,
}

struct Wait {
    key: String,
    from: u64,
    until: u64,
    while_well: Duration,
}

impl Waits {
    /// A key is of no use from when somebody asked for it who was not answered, or was told that nothing was done, until an answer. Time in
    /// which nobody asked for it, after all such attempts were over, does not count. `took` is the time from when it was asked until it was
    /// known what came of it.
    pub fn note(&self, session: &Session, keys: impl Iterator<Item = String>, answer: &Answer, took: Duration) {
        // What is unknown has no other end.
        let over = answer.began + u64::try_from(took.as_nanos()).unwrap();
        self.note_use(session.well(), keys, answer.began, answer.ended.min(over), answer.value().is_some());
    }

    /// The same, of something that was asked for at a time, and answered at another, or not answered by then.
    pub fn note_use(
        &self,
        well: &WellTimes,
        keys: impl Iterator<Item = String>,
        began: u64,
        ended: u64,
        is_answered: bool,
    ) {
        let (open, longest) = &mut *self.0.lock().unwrap();
        for key in keys {
            if !is_answered {
                let vain = open.entry(key).or_insert(Vain { from: began, until: ended });
                vain.until = vain.until.max(ended);
                continue;
            }
            let waits = match open.remove(&key) {
                None => vec![(began, ended)],
                Some(vain) if began <= vain.until => vec![(vain.from.min(began), ended)],
                Some(vain) => vec![(vain.from, vain.until), (began, ended)],
            };
            for (from, until) in waits {
                let while_well = well.within(from, until);
                if longest.as_ref().is_none_or(|longest| longest.while_well < while_well) {
                    *longest = Some(Wait { key: key.clone(), from, until, while_well });
                }
            }
        }
    }

    /// # Errors
    /// What could not be used for too long.
    pub fn check(&self, limit: Duration) -> Result<(), String> {
        let (_, longest) = &*self.0.lock().unwrap();
        match longest {
            Some(wait) if wait.while_well > limit => Err(format!("{wait}, and more than {limit:?} is too long")),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, from, until, while_well } = self;
        let whole = Duration::from_nanos(until - from);
        write!(
            f,
            "{key} could not be used for {while_well:.1?} while all nodes were well, of {whole:.1?} from {from} on"
        )
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lock().unwrap().1.as_ref().map_or(Ok(()), |wait| write!(f, "at most {wait}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The longest wait for a key, in seconds: from when, until when, and for how long while all was well. Uses are noted in their order,
    /// each with when it began, when it ended, and whether it was answered.
    fn longest(well_from: u64, uses: &[(u64, u64, bool)]) -> Option<(u64, u64, u64)> {
        let (waits, well) = (Waits::default(), WellTimes::default());
        well.begin(well_from * SECOND);
        for (began, ended, is_answered) in uses {
            waits.note_use(&well, ["key".to_string()].into_iter(), began * SECOND, ended * SECOND, *is_answered);
        }
        let (_, longest) = &*waits.0.lock().unwrap();
        longest.as_ref().map(|wait| (wait.from / SECOND, wait.until / SECOND, wait.while_well.as_secs()))
    }

    #[test]
    fn what_is_answered_was_waited_for_as_long_as_that_took() {
        assert_eq!(longest(0, &[(1, 3, true), (4, 5, true)]), Some((1, 3, 2)));
        assert_eq!(longest(2, &[(1, 3, true)]), Some((1, 3, 1)));
        assert_eq!(longest(0, &[(1, 3, false)]), None);
    }

    #[test]
    fn a_key_that_is_asked_for_again_and_again_is_waited_for_all_the_time() {
        assert_eq!(longest(0, &[(1, 2, false), (2, 6, false), (5, 8, true)]), Some((1, 8, 7)));
        assert_eq!(longest(0, &[(1, 2, false), (4, 5, false), (5, 5, true)]), Some((1, 5, 4)));
        // Whoever is answered may have asked before all others.
        assert_eq!(longest(0, &[(3, 4, false), (1, 6, true)]), Some((1, 6, 5)));
        // The last one to be noted need not be the last one to end.
        assert_eq!(longest(0, &[(1, 9, false), (2, 3, false), (8, 9, true)]), Some((1, 9, 8)));
    }

    #[test]
    fn time_in_which_nobody_asks_for_a_key_does_not_count() {
        assert_eq!(longest(0, &[(1, 2, false), (50, 53, true)]), Some((50, 53, 3)));
        assert_eq!(longest(0, &[(1, 4, false), (50, 51, true)]), Some((1, 4, 3)));
        assert_eq!(longest(3, &[(1, 4, false), (50, 51, true)]), Some((1, 4, 1)));
    }

    #[test]
    fn an_answer_ends_what_was_in_vain_before() {
        assert_eq!(longest(0, &[(1, 2, false), (2, 3, true), (9, 10, false), (10, 11, true)]), Some((1, 3, 2)));
    }

    #[test]
    fn too_long_a_wait_is_told() {
        let (waits, well) = (Waits::default(), WellTimes::default());
        well.begin(0);
        waits.note_use(&well, ["key".to_string()].into_iter(), SECOND, 7 * SECOND, true);
        assert!(waits.check(Duration::from_secs(6)).is_ok());
        let told = waits.check(Duration::from_secs(5)).unwrap_err();
        assert!(told.starts_with("key could not be used for 6.0s"), "{told}");
    }
}
