//! What the index holds for a hash key, in one word: its only record, or all of them in order.

use super::record::Record;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use tessera_types::RecordKey;

/// A sort key and a stored value.
pub(super) type Field = (Box<[u8]>, Box<[u8]>);

/// The records of a hash key that has several, ordered by sort key.
pub(super) struct Fields {
    pub(super) hash: u64,
    pub(super) hash_key: Box<[u8]>,
    records: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// What the records take. Counted as they come and go: there may be millions.
    record_bytes: usize,
    /// The clock bit of eviction, as [`Record`] has one. A write of a field sets it too: a hash that grows is in use.
    referenced: AtomicBool,
}

/// Bytes that a record of [`Fields`] takes besides its sort key and value: two fat pointers at the typical fill of a
/// B-tree node, and allocation headers.
const FIELD_OVERHEAD: usize = 48;

impl Fields {
    pub(super) fn new(hash: u64, hash_key: &[u8]) -> Self {
        let referenced = AtomicBool::new(true);
        Self { hash, hash_key: hash_key.into(), records: BTreeMap::new(), record_bytes: 0, referenced }
    }

    pub(super) fn mark_referenced(&self) {
        // A store only when it changes something: the line may be shared with another core's readers.
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn records(&self) -> &BTreeMap<Box<[u8]>, Box<[u8]>> {
        &self.records
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.hash_key.len() + self.record_bytes
    }

    /// Returns whether the record is a new one.
    pub(super) fn put(&mut self, sort_key: &[u8], value: &[u8]) -> bool {
        *self.referenced.get_mut() = true;
        if let Some(old) = self.records.get_mut(sort_key) {
            self.record_bytes += value.len();
            self.record_bytes -= old.len();
            *old = value.into();
            return false;
        }
        self.records.insert(sort_key.into(), value.into());
        self.record_bytes += sort_key.len() + value.len() + FIELD_OVERHEAD;
        true
    }

    /// Returns whether there was such a record.
    pub(super) fn remove(&mut self, sort_key: &[u8]) -> bool {
        let Some(value) = self.records.remove(sort_key) else { return false };
        self.record_bytes -= sort_key.len() + value.len() + FIELD_OVERHEAD;
        true
    }

    /// Takes the first records out, so many at most.
    pub(super) fn take(&mut self, records: usize) -> Vec<Field> {
        let taken: Vec<_> = std::iter::from_fn(|| self.records.pop_first()).take(records).collect();
        self.record_bytes -= taken.iter().map(|(key, value)| key.len() + value.len() + FIELD_OVERHEAD).sum::<usize>();
        taken
    }
}

/// An owning pointer to a [`Record`] (bit 0 clear) or to [`Fields`] (bit 0 set).
pub(super) struct Slot(NonNull<u8>);

// SAFETY: owns a `Record` or a `Box<Fields>`, both of which are `Send` and `Sync`.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

pub(super) enum SlotRef<'a> {
    Record(&'a Record),
    Fields(&'a Fields),
}

const FIELDS_BIT: usize = 1;

impl Slot {
    pub(super) fn record(record: Record) -> Self {
        Self(record.into_raw())
    }

    pub(super) fn fields(fields: Box<Fields>) -> Self {
        let raw = NonNull::from(Box::leak(fields)).cast::<u8>();
        Self(raw.map_addr(|address| address | FIELDS_BIT))
    }

    fn is_fields(&self) -> bool {
        self.0.addr().get() & FIELDS_BIT != 0
    }

    fn fields_ptr(&self) -> NonNull<Fields> {
        // `Fields` is aligned to more than one byte, so the address without the bit is not zero.
        let address = std::num::NonZeroUsize::new(self.0.addr().get() & !FIELDS_BIT).expect("a pointer is not null");
        self.0.with_addr(address).cast()
    }

    #[inline]
    pub(super) fn get(&self) -> SlotRef<'_> {
        if self.is_fields() {
            // SAFETY: the pointer came from `Box::leak` and is owned by `self`.
            SlotRef::Fields(unsafe { self.fields_ptr().as_ref() })
        } else {
            // SAFETY: `Record` is one pointer, and this is the one that `Record::into_raw` gave; the borrow cannot
            // outlive `self`.
            SlotRef::Record(unsafe { &*(&raw const self.0).cast::<Record>() })
        }
    }

    pub(super) fn record_mut(&mut self) -> Option<&mut Record> {
        // SAFETY: as in `get`, and `self` is borrowed mutably.
        (!self.is_fields()).then(|| unsafe { &mut *(&raw mut self.0).cast::<Record>() })
    }

    pub(super) fn fields_mut(&mut self) -> Option<&mut Fields> {
        // SAFETY: as in `get`, and `self` is borrowed mutably.
        self.is_fields().then(|| unsafe { self.fields_ptr().as_mut() })
    }

    /// The address to prefetch before [`Self::get`] is looked into.
    #[inline]
    pub(super) fn address(&self) -> *const u8 {
        self.0.as_ptr().cast_const()
    }

    #[inline]
    pub(super) fn holds(&self, key: &RecordKey<'_>) -> bool {
        match self.get() {
            SlotRef::Record(record) => {
                record.hash_key() == key.hash_key && (!key.hash_key.is_empty() || record.sort_key() == key.sort_key)
            }
            SlotRef::Fields(fields) => *fields.hash_key == *key.hash_key,
        }
    }

    /// Clears the clock bit of eviction and returns what it was.
    pub(super) fn take_referenced(&self) -> bool {
        match self.get() {
            SlotRef::Record(record) => record.take_referenced(),
            SlotRef::Fields(fields) => fields.referenced.swap(false, Ordering::Relaxed),
        }
    }

    pub(super) fn hash(&self) -> u64 {
        match self.get() {
            SlotRef::Record(record) => record.hash(),
            SlotRef::Fields(fields) => fields.hash,
        }
    }

    /// What tells this slot's hash key from others: the hash key, or the sort key where the hash key is empty.
    pub(super) fn identity(&self) -> &[u8] {
        match self.get() {
            SlotRef::Record(record) if record.hash_key().is_empty() => record.sort_key(),
            SlotRef::Record(record) => record.hash_key(),
            SlotRef::Fields(fields) => &fields.hash_key,
        }
    }

    /// The records whose sort keys are no less than this one, in order.
    pub(super) fn records_from<'a>(&'a self, sort_key: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (record, fields) = match self.get() {
            SlotRef::Record(record) => (Some(record).filter(|record| record.sort_key() >= sort_key), None),
            SlotRef::Fields(fields) => (None, Some(fields)),
        };
        let range = (Bound::Included(sort_key), Bound::Unbounded);
        let fields = fields.into_iter().flat_map(move |fields| fields.records().range::<[u8], _>(range));
        let fields = fields.map(|(sort_key, value)| (&**sort_key, &**value));
        record.map(|record| (record.sort_key(), record.value())).into_iter().chain(fields)
    }

    /// The least key that may be in the slot.
    pub(super) fn least_key(&self) -> RecordKey<'_> {
        match self.get() {
            SlotRef::Record(record) => RecordKey::with_hash(record.hash(), record.hash_key(), record.sort_key()),
            SlotRef::Fields(fields) => RecordKey::with_hash(fields.hash, &fields.hash_key, b""),
        }
    }

    pub(super) fn records(&self) -> usize {
        match self.get() {
            SlotRef::Record(_) => 1,
            SlotRef::Fields(fields) => fields.records.len(),
        }
    }

    /// Bytes on the heap behind the slot.
    pub(super) fn bytes(&self) -> usize {
        match self.get() {
            SlotRef::Record(record) => record.bytes(),
            SlotRef::Fields(fields) => fields.bytes(),
        }
    }

    /// The fields, if there are more of them than that.
    pub(super) fn into_many_fields(self, records: usize) -> Result<Fields, Self> {
        if !self.is_fields() || self.records() <= records {
            return Err(self);
        }
        let slot = ManuallyDrop::new(self);
        // SAFETY: the pointer came from `Box::leak`, and `slot` is not dropped.
        Ok(*unsafe { Box::from_raw(slot.fields_ptr().as_ptr()) })
    }

    pub(super) fn into_record(self) -> Option<Record> {
        if self.is_fields() {
            return None;
        }
        let slot = ManuallyDrop::new(self);
        // SAFETY: the pointer came from `Record::into_raw`, and `slot` is not dropped.
        Some(unsafe { Record::from_raw(slot.0) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_fields() {
            // SAFETY: from `Box::leak`, given back once.
            drop(unsafe { Box::from_raw(self.fields_ptr().as_ptr()) });
        } else {
            // SAFETY: from `Record::into_raw`, given back once.
            drop(unsafe { Record::from_raw(self.0) });
        }
    }
}

const _: () = assert!(size_of::<Option<Slot>>() == 8);

/// What [`Slot::identity`] is for a key that is looked up.
pub(super) fn identity_of<'a>(key: &RecordKey<'a>) -> &'a [u8] {
    if key.hash_key.is_empty() { key.sort_key } else { key.hash_key }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(records: usize) -> Slot {
        let mut fields = Fields::new(7, b"hash");
        for at in 0..records {
            assert!(fields.put(format!("field{at:03}").as_bytes(), &vec![b'v'; at]));
        }
        Slot::fields(Box::new(fields))
    }

    /// Under Miri this also shows that what is behind a slot is given back once, by whoever owns it in the end.
    #[test]
    fn a_slot_gives_up_what_it_holds_to_whoever_asks_for_that_kind_only() {
        let record = || Slot::record(Record::new(&RecordKey::with_hash(7, b"hash", b"field"), b"value"));
        assert_eq!(record().into_record().expect("it holds a record").value(), b"value");
        let Err(record) = record().into_many_fields(0) else { panic!("a record is not fields") };
        assert_eq!((record.records(), record.identity()), (1, &b"hash"[..]));
        drop(record);

        assert!(fields(3).into_record().is_none());
        let Err(mut few) = fields(3).into_many_fields(3) else { panic!("three are not more than three") };
        assert!(few.record_mut().is_none() && few.take_referenced() && !few.take_referenced());
        assert!(few.fields_mut().expect("it holds fields").remove(b"field001"));
        let keys: Vec<_> = few.records_from(b"field001").map(|(key, _)| key.to_vec()).collect();
        assert_eq!(keys, [b"field002"]);
        let Ok(mut many) = fields(3).into_many_fields(2) else { panic!("three are more than two") };
        let bytes = many.bytes();
        let taken = many.take(2);
        assert_eq!((taken.len(), many.records().len()), (2, 1));
        assert!(many.bytes() < bytes);
    }
}
