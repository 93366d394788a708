//! Which requests a table admits: what its app envs say about throttling and denial.
//!
//! A table has so many requests or bytes a second, over all its nodes. A node counts what it carries out as a leader, second
//! by second, and admits the share of the table's rate that its share of the leaders is.

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tessera_store::{Leader, Table};
use tessera_types::{TableId, TableSettings};

pub(crate) const WRITES: &str = "replica.write_throttling";
pub(crate) const WRITE_BYTES: &str = "replica.write_throttling_by_size";
pub(crate) const READS: &str = "replica.read_throttling";
pub(crate) const READ_BYTES: &str = "replica.read_throttling_by_size";
pub(crate) const DENY: &str = "replica.deny_client_request";
pub(crate) const SLOW: &str = "replica.slow_query_threshold";

/// A read that takes longer is logged, where the table says nothing else; as in Pegasus.
pub(crate) const SLOW_READ: Duration = Duration::from_millis(100);
const LEAST_SLOW_MS: u64 = 20;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Now,
    After(Duration),
    /// It is refused with this error, after a while.
    Refused(&'static str, Duration),
    /// It is not answered while its client waits.
    Ignored,
}

/// A rate in two steps: beyond the first, requests are delayed, beyond the second refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    delay: Option<(u64, Duration)>,
    reject: Option<(u64, Duration)>,
}

impl Rate {
    /// Reads `UNITS*delay*MS,UNITS*reject*MS`, of which one part is enough; `K` and `M` stand for thousands and millions.
    ///
    /// # Errors
    /// What is wrong, for a person.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rate = Self::default();
        for part in text.split(',') {
            let fields: Vec<&str> = part.split('*').collect();
            let [units, what, millis] = fields[..] else { return Err(wrong_rate(text)) };
            let (digits, factor) = match units.as_bytes().last() {
                Some(b'K') => (&units[..units.len() - 1], 1_000),
                Some(b'M') => (&units[..units.len() - 1], 1_000_000),
                _ => (units, 1),
            };
            let units = digits.parse::<u64>().ok().and_then(|units| units.checked_mul(factor));
            let (Some(units), Ok(millis)) = (units, millis.parse()) else { return Err(wrong_rate(text)) };
            let place = match what {
                "delay" => &mut rate.delay,
                "reject" => &mut rate.reject,
                _ => return Err(wrong_rate(text)),
            };
            if place.replace((units, Duration::from_millis(millis))).is_some() {
                return Err(wrong_rate(text));
            }
        }
        Ok(rate)
    }

    /// What becomes of a request with which so many units were counted in this second, of `share` of the rate.
    fn admit(&self, counted: u64, share: f64) -> Admission {
        let is_beyond = |units: u64| counted as f64 > units as f64 * share;
        match *self {
            Self { reject: Some((units, after)), .. } if is_beyond(units) => Admission::Refused("ERR_BUSY", after),
            Self { delay: Some((units, after)), .. } if is_beyond(units) => Admission::After(after),
            _ => Admission::Now,
        }
    }
}

fn wrong_rate(text: &str) -> String {
    format!("'{text}' is no rate; an example: 2000*delay*100,20000*reject*100")
}

/// Which requests are denied, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    how: Admission,
    reads: bool,
    writes: bool,
}

impl Denial {
    /// Reads `timeout*all` and the like.
    ///
    /// # Errors
    /// What is wrong, for a person.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('*').and_then(|(how, which)| {
            let how = match how {
                "timeout" => Admission::Ignored,
                // Clients ask where the partition is led.
                "reconfig" => Admission::Refused("ERR_INVALID_STATE", Duration::ZERO),
                _ => return None,
            };
            let (reads, writes) = match which {
                "all" => (true, true),
                "read" => (true, false),
                "write" => (false, true),
                _ => return None,
            };
            Some(Self { how, reads, writes })
        });
        parsed.ok_or_else(|| format!("'{text}' is none of timeout and reconfig, '*', and all, read or write"))
    }
}

/// From when on a read is slow.
///
/// # Errors
/// What is wrong, for a person.
pub(crate) fn parse_slow(text: &str) -> Result<Duration, String> {
    let millis = text.parse().ok().filter(|millis| *millis >= LEAST_SLOW_MS).map(Duration::from_millis);
    millis.ok_or_else(|| format!("'{text}' is no number of milliseconds from {LEAST_SLOW_MS} on"))
}

/// Units of the second that goes on.
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, units: u64) -> u64 {
        self.0.fetch_add(units, Ordering::Relaxed).saturating_add(units)
    }
}

/// What a table admits, by the settings that it had when this was made.
pub(crate) struct Admissions {
    settings: Arc<TableSettings>,
    denial: Option<Denial>,
    slow: Duration,
    writes: (Rate, Counter),
    write_bytes: (Rate, Counter),
    reads: (Rate, Counter),
    read_bytes: (Rate, Counter),
    /// Since when is counted, and the share of the leaders that this node has.
    second: Mutex<(Instant, f64)>,
}

impl Admissions {
    fn new(settings: Arc<TableSettings>) -> Self {
        let env = |name: &str| settings.app_envs.get(name).map(String::as_str);
        // They were checked when they were set.
        let rate = |name| (env(name).and_then(|text| Rate::parse(text).ok()).unwrap_or_default(), Counter::default());
        Self {
            denial: env(DENY).and_then(|text| Denial::parse(text).ok()),
            slow: env(SLOW).and_then(|text| parse_slow(text).ok()).unwrap_or(SLOW_READ),
            writes: rate(WRITES),
            write_bytes: rate(WRITE_BYTES),
            reads: rate(READS),
            read_bytes: rate(READ_BYTES),
            second: Mutex::new((Instant::now(), 1.0)),
            settings,
        }
    }

    /// Says what becomes of a request of so many bytes, and counts it.
    pub(crate) fn admit(&self, table: &Table, is_write: bool, bytes: usize) -> Admission {
        if let Some(denial) = self.denial.filter(|denial| if is_write { denial.writes } else { denial.reads }) {
            return denial.how;
        }
        let share = self.share(table);
        // How much a read returns is known afterwards.
        let (requests, sizes, bytes) = match is_write {
            true => (&self.writes, &self.write_bytes, bytes as u64),
            false => (&self.reads, &self.read_bytes, 0),
        };
        match requests.0.admit(requests.1.add(1), share) {
            Admission::Now => sizes.0.admit(sizes.1.add(bytes), share),
            other => other,
        }
    }

    /// Counts what a read returned.
    pub(crate) fn note_read(&self, bytes: usize) {
        self.read_bytes.1.add(bytes as u64);
    }

    pub(crate) fn slow(&self) -> Duration {
        self.slow
    }

    fn share(&self, table: &Table) -> f64 {
        let mut second = self.second.lock();
        if second.0.elapsed() >= Duration::from_secs(1) {
            for (_, counter) in [&self.writes, &self.write_bytes, &self.reads, &self.read_bytes] {
                counter.0.store(0, Ordering::Relaxed);
            }
            let partitions = table.schema().partitions;
            let led = (0..partitions).filter(|partition| table.leader_of(*partition) == Leader::Here).count();
            *second = (Instant::now(), led as f64 / f64::from(partitions));
        }
        second.1
    }
}

/// What each table admits that has app envs.
#[derive(Default)]
pub(crate) struct TableAdmissions(RwLock<HashMap<TableId, Arc<Admissions>>>);

impl TableAdmissions {
    /// `None` for a table without app envs.
    pub(crate) fn of(&self, table: &Table) -> Option<Arc<Admissions>> {
        let settings = table.settings();
        if settings.app_envs.is_empty() {
            return None;
        }
        let known = self.0.read().get(&table.id()).cloned();
        let is_current = |admissions: &Arc<Admissions>| Arc::ptr_eq(&admissions.settings, &settings);
        Some(known.filter(is_current).unwrap_or_else(|| {
            let admissions = Arc::new(Admissions::new(settings.clone()));
            self.0.write().insert(table.id(), admissions.clone());
            admissions
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_kept() {
        let rate = Rate::parse("2K*delay*100,1M*reject*200").unwrap();
        let (delayed, refused) =
            (Admission::After(Duration::from_millis(100)), Admission::Refused("ERR_BUSY", Duration::from_millis(200)));
        for (counted, share, expected) in [
            (2_000, 1.0, Admission::Now),
            (2_001, 1.0, delayed),
            (1_001, 0.5, delayed),
            (1_000_001, 1.0, refused),
            (500_001, 0.5, refused),
        ] {
            assert_eq!(rate.admit(counted, share), expected, "{counted} of {share}");
        }
        assert_eq!(Rate::parse("5*reject*0").unwrap().admit(6, 1.0), Admission::Refused("ERR_BUSY", Duration::ZERO));
        for wrong in ["", "5", "5*reject", "x*reject*1", "5*drop*1", "5*delay*x", "5*delay*1,6*delay*1", "-1*delay*1"] {
            assert!(Rate::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn denials_and_thresholds_are_read() {
        let denial = Denial::parse("reconfig*write").unwrap();
        assert_eq!(
            denial,
            Denial { how: Admission::Refused("ERR_INVALID_STATE", Duration::ZERO), reads: false, writes: true }
        );
        assert_eq!(Denial::parse("timeout*all").unwrap().how, Admission::Ignored);
        for wrong in ["", "timeout", "timeout*some", "busy*all"] {
            assert!(Denial::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_slow("20"), Ok(Duration::from_millis(20)));
        assert!(parse_slow("19").is_err() && parse_slow("fast").is_err());
    }
}
