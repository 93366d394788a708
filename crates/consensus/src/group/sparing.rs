//! Witnesses are spared as long as nobody needs them.
//!
//! While the replicas with records keep up, they are the majority, and all that a [witness](super::witness) would do with an
//! entry is to forget it. So it hears heartbeats and nothing else. It is told again when a replica has lacked something for
//! [`PATIENCE_TICKS`], when members change, and before the group rests. Raft takes nothing from a spared witness: to send it
//! a message later is always allowed, and what is committed without it is on both replicas, whichever of them leads next.
//! docs/decisions/0016 has what that saves.

use super::{Group, from_raft, to_raft};
use raft::{Progress, ProgressState};
use tessera_types::ReplicaId;

/// Of a leader.
#[derive(Default)]
pub(super) struct Sparing {
    /// The last index at each of the latest ticks, oldest first.
    last: [u64; PATIENCE_TICKS],
    /// For so many ticks no witness is spared.
    needed_ticks: u32,
}

/// What the other replica has lacked for so many ticks, or one more, the witness is told.
const PATIENCE_TICKS: usize = 2;
/// A witness that was needed is told everything for so many ticks.
const NEEDED_TICKS: u32 = 20;
/// Ticks without anything to do after which a spared witness gets what it lacks.
const IDLE_TICKS: u32 = 10;
/// Raft sends nothing to a member that takes a snapshot; this is the index of the one that a spared witness takes.
const SPARED: u64 = u64::MAX;

pub(super) fn is_spared(progress: &Progress) -> bool {
    progress.state == ProgressState::Snapshot && progress.pending_snapshot == SPARED
}

/// Whether a member takes a snapshot that there is.
pub(super) fn takes_snapshot(progress: &Progress) -> bool {
    progress.state == ProgressState::Snapshot && !is_spared(progress)
}

impl<T> Group<T> {
    /// Spares witnesses that nobody needs, and tells those everything that are needed. For each tick of a leader.
    pub(super) fn spare_or_tell_witnesses(&mut self) {
        if !self.node.raft.prs().iter().any(|(id, _)| from_raft(*id).is_witness()) {
            return;
        }
        let (voters, _) = self.members();
        let last = self.node.raft.raft_log.last_index();
        if self.needs_witnesses(&voters) {
            self.sparing.needed_ticks = NEEDED_TICKS;
        }
        self.sparing.last.rotate_left(1);
        self.sparing.last[PATIENCE_TICKS - 1] = last;
        let is_needed = self.sparing.needed_ticks > 0;
        self.sparing.needed_ticks = self.sparing.needed_ticks.saturating_sub(1);
        let is_idle = self.is_idle_for(IDLE_TICKS);
        let own = self.replica();
        for witness in voters.into_iter().filter(|voter| voter.is_witness() && *voter != own).map(to_raft) {
            let Some(progress) = self.node.raft.mut_prs().get_mut(witness) else { continue };
            let is_told = is_needed || (is_idle && progress.matched < last);
            if is_told && is_spared(progress) {
                progress.snapshot_failure();
                progress.become_probe();
                self.node.raft.send_append(witness);
            } else if !is_told && progress.state == ProgressState::Replicate {
                progress.become_snapshot(SPARED);
            }
        }
    }

    /// Whether the voters with records are no majority that keeps up.
    fn needs_witnesses(&self, voters: &[ReplicaId]) -> bool {
        let mut keepers = voters.iter().filter(|voter| !voter.is_witness());
        let oldest = self.sparing.last[0];
        let keeps_up = |id: &ReplicaId| {
            *id == self.replica() || self.node.raft.prs().get(to_raft(*id)).is_some_and(|it| it.matched >= oldest)
        };
        self.is_changing() || 2 * keepers.clone().count() <= voters.len() || !keepers.all(keeps_up)
    }
}
