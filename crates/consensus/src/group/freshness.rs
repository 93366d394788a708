//! Freshness: the last time at which a replica's state reflected everything that the leader had committed. So the time
//! since then bounds how far the replica is behind.
//!
//! A leader's messages carry its committed index. Times are those of the last tick, so they are too early rather than
//! too late. While a group hibernates nothing is committed; when its node misses the leader's node, the replica wakes
//! and counts from then.

use super::Group;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Freshness {
    /// `None` until the state was up to date for the first time.
    as_of: Option<Duration>,
    /// A committed index that a message reported and that is not applied yet, with the time of the message.
    pending: Option<(Duration, u64)>,
    has_hibernated: bool,
}

/// How fresh a replica's state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// It is what the leader has, until another freshness is reported.
    Now,
    AsOf(Duration),
    Unknown,
}

impl Freshness {
    /// The leader reported at `now` that it had committed up to `index`.
    fn on_commit_index(&mut self, index: u64, applied: u64, now: Duration) {
        if applied >= index {
            self.as_of = Some(now);
        } else if self.pending.is_none() {
            self.pending = Some((now, index));
        }
    }

    pub(super) fn on_applied(&mut self, applied: u64) {
        if let Some((at, _)) = self.pending.take_if(|(_, index)| *index <= applied) {
            self.as_of = Some(at);
        }
    }

    /// The leader hibernates, and this replica has what it has.
    pub(super) fn on_hibernation(&mut self) {
        self.has_hibernated = true;
    }
}

impl<T> Group<T> {
    pub(crate) fn fresh(&self) -> Fresh {
        if self.leads_for_sure() || self.is_hibernating() {
            return Fresh::Now;
        }
        self.freshness.as_of.map_or(Fresh::Unknown, Fresh::AsOf)
    }

    /// The leader reports that it has committed up to `index`.
    pub(super) fn on_commit_index(&mut self, index: u64) {
        self.freshness.on_commit_index(index, self.applied, self.ticks.now());
    }

    /// Called once per tick of a replica that does not hibernate.
    pub(super) fn refresh(&mut self) {
        if std::mem::take(&mut self.freshness.has_hibernated) || self.leads_for_sure() {
            self.freshness.as_of = Some(self.ticks.now());
        }
    }

    fn leads_for_sure(&self) -> bool {
        self.is_serving() && self.lease().is_none_or(|until| self.ticks.now() < until)
    }
}
