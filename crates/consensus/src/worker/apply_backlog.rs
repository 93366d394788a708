//! The apply backlog: committed entries of groups whose state machine cannot keep up, for example because its engine
//! stalls writers until the disk has caught up.
//!
//! The entries wait here, in order, while the loop goes on: votes, leases and the log need no state machine, and the
//! state machines of other groups may be quick. When [`LIMIT_BYTES`] wait, commands to these groups are refused, and
//! entries from their leaders are dropped; a leader treats that as a lost message and sends them again.

use super::{StateMachine, Worker};
use crate::{Committed, GroupId};
use ahash::{AHashMap, AHashSet};

/// Bytes of entries that may wait in a worker before more are refused.
const LIMIT_BYTES: usize = 64 << 20;
/// Bytes that each waiting entry counts in addition to its payloads.
const ENTRY_OVERHEAD: usize = 128;

#[derive(Default)]
pub(super) struct ApplyBacklog {
    by_group: AHashMap<GroupId, Vec<Committed>>,
    bytes: usize,
    /// Groups to remove once nobody writes to their state.
    to_remove: AHashSet<GroupId>,
}

impl ApplyBacklog {
    pub(super) fn holds(&self, group: GroupId) -> bool {
        !self.by_group.is_empty() && self.by_group.contains_key(&group)
    }

    /// Whether the group may receive no more entries.
    pub(super) fn is_full(&self, group: GroupId) -> bool {
        self.bytes >= LIMIT_BYTES && self.holds(group)
    }

    pub(super) fn push(&mut self, committed: Committed) {
        self.bytes += ENTRY_OVERHEAD + committed.payloads.iter().map(bytes::Bytes::len).sum::<usize>();
        self.by_group.entry(committed.group).or_default().push(committed);
    }

    /// Moves entries of groups that have a backlog from `committed` to the end of that backlog.
    pub(super) fn hold_back_later(&mut self, committed: &mut Vec<Committed>) {
        if !self.by_group.is_empty() {
            let is_later = |committed: &Committed| self.holds(committed.group);
            let (later, rest): (Vec<_>, Vec<_>) = std::mem::take(committed).into_iter().partition(is_later);
            *committed = rest;
            later.into_iter().for_each(|committed| self.push(committed));
        }
    }

    /// Whether a group may be removed now. If not, it is removed once its state machine no longer works on it.
    pub(super) fn may_be_removed(&mut self, group: GroupId) -> bool {
        !self.holds(group) || {
            self.to_remove.insert(group);
            false
        }
    }
}

impl<M: StateMachine> Worker<M> {
    /// The state machine can go on: submits the waiting entries again.
    pub(super) fn catch_up(&mut self) {
        let ApplyBacklog { by_group, to_remove, .. } = std::mem::take(&mut self.apply_backlog);
        self.unapplied.splice(0..0, by_group.into_values().flatten());
        to_remove.into_iter().for_each(|group| self.remove(group));
        self.apply();
    }
}
