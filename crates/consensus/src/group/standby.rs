//! A witness is on standby as long as nobody needs it: it receives heartbeats and no entries.
//!
//! While the data replicas keep up they are a majority, and all that a [witness](super::witness) would do with an entry
//! is to forget it. The leader sends entries again when a data replica has lacked something for [`PATIENCE_TICKS`],
//! when members change, and before the group hibernates. This takes nothing from Raft's safety: a message to a witness
//! may always be sent later, and what is committed without the witness is on all data replicas, whichever of them leads
//! next. docs/decisions/0016 has what this saves.

use super::{Group, from_raft, to_raft};
use raft::{Progress, ProgressState};
use tessera_types::ReplicaId;

/// What a leader remembers to decide whether its witnesses are needed.
#[derive(Default)]
pub(super) struct Standby {
    /// The last index at each of the latest ticks, oldest first.
    last: [u64; PATIENCE_TICKS],
    /// Ticks for which no witness goes on standby.
    needed_ticks: u32,
}

/// When a data replica has lacked an entry for this many ticks, or one more, the witness receives it.
const PATIENCE_TICKS: usize = 2;
/// A witness that was needed receives all entries for this many ticks.
const NEEDED_TICKS: u32 = 20;
/// After this many ticks without anything to do a standby witness receives what it lacks.
const IDLE_TICKS: u32 = 10;
/// Raft sends no entries to a member that is being sent a snapshot. A standby witness is such a member, with this index
/// as that of its snapshot.
const STANDBY: u64 = u64::MAX;

pub(super) fn is_on_standby(progress: &Progress) -> bool {
    progress.state == ProgressState::Snapshot && progress.pending_snapshot == STANDBY
}

/// Whether a member is being sent a real snapshot.
pub(super) fn takes_snapshot(progress: &Progress) -> bool {
    progress.state == ProgressState::Snapshot && !is_on_standby(progress)
}

impl Standby {
    /// Counts a tick of a leader whose log ends at `last`. Returns whether the witnesses are needed, as they are for some
    /// ticks after it was found that they are.
    fn tick(&mut self, last: u64, are_needed_now: bool) -> bool {
        if are_needed_now {
            self.needed_ticks = NEEDED_TICKS;
        }
        self.last.rotate_left(1);
        self.last[PATIENCE_TICKS - 1] = last;
        let are_needed = self.needed_ticks > 0;
        self.needed_ticks = self.needed_ticks.saturating_sub(1);
        are_needed
    }

    /// The last index at the oldest of the ticks that are remembered.
    fn oldest(&self) -> u64 {
        self.last[0]
    }
}

impl<T> Group<T> {
    /// Puts witnesses that nobody needs on standby, and sends all entries to those that are needed. Called on each tick
    /// of a leader.
    pub(super) fn update_standby_witnesses(&mut self) {
        if !self.node.raft.prs().iter().any(|(id, _)| from_raft(*id).is_witness()) {
            return;
        }
        let (voters, _) = self.members();
        let last = self.node.raft.raft_log.last_index();
        let are_needed_now = self.needs_witnesses(&voters);
        let are_needed = self.peers.standby.tick(last, are_needed_now);
        let is_idle = self.hibernation.is_idle_for(IDLE_TICKS);
        let own = self.replica();
        for witness in voters.into_iter().filter(|voter| voter.is_witness() && *voter != own).map(to_raft) {
            let Some(progress) = self.node.raft.mut_prs().get_mut(witness) else { continue };
            let is_needed = are_needed || (is_idle && progress.matched < last);
            if is_needed && is_on_standby(progress) {
                progress.snapshot_failure();
                progress.become_probe();
                self.node.raft.send_append(witness);
            } else if !is_needed && progress.state == ProgressState::Replicate {
                progress.become_snapshot(STANDBY);
            }
        }
    }

    /// Whether the data replicas among the voters are no majority, or do not all keep up.
    fn needs_witnesses(&self, voters: &[ReplicaId]) -> bool {
        let mut data_replicas = voters.iter().filter(|voter| !voter.is_witness());
        let oldest = self.peers.standby.oldest();
        let keeps_up = |id: &ReplicaId| {
            *id == self.replica() || self.node.raft.prs().get(to_raft(*id)).is_some_and(|it| it.matched >= oldest)
        };
        self.is_changing() || 2 * data_replicas.clone().count() <= voters.len() || !data_replicas.all(keeps_up)
    }
}
