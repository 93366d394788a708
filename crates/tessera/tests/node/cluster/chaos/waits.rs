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
const LONG_REST: Duration = Duration::from_secs(5);
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
pub struct Waits(Mutex<(HashMap<String, u64>, Option<Wait>)>);

struct Wait {
    key: String,
    from: u64,
    until: u64,
    while_well: Duration,
}

impl Waits {
    /// A key is of no use from when somebody asked for it who was not answered, or was told that nothing was done, until an answer.
    pub fn note(&self, session: &Session, keys: impl Iterator<Item = String>, answer: &Answer) {
        let ended = answer.value().is_some().then_some(answer.ended);
        self.note_use(session.well(), keys, answer.began, ended);
    }

    /// The same, of something that was asked for at a time, and answered at another, if it was.
    pub fn note_use(&self, well: &WellTimes, keys: impl Iterator<Item = String>, began: u64, ended: Option<u64>) {
        let (open, longest) = &mut *self.0.lock().unwrap();
        for key in keys {
            let Some(until) = ended else {
                open.entry(key).or_insert(began);
                continue;
            };
            let from = open.remove(&key).unwrap_or(began).min(began);
            let while_well = well.within(from, until);
            if longest.as_ref().is_none_or(|longest| longest.while_well < while_well) {
                *longest = Some(Wait { key, from, until, while_well });
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
