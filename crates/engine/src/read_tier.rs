//! Reads that may not wait for the disk.
//!
//! A thread that serves many connections must not stand still while the disk looks for one record. It reads
//! [from the caches](from_caches) first: a read that finds in memory all that it needs is as quick as any, and one that does not
//! ends with [`EngineError::WouldWait`](crate::EngineError::WouldWait) before it has touched the disk, so that it can be made again
//! on a thread that may wait.
//!
//! This is told by thread and not by argument, since what has to know it, the engine, is many calls below who does: a command
//! reads through a transaction, which reads through the overlay.

use std::cell::Cell;

thread_local! {
    static CACHES_ONLY: Cell<bool> = const { Cell::new(false) };
}

/// Makes a read of which the engine looks into its memory alone.
///
/// What the engine's writers do is not concerned.
pub fn from_caches<T>(read: impl FnOnce() -> T) -> T {
    struct Before(bool);

    impl Drop for Before {
        fn drop(&mut self) {
            CACHES_ONLY.set(self.0);
        }
    }

    let _before = Before(CACHES_ONLY.replace(true));
    read()
}

/// Whether the read that this thread makes may not wait for the disk.
pub(crate) fn is_caches_only() -> bool {
    CACHES_ONLY.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_leaves_the_thread_as_it_found_it() {
        assert!(!is_caches_only());
        let nested = from_caches(|| (from_caches(is_caches_only), is_caches_only()));
        assert_eq!((nested, is_caches_only()), ((true, true), false));
        assert!(std::panic::catch_unwind(|| from_caches(|| panic!("a damaged record"))).is_err());
        assert!(!is_caches_only());
    }
}
