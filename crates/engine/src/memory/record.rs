//! One record in one allocation behind a thin pointer.
//!
//! A `Box<[u8]>` would cost a second word in the index for every record; with small records that word is what decides
//! how many fit. So the lengths stand at the head of the allocation:
//!
//! ```text
//! u32 value length | u32 sort key length | u16 hash key length | u8 referenced | hash key | sort key | stored value
//! ```
//!
//! `referenced` is the clock bit of eviction: readers set it, the eviction hand clears it. The rest is immutable while the
//! record is shared; who has it alone may write another value of the same length over the old one, which spares two
//! visits to the allocator and its cold lines.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use tessera_types::{RecordKey, hash_of};

const HEADER: usize = 11;
const REFERENCED: usize = 10;
const ALIGN: usize = 4;

/// Transparent, since a [`Slot`](super::slot::Slot) looks at its own pointer as a record.
#[repr(transparent)]
pub(super) struct Record(NonNull<u8>);

// SAFETY: a record owns its allocation, which is immutable behind `&self` but for one atomic byte.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Sync for Record {}

impl Record {
    pub(super) fn new(key: &RecordKey<'_>, value: &[u8]) -> Self {
        let lengths = [value.len(), key.sort_key.len()].map(|length| u32::try_from(length).expect("limited on entry"));
        let hash_key_len = u16::try_from(key.hash_key.len()).expect("limited on entry");
        let layout = layout_of(value.len(), key.sort_key.len(), key.hash_key.len());
        // SAFETY: the layout is not empty, and every write below stays inside it: the header, then the three parts
        // whose lengths made the layout.
        unsafe {
            let start = NonNull::new(alloc(layout)).unwrap_or_else(|| handle_alloc_error(layout));
            let at = start.as_ptr();
            at.cast::<u32>().write(lengths[0]);
            at.add(4).cast::<u32>().write(lengths[1]);
            at.add(8).cast::<u16>().write(hash_key_len);
            at.add(REFERENCED).write(0);
            let mut end = at.add(HEADER);
            for part in [key.hash_key, key.sort_key, value] {
                end.copy_from_nonoverlapping(part.as_ptr(), part.len());
                end = end.add(part.len());
            }
            Self(start)
        }
    }

    fn value_len(&self) -> usize {
        // SAFETY: `new` wrote the header.
        unsafe { self.0.cast::<u32>().read() as usize }
    }

    fn sort_key_len(&self) -> usize {
        // SAFETY: `new` wrote the header.
        unsafe { self.0.add(4).cast::<u32>().read() as usize }
    }

    fn hash_key_len(&self) -> usize {
        // SAFETY: `new` wrote the header.
        unsafe { self.0.add(8).cast::<u16>().read() as usize }
    }

    fn part(&self, offset: usize, length: usize) -> &[u8] {
        // SAFETY: callers pass the offset and length of a part that `new` initialised; the bytes are not written while
        // `self` is borrowed, and live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(HEADER + offset), length) }
    }

    pub(super) fn hash_key(&self) -> &[u8] {
        self.part(0, self.hash_key_len())
    }

    pub(super) fn sort_key(&self) -> &[u8] {
        self.part(self.hash_key_len(), self.sort_key_len())
    }

    pub(super) fn value(&self) -> &[u8] {
        self.part(self.hash_key_len() + self.sort_key_len(), self.value_len())
    }

    /// Puts `value` in the place of the old one, if it is as long. Returns whether it did.
    pub(super) fn overwrite(&mut self, value: &[u8]) -> bool {
        if value.len() != self.value_len() {
            return false;
        }
        let offset = HEADER + self.hash_key_len() + self.sort_key_len();
        // SAFETY: the value stands at this offset with this length, and nobody else looks at it.
        unsafe { self.0.as_ptr().add(offset).copy_from_nonoverlapping(value.as_ptr(), value.len()) };
        true
    }

    pub(super) fn hash(&self) -> u64 {
        hash_of(self.hash_key(), self.sort_key())
    }

    /// Bytes of the allocation.
    pub(super) fn bytes(&self) -> usize {
        HEADER + self.hash_key_len() + self.sort_key_len() + self.value_len()
    }

    pub(super) fn mark_referenced(&self) {
        let referenced = self.referenced();
        // A store only when it changes something: the line may be shared with another core's readers.
        if referenced.load(Ordering::Relaxed) == 0 {
            referenced.store(1, Ordering::Relaxed);
        }
    }

    /// Clears the clock bit and returns what it was.
    pub(super) fn take_referenced(&self) -> bool {
        self.referenced().swap(0, Ordering::Relaxed) != 0
    }

    fn referenced(&self) -> &AtomicU8 {
        // SAFETY: `new` initialised the byte, and it is only ever accessed through this atomic.
        unsafe { AtomicU8::from_ptr(self.0.as_ptr().add(REFERENCED)) }
    }

    pub(super) fn into_raw(self) -> NonNull<u8> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    /// # Safety
    /// `raw` comes from [`Self::into_raw`] and is given back once.
    pub(super) unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }
}

fn layout_of(value: usize, sort_key: usize, hash_key: usize) -> Layout {
    Layout::from_size_align(HEADER + value + sort_key + hash_key, ALIGN).expect("limits keep records below isize::MAX")
}

impl Drop for Record {
    fn drop(&mut self) {
        let layout = layout_of(self.value_len(), self.sort_key_len(), self.hash_key_len());
        // SAFETY: `new` allocated with this layout, and nobody else owns the allocation.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_round_trip() {
        for (hash_key, sort_key, value) in
            [("k", "", "v"), ("", "", ""), ("hash key", "sort key", "value"), ("", "s", "")]
        {
            let key = RecordKey::new(hash_key.as_bytes(), sort_key.as_bytes());
            let record = Record::new(&key, value.as_bytes());
            assert_eq!(record.hash_key(), hash_key.as_bytes());
            assert_eq!(record.sort_key(), sort_key.as_bytes());
            assert_eq!(record.value(), value.as_bytes());
            assert_eq!(record.hash(), key.hash());
            assert!(!record.take_referenced());
            record.mark_referenced();
            assert!(record.take_referenced());
            let mut record = record;
            assert!(record.overwrite(value.to_uppercase().as_bytes()) && !record.overwrite(b"another length"));
            assert_eq!(record.value(), value.to_uppercase().as_bytes());
            assert!(record.overwrite(value.as_bytes()) && record.hash_key() == hash_key.as_bytes());
            let raw = record.into_raw();
            // SAFETY: just taken out.
            let again = unsafe { Record::from_raw(raw) };
            assert_eq!(again.value(), value.as_bytes());
        }
    }
}
