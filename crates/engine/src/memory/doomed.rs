//! What was removed and takes memory still: large hash keys that were deleted or evicted, spaces that were dropped, and all that a
//! partition held when it was cleared.
//!
//! Freeing a million records takes some hundred milliseconds, and the writer who removes them holds the partition's lock. So it takes
//! a hash key with many records out of the index as a whole, or the whole index, for which nobody waits, and puts it here. From here
//! records are taken some at a time, and dropped after the lock is let go of: by every write, by whoever must evict, and by sweeps.
//! They count as used memory until then.

use super::index::Segments;
use super::segment::Segment;
use super::slot::{Field, Fields, Slot};
use super::spaces::SpaceRecords;

/// Records that are freed under one hold of the lock. A hash key with no more is freed at once.
const STEP: usize = 1_024;
/// Steps of one sweep at most.
pub(super) const STEPS: usize = 64;

/// What is dropped without the lock: records, small hash keys, and the segment that held them.
pub(super) type Freed = (Vec<Field>, Vec<Slot>, Option<Segment>);

#[derive(Default)]
pub(super) struct Doomed {
    hash_keys: Vec<Fields>,
    spaces: Vec<SpaceRecords>,
    /// The segments of indexes that were cleared.
    segments: Vec<Segments>,
}

impl Doomed {
    pub(super) fn is_empty(&self) -> bool {
        self.hash_keys.is_empty() && self.spaces.is_empty() && self.segments.is_empty()
    }

    /// Frees a slot if it is small. Returns the bytes that are freed.
    pub(super) fn add_or_drop(&mut self, slot: Slot) -> usize {
        match slot.into_many_fields(STEP) {
            Ok(fields) => {
                self.hash_keys.push(fields);
                0
            }
            Err(slot) => slot.bytes(),
        }
    }

    /// Takes a space over, whose bytes are freed from here.
    pub(super) fn add_space(&mut self, records: SpaceRecords) {
        self.spaces.push(records);
    }

    /// Takes the segments of an index over, whose bytes, and those behind their slots, are freed from here.
    pub(super) fn add_segments(&mut self, segments: Segments) {
        self.segments.push(segments);
    }

    /// Takes some records out, with the bytes that are freed when they are dropped. Returns `None` if there is nothing.
    pub(super) fn take_some(&mut self) -> Option<(Freed, usize)> {
        // Large hash keys first: segments add to them.
        self.take_some_of_hash_keys().or_else(|| self.take_some_of_spaces()).or_else(|| self.take_some_of_segments())
    }

    fn take_some_of_hash_keys(&mut self) -> Option<(Freed, usize)> {
        let fields = self.hash_keys.last_mut()?;
        let mut bytes = fields.bytes();
        let records = fields.take(STEP);
        if fields.records().is_empty() {
            self.hash_keys.pop();
        } else {
            bytes -= fields.bytes();
        }
        Some(((records, Vec::new(), None), bytes))
    }

    fn take_some_of_spaces(&mut self) -> Option<(Freed, usize)> {
        let space = self.spaces.last_mut()?;
        let before = space.bytes();
        let records = space.take(STEP);
        let freed = before - space.bytes();
        if space.len() == 0 {
            self.spaces.pop();
        }
        Some(((records, Vec::new(), None), freed))
    }

    fn take_some_of_segments(&mut self) -> Option<(Freed, usize)> {
        let segments = self.segments.last_mut()?;
        let before = segments.bytes();
        let (mut slots, mut records, mut freed) = (Vec::new(), 0, 0);
        let emptied = segments.take_slots(|slot| {
            match slot.into_many_fields(STEP) {
                Ok(fields) => self.hash_keys.push(fields),
                Err(slot) => {
                    records += slot.records();
                    freed += slot.bytes();
                    slots.push(slot);
                }
            }
            records < STEP
        });
        freed += before - segments.bytes();
        if segments.is_empty() {
            self.segments.pop();
        }
        Some(((Vec::new(), slots, emptied), freed))
    }
}
