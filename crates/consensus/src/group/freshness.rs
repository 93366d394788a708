//! How far behind a replica's state is at most: the last time at which it reflected all that the leader had committed.
//!
//! A leader's messages tell how far it has committed. Times are of the last tick, so they are rather too early than too late.
//! While a group rests nothing is committed; when a resting replica misses its leader's node it counts from then on.

use super::Group;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Freshness {
    /// `None` before the first time.
    as_of: Option<Duration>,
    /// What a message told that is not applied yet: when, and the index.
    pending: Option<(Duration, u64)>,
    has_hibernated: bool,
}

/// How fresh a replica's state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// It is what the leader has, as long as nothing else is said.
    Now,
    AsOf(Duration),
    Unknown,
}

impl<T> Group<T> {
    pub(crate) fn fresh(&self) -> Fresh {
        if self.leads_for_sure() || self.is_hibernating() {
            return Fresh::Now;
        }
        self.freshness.as_of.map_or(Fresh::Unknown, Fresh::AsOf)
    }

    /// The leader had committed up to `index`.
    pub(super) fn on_commit_index(&mut self, index: u64) {
        if self.applied >= index {
            self.freshness.as_of = Some(self.now);
        } else if self.freshness.pending.is_none() {
            self.freshness.pending = Some((self.now, index));
        }
    }

    pub(super) fn refresh_after_apply(&mut self) {
        if let Some((at, _)) = self.freshness.pending.take_if(|(_, index)| *index <= self.applied) {
            self.freshness.as_of = Some(at);
        }
    }

    /// Once per tick of a replica that is awake.
    pub(super) fn refresh(&mut self) {
        if std::mem::take(&mut self.freshness.has_hibernated) || self.leads_for_sure() {
            self.freshness.as_of = Some(self.now);
        }
    }

    fn leads_for_sure(&self) -> bool {
        self.is_serving() && self.lease().is_none_or(|until| self.now < until)
    }

    pub(super) fn on_hibernation(&mut self) {
        self.freshness.has_hibernated = true;
    }
}
