//! Which workers' committed writes their engines do not take now, and why.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The workers of a node, as far as their engines refuse what is committed: a full disk, for example.
#[derive(Default)]
pub(crate) struct RefusedWrites {
    of_workers: Mutex<Vec<Weak<Mutex<Option<String>>>>>,
}

/// What one worker's engines say.
pub(crate) struct OfWorker(Arc<Mutex<Option<String>>>);

impl RefusedWrites {
    /// A worker whose engines have refused nothing.
    pub(crate) fn join(&self) -> OfWorker {
        let of_worker = Arc::default();
        self.of_workers.lock().push(Arc::downgrade(&of_worker));
        OfWorker(of_worker)
    }

    /// Why a worker's engine refuses writes, if one does.
    pub(crate) fn reason(&self) -> Option<String> {
        self.of_workers.lock().iter().filter_map(Weak::upgrade).find_map(|of_worker| of_worker.lock().clone())
    }
}

impl OfWorker {
    /// Takes what came of writing what is committed.
    pub(crate) fn note(&self, error: Option<&String>) {
        let mut known = self.0.lock();
        if known.as_ref() != error {
            *known = error.cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_there_until_a_write_succeeds() {
        let refused = RefusedWrites::default();
        let (one, other) = (refused.join(), refused.join());
        assert_eq!(refused.reason(), None);
        one.note(Some(&"full".into()));
        other.note(None);
        assert_eq!(refused.reason().as_deref(), Some("full"));
        one.note(None);
        assert_eq!(refused.reason(), None);
        other.note(Some(&"broken".into()));
        drop(other);
        assert_eq!(refused.reason(), None, "the worker is gone");
    }
}
