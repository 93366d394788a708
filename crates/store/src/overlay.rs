//! Writes of a partition that are evaluated but not applied yet.
//!
//! A write is judged against the state as it will be when everything before it is applied. While entries are on their
//! way to the disk that state is nowhere; the overlay holds the difference.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use tessera_types::RecordKey;

/// Keys are in their ordered form (see [`RecordKey::encode_ordered`]), so that a hash key's records are a range.
#[derive(Default)]
pub(crate) struct Overlay {
    records: BTreeMap<Bytes, InFlight>,
    /// Batches are what is proposed together; counts up.
    batch: u64,
    /// The batch that last cleared the partition: what is applied under it is hidden.
    cleared_by: Option<u64>,
    /// Keys written by the batch being evaluated.
    evaluating: Vec<Bytes>,
    proposed: VecDeque<Proposed>,
    /// In-flight records with a sort key.
    sort_keys: usize,
}

struct InFlight {
    batch: u64,
    /// `None` for a deletion.
    stored: Option<Bytes>,
}

struct Proposed {
    index: u64,
    batch: u64,
    keys: Vec<Bytes>,
}

/// What the overlay says about a record.
pub(crate) enum Lookup<'a> {
    /// Nothing in flight: the engine decides.
    Engine,
    Stored(&'a Bytes),
    Absent,
}

impl Overlay {
    pub(crate) fn get(&self, key: &RecordKey<'_>) -> Lookup<'_> {
        if self.records.is_empty() && self.cleared_by.is_none() {
            return Lookup::Engine;
        }
        match self.records.get(&key.to_ordered_bytes()) {
            Some(InFlight { stored: Some(stored), .. }) => Lookup::Stored(stored),
            Some(InFlight { stored: None, .. }) => Lookup::Absent,
            None if self.cleared_by.is_some() => Lookup::Absent,
            None => Lookup::Engine,
        }
    }

    /// Whether what the engine holds is about to be cleared.
    pub(crate) fn hides_engine(&self) -> bool {
        self.cleared_by.is_some()
    }

    pub(crate) fn may_hold_sort_keys(&self) -> bool {
        self.sort_keys > 0
    }

    /// Records of `key`'s hash key in flight, in order: sort key and stored value, `None` for deletions.
    pub(crate) fn of_hash_key<'a>(
        &'a self,
        key: &RecordKey<'_>,
    ) -> impl Iterator<Item = (Bytes, Option<&'a Bytes>)> + use<'a> {
        let prefix = RecordKey::with_hash(key.hash(), key.hash_key, b"").to_ordered_bytes();
        let from = (Bound::Included(prefix.clone()), Bound::Unbounded);
        let length = prefix.len();
        self.records
            .range::<Bytes, _>(from)
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(move |(key, in_flight)| (key.slice(length..), in_flight.stored.as_ref()))
    }

    pub(crate) fn write(&mut self, ordered: Bytes, has_sort_key: bool, stored: Option<Bytes>) {
        self.evaluating.push(ordered.clone());
        let old = self.records.insert(ordered, InFlight { batch: self.batch, stored });
        self.sort_keys += usize::from(has_sort_key && old.is_none());
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.sort_keys = 0;
        self.cleared_by = Some(self.batch);
    }

    /// Everything written since the last call is in log entry `index`.
    pub(crate) fn proposed(&mut self, index: u64) {
        let keys = std::mem::take(&mut self.evaluating);
        self.proposed.push_back(Proposed { index, batch: self.batch, keys });
        self.batch += 1;
    }

    /// Entries up to `index` are in the engine.
    pub(crate) fn applied(&mut self, index: u64) {
        while let Some(Proposed { batch, keys, .. }) = self.proposed.pop_front_if(|proposed| proposed.index <= index) {
            for key in keys {
                // A later batch may have written the record again.
                if self.records.get(&key).is_some_and(|in_flight| in_flight.batch <= batch) {
                    let has_sort_key = RecordKey::decode_ordered(&key).is_some_and(|key| !key.sort_key.is_empty());
                    self.sort_keys -= usize::from(has_sort_key);
                    self.records.remove(&key);
                }
            }
            if self.cleared_by.is_some_and(|cleared| cleared <= batch) {
                self.cleared_by = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(overlay: &mut Overlay, key: &RecordKey<'_>, stored: Option<&'static str>) {
        overlay.write(key.to_ordered_bytes(), !key.sort_key.is_empty(), stored.map(Bytes::from));
    }

    fn is_stored(overlay: &Overlay, key: &RecordKey<'_>, expected: &str) -> bool {
        matches!(overlay.get(key), Lookup::Stored(stored) if stored == expected)
    }

    #[test]
    fn a_record_is_seen_until_its_last_write_is_applied() {
        let mut overlay = Overlay::default();
        let (a, b) = (RecordKey::new(b"k", b"a"), RecordKey::new(b"k", b"b"));
        write(&mut overlay, &a, Some("1"));
        overlay.proposed(10);
        write(&mut overlay, &a, Some("2"));
        write(&mut overlay, &b, None);
        overlay.proposed(11);
        assert!(is_stored(&overlay, &a, "2") && matches!(overlay.get(&b), Lookup::Absent));
        assert_eq!(overlay.of_hash_key(&a).count(), 2);
        overlay.applied(10);
        assert!(is_stored(&overlay, &a, "2") && overlay.may_hold_sort_keys());
        overlay.applied(11);
        assert!(matches!(overlay.get(&a), Lookup::Engine) && !overlay.may_hold_sort_keys());
    }

    #[test]
    fn a_clear_hides_the_engine_until_it_is_applied() {
        let mut overlay = Overlay::default();
        let (a, b) = (RecordKey::new(b"a", b""), RecordKey::new(b"b", b""));
        write(&mut overlay, &a, Some("1"));
        overlay.proposed(1);
        overlay.clear();
        write(&mut overlay, &b, Some("2"));
        overlay.proposed(2);
        overlay.applied(1);
        assert!(matches!(overlay.get(&a), Lookup::Absent) && is_stored(&overlay, &b, "2"));
        overlay.applied(2);
        assert!(matches!(overlay.get(&a), Lookup::Engine) && !overlay.hides_engine());
    }
}
