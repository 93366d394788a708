//! Up to where all data replicas have the log.

use super::storage::GroupStorage;

#[derive(Default)]
pub(super) struct Replicated {
    /// On a witness: the index up to which all data replicas have the log, as leaders reported it.
    reported: u64,
    /// On a leader, to estimate the unreplicated bytes: an index, and the bytes that the log had received up to it.
    mark: (u64, u64),
    /// On a leader: the bytes up to an earlier mark, which all data replicas have reached.
    bytes: u64,
}

impl Replicated {
    pub(super) fn reported(&self) -> u64 {
        self.reported
    }

    /// A leader reports that all data replicas have the log up to `index`. Returns whether that is more than was known.
    pub(super) fn on_report(&mut self, index: u64) -> bool {
        let is_news = index > self.reported;
        self.reported = self.reported.max(index);
        is_news
    }

    /// On a leader: all data replicas have the log up to `index`.
    pub(super) fn update(&mut self, index: u64, store: &GroupStorage) {
        if index >= self.mark.0 {
            self.bytes = self.mark.1;
            self.mark = (store.last(), store.bytes_seen());
        }
    }

    /// On a leader: an estimate, from above, of the bytes of entries that some data replica lacks.
    pub(super) fn lacking_bytes(&self, store: &GroupStorage) -> u64 {
        store.bytes_seen() - self.bytes
    }
}
