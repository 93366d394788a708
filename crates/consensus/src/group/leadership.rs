//! Who leads, as far as this replica knows and has told, and what it may do while it leads itself.

use std::time::Duration;

#[derive(Default)]
pub(super) struct Leadership {
    /// From when this replica, as the leader, had applied everything that was acknowledged before, until it has
    /// [stepped down](Self::step_down).
    serving: Option<Serving>,
    /// When this leader last asked its peers to confirm that it leads.
    asked: Duration,
    /// The term in which this replica asked another one to lead. The other one need not wait for a lease to end, so
    /// this replica gets no lease in that term.
    transferred_in: u64,
    /// The term and leader that were last reported to the state machine.
    reported_leader: (u64, u64),
}

struct Serving {
    term: u64,
    /// No other replica can lead before this time. `None`: this is the only member, so the lease never ends.
    lease: Option<Duration>,
}

impl Leadership {
    /// The replica serves in this term from now on. It has no lease yet, unless there are no others, and then it needs none.
    pub(super) fn serve(&mut self, term: u64, has_peers: bool) {
        self.serving = Some(Serving { term, lease: has_peers.then_some(Duration::ZERO) });
    }

    /// Whether the replica serves, if it leads in this term.
    pub(super) fn is_serving_in(&self, term: u64) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.term == term)
    }

    /// Whether the replica serves, or served and has not stepped down yet.
    pub(super) fn has_served(&self) -> bool {
        self.serving.is_some()
    }

    /// Returns the term in which the replica served; zero if it did not.
    pub(super) fn step_down(&mut self) -> u64 {
        self.serving.take().map_or(0, |serving| serving.term)
    }

    /// No other replica can lead before this time; `None` if there is no other member.
    pub(super) fn lease(&self) -> Option<Duration> {
        self.serving.as_ref().map_or(Some(Duration::ZERO), |serving| serving.lease)
    }

    /// To be called while the replica serves: there is no lease otherwise.
    pub(super) fn set_lease(&mut self, until: Option<Duration>) {
        if let Some(serving) = &mut self.serving {
            serving.lease = until;
        }
    }

    /// The leader asks its peers to confirm that it leads at `now` or later.
    pub(super) fn ask(&mut self, now: Duration) {
        self.asked = self.asked.max(now);
    }

    pub(super) fn asked(&self) -> Duration {
        self.asked
    }

    /// The leader of this term asks another replica to lead: its lease ends, and it gets no other one.
    pub(super) fn transfer(&mut self, term: u64) {
        self.transferred_in = term;
        self.set_lease(Some(Duration::ZERO));
    }

    pub(super) fn was_transferred_in(&self, term: u64) -> bool {
        self.transferred_in == term
    }

    /// Whether this term and leader are not reported yet; they are now.
    pub(super) fn is_news(&mut self, term: u64, leader: u64) -> bool {
        std::mem::replace(&mut self.reported_leader, (term, leader)) != (term, leader)
    }
}
