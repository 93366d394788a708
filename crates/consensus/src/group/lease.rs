//! Reads under a lease, and answers that a majority has confirmed.
//!
//! Every [`HEARTBEAT_TICKS`](super::HEARTBEAT_TICKS) a leader asks its peers to confirm that it leads. Each peer that
//! answers has heard from the leader after the question was sent, and a replica that has heard from a leader takes part
//! in no election for [`ELECTION_TICKS`] of its own clock. Neither does a replica that has just started, because it may
//! have answered before its restart. So if a majority answers, nobody else can lead from the question on for the length
//! of [`LEASE`], as long as no clock runs more than a tenth faster than another. During that time a leader that has
//! applied the entry that opened its term may answer reads by itself.

use super::{ELECTION_TICKS, Group, PassOutput};
use std::time::Duration;

/// How long a confirmed leader may answer reads. It is one tick less than the election time, because a follower counts
/// from the first tick after it heard from the leader, and a tenth less for clocks that run at different speeds.
const LEASE: Duration = Duration::from_millis((ELECTION_TICKS as u64 - 1) * 50 * 9 / 10);

impl<T> Group<T> {
    /// Keeps the pending reply of a command that changes nothing. Returns it if it can be answered at once: no entry
    /// that the answer could depend on is on its way, and the lease shows that nobody else leads. With `confirm` a
    /// majority must confirm that instead of the lease. `now` returns the time since the worker began; it is called
    /// only if the time matters.
    pub(crate) fn follow(&mut self, reply: T, confirm: bool, now: impl FnOnce() -> Duration) -> Option<T> {
        if !self.replies.building.is_empty() {
            // When the entry that is being built is committed, that shows that nobody else led.
            self.replies.building.follow(reply);
            return None;
        }
        let last = self.node.raft.raft_log.last_index();
        if let Some(until) = self.lease() {
            let now = now();
            if confirm || now >= until {
                self.wake();
                self.replies.wait_for_confirmation(last, now, reply);
                return None;
            }
        }
        if last <= self.applied {
            return Some(reply);
        }
        self.replies.wait_for(last, reply);
        None
    }

    pub(super) fn set_lease(&mut self, until: Option<Duration>, output: &mut PassOutput) {
        self.leadership.set_lease(until);
        output.leases.push((self.id, until));
    }

    /// Asks the other members to confirm that this one leads at `now` or later.
    pub(super) fn ask_for_confirmation(&mut self, now: Duration) {
        self.leadership.ask(now);
        self.node.read_index(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).to_le_bytes().to_vec());
    }

    pub(super) fn extend_lease(&mut self, context: &[u8], output: &mut PassOutput) {
        let Ok(asked) = <[u8; 8]>::try_from(context) else { return };
        if !self.is_serving() {
            return;
        }
        let asked = Duration::from_nanos(u64::from_le_bytes(asked));
        if self.replies.confirm(asked) {
            output.answerable.push(self.id);
        }
        if !self.is_alone() && !self.leadership.was_transferred_in(self.node.raft.term) {
            self.set_lease(Some(asked + LEASE), output);
        }
    }

    /// No other replica can lead before this time; `None` if there is no other member.
    pub(crate) fn lease(&self) -> Option<Duration> {
        self.leadership.lease()
    }

    /// Asks for confirmation if a command waits for it that came after the last question.
    pub(super) fn ask_for_those_who_wait(&mut self) {
        if self.is_leader()
            && let Some(came) = self.replies.last_unconfirmed().filter(|came| *came > self.leadership.asked())
        {
            // One question serves all that wait; commands that come before its answer wait for the next question.
            self.ask_for_confirmation(came);
        }
    }
}
