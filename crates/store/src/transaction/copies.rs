//! Evaluating commands that need what is in several partitions at once.

use super::{Record, Times, Transaction};
use crate::overlay::Overlay;
use crate::table::Table;
use bytes::BytesMut;
use tessera_types::{RecordKey, StoredValue, UnixMillis};

/// Room for copies of records.
#[derive(Default)]
pub struct Copies {
    /// Stays empty: nothing is on its way.
    overlay: Overlay,
    payload: BytesMut,
}

impl<'a> Transaction<'a> {
    /// A transaction that finds [copies](Self::put_copy) of records of whatever partitions, and what it has written itself. It need not be
    /// evaluated by who leads any of them, and its writes go nowhere: whoever evaluates reads what has come of the records.
    pub fn on_copies(table: &'a Table, now: UnixMillis, copies: &'a mut Copies) -> Self {
        // Their partitions have left out what has expired. This node's clock may be ahead of theirs, and takes nothing away.
        let times = Times { now, seen_at: UnixMillis::new(0), told: now, settled: UnixMillis::new(u64::MAX) };
        let transaction = Self::new(table, 0, times, &copies.overlay, &mut copies.payload);
        Self { is_on_copies: true, has_locks: false, ..transaction }
    }

    /// Adds the copy of a record, which counts towards no limit.
    pub fn put_copy(&mut self, hash_key: &[u8], sort_key: &[u8], record: &Record) {
        debug_assert!(self.is_on_copies, "copies are no writes");
        let Record { expiry, kind, value } = record;
        let stored = StoredValue { expiry: *expiry, kind: *kind, payload: value };
        self.put_unchecked(&RecordKey::new(hash_key, sort_key), &stored);
    }
}
