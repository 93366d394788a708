//! Readers and writers of a partition agree on what has expired.
//!
//! The replica that leads hides what has expired by the clock. A write is judged by the clock too, when it is evaluated, and takes effect
//! when its entry is applied, which may be a disk's fsync or a round trip later. In between its record may expire by the clock, although the write has
//! found it alive and prolonged its life: a reader that hid it then would see it gone, and others would see it again afterwards. So
//!
//! - a reader says by which time it judges *before* it looks at what was judged by writes that are on their way, and
//! - a write says by which time it judges *before* it looks at what readers have judged by, and goes by the later one.
//!
//! One of the two sees the other. What may have been found alive by a write that is on its way is neither hidden nor shown: the reader is
//! refused, and the partition's loop, which knows these writes, reads instead.

use std::sync::atomic::{AtomicU64, Ordering};
use tessera_types::UnixMillis;

/// The times by which readers and writes have judged a partition's records on the node that leads it.
#[derive(Debug)]
pub struct ExpiryFence {
    /// The latest time by which a reader has hidden what had expired.
    read_by: AtomicU64,
    /// The time by which the first of the writes was judged that are evaluated and not applied yet; [`NONE`] if there is none.
    judged_from: AtomicU64,
}

const NONE: u64 = u64::MAX;

impl Default for ExpiryFence {
    fn default() -> Self {
        Self { read_by: AtomicU64::new(0), judged_from: AtomicU64::new(NONE) }
    }
}

impl ExpiryFence {
    /// A reader is about to hide what has expired by this time, in records that it has not read yet. Returns the time by which what it hides
    /// must have expired: a write that is on its way may have found alive what expires later.
    pub(crate) fn begin_read(&self, seen_at: UnixMillis) -> UnixMillis {
        // Most readers of one millisecond find that another one has said so.
        if self.read_by.load(Ordering::SeqCst) < seen_at.get() {
            self.read_by.fetch_max(seen_at.get(), Ordering::SeqCst);
        }
        UnixMillis::new(self.judged_from.load(Ordering::SeqCst))
    }

    /// A write is about to be judged, at this time of the clock. `judged_from` is the time by which the first of those was judged that are on their
    /// way, this one included. Returns what counts as now for it, so that it finds nothing alive that a reader has hidden.
    #[inline]
    pub fn begin_write(&self, now: UnixMillis, judged_from: UnixMillis) -> UnixMillis {
        self.set_in_flight(Some(judged_from));
        now.max(UnixMillis::new(self.read_by.load(Ordering::SeqCst)))
    }

    /// Of the writes that are on their way, the first was judged by this time. To be called after what was applied can be read.
    #[inline]
    pub fn set_in_flight(&self, judged_from: Option<UnixMillis>) {
        let judged_from = judged_from.map_or(NONE, UnixMillis::get);
        // Only the partition's loop writes here.
        if self.judged_from.load(Ordering::Relaxed) != judged_from {
            self.judged_from.store(judged_from, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> UnixMillis {
        UnixMillis::new(millis)
    }

    #[test]
    fn what_a_write_may_have_found_alive_is_not_settled() {
        let fence = ExpiryFence::default();
        assert_eq!(fence.begin_read(at(5)), at(NONE), "nothing is on its way");
        assert_eq!(fence.begin_write(at(7), at(7)), at(7));
        assert_eq!(fence.begin_read(at(9)), at(7));
        assert_eq!(fence.begin_write(at(8), at(7)), at(9), "a reader has judged by a later time");
        assert_eq!(fence.begin_read(at(9)), at(7), "the first one is still on its way");
        fence.set_in_flight(Some(at(9)));
        assert_eq!(fence.begin_read(at(10)), at(9));
        fence.set_in_flight(None);
        assert_eq!(fence.begin_read(at(10)), at(NONE));
    }
}
