//! Records of hash keys that are read often, above RocksDB: found in a tenth of the time that its own block cache takes, which
//! has to look into memtables, filters and indexes first, and into each old version of what is written often.
//!
//! An entry is what was read of one hash key: the record under the empty sort key, or all of its records. A reader that
//! finds none reserves the entry *before* it reads RocksDB. A writer, *after* its write, brings the entry up to date and takes
//! a reservation away, and then a reader fills it in vain. One writer at a time writes to a partition.
//!
//! Between a write to RocksDB and the update of the entry the two disagree: who reads RocksDB finds the new record, and who
//! comes later and finds the entry would see the old one again. So a writer [announces](RecordCache::begin_write) the hash keys
//! before it writes and takes that back after the updates, and readers that come in between use RocksDB alone. A reader has
//! to look only once, before it looks for the entry: if no write was under way then, the entry is no older than that moment.

use crate::{Order, SortKeyRange, Visit};
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
/// 16 KiB of counts: with a hundred records being written, one read in forty meets the count of another's write.
const WRITE_COUNTS: usize = 4 << 10;
/// 2^64 divided by the golden ratio: spreads what differs in any bit over the upper ones.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;
/// What an entry is taken to take before there are any.
const EXPECTED_BYTES: usize = 1 << 10;

/// Where an entry is. Two hash keys of one hash have the same place.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Of the table that is open, not of its name.
    pub(super) table: u32,
    pub(super) partition: u32,
    /// Counts up before and after all of the partition's records are replaced.
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
    /// Writes under way, by the place of what they write. Several places share one count; a reader that meets the write of
    /// another place's record uses RocksDB in vain.
    writes: Box<[AtomicU32; WRITE_COUNTS]>,
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
    /// Somebody else reads or writes it, or another hash key has the place.
    Taken,
}

impl RecordCache {
    /// `None` if it would hold nothing.
    pub(super) fn of_bytes(bytes: usize) -> Option<Self> {
        let cache = (bytes > 0).then(|| Cache::with_weighter(bytes / EXPECTED_BYTES, bytes as u64, Weight))?;
        Some(Self { cache, tables: AtomicU32::new(0), writes: Box::new([const { AtomicU32::new(0) }; WRITE_COUNTS]) })
    }

    /// To be called before records of a place are written; [`Self::end_write`] after the entry was updated or forgotten.
    pub(super) fn begin_write(&self, place: Place) {
        // Release, and acquire where it is read: who has seen the new record sees the write announced. The engine's own
        // synchronisation carries the one to the other.
        self.writes_to(place).fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn end_write(&self, place: Place) {
        self.writes_to(place).fetch_sub(1, Ordering::AcqRel);
    }

    fn writes_to(&self, place: Place) -> &AtomicU32 {
        // Not the epoch, which may change while the write goes on. Hashes of one partition differ in their upper bits.
        let mixed = (place.hash ^ (u64::from(place.partition) << 32 | u64::from(place.table))).wrapping_mul(MIXER);
        &self.writes[(mixed >> (u64::BITS - WRITE_COUNTS.ilog2())) as usize]
    }

    /// Whether what is known of a place may be older than what RocksDB has shown to others.
    #[inline]
    fn is_in_flux(&self, place: Place) -> bool {
        // An odd epoch: all records of the partition are being replaced.
        !place.epoch.is_multiple_of(2) || self.writes_to(place).load(Ordering::Acquire) > 0
    }

    /// A number for a table that is opened.
    pub(super) fn next_table(&self) -> u32 {
        self.tables.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known of a hash key.
    pub(super) fn get(&self, place: Place, hash_key: &[u8]) -> Option<Arc<Records>> {
        if self.is_in_flux(place) {
            return None;
        }
        self.cache.get(&place).filter(|records| *records.hash_key == *hash_key)
    }

    pub(super) fn get_or_reserve(&self, place: Place, hash_key: &[u8]) -> Found<'_> {
        if self.is_in_flux(place) {
            return Found::Taken;
        }
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

    /// As [`Self::fill`] with one record, under the empty sort key.
    pub(super) fn fill_with_one(self, key: &RecordKey<'_>, value: &[u8]) {
        let mut records = Records::of(key.hash_key, false);
        if records.add(b"", value) {
            self.fill(records);
        }
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

    /// Visits the records in a range of sort keys until told to stop. Returns false, having visited none, if not all are known.
    pub(super) fn visit(
        &self,
        range: SortKeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> bool {
        let Some(known) = self.range(range) else { return false };
        let mut visit_until_told = |(sort_key, value)| visit(sort_key, value) == Visit::NextHashKey;
        match order {
            Order::Ascending => _ = { known }.any(&mut visit_until_told),
            Order::Descending => _ = known.collect::<Vec<_>>().into_iter().rev().any(visit_until_told),
        }
        true
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
    fn while_a_record_is_written_readers_use_rocksdb_alone() {
        let cache = RecordCache::of_bytes(1 << 20).unwrap();
        let place = Place { table: 0, partition: 3, epoch: 0, hash: 7 };
        let Found::Nothing(early) = cache.get_or_reserve(place, b"key") else { panic!("not reserved") };
        cache.begin_write(place);
        early.fill(records(false, &[("", "old")])); // read before the write
        assert!(matches!(cache.get_or_reserve(place, b"key"), Found::Taken));
        assert!(cache.get(place, b"key").is_none());
        let written = Change { partition: 3, key: RecordKey::with_hash(7, b"key", b""), value: Some(b"new") };
        cache.update(place, &[written]);
        assert!(cache.get(place, b"key").is_none(), "the same write may have other records to update");
        cache.end_write(place);
        let known = cache.get(place, b"key").expect("the entry was updated");
        assert_eq!(known.iter().next(), Some((&b""[..], &b"new"[..])));
        assert!(matches!(cache.get_or_reserve(Place { epoch: 1, ..place }, b"key"), Found::Taken), "being replaced");
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
