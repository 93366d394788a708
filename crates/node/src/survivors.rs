//! Survivors: replicas of tables without a log that have forgotten nothing, and cannot go on because amnesiac ones are missing.
//!
//! A survivor tells the catalog so. If it is one of two voters, it has everything, and the catalog has it
//! [go on](tessera_consensus::Inbox::go_on_without) as the only one. If it cannot know whether others vote, it waits: one of them may
//! lead, or be a survivor that knows more. After a while the partition starts again, empty.

use crate::lost::placement_of;
use crate::node_context::NodeContext;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tessera_cluster::{Placement, Survivor};
use tessera_consensus::{GroupId, GroupView};

/// How long a survivor that does not know whether others vote waits for a leader.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a survivor does.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    /// It goes on without its counterpart.
    GoOn,
    /// It tells the catalog that it has everything.
    TellThatItIsWhole,
    /// It tells the catalog, when it has waited for a while, that nobody is known to have everything.
    TellLater,
}

fn action(view: &GroupView, placement: &Placement) -> Option<Action> {
    if let Some(counterpart) = view.counterpart {
        let is_gone = placement.on(counterpart.node) != Some(counterpart);
        if placement.is_survivor(view.replica) && is_gone {
            return Some(Action::GoOn);
        }
        if placement.is_waiting(counterpart) {
            return Some(Action::TellThatItIsWhole);
        }
    }
    let missing = view.voters.iter().filter(|voter| placement.is_waiting(**voter)).count();
    (missing > 0 && view.voters.len() - missing <= view.voters.len() / 2).then_some(Action::TellLater)
}

/// The survivors here that wait.
#[derive(Debug, Default)]
pub(crate) struct Survivors {
    /// Since when, and whether that was seen in this round.
    waiting: HashMap<GroupId, (Instant, bool)>,
}

impl Survivors {
    /// Looks after a group that has no leader, as far as its replica here knows. Returns what the catalog is to be told.
    pub(crate) fn look(&mut self, context: &NodeContext, view: &GroupView) -> Option<Survivor> {
        let catalog = context.view.catalog();
        let (entry, partition, placement) = placement_of(&catalog, view.id)?;
        if entry.schema.is_persistent() || placement.on(view.replica.node) != Some(view.replica) {
            return None;
        }
        let says = |counterpart| Survivor { table: entry.id, partition, replica: view.replica, counterpart };
        match action(view, placement)? {
            Action::GoOn => {
                let inbox = context.inbox_of(entry.id, partition);
                view.counterpart.iter().for_each(|lost| inbox.go_on_without(view.id, *lost));
                None
            }
            Action::TellThatItIsWhole => Some(says(view.counterpart)),
            Action::TellLater => {
                let (since, is_seen) = self.waiting.entry(view.id).or_insert((Instant::now(), true));
                *is_seen = true;
                (since.elapsed() >= PATIENCE).then(|| says(None))
            }
        }
    }

    /// Forgets those that were not seen since this was called before.
    pub(crate) fn end_round(&mut self) {
        self.waiting.retain(|_, (_, is_seen)| std::mem::take(is_seen));
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
            self.change(&CatalogCommand::Amnesiac { replicas: vec![lost], asks_survivors: true });
        }
    }

    #[test]
    fn a_survivor_tells_that_it_is_whole_and_goes_on_when_the_catalog_says_so() {
        let mut partition = Partition::new();
        partition.view.counterpart = Some(partition.lost);
        assert_eq!(partition.action(), None, "the other one may be there in a moment");
        partition.lose();
        assert_eq!(partition.action(), Some(Action::TellThatItIsWhole));
        let (table, replica, counterpart) = (partition.table, partition.survivor, partition.view.counterpart);
        let survivor = Survivor { table, partition: 0, replica, counterpart };
        partition.change(&CatalogCommand::Survived { replicas: vec![survivor] });
        assert_eq!(partition.action(), Some(Action::GoOn));
        partition.view.counterpart = None;
        assert_eq!(partition.action(), None, "it went on");
    }

    #[test]
    fn one_that_does_not_know_who_votes_waits_if_it_cannot_lead_without_those_that_are_missing() {
        let mut partition = Partition::new();
        partition.lose();
        assert_eq!(partition.action(), Some(Action::TellLater));
        partition.view.voters.push(ReplicaId { node: NodeId(3), incarnation: 9 });
        assert_eq!(partition.action(), None, "two of three may elect one of them");
    }
}
