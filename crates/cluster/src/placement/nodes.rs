//! The nodes of a partition's replicas.

use crate::Placement;
use tessera_types::{NodeId, ReplicaId};

/// The nodes of a partition's replicas; the first data replica should lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) data_replicas: Vec<NodeId>,
    pub(crate) witness: Option<NodeId>,
}

impl Nodes {
    pub(super) fn of(placement: &Placement) -> Self {
        Self::of_replicas(&placement.target)
    }

    pub(super) fn of_replicas(replicas: &[ReplicaId]) -> Self {
        let (witnesses, data_replicas): (Vec<ReplicaId>, Vec<ReplicaId>) =
            replicas.iter().partition(|replica| replica.is_witness());
        Self {
            data_replicas: data_replicas.into_iter().map(|replica| replica.node).collect(),
            witness: witnesses.first().map(|replica| replica.node),
        }
    }
}
