//! What an evaluation has not found in the caches.

use super::Transaction;
use crate::errors::request_error;
use crate::table::Table;
use std::ops::Bound;
use tessera_engine::{EngineError, KeyRange, Order, SortKeyRange, Visit};
use tessera_types::{RecordKey, RequestError, Space};

/// Records that are read in advance beyond those that were found in the caches.
const AHEAD: usize = 256;

type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A read that would have had to wait for the disk. Made where it may, it brings into the caches what the evaluation wants next.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    /// One record.
    Record {
        /// Its hash key.
        hash_key: Vec<u8>,
        /// Its sort key.
        sort_key: Vec<u8>,
    },
    /// `found` is how many the caches had.
    Records {
        /// Their hash key.
        hash_key: Vec<u8>,
        /// The sort keys that were asked for.
        range: Range,
        /// The direction in which they are read.
        order: Order,
        /// How many of them the caches had.
        found: usize,
    },
    /// One entry of an ordered space.
    InSpace {
        /// The space.
        space: Space,
        /// Its key.
        key: Vec<u8>,
    },
    /// Entries of an ordered space; `found` is how many the caches had.
    OfSpace {
        /// The space.
        space: Space,
        /// The keys that were asked for.
        range: Range,
        /// The direction in which they are read.
        order: Order,
        /// How many of them the caches had.
        found: usize,
    },
}

impl Missing {
    pub(super) fn record(hash_key: &[u8], sort_key: &[u8]) -> Self {
        Self::Record { hash_key: hash_key.to_vec(), sort_key: sort_key.to_vec() }
    }

    pub(super) fn records(hash_key: &[u8], range: SortKeyRange<'_>, order: Order, found: usize) -> Self {
        Self::Records { hash_key: hash_key.to_vec(), range: owned(range), order, found }
    }

    pub(super) fn of_space(space: Space, range: KeyRange<'_>, order: Order, found: usize) -> Self {
        Self::OfSpace { space, range: owned(range), order, found }
    }

    /// Waits for the disk.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn read(&self, table: &Table, partition: u32) -> Result<(), EngineError> {
        let mut seen = 0;
        match self {
            Self::Record { hash_key, sort_key } => {
                table.engine.get(partition, &RecordKey::new(hash_key, sort_key), &mut |_| ()).map(|_| ())
            }
            Self::Records { hash_key, range, order, found } => {
                let key = RecordKey::new(hash_key, b"");
                table.engine.scan_hash_key(partition, &key, borrowed(range), *order, &mut |_, _| {
                    seen += 1;
                    if seen < found + AHEAD { Visit::NextRecord } else { Visit::NextHashKey }
                })
            }
            Self::InSpace { space, key } => table.engine.get_in(partition, *space, key, &mut |_| ()).map(|_| ()),
            Self::OfSpace { space, range, order, found } => {
                table.engine.scan_space(partition, *space, borrowed(range), *order, &mut |_, _| {
                    seen += 1;
                    seen < found + AHEAD
                })
            }
        }
    }
}

fn owned((from, to): (Bound<&[u8]>, Bound<&[u8]>)) -> Range {
    (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec))
}

fn borrowed((from, to): &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice))
}

impl Transaction<'_> {
    /// Notes what a read has failed at if that is the disk.
    pub(super) fn failed(&self, error: EngineError, missing: impl FnOnce() -> Missing) -> RequestError {
        let error = request_error(error);
        if error == RequestError::WouldWait {
            // The first one: what comes after it may not be read at all once this is there.
            self.found.missing.borrow_mut().get_or_insert_with(missing);
        }
        error
    }

    /// Whether something that was read is in no cache, or a key is held by another transaction: then all of it is to be done again.
    pub fn would_wait(&self) -> bool {
        self.found.missing.borrow().is_some() || self.found.held_by.get().is_some()
    }

    /// What this transaction would have had to wait for; then it is to be given up and made again.
    pub fn take_missing(&self) -> Option<Missing> {
        self.found.missing.borrow_mut().take()
    }
}
