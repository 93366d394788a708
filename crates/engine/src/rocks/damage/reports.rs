//! What compactions and reads have said of damaged files, for all tables of an instance together.

use crate::EngineError;
use parking_lot::Mutex;
use rocksdb::{DB, Error, Options};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, Weak};

unsafe extern "C" {
    safe fn tessera_register_damage_listener();
}

/// Where the listeners of the instances that are open report to. They are called by RocksDB's threads.
static OPEN: Mutex<BTreeMap<u64, Weak<Reports>>> = Mutex::new(BTreeMap::new());

/// Files that were found to be damaged.
pub(in crate::rocks) struct Reports {
    store: u64,
    by_file: Mutex<BTreeMap<u64, Report>>,
}

struct Report {
    /// What RocksDB said.
    reason: String,
    /// Not known before it has been looked for.
    place: Option<Place>,
}

/// Where a file is.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) column_family: String,
    /// The first and the last key.
    pub(super) range: [Vec<u8>; 2],
}

impl Reports {
    pub(in crate::rocks) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let store = NEXT.fetch_add(1, Ordering::Relaxed);
        let reports = Arc::new(Self { store, by_file: Mutex::default() });
        OPEN.lock().insert(store, Arc::downgrade(&reports));
        reports
    }

    /// RocksDB's default options, with a listener that reports here.
    pub(in crate::rocks) fn options(&self) -> Result<Options, Error> {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| tessera_register_damage_listener());
        Options::default().get_options_from_string(format!("listeners=tessera.DamageListener#{}", self.store))
    }

    /// Notes the file that an error names. Returns whether it names one.
    pub(in crate::rocks) fn note(&self, reason: &str) -> bool {
        let file = file_number(reason);
        file.into_iter().for_each(|file| self.note_file(file, reason));
        file.is_some()
    }

    /// Notes what a compaction of these files met. If it is not said in which of them, any may be damaged.
    fn note_compaction(&self, reason: &str, inputs: &[u64]) {
        match file_number(reason).filter(|file| inputs.contains(file)) {
            Some(file) => self.note_file(file, reason),
            None => inputs.iter().for_each(|file| self.note_file(*file, reason)),
        }
    }

    fn note_file(&self, file: u64, reason: &str) {
        let new = || Report { reason: reason.to_string(), place: None };
        self.by_file.lock().entry(file).or_insert_with(new);
    }

    /// The files of a column family that are damaged, with where they are and what was said.
    pub(super) fn of(&self, column_family: &str, db: &DB) -> Result<Vec<(u64, Place, String)>, EngineError> {
        let mut by_file = self.by_file.lock();
        if by_file.values().any(|report| report.place.is_none()) {
            let live = db.live_files()?;
            let mut places: BTreeMap<_, _> = live
                .into_iter()
                .filter_map(|file| {
                    let range = [file.start_key?, file.end_key?];
                    Some((file_number(&file.name)?, Place { column_family: file.column_family_name, range }))
                })
                .collect();
            by_file.iter_mut().for_each(|(file, report)| report.place = places.remove(file));
            // What is gone does no harm.
            by_file.retain(|_, report| report.place.is_some());
        }
        let found = by_file.iter().filter_map(|(file, report)| {
            let place = report.place.clone().filter(|place| place.column_family == column_family)?;
            Some((*file, place, report.reason.clone()))
        });
        Ok(found.collect())
    }

    pub(super) fn forget(&self, file: u64) {
        self.by_file.lock().remove(&file);
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        OPEN.lock().remove(&self.store);
    }
}

/// The number of the last file that a text names.
fn file_number(text: &str) -> Option<u64> {
    let (before, _) = text.rsplit_once(".sst")?;
    let digits = before.trim_end_matches(|it: char| it.is_ascii_digit()).len();
    before[digits..].parse().ok()
}

/// Called by the listener in damage.cc.
///
/// # Safety
/// Both pointers are valid for as many bytes and numbers as is said.
#[unsafe(no_mangle)]
unsafe extern "C" fn tessera_compaction_met_damage(
    store: u64,
    text: *const u8,
    text_len: usize,
    inputs: *const u64,
    inputs_len: usize,
) {
    // SAFETY: the caller says so; what is empty may have no address.
    let text = if text_len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(text, text_len) } };
    // SAFETY: as above.
    let inputs = if inputs_len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(inputs, inputs_len) } };
    let reports = OPEN.lock().get(&store).and_then(Weak::upgrade);
    if let Some(reports) = reports {
        reports.note_compaction(&String::from_utf8_lossy(text), inputs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_the_one_that_the_text_names() {
        let text = "Corruption: block checksum mismatch: stored = 1, computed = 2, type = 4  in /a.sst/7/000123.sst offset 9 size 4";
        assert_eq!(file_number(text), Some(123));
        assert_eq!(file_number("/000007.sst"), Some(7));
        assert_eq!(file_number("Corruption: a key in RocksDB is not a record key"), None);
        assert_eq!(file_number("Corruption: in x.sst"), None);
    }

    #[test]
    fn a_compaction_that_does_not_say_which_file_it_is_casts_doubt_on_all() {
        let reports = Reports::new();
        reports.note_compaction("Corruption: block checksum mismatch in /db/000012.sst offset 0 size 1", &[11, 12]);
        assert_eq!(reports.by_file.lock().keys().copied().collect::<Vec<_>>(), [12]);
        reports.note_compaction("Corruption: keys out of order", &[13, 14]);
        assert_eq!(reports.by_file.lock().keys().copied().collect::<Vec<_>>(), [12, 13, 14]);
    }
}
