//! Telling threads to stop.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells threads to stop when it goes, also when an assertion fails beside them.
pub(super) struct StopAtEnd<'a>(pub(super) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
