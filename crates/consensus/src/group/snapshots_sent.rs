//! Snapshots on their way to replicas that lag.

/// A snapshot that was not answered within this many ticks is sent again.
const SNAPSHOT_TICKS: usize = 100;

/// Replicas that were sent a snapshot, each with the ticks until the snapshot counts as lost.
#[derive(Default)]
pub(super) struct SnapshotsSent(Vec<(u64, usize)>);

impl SnapshotsSent {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, to: u64) {
        self.0.push((to, SNAPSHOT_TICKS));
    }

    /// Counts a tick, and calls `lost` with the replicas whose snapshot counts as lost from now on.
    pub(super) fn tick(&mut self, mut lost: impl FnMut(u64)) {
        for (to, ticks) in &mut self.0 {
            *ticks -= 1;
            if *ticks == 0 {
                lost(*to);
            }
        }
        self.0.retain(|(_, ticks)| *ticks > 0);
    }

    /// Forgets those that are sent no snapshot any more.
    pub(super) fn retain(&mut self, takes_snapshot: impl Fn(u64) -> bool) {
        self.0.retain(|(to, _)| takes_snapshot(*to));
    }
}
