//! How far the tables of a node are in step with the catalog's group, for those who have changed the catalog and wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How long somebody who has changed the catalog waits for the tables here.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts the catalogs that the loop of the catalog's group hands over, and those that the tables follow.
pub struct CatalogProgress {
    handed_over: AtomicU64,
    /// How many of the catalogs that the loop handed over are followed.
    followed: watch::Sender<u64>,
    /// The log index of the latest catalog that the loop handed over.
    index: watch::Sender<u64>,
}

impl Default for CatalogProgress {
    fn default() -> Self {
        Self { handed_over: AtomicU64::new(0), followed: watch::Sender::new(0), index: watch::Sender::new(0) }
    }
}

impl CatalogProgress {
    /// How many catalogs the loop has handed over.
    pub fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Acquire)
    }

    /// The loop has handed over this many catalogs; the latest of them reflects the log up to this index.
    pub fn note_handed_over(&self, number: u64, index: u64) {
        self.handed_over.store(number, Ordering::Release);
        self.index.send_replace(index);
    }

    /// How many of the catalogs that the loop handed over are followed.
    pub fn followed(&self) -> u64 {
        *self.followed.borrow()
    }

    /// The tables here follow the catalog with this number now.
    pub fn note_followed(&self, number: u64) {
        self.followed.send_replace(number);
    }

    /// The node stops: nobody is to wait any more.
    pub fn end(&self) {
        self.followed.send_replace(u64::MAX);
    }

    /// The log index of the catalog as the loop has it now.
    pub fn index(&self) -> u64 {
        *self.index.borrow()
    }

    /// Waits until the tables here are those of the catalog as the loop has it now, for a while. Returns whether they are.
    pub(crate) async fn caught_up(&self) -> bool {
        let handed_over = self.handed_over();
        let mut followed = self.followed.subscribe();
        let wait = followed.wait_for(|followed| *followed >= handed_over);
        let follows = tokio::time::timeout(PATIENCE, wait).await.is_ok();
        if !follows {
            tracing::warn!("the catalog has changed, and the tables here do not follow yet");
        }
        follows
    }

    /// Waits until the catalog here has what is at a log index, and the tables here are those of it, for a while. Returns whether
    /// they are.
    pub(crate) async fn has_come_to(&self, index: u64) -> bool {
        let mut known = self.index.subscribe();
        let wait = known.wait_for(|known| *known >= index);
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            tracing::warn!(index, "a change of the catalog that another node has carried out is not known here yet");
            return false;
        }
        self.caught_up().await
    }
}
