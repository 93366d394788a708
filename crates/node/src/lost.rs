//! What happens to amnesiac replicas, which may have lost votes or acknowledged entries; the catalog
//! [decides](tessera_cluster::CatalogCommand::Amnesiac).
//!
//! A node reports its amnesiac replicas to the catalog. For nodes that have been away for long, the node that leads the catalog
//! reports them. A replica that leads such a group, and serves, reports that too. If a witness leads the group, and every data
//! replica that remains lacks entries which the witness has dropped, the witness lets one of them continue without these entries.
//!
//! A replica that is [set aside](tessera_consensus::StateMachine::set_aside), because its log and its state do not fit together, is
//! reported in the same way; but it is never readmitted.

use crate::node_context::NodeContext;
use crate::replicas::group_settings;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use tessera_cluster::{AmnesiacReplica, Catalog, Placement, TableEntry};
use tessera_consensus::{GroupId, GroupStart, GroupView};
use tessera_store::Table;
use tessera_store::hosting::{group_of, partition_of_group};
use tessera_types::{NodeId, ReplicaId, TableId};

/// What a witness that leads should do for a group in which every data replica is unreachable by log.
#[derive(Debug, PartialEq, Eq)]
enum UnreachableAction {
    /// Report these replicas as amnesiac.
    GiveUp(Vec<ReplicaId>),
    /// Let this replica continue with the entries that it has.
    ForceRecover(ReplicaId),
}

fn unreachable_action(view: &GroupView, placement: &Placement) -> Option<UnreachableAction> {
    let unreachable = &view.unreachable_by_log;
    let is_gone = |id: &ReplicaId| placement.is_waiting(*id) || placement.on(id.node) != Some(*id);
    let is_amnesiac = |id: &ReplicaId| placement.is_readmitted(*id) || is_gone(id);
    let data_replicas: Vec<_> = view.voters.iter().filter(|voter| !voter.is_witness()).collect();
    let is_stuck = !unreachable.is_empty() && data_replicas.iter().all(|id| unreachable.contains(id) || is_gone(id));
    if !is_stuck || placement.has_overtaken() || !data_replicas.into_iter().any(is_amnesiac) {
        return None; // somebody who has more may come back
    }
    let heir = unreachable.iter().find(|id| placement.is_readmitted(**id));
    Some(
        heir.map_or_else(
            || UnreachableAction::GiveUp(unreachable.clone()),
            |heir| UnreachableAction::ForceRecover(*heir),
        ),
    )
}

/// Whether the leader heard a moment ago from a majority that takes part: a leader whose followers have just ended does not know yet
/// that it leads nothing.
pub(crate) fn has_majority(view: &GroupView, placement: &Placement) -> bool {
    let is_heard = |id: &ReplicaId| view.others.iter().any(|other| other.replica == *id && other.is_heard);
    let takes_part = |id: &&ReplicaId| !placement.is_waiting(**id) && (**id == view.replica || is_heard(id));
    view.voters.iter().filter(takes_part).count() > view.voters.len() / 2
}

pub(crate) fn placement_of(catalog: &Catalog, group: GroupId) -> Option<(&TableEntry, u32, &Placement)> {
    let (table, partition) = partition_of_group(group)?;
    let entry = catalog.get(table)?;
    Some((entry, partition, entry.placement.get(partition as usize)?))
}

impl NodeContext {
    /// Replicas here that are amnesiac or set aside, and that the catalog does not know as such.
    pub(crate) fn lost_here(&self) -> Vec<AmnesiacReplica> {
        if self.holds_back.load(Ordering::Acquire) {
            return Vec::new(); // the catalog here may be an old one
        }
        let catalog = self.view.catalog();
        let lost = self.earlier_replicas().into_iter().filter_map(|(group, replica)| {
            let (entry, partition, placement) = placement_of(&catalog, group)?;
            let is_news = !placement.is_amnesiac(replica) && self.may_have_lost_votes(&entry.schema, placement);
            let table = self.registry.any(entry.id).filter(|_| is_news)?;
            let end = self.last_entry(&table, partition, replica, placement);
            Some(AmnesiacReplica { table: entry.id, partition, replica, end, is_overtaken: self.is_overtaken })
        });
        let aside = self.replicas.all_aside().into_iter().filter_map(|(group, replica, aside)| {
            let (entry, partition, placement) = placement_of(&catalog, group)?;
            let replica = replica.filter(|replica| placement.on(replica.node) == Some(*replica))?;
            // One that is alone has nobody to take its place. Any other one that goes on is of more use.
            let is_settled = entry.schema.is_persistent() || placement.target == [replica];
            let is_alone = placement.current == [replica] && is_settled;
            let is_news = !is_alone && !placement.is_amnesiac(replica);
            // One that lacks what it had acknowledged, as if its data were older, may not go on after the next start either.
            let (table, is_overtaken) = (entry.id, aside.lacks_acknowledged);
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

    /// What a leader that serves should report to the catalog if amnesiac replicas of its group wait for it.
    pub(crate) fn tells_that_it_leads(&self, view: &GroupView) -> Option<(TableId, u32, ReplicaId)> {
        let catalog = self.view.catalog();
        let (entry, partition, placement) = placement_of(&catalog, view.id)?;
        let leads = || !view.is_changing && has_majority(view, placement);
        (placement.awaits_leader() && leads()).then_some((entry.id, partition, view.replica))
    }

    /// Lets a witness that leads help a group that no other replica can lead. Returns the replicas to report to the catalog first.
    pub(crate) fn help_unreachable(&self, view: &GroupView) -> Vec<AmnesiacReplica> {
        let catalog = self.view.catalog();
        let Some((entry, partition, placement)) = placement_of(&catalog, view.id) else { return Vec::new() };
        let table = entry.id;
        match unreachable_action(view, placement) {
            None => Vec::new(),
            Some(UnreachableAction::ForceRecover(heir)) => {
                self.inbox_of(table, partition).force_recover(view.id, heir);
                Vec::new()
            }
            Some(UnreachableAction::GiveUp(replicas)) => {
                let lost = |replica| AmnesiacReplica { table, partition, replica, end: (0, 0), is_overtaken: false };
                replicas.into_iter().map(lost).collect()
            }
        }
    }

    /// Members on nodes that have been away for long count as amnesiac in groups where amnesiac replicas wait and nobody leads.
    pub(crate) fn lost_elsewhere(&self, silent: &BTreeSet<NodeId>) -> Vec<AmnesiacReplica> {
        let catalog = self.view.catalog();
        let mut lost = Vec::new();
        for table in catalog.tables() {
            let is_volatile = !table.schema.is_persistent();
            let waits = |placement: &Placement| placement.awaits_leader() || is_volatile && placement.awaits_survivor();
            for (partition, placement) in (0..).zip(&table.placement).filter(|(_, placement)| waits(placement)) {
                // Of a table without a log, one that may be a member may have all that counts.
                let members: BTreeSet<_> = match is_volatile {
                    true => placement.possible_members().collect(),
                    false => placement.current.iter().copied().collect(),
                };
                let away = members.into_iter().filter(|member| silent.contains(&member.node));
                let news =
                    away.filter(|member| placement.on(member.node) == Some(*member) && !placement.is_amnesiac(*member));
                lost.extend(news.map(|replica| AmnesiacReplica {
                    table: table.id,
                    partition,
                    replica,
                    end: (0, 0),
                    is_overtaken: false,
                }));
            }
        }
        lost
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::test_node::TestNode;
    use tessera_cluster::{CatalogCommand, Changed, Site};
    use tessera_consensus::{Inconsistent, MemberView};
    use tessera_types::{Durability, EngineKind, Limits, Model, Partitioner, TableSchema, TableSettings};

    pub(crate) fn schema() -> TableSchema {
        TableSchema {
            engine: EngineKind::Memory,
            partitions: 1,
            partitioner: Partitioner::Crc64,
            model: Model::Kv,
            primary_key: None,
            durability: Durability::Soft,
            replicas: 2,
        }
    }

    /// How a replica that does not serve sees its group.
    pub(crate) fn view_of(id: GroupId, replica: ReplicaId, voters: Vec<ReplicaId>) -> GroupView {
        GroupView {
            id,
            replica,
            term: 2,
            leader: Some(replica),
            is_serving: false,
            owes_answers: false,
            voters,
            learners: Vec::new(),
            is_changing: false,
            applied: 9,
            others: Vec::new(),
            unreplicated_bytes: 0,
            unreachable_by_log: Vec::new(),
            counterpart: None,
        }
    }

    /// A table of two replicas and a witness, and how the witness sees its group when it leads.
    struct Partition {
        catalog: Catalog,
        table: TableId,
        view: GroupView,
    }

    impl Partition {
        fn new() -> Self {
            let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
            let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
            for node in [2, 3].map(NodeId) {
                apply(CatalogCommand::AddNode { site: Site::default(), token: None });
                apply(CatalogCommand::Arrived { node, has_vote: false });
            }
            let schema = schema();
            let create = CatalogCommand::Create {
                name: "t".into(),
                schema,
                settings: TableSettings::default(),
                absent: Default::default(),
            };
            let Changed::Table(table) = apply(create) else { panic!("a table") };
            let voters = catalog.get(table).unwrap().placement[0].current.clone();
            let witness = *voters.iter().find(|voter| voter.is_witness()).expect("two replicas have one");
            let view = view_of(group_of(table, 0), witness, voters);
            Self { catalog, table, view }
        }

        fn data_replicas(&self) -> [ReplicaId; 2] {
            let data_replicas: Vec<_> = self.view.voters.iter().copied().filter(|voter| !voter.is_witness()).collect();
            data_replicas.try_into().expect("two")
        }

        fn lose(&mut self, replica: ReplicaId, index: u64) {
            let lost =
                AmnesiacReplica { table: self.table, partition: 0, replica, end: (1, index), is_overtaken: false };
            self.catalog.apply(&CatalogCommand::Amnesiac { replicas: vec![lost] }, &Limits::default()).unwrap();
        }

        fn action(&self) -> Option<UnreachableAction> {
            unreachable_action(&self.view, &self.catalog.get(self.table).unwrap().placement[0])
        }
    }

    #[test]
    fn what_somebody_who_is_away_may_have_is_waited_for() {
        let mut partition = Partition::new();
        let [first, second] = partition.data_replicas();
        assert_eq!(partition.action(), None);
        partition.view.unreachable_by_log = vec![first];
        assert_eq!(partition.action(), None, "the second is away");
        partition.view.unreachable_by_log = vec![first, second];
        assert_eq!(partition.action(), None, "nobody has forgotten anything");
    }

    /// Two of three have ended at once, and the leader has not noticed yet. What it says would have one of them replaced by a member
    /// of a group that never has a leader again.
    #[test]
    fn a_leader_that_hears_from_no_majority_does_not_say_that_it_leads() {
        let mut partition = Partition::new();
        let [leader, second] = partition.data_replicas();
        let placement = |partition: &Partition| partition.catalog.get(partition.table).unwrap().placement[0].clone();
        partition.view.replica = leader;
        let heard = |replica| MemberView {
            replica,
            is_heard: true,
            matched: 1,
            lag: 0,
            lag_bytes: 0,
            keeps_up: true,
            takes_snapshot: false,
        };
        partition.view.others = vec![heard(second)];
        assert!(has_majority(&partition.view, &placement(&partition)), "the witness is not needed");
        partition.lose(second, 7);
        assert!(
            !has_majority(&partition.view, &placement(&partition)),
            "what was heard came before the other one ended"
        );
    }

    #[test]
    fn one_that_lags_gives_way_to_one_that_lacks_less() {
        let mut partition = Partition::new();
        let [laggard, second] = partition.data_replicas();
        partition.lose(second, 7);
        partition.view.unreachable_by_log = vec![laggard];
        assert_eq!(partition.action(), Some(UnreachableAction::GiveUp(vec![laggard])));
        partition.lose(laggard, 0);
        // Now the second one goes on, which the witness has not heard of yet.
        assert_eq!(partition.action(), None);
        partition.view.unreachable_by_log = vec![laggard, second];
        assert_eq!(partition.action(), Some(UnreachableAction::ForceRecover(second)));
    }

    #[test]
    fn when_both_have_forgotten_the_one_that_goes_on_is_bridged() {
        let mut partition = Partition::new();
        let [first, second] = partition.data_replicas();
        partition.lose(first, 7);
        partition.lose(second, 5);
        partition.view.unreachable_by_log = vec![first];
        assert_eq!(partition.action(), Some(UnreachableAction::ForceRecover(first)));
    }

    /// Whose log lost its end in a power failure, and RocksDB did not, was once taken for one that has less than it has.
    #[tokio::test]
    #[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
    async fn what_only_the_state_has_counts_as_well() {
        let node = TestNode::start(|_| {});
        let table = node.create_table_in("t", 1, EngineKind::Rocksdb).await;
        node.store.clear(&table, 0..1).await.unwrap();
        let (context, group) = (&node.context, group_of(table.id(), 0));
        let catalog = context.view.catalog();
        let (_, _, placement) = placement_of(&catalog, group).unwrap();
        // As if nothing of it were left.
        assert_eq!(context.recovered.lock().get(&group), None);
        let (term, index) = context.last_entry(&table, 0, placement.current[0], placement);
        assert!(term > 0, "the records remember the term");
        assert_eq!(index, table.engine().applied_index(0));
    }

    /// Others count on what it had acknowledged, so it may not go on because it has the longest log of those that are left.
    #[tokio::test]
    #[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
    async fn a_replica_that_lacks_what_it_acknowledged_never_goes_on_by_itself() {
        let node = TestNode::start(|_| {});
        let table = node.create_table_in("t", 1, EngineKind::Rocksdb).await;
        let (context, group) = (&node.context, group_of(table.id(), 0));
        // As if it were one of three.
        let mut catalog = Catalog::clone(&context.view.catalog());
        let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
        for node in [2, 3].map(NodeId) {
            apply(CatalogCommand::AddNode { site: Site::default(), token: None });
            apply(CatalogCommand::Arrived { node, has_vote: false });
        }
        apply(CatalogCommand::SetReplicas { name: "t".into(), replicas: 3 });
        let nodes = [1, 2, 3].map(NodeId).to_vec();
        apply(CatalogCommand::Place { table: table.id(), partition: 0, nodes, witness: None });
        let placement = catalog.get(table.id()).unwrap().placement[0].clone();
        catalog.apply(&CatalogCommand::moved(table.id(), 0, &placement), &Limits::default()).unwrap();
        context.view.set_catalog(std::sync::Arc::new(catalog));
        let reasons =
            [(Inconsistent::Forgotten { had: 9, has: 3 }, true), (Inconsistent::Entry("damaged".into()), false)];
        for (reason, is_overtaken) in reasons {
            context.replicas.set_aside(group, &reason);
            let lost = context.lost_here();
            assert_eq!(lost.iter().map(|lost| lost.is_overtaken).collect::<Vec<_>>(), [is_overtaken], "{reason}");
        }
    }
}
