//! Groups whose state machine cannot keep up, such as one whose engine stalls writes until its disk has caught up.
//!
//! What is committed for them waits here, in order, while the loop goes on: votes, leases and the log need no state machine,
//! and other groups' state machines may be quick. When so much waits that memory would grow, commands are refused, and what
//! a leader sends is dropped, which it takes for a lost message and sends again.

use super::{StateMachine, Worker};
use crate::{Committed, GroupId};
use ahash::{AHashMap, AHashSet};

/// Bytes of entries that may wait in a worker before more is refused.
const LIMIT: usize = 64 << 20;
/// What an entry counts beside its payloads.
const OF_AN_ENTRY: usize = 128;

#[derive(Default)]
pub(super) struct Behind {
    by_group: AHashMap<GroupId, Vec<Committed>>,
    bytes: usize,
    /// To be removed once nobody writes to their state.
    leaving: AHashSet<GroupId>,
}

impl Behind {
    pub(super) fn holds(&self, group: GroupId) -> bool {
        !self.by_group.is_empty() && self.by_group.contains_key(&group)
    }

    /// Whether no more may come for the group.
    pub(super) fn is_full(&self, group: GroupId) -> bool {
        self.bytes >= LIMIT && self.holds(group)
    }

    pub(super) fn push(&mut self, committed: Committed) {
        self.bytes += OF_AN_ENTRY + committed.payloads.iter().map(bytes::Bytes::len).sum::<usize>();
        self.by_group.entry(committed.group).or_default().push(committed);
    }

    /// Takes what comes after something that waits.
    pub(super) fn take_later(&mut self, committed: &mut Vec<Committed>) {
        if !self.by_group.is_empty() {
            let is_later = |committed: &Committed| self.holds(committed.group);
            let (later, rest): (Vec<_>, Vec<_>) = std::mem::take(committed).into_iter().partition(is_later);
            *committed = rest;
            later.into_iter().for_each(|committed| self.push(committed));
        }
    }

    /// Whether a group may be removed now; if not, it will have to be once its state machine is not at work on it.
    pub(super) fn may_leave(&mut self, group: GroupId) -> bool {
        !self.holds(group) || {
            self.leaving.insert(group);
            false
        }
    }
}

impl<M: StateMachine> Worker<M> {
    /// The state machine can go on: gives it again what waited.
    pub(super) fn catch_up(&mut self) {
        let Behind { by_group, leaving, .. } = std::mem::take(&mut self.behind);
        self.unapplied.splice(0..0, by_group.into_values().flatten());
        leaving.into_iter().for_each(|group| self.remove(group));
        self.apply();
    }
}
