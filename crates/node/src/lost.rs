//! What becomes of replicas that have forgotten what they voted and promised; the catalog
//! [decides](tessera_cluster::CatalogCommand::Amnesiac).
//!
//! Their nodes tell the catalog, and so does the node that leads the catalog for nodes that have been away for long. Whoever leads
//! such a group, and serves, says so. If a witness leads it and nobody else can, since no replica that is left, or goes on, has
//! what the witness has dropped, the witness lets one go on without that.
//!
//! A replica that is [set aside](tessera_consensus::StateMachine::set_aside), since its log and its state do not fit together, is
//! told of likewise; only, it cannot go on.

use crate::host::Host;
use crate::replicas::group_settings;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use tessera_cluster::{AmnesiacReplica, Catalog, Placement, TableEntry};
use tessera_consensus::{GroupId, GroupStart, GroupView};
use tessera_store::Table;
use tessera_store::hosting::{group_of, partition_of_group};
use tessera_types::{NodeId, ReplicaId, TableId};

/// What a witness that leads is to do for a group in which no other replica can.
#[derive(Debug, PartialEq, Eq)]
enum Rescue {
    /// These are of no more use than those that have forgotten.
    GiveUp(Vec<ReplicaId>),
    /// This one is to go on with what it has.
    Bridge(ReplicaId),
}

fn rescue(view: &GroupView, placement: &Placement) -> Option<Rescue> {
    let stranded = &view.unreachable_by_log;
    let is_gone = |id: &ReplicaId| placement.is_waiting(*id) || placement.on(id.node) != Some(*id);
    let has_forgotten = |id: &ReplicaId| placement.is_readmitted(*id) || is_gone(id);
    let keepers: Vec<_> = view.voters.iter().filter(|voter| !voter.is_witness()).collect();
    let is_stuck = !stranded.is_empty() && keepers.iter().all(|id| stranded.contains(id) || is_gone(id));
    if !is_stuck || placement.has_overtaken() || !keepers.into_iter().any(has_forgotten) {
        return None; // somebody who has more may come back
    }
    let heir = stranded.iter().find(|id| placement.is_readmitted(**id));
    Some(heir.map_or_else(|| Rescue::GiveUp(stranded.clone()), |heir| Rescue::Bridge(*heir)))
}

fn placement_of(catalog: &Catalog, group: GroupId) -> Option<(&TableEntry, u32, &Placement)> {
    let (table, partition) = partition_of_group(group)?;
    let entry = catalog.get(table)?;
    Some((entry, partition, entry.placement.get(partition as usize)?))
}

impl Host {
    /// Replicas here that have forgotten or are set aside, as far as the catalog does not know.
    pub(crate) fn lost_here(&self) -> Vec<AmnesiacReplica> {
        if self.holds_back.load(Ordering::Acquire) {
            return Vec::new(); // the catalog here may be an old one
        }
        let catalog = self.view.catalog();
        let lost = self.earlier_replicas().into_iter().filter_map(|(group, replica)| {
            let (entry, partition, placement) = placement_of(&catalog, group)?;
            let is_news = !placement.is_amnesiac(replica) && self.has_forgotten(&entry.schema, placement);
            let table = self.registry.any(entry.id).filter(|_| is_news)?;
            let end = self.last_entry(&table, partition, replica, placement);
            Some(AmnesiacReplica { table: entry.id, partition, replica, end, is_overtaken: self.is_overtaken })
        });
        let aside = self.replicas.all_aside().into_iter().filter_map(|(group, replica, aside)| {
            let (entry, partition, placement) = placement_of(&catalog, group)?;
            let replica = replica.filter(|replica| placement.on(replica.node) == Some(*replica))?;
            // One that is alone has nobody to take its place. Any other one that goes on is of more use.
            let is_news = placement.current != [replica] && !placement.is_amnesiac(replica);
            // One that lacks what it had acknowledged, as if its data were older, may not go on after the next start either.
            let (table, is_overtaken) = (entry.id, aside.has_forgotten);
            is_news.then_some(AmnesiacReplica { table, partition, replica, end: (0, 0), is_overtaken })
        });
        lost.chain(aside).collect()
    }

    /// Term and index of the last entry that a replica which was not started has on disk. After a power failure RocksDB may have
    /// more of a `soft` table than the log.
    fn last_entry(&self, table: &Table, partition: u32, replica: ReplicaId, placement: &Placement) -> (u64, u64) {
        let id = group_of(table.id(), partition);
        let recovered = self.recovered.lock().get(&id).cloned().unwrap_or_default();
        match group_settings(table, partition, replica, placement) {
            Ok(settings) => GroupStart { id, settings, recovered }.last_entry(),
            Err(error) => {
                tracing::warn!(table = %table.name(), partition, %error, "how far a replica is cannot be read; it counts as empty");
                (0, 0)
            }
        }
    }

    /// What the leader of a group, which serves, is to tell the catalog about replicas that are waiting.
    pub(crate) fn tells_that_it_leads(&self, view: &GroupView) -> Option<(TableId, u32, ReplicaId)> {
        let catalog = self.view.catalog();
        let (entry, partition, placement) = placement_of(&catalog, view.id)?;
        placement.awaits_leader().then_some((entry.id, partition, view.replica))
    }

    /// Has a witness that leads help a group that nobody else can lead. Returns what the catalog is to know before.
    pub(crate) fn rescue(&self, view: &GroupView) -> Vec<AmnesiacReplica> {
        let catalog = self.view.catalog();
        let Some((entry, partition, placement)) = placement_of(&catalog, view.id) else { return Vec::new() };
        let table = entry.id;
        match rescue(view, placement) {
            None => Vec::new(),
            Some(Rescue::Bridge(heir)) => {
                self.inbox_of(table, partition).force_recover(view.id, heir);
                Vec::new()
            }
            Some(Rescue::GiveUp(replicas)) => {
                let lost = |replica| AmnesiacReplica { table, partition, replica, end: (0, 0), is_overtaken: false };
                replicas.into_iter().map(lost).collect()
            }
        }
    }

    /// Members on nodes that have been away for long count like those that have forgotten, where these wait and nobody leads.
    pub(crate) fn lost_elsewhere(&self, silent: &BTreeSet<NodeId>) -> Vec<AmnesiacReplica> {
        let catalog = self.view.catalog();
        let mut lost = Vec::new();
        for table in catalog.tables() {
            for (partition, placement) in (0..).zip(&table.placement).filter(|(_, placement)| placement.awaits_leader())
            {
                let away = placement.current.iter().filter(|member| silent.contains(&member.node));
                let news = away
                    .filter(|member| placement.on(member.node) == Some(**member) && !placement.is_amnesiac(**member));
                lost.extend(news.map(|replica| AmnesiacReplica {
                    table: table.id,
                    partition,
                    replica: *replica,
                    end: (0, 0),
                    is_overtaken: false,
                }));
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::TestNode;
    use tessera_cluster::{CatalogCommand, Changed, Site};
    use tessera_consensus::Inconsistent;
    use tessera_types::{Durability, EngineKind, Limits, Model, Partitioner, TableSchema, TableSettings};

    /// A table of two replicas and a witness, and how the witness sees its group when it leads.
    struct Partition {
        catalog: Catalog,
        table: TableId,
        view: GroupView,
    }

    impl Partition {
        fn new() -> Self {
            let mut catalog = Catalog::of_new_cluster(Site::default());
            let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
            for node in [2, 3].map(NodeId) {
                apply(CatalogCommand::AddNode { site: Site::default(), token: None });
                apply(CatalogCommand::Arrived { node });
            }
            let schema = TableSchema {
                engine: EngineKind::Memory,
                partitions: 1,
                partitioner: Partitioner::Crc64,
                model: Model::Kv,
                primary_key: None,
                durability: Durability::Soft,
                replicas: 2,
            };
            let create = CatalogCommand::Create {
                name: "t".into(),
                schema,
                settings: TableSettings::default(),
                absent: Default::default(),
            };
            let Changed::Table(table) = apply(create) else { panic!("a table") };
            let voters = catalog.get(table).unwrap().placement[0].current.clone();
            let witness = *voters.iter().find(|voter| voter.is_witness()).expect("two replicas have one");
            let view = GroupView {
                id: group_of(table, 0),
                replica: witness,
                term: 2,
                leader: Some(witness),
                is_serving: false,
                owes_answers: false,
                voters,
                learners: Vec::new(),
                is_changing: false,
                applied: 9,
                others: Vec::new(),
                unreplicated_bytes: 0,
                unreachable_by_log: Vec::new(),
            };
            Self { catalog, table, view }
        }

        fn keepers(&self) -> [ReplicaId; 2] {
            let keepers: Vec<_> = self.view.voters.iter().copied().filter(|voter| !voter.is_witness()).collect();
            keepers.try_into().expect("two")
        }

        fn lose(&mut self, replica: ReplicaId, index: u64) {
            let lost =
                AmnesiacReplica { table: self.table, partition: 0, replica, end: (1, index), is_overtaken: false };
            self.catalog.apply(&CatalogCommand::Amnesiac { replicas: vec![lost] }, &Limits::default()).unwrap();
        }

        fn rescue(&self) -> Option<Rescue> {
            rescue(&self.view, &self.catalog.get(self.table).unwrap().placement[0])
        }
    }

    #[test]
    fn what_somebody_who_is_away_may_have_is_waited_for() {
        let mut partition = Partition::new();
        let [first, second] = partition.keepers();
        assert_eq!(partition.rescue(), None);
        partition.view.unreachable_by_log = vec![first];
        assert_eq!(partition.rescue(), None, "the second is away");
        partition.view.unreachable_by_log = vec![first, second];
        assert_eq!(partition.rescue(), None, "nobody has forgotten anything");
    }

    #[test]
    fn one_that_lags_gives_way_to_one_that_has_forgotten_less() {
        let mut partition = Partition::new();
        let [laggard, second] = partition.keepers();
        partition.lose(second, 7);
        partition.view.unreachable_by_log = vec![laggard];
        assert_eq!(partition.rescue(), Some(Rescue::GiveUp(vec![laggard])));
        partition.lose(laggard, 0);
        // Now the second one goes on, which the witness has not heard of yet.
        assert_eq!(partition.rescue(), None);
        partition.view.unreachable_by_log = vec![laggard, second];
        assert_eq!(partition.rescue(), Some(Rescue::Bridge(second)));
    }

    #[test]
    fn when_both_have_forgotten_the_one_that_goes_on_is_bridged() {
        let mut partition = Partition::new();
        let [first, second] = partition.keepers();
        partition.lose(first, 7);
        partition.lose(second, 5);
        partition.view.unreachable_by_log = vec![first];
        assert_eq!(partition.rescue(), Some(Rescue::Bridge(first)));
    }

    /// Whose log lost its end in a power failure, and RocksDB did not, was once taken for one that has less than it has.
    #[tokio::test]
    async fn what_only_the_state_has_counts_as_well() {
        let node = TestNode::start(|_| {});
        let table = node.create_table_in("t", 1, EngineKind::Rocksdb).await;
        node.store.clear(&table, 0..1).await.unwrap();
        let (host, group) = (&node.host, group_of(table.id(), 0));
        let catalog = host.view.catalog();
        let (_, _, placement) = placement_of(&catalog, group).unwrap();
        // As if nothing of it were left.
        assert_eq!(host.recovered.lock().get(&group), None);
        let (term, index) = host.last_entry(&table, 0, placement.current[0], placement);
        assert!(term > 0, "the records remember the term");
        assert_eq!(index, table.engine().applied_index(0));
    }

    /// Others count on what it had acknowledged, so it may not go on because it has the longest log of those that are left.
    #[tokio::test]
    async fn a_replica_that_lacks_what_it_acknowledged_never_goes_on_by_itself() {
        let node = TestNode::start(|_| {});
        let table = node.create_table_in("t", 1, EngineKind::Rocksdb).await;
        let (host, group) = (&node.host, group_of(table.id(), 0));
        // As if it were one of three.
        let mut catalog = Catalog::clone(&host.view.catalog());
        let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
        for node in [2, 3].map(NodeId) {
            apply(CatalogCommand::AddNode { site: Site::default(), token: None });
            apply(CatalogCommand::Arrived { node });
        }
        apply(CatalogCommand::SetReplicas { name: "t".into(), replicas: 3 });
        let nodes = [1, 2, 3].map(NodeId).to_vec();
        apply(CatalogCommand::Place { table: table.id(), partition: 0, nodes, witness: None });
        let placement = catalog.get(table.id()).unwrap().placement[0].clone();
        catalog.apply(&CatalogCommand::moved(table.id(), 0, &placement), &Limits::default()).unwrap();
        host.view.set_catalog(std::sync::Arc::new(catalog));
        let reasons =
            [(Inconsistent::Forgotten { had: 9, has: 3 }, true), (Inconsistent::Entry("damaged".into()), false)];
        for (reason, is_overtaken) in reasons {
            host.replicas.set_aside(group, &reason);
            let lost = host.lost_here();
            assert_eq!(lost.iter().map(|lost| lost.is_overtaken).collect::<Vec<_>>(), [is_overtaken], "{reason}");
        }
    }
}
