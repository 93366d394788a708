//! The time of a replica, which passes in ticks.

use super::{ELECTION_TICKS, HEARTBEAT_TICKS};
use std::time::Duration;

/// For so many ticks the first member of a new group asks for votes at every tick: the others may learn of the group a moment later.
const FIRST_ELECTION_TICKS: usize = ELECTION_TICKS;

#[derive(Default)]
pub(super) struct Ticks {
    /// Time since the worker began, at the last tick.
    now: Duration,
    beginning: Beginning,
    /// Since the last heartbeat of a leader.
    heartbeat: usize,
}

/// What a replica does, or does not do, for some ticks after it was started.
#[derive(Default)]
pub(super) enum Beginning {
    /// It ignores requests for votes. Before its restart it may have granted a lease that has not ended yet. See
    /// [`lease`](super::lease).
    Silent(usize),
    /// The first member of a new group asks for votes again and again.
    FirstElection(usize),
    #[default]
    Over,
}

impl Beginning {
    pub(super) fn silent() -> Self {
        Self::Silent(ELECTION_TICKS)
    }

    pub(super) fn first_election() -> Self {
        Self::FirstElection(FIRST_ELECTION_TICKS)
    }
}

impl Ticks {
    pub(super) fn begin(&mut self, beginning: Beginning) {
        self.beginning = beginning;
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// It is `now`. What counts ticks is [told](Self::count) separately: a replica that hibernates counts none.
    pub(super) fn pass(&mut self, now: Duration) {
        self.now = now;
    }

    pub(super) fn count(&mut self) {
        self.heartbeat += 1;
        if let Beginning::Silent(ticks) | Beginning::FirstElection(ticks) = &mut self.beginning {
            *ticks -= 1;
            if *ticks == 0 {
                self.beginning = Beginning::Over;
            }
        }
    }

    /// Whether requests for votes are ignored.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.beginning, Beginning::Silent(_))
    }

    /// Whether those are asked for votes that did not know of the new group when they were asked before.
    pub(super) fn is_first_election(&self) -> bool {
        matches!(self.beginning, Beginning::FirstElection(_))
    }

    /// Whether a leader sends heartbeats now.
    pub(super) fn take_heartbeat(&mut self) -> bool {
        let is_due = self.heartbeat >= HEARTBEAT_TICKS;
        if is_due {
            self.heartbeat = 0;
        }
        is_due
    }
}
