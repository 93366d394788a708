//! How many documents a node has read and written, by table, and how many of late.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tessera_reql::Rate;
use tessera_types::TableId;

/// Documents of one table.
#[derive(Default)]
struct Counts {
    read: AtomicU64,
    written: AtomicU64,
}

/// Counts at one time: those of queries, and those of documents, read and written.
#[derive(Default)]
struct Sample {
    at: Option<Instant>,
    queries: u64,
    tables: BTreeMap<TableId, (u64, u64)>,
}

/// Counts documents.
#[derive(Default)]
pub(crate) struct DocumentMeter {
    tables: RwLock<BTreeMap<TableId, Arc<Counts>>>,
    /// The last sample, and the one before it.
    samples: Mutex<(Sample, Sample)>,
}

/// What has been counted, and how often in a second of late.
pub(crate) struct Measured {
    pub(crate) queries: Rate,
    /// Documents read, and documents written.
    pub(crate) tables: BTreeMap<TableId, (Rate, Rate)>,
}

impl DocumentMeter {
    fn count(&self, table: TableId, add: impl Fn(&Counts)) {
        if let Some(counts) = self.tables.read().get(&table) {
            return add(counts);
        }
        add(self.tables.write().entry(table).or_default());
    }

    pub(crate) fn note_read(&self, table: TableId, documents: usize) {
        if documents > 0 {
            self.count(table, |counts| _ = counts.read.fetch_add(documents as u64, Ordering::Relaxed));
        }
    }

    pub(crate) fn note_written(&self, table: TableId) {
        self.count(table, |counts| _ = counts.written.fetch_add(1, Ordering::Relaxed));
    }

    fn counts(&self) -> BTreeMap<TableId, (u64, u64)> {
        let load = |counts: &Counts| (counts.read.load(Ordering::Relaxed), counts.written.load(Ordering::Relaxed));
        self.tables.read().iter().map(|(table, counts)| (*table, load(counts))).collect()
    }

    /// Notes what has been counted so far, to tell later how often something happens. This is called once a second, and forgets tables
    /// that are gone.
    pub(crate) fn sample(&self, queries: u64, is_there: impl Fn(TableId) -> bool) {
        if self.tables.read().keys().any(|table| !is_there(*table)) {
            self.tables.write().retain(|table, _| is_there(*table));
        }
        let sample = Sample { at: Some(Instant::now()), queries, tables: self.counts() };
        let (last, before) = &mut *self.samples.lock();
        *before = std::mem::replace(last, sample);
    }

    /// What has been counted, with the rates since the sample before the last one, or since the first one.
    pub(crate) fn measure(&self, queries: u64) -> Measured {
        let samples = self.samples.lock();
        let since = if samples.1.at.is_some() { &samples.1 } else { &samples.0 };
        let seconds = since.at.map(|at| at.elapsed().as_secs_f64());
        let rate = |total: u64, then: u64| Rate {
            per_second: seconds.map_or(0.0, |seconds| total.saturating_sub(then) as f64 / seconds.max(0.001)),
            total,
        };
        let of_table = |(table, (read, written)): (TableId, (u64, u64))| {
            let then = since.tables.get(&table).copied().unwrap_or_default();
            (table, (rate(read, then.0), rate(written, then.1)))
        };
        Measured { queries: rate(queries, since.queries), tables: self.counts().into_iter().map(of_table).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_and_rates_are_those_of_what_was_counted() {
        let meter = DocumentMeter::default();
        let (kept, dropped) = (TableId(1), TableId(2));
        meter.sample(0, |_| true);
        meter.note_read(kept, 3);
        meter.note_read(dropped, 0);
        meter.note_written(kept);
        meter.note_written(dropped);
        let measured = meter.measure(5);
        let (read, written) = measured.tables[&kept];
        assert_eq!((measured.queries.total, read.total, written.total), (5, 3, 1));
        assert_eq!(measured.tables[&dropped].0.total, 0);
        assert!(read.per_second > written.per_second && written.per_second > 0.0 && measured.queries.per_second > 0.0);
        meter.sample(5, |table| table == kept);
        meter.sample(5, |table| table == kept);
        // Nothing has happened since.
        let measured = meter.measure(5);
        assert_eq!(measured.tables.keys().collect::<Vec<_>>(), [&kept]);
        assert_eq!(measured.tables[&kept].0, Rate { per_second: 0.0, total: 3 });
        assert_eq!(measured.queries, Rate { per_second: 0.0, total: 5 });
    }
}
