//! Which nodes take no writes, since the disk that they write to is full or has failed.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tessera_types::{NodeId, RequestError};

/// A node that takes no writes says so twice a second. What it has not said for so long does not count any more: the word that it takes writes again
/// may have been lost.
const LAPSE: Duration = Duration::from_secs(5);

/// What nodes say of their disks, this one included.
#[derive(Default)]
pub(crate) struct DiskRefusals(RwLock<HashMap<NodeId, DiskRefusal>>);

/// What a node says of its disk that takes no writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskRefusal {
    /// What it answers.
    pub(crate) reason: RequestError,
    /// Since when that is known here.
    pub(crate) since: Instant,
    /// When it was said last.
    told: Instant,
}

impl DiskRefusals {
    /// Why a node takes no writes; `None` if it does.
    pub(crate) fn note(&self, node: NodeId, reason: Option<RequestError>) {
        let Some(reason) = reason else {
            if self.0.read().contains_key(&node) {
                self.0.write().remove(&node);
            }
            return;
        };
        let told = Instant::now();
        let since = self.of(node).map_or(told, |known| known.since);
        self.0.write().insert(node, DiskRefusal { reason, since, told });
    }

    pub(crate) fn of(&self, node: NodeId) -> Option<DiskRefusal> {
        self.0.read().get(&node).filter(|refusal| refusal.told.elapsed() < LAPSE).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_from_the_first_time_until_it_is_taken_back() {
        let (refusals, node) = (DiskRefusals::default(), NodeId(1));
        refusals.note(node, None);
        assert_eq!(refusals.of(node), None);
        refusals.note(node, Some(RequestError::DiskFull));
        let first = refusals.of(node).unwrap();
        let other = RequestError::DiskFailed("broken".into());
        refusals.note(node, Some(other.clone()));
        let second = refusals.of(node).unwrap();
        assert_eq!((second.reason, second.since), (other, first.since));
        assert_eq!(refusals.of(NodeId(2)), None);
        refusals.note(node, None);
        assert_eq!(refusals.of(node), None);
    }

    /// The word that a node takes writes again was lost with a connection, and its partitions were refused to transactions for ever.
    #[test]
    fn a_refusal_that_is_not_said_again_lapses() {
        let (refusals, node) = (DiskRefusals::default(), NodeId(1));
        refusals.note(node, Some(RequestError::DiskFull));
        let long_ago = Instant::now().checked_sub(LAPSE).expect("the machine has run for longer");
        refusals.0.write().get_mut(&node).unwrap().told = long_ago;
        assert_eq!(refusals.of(node), None);
        refusals.note(node, Some(RequestError::DiskFull));
        assert!(refusals.of(node).unwrap().since > long_ago, "it counts from now on");
    }
}
