//! Which nodes take no writes, since the disk that they write to is full or has failed.

use crate::store::Store;
use crate::table::{Leader, Table};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::time::Instant;
use tessera_consensus::DISK_PATIENCE;
use tessera_types::{NodeId, RequestError};

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
}

/// Why a partition takes no writes.
pub(crate) struct Refusal {
    pub(crate) reason: RequestError,
    /// Whether another node may lead soon.
    pub(crate) may_end_soon: bool,
}

impl Store {
    /// Whether the disk of a partition's leader takes no writes, as far as this node knows, and the partition's writes need it.
    pub(crate) fn disk_refusal(&self, table: &Table, partition: u32) -> Option<Refusal> {
        if !table.schema.is_persistent() {
            return None;
        }
        let node = match table.leader_of(partition) {
            Leader::Here => self.node(),
            Leader::Node(node) => node,
            Leader::Unknown => return None,
        };
        let refusal = self.disk_refusals().of(node).filter(|_| self.is_heard(node))?;
        let catalog = self.catalog();
        let placement = catalog.get(table.id).and_then(|entry| entry.placement.get(partition as usize));
        let heirs = placement.iter().flat_map(|placement| &placement.current);
        let has_heir = heirs.filter(|replica| !replica.is_witness()).any(|replica| replica.node != node);
        Some(Refusal { reason: refusal.reason, may_end_soon: has_heir && refusal.since.elapsed() < DISK_PATIENCE })
    }
}

impl DiskRefusals {
    /// Why a node takes no writes; `None` if it does.
    pub(crate) fn note(&self, node: NodeId, reason: Option<RequestError>) {
        let Some(reason) = reason else {
            if self.of(node).is_some() {
                self.0.write().remove(&node);
            }
            return;
        };
        let mut known = self.0.write();
        let since = known.get(&node).map_or_else(Instant::now, |known| known.since);
        known.insert(node, DiskRefusal { reason, since });
    }

    pub(crate) fn of(&self, node: NodeId) -> Option<DiskRefusal> {
        self.0.read().get(&node).cloned()
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
        assert_eq!(refusals.of(node), Some(DiskRefusal { reason: other, since: first.since }));
        assert_eq!(refusals.of(NodeId(2)), None);
        refusals.note(node, None);
        assert_eq!(refusals.of(node), None);
    }
}
