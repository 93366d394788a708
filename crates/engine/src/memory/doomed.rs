//! Large hash keys that were removed, deleted or evicted, and spaces that were dropped, which take memory still.
//!
//! Freeing a million records takes some hundred milliseconds, and the writer who removes them holds the partition's lock. So it takes
//! a hash key with many records out of the index as a whole, for which nobody waits, and puts it here. From here records are
//! taken some at a time, and dropped after the lock is let go of: by every write, by whoever must evict, and by sweeps. They
//! count as used memory until then.

use super::slot::{Field, Fields, Slot};
use super::spaces::SpaceRecords;

/// Records that are freed under one hold of the lock. A hash key with no more is freed at once.
const STEP: usize = 1_024;
/// Steps of one sweep at most.
pub(super) const STEPS: usize = 64;

#[derive(Default)]
pub(super) struct Doomed {
    hash_keys: Vec<Fields>,
    spaces: Vec<SpaceRecords>,
}

impl Doomed {
    pub(super) fn is_empty(&self) -> bool {
        self.hash_keys.is_empty() && self.spaces.is_empty()
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

    /// Takes some records out, with the bytes that are freed when they are dropped.
    pub(super) fn take_some(&mut self) -> (Vec<Field>, usize) {
        let Some(fields) = self.hash_keys.last_mut() else { return self.take_some_of_spaces() };
        let mut bytes = fields.bytes();
        let records = fields.take(STEP);
        if fields.records().is_empty() {
            self.hash_keys.pop();
        } else {
            bytes -= fields.bytes();
        }
        (records, bytes)
    }

    fn take_some_of_spaces(&mut self) -> (Vec<Field>, usize) {
        let Some(space) = self.spaces.last_mut() else { return (Vec::new(), 0) };
        let before = space.bytes();
        let records = space.take(STEP);
        let freed = before - space.bytes();
        if space.len() == 0 {
            self.spaces.pop();
        }
        (records, freed)
    }
}
