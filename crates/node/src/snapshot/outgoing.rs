//! Files that other nodes fetch, and how many of them there may be.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_consensus::GroupId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most files of this node that are being written, or are offered and not fetched to their end. A node that comes back may need
/// a snapshot of every group at once, and the files of all would double what is on this disk. It takes them one after the
/// other in any case, since the rate at which it fetches is limited: a few files are enough that one is ready while others are
/// written, and that a slow receiver does not hold up a fast one.
pub(super) const FILES_AT_ONCE: usize = 4;
/// After a group's file was written, or could not be, none is written for the group for so long. What has failed, on a full
/// disk or a damaged file, would mostly fail again at once; and a group may ask once more before its loop has taken the offer.
pub(super) const PAUSE: Duration = Duration::from_secs(5);

/// The files, and the groups for which some are being written.
pub(crate) struct Outgoing {
    /// The files that can be fetched, by their numbers.
    pub(super) files: Mutex<HashMap<u64, Outgo>>,
    /// [`FILES_AT_ONCE`].
    pub(super) slots: Arc<Semaphore>,
    writes: Writes,
}

/// Groups whose file is being written (`None`), or was a moment ago: until when no other one is.
type Writes = Arc<Mutex<HashMap<GroupId, Option<Instant>>>>;

impl Default for Outgoing {
    fn default() -> Self {
        Self { files: Mutex::default(), slots: Arc::new(Semaphore::new(FILES_AT_ONCE)), writes: Writes::default() }
    }
}

impl Outgoing {
    /// Whether a group's file may be written now: none of the group is being written, or [was](PAUSE) a moment ago, and
    /// there are not too many of other groups. The slot belongs to the file, and the other value lasts until the file is
    /// offered, or is not to be.
    pub(crate) fn begin(&self, group: GroupId, now: Instant) -> Option<(OwnedSemaphorePermit, Writing)> {
        let mut writes = self.writes.lock();
        if writes.get(&group).is_some_and(|until| until.is_none_or(|until| now < until)) {
            return None;
        }
        let slot = self.slots.clone().try_acquire_owned().ok()?;
        writes.insert(group, None);
        Some((slot, Writing { group, writes: self.writes.clone() }))
    }

    /// Forgets groups that need not wait any more.
    pub(super) fn forget_pauses(&self, now: Instant) {
        self.writes.lock().retain(|_, until| until.is_none_or(|until| now < until));
    }
}

/// A group's file is being written as long as this is there.
pub(crate) struct Writing {
    group: GroupId,
    writes: Writes,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.writes.lock().insert(self.group, Some(Instant::now() + PAUSE));
    }
}

/// A file that is offered.
pub(super) struct Outgo {
    pub(super) group: GroupId,
    pub(super) file: Arc<File>,
    pub(super) bytes: u64,
    /// When it goes if nobody fetches from it before.
    pub(super) until: Instant,
    /// Until its last piece was fetched.
    pub(super) slot: Option<OwnedSemaphorePermit>,
    pub(super) _on_disk: OnDisk,
}

/// A file that is removed with this, whole or not.
pub(super) struct OnDisk(pub(super) PathBuf);

impl Drop for OnDisk {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "a snapshot's file is left over");
        }
    }
}
