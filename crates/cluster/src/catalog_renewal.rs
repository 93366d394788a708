//! Renewal: a node whose replica of the catalog has forgotten its votes gets another replica, with another incarnation.

use crate::Catalog;
use tessera_consensus::MemberChange;
use tessera_types::{NodeId, ReplicaId};

/// The first step of the leader of the catalog's group, if the replica on one of the nodes is not the one that the
/// catalog names.
/// The old replica is removed before the new one is added: it no longer answers, so nothing is lost by that.
pub fn renewal(
    leader: ReplicaId,
    members: &[ReplicaId],
    catalog: &Catalog,
    nodes: impl IntoIterator<Item = NodeId>,
) -> Option<MemberChange> {
    let on = |node: NodeId| members.iter().find(|member| member.node == node).copied();
    let renewed =
        nodes.into_iter().map(|node| catalog.catalog_replica(node)).filter(|replica| replica.incarnation != 0);
    let due = renewed.into_iter().find(|replica| on(replica.node) != Some(*replica))?;
    match on(due.node) {
        // The leader has not forgotten anything since it was elected.
        Some(old) if old == leader => None,
        Some(old) => Some(MemberChange::Remove(old)),
        None => Some(MemberChange::Learner(due)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CatalogCommand, Changed, Site, catalog_replica};
    use tessera_types::{EngineKind, Limits};

    #[test]
    fn a_replica_that_has_forgotten_goes_and_another_one_comes() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let mut apply = |command: &CatalogCommand| catalog.apply(command, &Limits::default()).unwrap();
        (0..2).for_each(|_| _ = apply(&CatalogCommand::AddNode { site: Site::default(), token: None }));
        let renew = CatalogCommand::RenewCatalogReplica { node: NodeId(2) };
        let Changed::Replica(renewed) = apply(&renew) else { panic!("a replica") };
        assert_eq!(renewed, ReplicaId { node: NodeId(2), incarnation: 1 });
        let nodes = [1, 2, 3].map(NodeId);
        let [leader, old, third] = nodes.map(catalog_replica);
        let next = |catalog: &Catalog, members: &[ReplicaId]| renewal(leader, members, catalog, nodes);
        assert_eq!(next(&catalog, &[leader, old, third]), Some(MemberChange::Remove(old)));
        assert_eq!(next(&catalog, &[leader, third]), Some(MemberChange::Learner(renewed)));
        assert_eq!(next(&catalog, &[leader, third, renewed]), None);
        catalog.apply(&renew, &Limits::default()).unwrap();
        assert_eq!(next(&catalog, &[leader, third, renewed]), Some(MemberChange::Remove(renewed)), "once more");
        catalog.apply(&CatalogCommand::RenewCatalogReplica { node: NodeId(1) }, &Limits::default()).unwrap();
        assert_eq!(renewal(leader, &[leader], &catalog, [NodeId(1)]), None);
    }
}
