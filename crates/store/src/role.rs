//! What the replica of a partition on this node does for its group.

use std::sync::atomic::{AtomicU8, Ordering};

const FOLLOWS: u8 = 0;
const LEADS: u8 = 1;
const SERVES: u8 = 2;

/// Whether the replica here leads, and whether it then also takes requests: one number, so that nobody sees a replica that
/// serves and does not lead.
#[derive(Default)]
pub(crate) struct Role(AtomicU8);

impl Role {
    #[inline]
    pub(crate) fn leads(&self) -> bool {
        self.0.load(Ordering::Acquire) >= LEADS
    }

    #[inline]
    pub(crate) fn serves(&self) -> bool {
        self.0.load(Ordering::Acquire) == SERVES
    }

    /// The replica was elected.
    pub(crate) fn lead(&self) {
        self.0.fetch_max(LEADS, Ordering::AcqRel);
    }

    /// The leader takes requests from now on.
    pub(crate) fn serve(&self) {
        self.0.store(SERVES, Ordering::Release);
    }

    /// The replica takes no requests any more, and leads if it did.
    pub(crate) fn stop_serving(&self) {
        self.0.fetch_min(LEADS, Ordering::AcqRel);
    }

    /// The replica does not lead, or not any more.
    pub(crate) fn follow(&self) {
        self.0.store(FOLLOWS, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stops_serving_leads_only_if_it_did() {
        let role = Role::default();
        let now = |role: &Role| (role.leads(), role.serves());
        role.stop_serving();
        assert_eq!(now(&role), (false, false));
        role.lead();
        assert_eq!(now(&role), (true, false));
        role.serve();
        role.lead();
        assert_eq!(now(&role), (true, true), "it was elected once more");
        role.stop_serving();
        assert_eq!(now(&role), (true, false));
        role.follow();
        assert_eq!(now(&role), (false, false));
    }
}
