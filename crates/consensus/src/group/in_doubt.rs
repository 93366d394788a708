//! In-doubt proposals: what a leader had proposed, and not yet committed, when it stepped down.
//!
//! Whether such an entry takes effect is for the next leader to decide. It shows when the entry's index is committed:
//! if the entry there has the same term, it is the same entry; if it has another term, the proposal never takes effect.
//! So most commands that were under way when the leader changed get a definite answer a moment later. Only those that
//! stay open for [`PATIENCE`] are answered as unknown.

use super::storage::GroupStorage;
use crate::Failure;
use raft::RaftLog;
use std::collections::VecDeque;

/// Ticks for which an in-doubt proposal waits for news. Elections are over by then, unless there is nobody to elect.
const PATIENCE: u32 = 60;

pub(super) struct InDoubt<T> {
    /// Index and term of each proposed entry, with the pending reply. A leader that leads again may step down again, so
    /// there may be several terms.
    waiting: VecDeque<(u64, u64, T)>,
    /// Ticks since the last proposals were taken in.
    ticks: u32,
}

impl<T> Default for InDoubt<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), ticks: 0 }
    }
}

impl<T> InDoubt<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the pending replies of entries that were proposed in `term`, which is over.
    pub(super) fn take_in(&mut self, term: u64, replies: impl Iterator<Item = (u64, T)>) {
        self.waiting.extend(replies.map(|(index, reply)| (index, term, reply)));
        self.waiting.make_contiguous().sort_by_key(|(index, ..)| *index);
        self.ticks = 0;
    }

    pub(super) fn are_overdue(&self) -> bool {
        self.ticks >= PATIENCE && !self.is_empty()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.waiting.drain(..).map(|(_, _, reply)| reply)
    }

    /// Counts a tick. Returns whether some proposals have waited too long.
    pub(super) fn tick(&mut self) -> bool {
        self.ticks = self.ticks.saturating_add(1);
        self.are_overdue()
    }

    /// The next reply that can be sent, with the outcome that the log shows.
    pub(super) fn next_answerable(&mut self, log: &RaftLog<GroupStorage>) -> Option<(T, Result<(), Failure>)> {
        let (index, term, _) = self.waiting.front()?;
        let outcome = if *index > log.committed {
            self.are_overdue().then_some(Err(Failure::Interrupted))?
        } else {
            match log.store.term_at(*index) {
                Some(committed) if committed == *term => Ok(()),
                Some(_) => Err(Failure::NotServing),
                // A snapshot has replaced that part of the log.
                None => Err(Failure::Interrupted),
            }
        };
        self.waiting.pop_front().map(|(_, _, reply)| (reply, outcome))
    }
}
