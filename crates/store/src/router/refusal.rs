//! Whether the leader of a partition takes writes, as far as is known here.

use crate::store::Store;
use crate::table::{Leader, Table};
use std::time::Instant;
use tessera_consensus::DISK_PATIENCE;
use tessera_types::RequestError;

/// Why a partition takes no writes.
pub(crate) struct Refusal {
    pub(crate) reason: RequestError,
    /// Whether another node can lead, which it does as soon as that is known.
    pub(crate) has_heir: bool,
    since: Instant,
}

impl Refusal {
    /// Whether another node may lead soon.
    pub(crate) fn may_end_soon(&self) -> bool {
        self.has_heir && self.since.elapsed() < DISK_PATIENCE
    }
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
        Some(Refusal { reason: refusal.reason, has_heir, since: refusal.since })
    }
}
