//! Survivors: replicas of tables without a log that have forgotten nothing, where amnesiac ones are waited for.
//!
//! A survivor that is one of two voters has everything. It tells the catalog so, and the catalog has it
//! [go on](tessera_consensus::Inbox::go_on_without) as the only voter. One that leads, though the catalog knows of too few voters
//! that are left, tells the catalog who votes. If nobody says anything while all nodes are there that could, the node that leads the
//! catalog has the partition begin anew.

use crate::lost::{has_majority, placement_of};
use crate::node_context::NodeContext;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tessera_cluster::{Catalog, Placement, Survivor, SurvivorKnows};
use tessera_consensus::GroupView;
use tessera_types::{NodeId, TableId};

/// How long the catalog waits for a survivor while the nodes of all replicas are there that could be one.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a survivor does that has no leader.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    /// It goes on without its counterpart.
    GoOn,
    /// It tells the catalog that it has everything.
    Tell,
}

fn action(view: &GroupView, placement: &Placement) -> Option<Action> {
    let counterpart = view.counterpart.filter(|counterpart| !placement.remembers(*counterpart))?;
    let is_gone = placement.on(counterpart.node) != Some(counterpart);
    Some(if placement.is_survivor(view.replica) && is_gone { Action::GoOn } else { Action::Tell })
}

impl NodeContext {
    /// Has a replica go on that has no leader and is a survivor for the catalog. Returns what one that is none yet has to say.
    pub(crate) fn survives(&self, view: &GroupView) -> Option<Survivor> {
        let catalog = self.view.catalog();
        let (entry, partition, placement) = placement_of(&catalog, view.id)?;
        if entry.schema.is_persistent() || placement.on(view.replica.node) != Some(view.replica) {
            return None;
        }
        let lost = view.counterpart?;
        match action(view, placement)? {
            Action::GoOn => {
                self.inbox_of(entry.id, partition).go_on_without(view.id, lost);
                None
            }
            Action::Tell => {
                let knows = SurvivorKnows::Misses(lost);
                Some(Survivor { table: entry.id, partition, replica: view.replica, knows })
            }
        }
    }

    /// What a replica says that leads although the catalog waits for a survivor: then it knows of other voters.
    pub(crate) fn tells_who_votes(&self, view: &GroupView) -> Option<Survivor> {
        let catalog = self.view.catalog();
        let (entry, partition, placement) = placement_of(&catalog, view.id)?;
        let leads = !view.is_changing && has_majority(view, placement);
        if entry.schema.is_persistent() || !placement.awaits_survivor() || !leads {
            return None;
        }
        let knows = SurvivorKnows::Leads(view.voters.clone());
        Some(Survivor { table: entry.id, partition, replica: view.replica, knows })
    }

    /// Wakes a group of which the catalog waits for a survivor: one that hibernates does not notice that it has no leader.
    pub(crate) fn wake_if_somebody_waits(&self, view: &GroupView) {
        let catalog = self.view.catalog();
        let Some((entry, partition, placement)) = placement_of(&catalog, view.id) else { return };
        if !entry.schema.is_persistent() && placement.awaits_survivor() {
            self.inbox_of(entry.id, partition).wake(view.id);
        }
    }
}

/// The partitions of which the catalog waits for a survivor, on the node that leads the catalog.
#[derive(Debug, Default)]
pub(crate) struct AwaitedSurvivors {
    /// Since when everybody has been there who could say something.
    since: HashMap<(TableId, u32), Instant>,
}

impl AwaitedSurvivors {
    /// The partitions of which nobody has said anything for too long, each with the version of its placement.
    pub(crate) fn given_up(
        &mut self,
        catalog: &Catalog,
        is_here: impl Fn(NodeId) -> bool,
        now: Instant,
    ) -> Vec<(TableId, u32, u64)> {
        let could_speak = |placement: &Placement| {
            let mut all = placement.possible_members().filter(|member| placement.remembers(*member));
            all.all(|member| is_here(member.node))
        };
        let (mut since, mut given_up) = (HashMap::new(), Vec::new());
        for table in catalog.tables().filter(|table| !table.schema.is_persistent()) {
            for (partition, placement) in (0..).zip(&table.placement) {
                if !placement.awaits_survivor() || !could_speak(placement) {
                    continue;
                }
                let began = self.since.get(&(table.id, partition)).copied().unwrap_or(now);
                since.insert((table.id, partition), began);
                if now.saturating_duration_since(began) >= PATIENCE {
                    given_up.push((table.id, partition, placement.version));
                }
            }
        }
        self.since = since;
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lost::tests::view_of;
    use tessera_cluster::{AmnesiacReplica, Catalog, CatalogCommand, Changed, Site};
    use tessera_store::hosting::group_of;
    use tessera_types::{EngineKind, Limits, NodeId, ReplicaId, TableId, TableSchema, TableSettings};

    /// A table in memory on two nodes, and how its replicas see their group.
    struct Partition {
        catalog: Catalog,
        table: TableId,
        survivor: ReplicaId,
        lost: ReplicaId,
        view: GroupView,
    }

    impl Partition {
        fn new() -> Self {
            let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
            let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
            apply(CatalogCommand::AddNode { site: Site::default(), token: None });
            apply(CatalogCommand::Arrived { node: NodeId(2), has_vote: false });
            let (name, settings) = ("t".into(), TableSettings::default());
            let schema = TableSchema { durability: tessera_types::Durability::None, ..crate::lost::tests::schema() };
            let Changed::Table(table) =
                apply(CatalogCommand::Create { name, schema, settings, absent: Default::default() })
            else {
                panic!("a table")
            };
            let [survivor, lost] = catalog.get(table).unwrap().placement[0].current[..] else { panic!("two") };
            let view = GroupView { leader: None, ..view_of(group_of(table, 0), survivor, vec![survivor, lost]) };
            Self { catalog, table, survivor, lost, view }
        }

        fn action(&self) -> Option<Action> {
            action(&self.view, &self.catalog.get(self.table).unwrap().placement[0])
        }

        fn change(&mut self, command: &CatalogCommand) {
            self.catalog.apply(command, &Limits::default()).unwrap();
        }

        fn lose(&mut self) {
            let (table, replica) = (self.table, self.lost);
            let lost = AmnesiacReplica { table, partition: 0, replica, end: (0, 0), is_overtaken: false };
            self.change(&CatalogCommand::AwaitSurvivors { amnesiac: vec![lost] });
        }
    }

    #[test]
    fn a_survivor_tells_that_it_is_whole_and_goes_on_when_the_catalog_says_so() {
        let mut partition = Partition::new();
        partition.view.counterpart = Some(partition.lost);
        assert_eq!(partition.action(), None, "the other one may be there in a moment");
        partition.lose();
        assert_eq!(partition.action(), Some(Action::Tell));
        let (table, replica, knows) = (partition.table, partition.survivor, SurvivorKnows::Misses(partition.lost));
        let survivor = Survivor { table, partition: 0, replica, knows };
        partition.change(&CatalogCommand::Survived { replicas: vec![survivor] });
        assert_eq!(partition.action(), Some(Action::GoOn));
        partition.view.counterpart = None;
        assert_eq!(partition.action(), None, "it went on");
    }

    #[test]
    fn a_partition_begins_anew_when_nobody_has_spoken_for_a_while_who_could() {
        let mut partition = Partition::new();
        let mut awaited = AwaitedSurvivors::default();
        let began = Instant::now();
        let mut look = |partition: &Partition, is_here: bool, seconds: u64| {
            let survivor = partition.survivor.node;
            let is_here = |node| is_here || node != survivor;
            awaited.given_up(&partition.catalog, is_here, began + Duration::from_secs(seconds))
        };
        assert_eq!(look(&partition, true, 0), [], "nobody is waited for");
        partition.lose();
        assert_eq!(look(&partition, true, 40), [], "the time begins");
        assert_eq!(look(&partition, true, 69), []);
        assert_eq!(look(&partition, false, 71), [], "who could say something is away");
        assert_eq!(look(&partition, true, 80), [], "the time begins again");
        let version = partition.catalog.get(partition.table).unwrap().placement[0].version;
        assert_eq!(look(&partition, true, 110), [(partition.table, 0, version)]);
        partition.change(&CatalogCommand::BeginAnew { groups: vec![(partition.table, 0, version)] });
        assert_eq!(look(&partition, true, 200), []);
    }
}
