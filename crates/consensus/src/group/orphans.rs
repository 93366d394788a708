//! Tickets of what a leader had proposed when it was deposed.
//!
//! Whether such an entry takes effect is for the next leader to decide, and shows when its index is committed: with the same
//! term it is the same entry, with another one it never takes effect. So most commands that were under way when the leader
//! changed get a definite answer, a moment later. Only what stays open for [`PATIENCE`] is answered as unknown.

use super::Group;
use crate::Failure;
use std::collections::VecDeque;

/// Ticks for which an orphan waits for news. Elections are over by then, unless there is nobody to elect.
const PATIENCE: u32 = 60;

pub(super) struct Orphans<T> {
    /// Index and term of the entry that each waits for. A leader that leads again may be deposed again.
    waiting: VecDeque<(u64, u64, T)>,
    /// Since the last ones came.
    ticks: u32,
}

impl<T> Default for Orphans<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), ticks: 0 }
    }
}

impl<T> Orphans<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes tickets of entries of the term that is over.
    pub(super) fn take_in(&mut self, term: u64, tickets: impl Iterator<Item = (u64, T)>) {
        self.waiting.extend(tickets.map(|(index, ticket)| (index, term, ticket)));
        self.waiting.make_contiguous().sort_by_key(|(index, ..)| *index);
        self.ticks = 0;
    }

    pub(super) fn are_overdue(&self) -> bool {
        self.ticks >= PATIENCE && !self.is_empty()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.waiting.drain(..).map(|(_, _, ticket)| ticket)
    }
}

impl<T> Group<T> {
    /// Returns whether some have waited too long.
    pub(super) fn count_orphans_tick(&mut self) -> bool {
        self.orphans.ticks = self.orphans.ticks.saturating_add(1);
        self.orphans.are_overdue()
    }

    pub(super) fn next_answerable_orphan(&mut self) -> Option<(T, Result<(), Failure>)> {
        let (index, term, _) = self.orphans.waiting.front()?;
        let outcome = if *index > self.node.raft.raft_log.committed {
            self.orphans.are_overdue().then_some(Err(Failure::Interrupted))?
        } else {
            match self.node.store().term_at(*index) {
                Some(committed) if committed == *term => Ok(()),
                Some(_) => Err(Failure::NotServing),
                // A snapshot came in the place of the log.
                None => Err(Failure::Interrupted),
            }
        };
        self.orphans.waiting.pop_front().map(|(_, _, ticket)| (ticket, outcome))
    }
}
