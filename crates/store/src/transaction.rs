//! One atomic step in one partition.

use crate::change_set::ChangeSet;
use crate::overlay::{Lookup, Overlay};
use crate::table::{Table, damaged, request_error};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use tessera_engine::{Order, SortKeyRange, Visit, mutation};
use tessera_types::{Expiry, RecordKey, RequestError, StoredValue, UnixMillis};

/// A record as a transaction sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub expiry: Expiry,
    /// See [`StoredValue::is_field`].
    pub is_field: bool,
    pub value: Bytes,
}

/// Reads and writes of one partition that take effect together or not at all.
///
/// Reads see the applied state, the writes that are on their way, and the transaction's own. Writes are gathered, and
/// reach the log when the whole operation has succeeded. All of it happens at one instant, [`now`](Self::now).
pub struct Transaction<'a> {
    table: &'a Table,
    partition: u32,
    now: UnixMillis,
    overlay: Option<&'a Overlay>,
    changes: ChangeSet,
    cleared: bool,
    wrote_sort_key: bool,
    written_bytes: usize,
}

impl<'a> Transaction<'a> {
    /// A transaction that only reads what is applied. Its reads are at one instant only if [`Table::version`] says so.
    ///
    /// # Errors
    /// [`RequestError::NotReady`] while the partition starts.
    pub fn read_only(table: &'a Table, partition: u32, now: UnixMillis) -> Result<Self, RequestError> {
        table.check_serving(partition)?.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Self::on(table, partition, now))
    }

    fn on(table: &'a Table, partition: u32, now: UnixMillis) -> Self {
        Self {
            table,
            partition,
            now,
            overlay: None,
            changes: ChangeSet::default(),
            cleared: false,
            wrote_sort_key: false,
            written_bytes: 0,
        }
    }

    pub(crate) fn new(table: &'a Table, partition: u32, now: UnixMillis, overlay: &'a Overlay) -> Self {
        Self { overlay: Some(overlay), ..Self::on(table, partition, now) }
    }

    pub fn now(&self) -> UnixMillis {
        self.now
    }

    pub fn table(&self) -> &Table {
        self.table
    }

    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Whether a hash key is in this transaction's partition.
    pub fn covers(&self, hash_key: &[u8]) -> bool {
        self.table.partition_of(&RecordKey::new(hash_key, b"")) == self.partition
    }

    /// The live record under a key.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn get(&self, hash_key: &[u8], sort_key: &[u8]) -> Result<Option<Record>, RequestError> {
        let key = RecordKey::new(hash_key, sort_key);
        if !self.changes.is_empty()
            && let Some(change) = self.changes.get(&key.to_ordered_bytes())
        {
            return change.as_ref().map_or(Ok(None), |stored| self.live(&key, stored));
        }
        if self.cleared {
            return Ok(None);
        }
        match self.overlay.map_or(Lookup::Engine, |overlay| overlay.get(&key)) {
            Lookup::Stored(stored) => self.live(&key, stored),
            Lookup::Absent => Ok(None),
            Lookup::Engine => {
                let mut found = Ok(None);
                let visit = &mut |stored: &[u8]| found = self.live(&key, &Bytes::copy_from_slice(stored));
                self.table.engine.get(self.partition, &key, visit).map_err(request_error)?;
                found
            }
        }
    }

    fn live(&self, key: &RecordKey<'_>, bytes: &Bytes) -> Result<Option<Record>, RequestError> {
        let stored = StoredValue::decode(bytes).ok_or_else(|| damaged(key))?;
        Ok(stored.is_live(self.now).then(|| Record {
            expiry: stored.expiry,
            is_field: stored.is_field,
            value: bytes.slice_ref(stored.payload),
        }))
    }

    /// Whether a hash key may have records besides the one under the empty sort key; false is certain.
    pub fn may_hold_sort_keys(&self) -> bool {
        self.table.engine.may_hold_sort_keys(self.partition)
            || self.overlay.is_some_and(Overlay::may_hold_sort_keys)
            || self.wrote_sort_key
    }

    /// Live records of a hash key in a range of sort keys, at most `limit`.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn scan(
        &self,
        hash_key: &[u8],
        range: SortKeyRange<'_>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Bytes, Record)>, RequestError> {
        let key = RecordKey::new(hash_key, b"");
        let mut ahead = self.ahead_of_engine(&key);
        ahead.retain(|sort_key, _| RangeBounds::<[u8]>::contains(&range, &sort_key[..]));
        let mut records: Vec<(Bytes, Record)> = Vec::new();
        let reads_engine = !self.cleared && !self.overlay.is_some_and(Overlay::hides_engine);
        if reads_engine {
            let mut failure = None;
            let visit = &mut |sort_key: &[u8], stored: &[u8]| {
                if ahead.contains_key(sort_key) {
                    return Visit::NextRecord;
                }
                match self.live(&key, &Bytes::copy_from_slice(stored)) {
                    Ok(Some(record)) => records.push((Bytes::copy_from_slice(sort_key), record)),
                    Ok(None) => {}
                    Err(error) => failure = Some(error),
                }
                // What is ahead of the engine may come before these, never make them more wanted.
                if records.len() >= limit { Visit::NextHashKey } else { Visit::NextRecord }
            };
            self.table.engine.scan_hash_key(self.partition, &key, range, order, visit).map_err(request_error)?;
            failure.map_or(Ok(()), Err)?;
        }
        if !ahead.is_empty() {
            for (sort_key, stored) in ahead {
                if let Some(record) = stored.map_or(Ok(None), |stored| self.live(&key, &stored))? {
                    records.push((sort_key, record));
                }
            }
            records.sort_by(|(one, _), (other, _)| match order {
                Order::Ascending => one.cmp(other),
                Order::Descending => other.cmp(one),
            });
            records.truncate(limit);
        }
        Ok(records)
    }

    /// What the overlay and this transaction know better than the engine about a hash key.
    fn ahead_of_engine(&self, key: &RecordKey<'_>) -> BTreeMap<Bytes, Option<Bytes>> {
        let mut ahead = BTreeMap::new();
        if let Some(overlay) = self.overlay.filter(|_| !self.cleared) {
            ahead.extend(overlay.of_hash_key(key).map(|(sort_key, stored)| (sort_key, stored.cloned())));
        }
        let prefix = RecordKey::with_hash(key.hash(), key.hash_key, b"").to_ordered_bytes();
        for (ordered, stored) in self.changes.with_prefix(&prefix) {
            ahead.insert(ordered.slice(prefix.len()..), stored.clone());
        }
        ahead
    }

    /// All live records of a hash key, in order.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn scan_all(&self, hash_key: &[u8]) -> Result<Vec<(Bytes, Record)>, RequestError> {
        self.scan(hash_key, (Bound::Unbounded, Bound::Unbounded), Order::Ascending, usize::MAX)
    }

    /// The expiry of a new key for which none was asked: the table's default time to live from now.
    pub fn default_expiry(&self) -> Expiry {
        let seconds = self.table.settings.load().default_ttl_seconds;
        Expiry::at_key(if seconds > 0 { self.now.checked_add_millis(seconds.saturating_mul(1_000)) } else { None })
    }

    /// Puts a record.
    ///
    /// # Errors
    /// A limit that would be exceeded, or a full memory table. The transaction is then to be given up.
    pub fn put(
        &mut self,
        hash_key: &[u8],
        sort_key: &[u8],
        value: &[u8],
        expiry: Expiry,
        is_field: bool,
    ) -> Result<(), RequestError> {
        let limits = &*self.table.limits;
        check_size("hash key", "hash_key_bytes", hash_key.len(), limits.hash_key_bytes)?;
        check_size("sort key", "sort_key_bytes", sort_key.len(), limits.sort_key_bytes)?;
        check_size("value", "value_bytes", value.len(), limits.value_bytes)?;
        self.written_bytes += hash_key.len() + sort_key.len() + value.len();
        check_size("write", "write_bytes", self.written_bytes, limits.write_bytes)?;
        if let Some(spare) = self.table.engine.spare_bytes()
            && spare < self.written_bytes as u64
        {
            return Err(RequestError::MemoryFull { needed: self.written_bytes as u64, spare });
        }
        let stored_value = StoredValue { expiry, is_field, payload: value };
        let mut stored = Vec::with_capacity(stored_value.encoded_len());
        stored_value.encode(&mut stored);
        self.change(hash_key, sort_key, Some(stored.into()));
        Ok(())
    }

    /// Deletes a record, whether it exists or not.
    pub fn delete(&mut self, hash_key: &[u8], sort_key: &[u8]) {
        self.written_bytes += hash_key.len() + sort_key.len();
        self.change(hash_key, sort_key, None);
    }

    fn change(&mut self, hash_key: &[u8], sort_key: &[u8], stored: Option<Bytes>) {
        assert!(self.overlay.is_some(), "a read-only transaction does not write");
        debug_assert!(self.covers(hash_key), "a transaction writes its own partition only");
        self.wrote_sort_key |= !sort_key.is_empty();
        self.changes.insert(RecordKey::new(hash_key, sort_key).to_ordered_bytes(), stored);
    }

    /// Deletes every record of the partition.
    pub fn clear(&mut self) {
        assert!(self.overlay.is_some(), "a read-only transaction does not write");
        self.changes.clear();
        self.cleared = true;
    }

    pub(crate) fn into_changes(self) -> Changes {
        Changes { cleared: self.cleared, changes: self.changes }
    }
}

/// What a transaction wrote.
pub(crate) struct Changes {
    cleared: bool,
    changes: ChangeSet,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        !self.cleared && self.changes.is_empty()
    }

    pub(crate) fn hash_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.changes.iter().map(|(ordered, _)| decode(ordered).hash_key)
    }

    pub(crate) fn clears(&self) -> bool {
        self.cleared
    }

    /// Appends the changes to a log entry and moves them into the overlay.
    pub(crate) fn commit(self, payload: &mut Vec<u8>, overlay: &mut Overlay) {
        if self.cleared {
            mutation::encode_clear(payload);
            overlay.clear();
        }
        for (ordered, stored) in self.changes.into_iter() {
            let key = decode(&ordered);
            match &stored {
                Some(stored) => mutation::encode_put_stored(payload, &key, stored),
                None => mutation::encode_delete(payload, &key),
            }
            let has_sort_key = !key.sort_key.is_empty();
            overlay.write(ordered, has_sort_key, stored);
        }
    }
}

fn decode(ordered: &Bytes) -> RecordKey<'_> {
    RecordKey::decode_ordered(ordered).expect("changes are kept by ordered key")
}

fn check_size(what: &'static str, limit: &'static str, actual: usize, allowed: usize) -> Result<(), RequestError> {
    if actual > allowed { Err(RequestError::TooLarge { what, limit, actual, allowed }) } else { Ok(()) }
}
