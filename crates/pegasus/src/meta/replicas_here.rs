//! The replicas that this node holds.

use super::routing::id;
use crate::server::PegasusServer;
use crate::wire::Gpid;
use std::sync::Arc;
use tessera_store::{Counts, Table};

pub(crate) struct ReplicaHere {
    pub(crate) table: Arc<Table>,
    pub(crate) partition: u32,
}

/// The replicas of records that are here, of the tables that clients can reach.
pub(crate) fn all(server: &PegasusServer) -> Vec<ReplicaHere> {
    let (catalog, own) = (server.store.catalog(), server.store.node());
    let mut replicas = Vec::new();
    for table in server.store.tables() {
        let Some(entry) = catalog.get(table.id()) else { continue };
        for (partition, placement) in (0..).zip(&entry.placement) {
            if placement.current.iter().any(|replica| replica.node == own && !replica.is_witness()) {
                replicas.push(ReplicaHere { table: table.clone(), partition });
            }
        }
    }
    replicas
}

impl ReplicaHere {
    /// Whether this node leads the partition.
    pub(crate) fn leads(&self) -> bool {
        self.table.serves(self.partition)
    }

    pub(crate) fn gpid(&self) -> Gpid {
        Gpid::new(id(self.table.number().0), id(self.partition))
    }

    /// What the replica was asked since it was opened.
    pub(crate) fn counts(&self) -> Counts {
        self.table.counts(self.partition)
    }

    /// See [`Engine::partition_bytes`](tessera_engine::Engine::partition_bytes), which may have to read from the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.engine().partition_bytes(self.partition)
    }
}
