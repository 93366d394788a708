//! Records of hash keys that are read often, above RocksDB: found in a tenth of the time that its own block cache takes, which
//! has to look into memtables, filters and indexes first, and into each old version of what is written often.
//!
//! An entry is what was read of one hash key: the record under the empty sort key, or all of its records. A reader that
//! finds none reserves its place *before* it reads from RocksDB; *after* it has written, a writer brings an entry up to date,
//! and takes a reservation away, and what then has no place is not kept. So nobody who comes after a write finds what was
//! there before it. One writer at a time writes to a partition.

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult, PlaceholderGuard};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tessera_types::RecordKey;

/// A hash key whose records take more is not kept.
const ENTRY_BYTES: usize = 64 << 10;
/// Larger ones are not brought up to date, but read again.
const UPDATED_BYTES: usize = 16 << 10;
/// What an entry takes beside its records, about.
const OVERHEAD_BYTES: usize = 128;
/// What an entry is taken to take before there are any.
const EXPECTED_BYTES: usize = 1 << 10;

/// Where an entry is. Two hash keys of one hash have the same place.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Of the table that is open, not of its name.
    pub(super) table: u32,
    pub(super) partition: u32,
    /// How often all of the partition's records were replaced.
    pub(super) epoch: u32,
    pub(super) hash: u64,
}

/// What was read of one hash key.
pub(super) struct Records {
    hash_key: Box<[u8]>,
    /// Whether there are no others.
    are_all: bool,
    /// Each as `u32 length of the sort key | u32 length of the value | sort key | value`, by sort key.
    bytes: Vec<u8>,
}

/// A record that was written, or deleted.
pub(super) struct Change<'a> {
    pub(super) partition: u32,
    pub(super) key: RecordKey<'a>,
    pub(super) value: Option<&'a [u8]>,
}

impl Change<'_> {
    pub(super) fn is_beside(&self, other: &Change<'_>) -> bool {
        (self.partition, self.key.hash(), self.key.hash_key) == (other.partition, other.key.hash(), other.key.hash_key)
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Place, Arc<Records>> for Weight {
    fn weight(&self, _place: &Place, records: &Arc<Records>) -> u64 {
        (OVERHEAD_BYTES + records.hash_key.len() + records.bytes.len()) as u64
    }
}

pub(super) struct RecordCache {
    cache: Cache<Place, Arc<Records>, Weight>,
    tables: AtomicU32,
}

type Guard<'a> = PlaceholderGuard<
    'a,
    Place,
    Arc<Records>,
    Weight,
    quick_cache::DefaultHashBuilder,
    DefaultLifecycle<Place, Arc<Records>>,
>;

/// A place for what is read from RocksDB from now on.
pub(super) struct Reservation<'a>(Guard<'a>);

pub(super) enum Found<'a> {
    Records(Arc<Records>),
    Nothing(Reservation<'a>),
    /// Somebody else reads it, or another hash key has the place.
    Taken,
}

impl RecordCache {
    /// `None` if it would hold nothing.
    pub(super) fn of_bytes(bytes: usize) -> Option<Self> {
        let cache = (bytes > 0).then(|| Cache::with_weighter(bytes / EXPECTED_BYTES, bytes as u64, Weight))?;
        Some(Self { cache, tables: AtomicU32::new(0) })
    }

    /// A number for a table that is opened.
    pub(super) fn next_table(&self) -> u32 {
        self.tables.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known of a hash key.
    pub(super) fn get(&self, place: Place, hash_key: &[u8]) -> Option<Arc<Records>> {
        self.cache.get(&place).filter(|records| *records.hash_key == *hash_key)
    }

    pub(super) fn get_or_reserve(&self, place: Place, hash_key: &[u8]) -> Found<'_> {
        match self.cache.get_value_or_guard(&place, Some(Duration::ZERO)) {
            GuardResult::Value(records) if *records.hash_key == *hash_key => Found::Records(records),
            GuardResult::Guard(guard) => Found::Nothing(Reservation(guard)),
            GuardResult::Value(_) | GuardResult::Timeout => Found::Taken,
        }
    }

    /// As [`Self::get_or_reserve`], for all records of the hash key: what is only a part of them gives way.
    pub(super) fn get_all_or_reserve(&self, place: Place, hash_key: &[u8]) -> Found<'_> {
        match self.get_or_reserve(place, hash_key) {
            Found::Records(records) if !records.are_all => {
                self.cache.remove_if(&place, |there| Arc::ptr_eq(there, &records));
                self.get_or_reserve(place, hash_key)
            }
            found => found,
        }
    }

    /// To be called after records of one hash key were changed.
    pub(super) fn update(&self, place: Place, changes: &[Change<'_>]) {
        let Some(Change { key, .. }) = changes.first() else { return };
        let known = self.cache.peek(&place).filter(|records| *records.hash_key == *key.hash_key);
        let updated = known.and_then(|records| records.with(changes));
        // What was evicted meanwhile may have been reserved since.
        let is_kept = updated.is_some_and(|records| self.cache.replace(place, Arc::new(records), true).is_ok());
        if !is_kept {
            self.forget(place);
        }
    }

    /// To be called after a write of which it is not known what it changed.
    pub(super) fn forget(&self, place: Place) {
        self.cache.remove(&place);
    }

    pub(super) fn hits(&self) -> u64 {
        self.cache.hits()
    }

    pub(super) fn misses(&self) -> u64 {
        self.cache.misses()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

impl Reservation<'_> {
    pub(super) fn fill(self, records: Records) {
        // In vain if there was a write meanwhile.
        let _ = self.0.insert(Arc::new(records));
    }
}

impl Records {
    /// Without records yet.
    pub(super) fn of(hash_key: &[u8], are_all: bool) -> Self {
        Self { hash_key: hash_key.into(), are_all, bytes: Vec::new() }
    }

    /// Adds the record with the next sort key. Returns false if there is no room for it.
    pub(super) fn add(&mut self, sort_key: &[u8], value: &[u8]) -> bool {
        let bytes = 8 + sort_key.len() + value.len();
        let lengths = (u32::try_from(sort_key.len()), u32::try_from(value.len()));
        let ((Ok(sort_length), Ok(value_length)), true) = (lengths, self.bytes.len() + bytes <= ENTRY_BYTES) else {
            return false;
        };
        self.bytes.reserve(bytes);
        self.bytes.extend_from_slice(&sort_length.to_le_bytes());
        self.bytes.extend_from_slice(&value_length.to_le_bytes());
        self.bytes.extend_from_slice(sort_key);
        self.bytes.extend_from_slice(value);
        true
    }

    /// What changes make of them; `None` if that is nothing, or too much to keep.
    fn with(&self, changes: &[Change<'_>]) -> Option<Self> {
        if self.bytes.len() > UPDATED_BYTES {
            return None;
        }
        let mut records: Vec<_> = self.iter().collect();
        for Change { key, value, .. } in changes {
            match (records.binary_search_by_key(&key.sort_key, |(sort_key, _)| *sort_key), value) {
                (Ok(at), Some(value)) => records[at].1 = value,
                (Ok(at), None) => _ = records.remove(at),
                (Err(at), Some(value)) if self.are_all => records.insert(at, (key.sort_key, value)),
                (Err(_), _) => {}
            }
        }
        let mut updated = Self::of(&self.hash_key, self.are_all);
        let fit = records.iter().all(|(sort_key, value)| updated.add(sort_key, value));
        (fit && !records.is_empty()).then_some(updated)
    }

    /// Sort keys and values in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (lengths, after) = rest.split_first_chunk::<8>()?;
            let [a, b, c, d, e, f, g, h] = *lengths;
            let (sort_key, after) = after.split_at(u32::from_le_bytes([a, b, c, d]) as usize);
            let (value, after) = after.split_at(u32::from_le_bytes([e, f, g, h]) as usize);
            rest = after;
            Some((sort_key, value))
        })
    }

    /// The records in a range of sort keys; `None` if not all are known.
    pub(super) fn range<'a>(
        &'a self,
        range: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    ) -> Option<impl Iterator<Item = (&'a [u8], &'a [u8])>> {
        let is_in = move |(sort_key, _): &(&[u8], &[u8])| <(_, _) as RangeBounds<[u8]>>::contains(&range, *sort_key);
        self.are_all.then(|| self.iter().filter(is_in))
    }

    /// The value of a record, if it is known whether there is one.
    pub(super) fn value_of(&self, key: &RecordKey<'_>) -> Option<Option<&[u8]>> {
        let found = self.iter().find(|(sort_key, _)| *sort_key == key.sort_key).map(|(_, value)| value);
        (found.is_some() || self.are_all).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(are_all: bool, records: &[(&str, &str)]) -> Records {
        let mut all = Records::of(b"key", are_all);
        assert!(records.iter().all(|(sort_key, value)| all.add(sort_key.as_bytes(), value.as_bytes())));
        all
    }

    fn changed(before: &Records, changes: &[(&str, Option<&str>)]) -> Option<Vec<(String, String)>> {
        let changes = changes.iter().map(|(sort_key, value)| Change {
            partition: 0,
            key: RecordKey::new(b"key", sort_key.as_bytes()),
            value: value.map(str::as_bytes),
        });
        let changes: Vec<_> = changes.collect();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let after = before.with(&changes)?;
        Some(after.iter().map(|(sort_key, value)| (text(sort_key), text(value))).collect())
    }

    #[test]
    fn a_part_gives_way_to_all() {
        let cache = RecordCache::of_bytes(1 << 20).unwrap();
        let place = Place { table: 0, partition: 0, epoch: 0, hash: 7 };
        let fill = |found: Found<'_>, filled: Records| match found {
            Found::Nothing(reservation) => reservation.fill(filled),
            Found::Records(_) | Found::Taken => panic!("not reserved"),
        };
        let known = |found: Found<'_>| match found {
            Found::Records(records) => records.iter().count(),
            Found::Nothing(_) | Found::Taken => panic!("nothing"),
        };
        fill(cache.get_or_reserve(place, b"key"), records(false, &[("", "1")]));
        assert_eq!(known(cache.get_or_reserve(place, b"key")), 1);
        assert!(matches!(cache.get_all_or_reserve(place, b"other"), Found::Taken));
        fill(cache.get_all_or_reserve(place, b"key"), records(true, &[("", "1"), ("a", "2")]));
        assert_eq!(known(cache.get_all_or_reserve(place, b"key")), 2);
        assert_eq!(known(cache.get_or_reserve(place, b"key")), 2);
    }

    #[test]
    fn entries_follow_writes() {
        let all = records(true, &[("b", "1"), ("d", "2")]);
        let pairs = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(one, other)| (one.to_string(), other.to_string())).collect::<Vec<_>>())
        };
        let changes = [("a", Some("3")), ("d", None), ("c", Some("4")), ("c", Some("5")), ("e", None)];
        assert_eq!(changed(&all, &changes), pairs(&[("a", "3"), ("b", "1"), ("c", "5")]));
        assert_eq!(changed(&all, &[("b", None), ("d", None)]), None, "what is not there is not kept");
        let one = records(false, &[("", "1")]);
        assert_eq!(changed(&one, &[("", Some("2")), ("a", Some("3"))]), pairs(&[("", "2")]), "others are not known");
        assert_eq!(changed(&one, &[("", None)]), None);
        let large = "x".repeat(UPDATED_BYTES + 1);
        assert_eq!(changed(&records(true, &[("a", &large)]), &[("a", Some("1"))]), None);
    }
}
