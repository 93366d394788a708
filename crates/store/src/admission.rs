//! Counts what a table is asked, and says which requests it admits by its settings.
//!
//! A table has so many requests or bytes a second, over all its nodes. A node counts what it carries out as a leader, second
//! by second, and admits the share of the table's rate that its share of the leaders is.

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tessera_types::{Admission, Admitted, RequestError};

/// Units of the second that goes on.
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, units: u64) -> u64 {
        self.0.fetch_add(units, Ordering::Relaxed).saturating_add(units)
    }
}

/// A table of which this node leads a share.
pub trait LeadsAShare {
    /// The share of the partitions that this node leads now, 0 to 1.
    fn led_share(&self) -> f64;
}

/// What a table admits, by the settings that it had when this was made.
pub struct Admissions {
    settings: Admission,
    writes: Counter,
    write_bytes: Counter,
    reads: Counter,
    read_bytes: Counter,
    /// Since when is counted, and the share of the leaders that this node has.
    second: Mutex<(Instant, f64)>,
}

impl Admissions {
    fn new(settings: Admission) -> Self {
        Self {
            settings,
            writes: Counter::default(),
            write_bytes: Counter::default(),
            reads: Counter::default(),
            read_bytes: Counter::default(),
            second: Mutex::new((Instant::now(), 1.0)),
        }
    }

    /// Says what becomes of a request of this many bytes that this node carries out as a leader, and counts it.
    pub fn admit(&self, table: &impl LeadsAShare, is_write: bool, bytes: usize) -> Admitted {
        let Admission { deny, write_rate, write_byte_rate, read_rate, read_byte_rate } = &self.settings;
        if if is_write { deny.writes } else { deny.reads } {
            let error = RequestError::Denied { is_write };
            return if deny.is_silent { Admitted::Dropped(error) } else { Admitted::Refused(error, Duration::ZERO) };
        }
        let share = self.share(table);
        // How much a read returns is known afterwards.
        let (rate, requests, byte_rate, sizes, bytes) = match is_write {
            true => (write_rate, &self.writes, write_byte_rate, &self.write_bytes, bytes as u64),
            false => (read_rate, &self.reads, read_byte_rate, &self.read_bytes, 0),
        };
        match rate.judge(requests.add(1), share) {
            Admitted::Now => byte_rate.judge(sizes.add(bytes), share),
            other => other,
        }
    }

    /// Counts what a read returned.
    pub fn note_read(&self, bytes: usize) {
        self.read_bytes.add(bytes as u64);
    }

    fn share(&self, table: &impl LeadsAShare) -> f64 {
        let mut second = self.second.lock();
        if second.0.elapsed() >= Duration::from_secs(1) {
            for counter in [&self.writes, &self.write_bytes, &self.reads, &self.read_bytes] {
                counter.0.store(0, Ordering::Relaxed);
            }
            *second = (Instant::now(), table.led_share());
        }
        second.1
    }
}

/// What a table admits now. Most admit everything, which costs a look.
#[derive(Default)]
pub(crate) struct Gate {
    is_there: AtomicBool,
    admissions: ArcSwapOption<Admissions>,
}

impl Gate {
    pub(crate) fn set(&self, settings: &Admission) {
        let before = self.admissions.load();
        if before.as_ref().is_some_and(|before| before.settings == *settings) {
            return;
        }
        let is_there = *settings != Admission::default();
        self.admissions.store(is_there.then(|| Arc::new(Admissions::new(settings.clone()))));
        self.is_there.store(is_there, Ordering::Release);
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<Admissions>> {
        if self.is_there.load(Ordering::Acquire) { self.admissions.load_full() } else { None }
    }
}
