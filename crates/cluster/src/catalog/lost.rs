//! Replicas that have forgotten what they voted and promised, and what becomes of them.
//!
//! Such a replica takes part in nothing until that is decided, and what its disk holds stays. As soon as another one leads and
//! serves, which then has everything that counts, a new one takes its place. If those that are left are no majority any
//! more, nobody has more than they all have together:
//!
//! - a table without a log begins anew, empty;
//! - on one with a log, as many as a majority lacks go on with what their disks hold, first those with records, and of them
//!   those with the longest logs. No more than that, so that whoever has not forgotten has a say in who leads.
//!
//! A replica that is from an older copy of its node's data lacks what it had acknowledged, however durable that was. It never
//! goes on by itself: all wait until others come, or until an operator says that what its disk holds is to count.

use super::{Catalog, Placement};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use tessera_types::{ReplicaId, TableId};

/// A replica that has forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostReplica {
    pub table: TableId,
    pub partition: u32,
    pub replica: ReplicaId,
    /// Term and index of the last entry that it still has; zeros if that is not known.
    pub end: (u64, u64),
    /// Whether its node's data is older than what the node had.
    #[serde(default)]
    pub is_overtaken: bool,
}

/// What is known of it for as long as nothing is decided, or its group has no leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    pub(super) replica: ReplicaId,
    end: (u64, u64),
    goes_on: bool,
    #[serde(default)]
    is_overtaken: bool,
}

impl Placement {
    /// Whether a replica that has forgotten is to take part all the same.
    pub fn goes_on(&self, replica: ReplicaId) -> bool {
        self.lost.iter().any(|lost| lost.replica == replica && lost.goes_on)
    }

    /// Whether it is not decided yet what becomes of a replica that has forgotten.
    pub fn is_waiting(&self, replica: ReplicaId) -> bool {
        self.lost.iter().any(|lost| lost.replica == replica && !lost.goes_on)
    }

    /// Whether a replica that leads should [say so](super::CatalogCommand::Led).
    pub fn awaits_leader(&self) -> bool {
        self.lost.iter().any(|lost| self.is_decided_by_leader(lost))
    }

    /// Whether a replica has forgotten, and its group has had no leader since.
    pub fn is_lost(&self, replica: ReplicaId) -> bool {
        self.lost.iter().any(|lost| lost.replica == replica)
    }

    /// Whether nobody may lead before others come, or an operator says that older data is to count.
    pub fn awaits_word(&self) -> bool {
        self.has_overtaken() && self.lacks_majority()
    }

    /// Whether a replica waits whose node's data is older than what the node had.
    pub fn has_overtaken(&self) -> bool {
        self.lost.iter().any(|lost| lost.is_overtaken)
    }

    /// One that is to go is not replaced, and goes on waiting until it has gone.
    fn is_decided_by_leader(&self, lost: &Lost) -> bool {
        lost.goes_on || self.wanted.contains(&lost.replica)
    }

    /// Whether a member is there and takes part, as far as is known, or is to.
    fn is_left(&self, member: ReplicaId) -> bool {
        self.on(member.node) == Some(member) && !self.is_waiting(member)
    }

    fn lacks_majority(&self) -> bool {
        let left = self.members.iter().filter(|member| self.is_left(**member)).count();
        left <= self.members.len() / 2
    }

    /// Lets as many go on as are needed.
    fn let_go_on(&mut self) {
        let members = self.members.clone();
        while self.lacks_majority() {
            let waiting = self.lost.iter_mut().filter(|lost| !lost.goes_on && !lost.is_overtaken);
            let best = waiting.max_by_key(|lost| {
                (members.contains(&lost.replica), !lost.replica.is_witness(), lost.end, Reverse(lost.replica))
            });
            let Some(best) = best else { return };
            best.goes_on = true;
        }
    }
}

impl Catalog {
    pub(super) fn lose(&mut self, lost: &LostReplica) {
        let LostReplica { table, partition, replica, end, is_overtaken } = *lost;
        let is_volatile = self.tables.get(&table).is_some_and(|table| !table.schema.is_persistent());
        let Ok(placement) = self.placement(table, partition) else { return };
        if placement.on(replica.node) != Some(replica) || placement.is_lost(replica) {
            return; // it has been replaced, or that is known
        }
        placement.lost.push(Lost { replica, end, goes_on: false, is_overtaken });
        if !is_volatile {
            placement.let_go_on();
        } else if placement.lacks_majority() {
            let wanted = placement.wanted.clone();
            let renewed = wanted.into_iter().map(|old| self.new_replica(old.node, old.is_witness()));
            let initial_members: Vec<_> = renewed.collect();
            let mut anew = Placement::of_initial_members(initial_members);
            _ = self.placement(table, partition).map(|placement| {
                anew.version = placement.version + 1;
                *placement = anew;
            });
        }
    }

    pub(super) fn led(&mut self, table: TableId, partition: u32, leader: ReplicaId) {
        let Ok(mut after) = self.placement(table, partition).cloned() else { return };
        let lost: Vec<_> = after.lost.iter().filter(|lost| !lost.goes_on).map(|lost| lost.replica).collect();
        for wanted in after.wanted.iter_mut().filter(|wanted| **wanted != leader && lost.contains(wanted)) {
            *wanted = self.new_replica(wanted.node, wanted.is_witness());
        }
        let before = self.placement(table, partition).expect("just seen");
        after.lost.retain(|lost| !before.is_decided_by_leader(lost));
        after.version += u64::from(after.wanted != before.wanted);
        *before = after;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::schema;
    use super::super::{CatalogCommand, Changed, Site};
    use super::*;
    use tessera_types::{EngineKind, Limits, NodeId, TableSchema, TableSettings};

    /// Partition 0 of a table of three nodes, by its replicas in the order of their nodes.
    struct Partition {
        catalog: Catalog,
        table: TableId,
    }

    impl Partition {
        fn new(engine: EngineKind, replicas: u8) -> Self {
            let mut catalog = Catalog::of_new_cluster(Site::default());
            let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
            for node in [2, 3].map(NodeId) {
                apply(CatalogCommand::AddNode { site: Site::default(), token: None });
                apply(CatalogCommand::Arrived { node });
            }
            let schema = TableSchema { replicas, ..schema(engine) };
            let create = CatalogCommand::Create {
                name: "t".into(),
                schema,
                settings: TableSettings::default(),
                absent: Default::default(),
            };
            let Changed::Table(table) = apply(create) else { panic!("a table") };
            Self { catalog, table }
        }

        fn placement(&self) -> Placement {
            self.catalog.get(self.table).unwrap().placement[0].clone()
        }

        fn lose(&mut self, replica: ReplicaId, end: (u64, u64)) -> Placement {
            let lost = LostReplica { table: self.table, partition: 0, replica, end, is_overtaken: false };
            self.catalog.apply(&CatalogCommand::Lost { replicas: vec![lost] }, &Limits::default()).unwrap();
            self.placement()
        }

        fn led(&mut self, leader: ReplicaId) -> Placement {
            let command = CatalogCommand::Led { groups: vec![(self.table, 0, leader)] };
            self.catalog.apply(&command, &Limits::default()).unwrap();
            self.placement()
        }
    }

    const END: (u64, u64) = (3, 17);

    #[test]
    fn one_of_three_waits_for_a_leader_and_is_replaced() {
        for engine in [EngineKind::Memory, EngineKind::Rocksdb] {
            let mut partition = Partition::new(engine, 3);
            let before = partition.placement();
            let [lost, leader, _] = before.members[..] else { panic!("three") };
            assert_eq!(
                partition.lose(ReplicaId { node: NodeId(1), incarnation: 9_999 }, END),
                before,
                "no such replica"
            );
            let waits = partition.lose(lost, END);
            assert!(waits.is_waiting(lost) && waits.awaits_leader() && !waits.is_waiting(leader));
            assert_eq!((&waits.wanted, &waits.members), (&before.wanted, &before.members), "nothing is given up yet");
            assert_eq!(partition.lose(lost, END), waits, "once");
            let after = partition.led(leader);
            assert!(after.wanted[0] != lost && after.wanted[0].node == lost.node && after.lost.is_empty());
            assert_eq!((&after.wanted[1..], &after.members), (&before.wanted[1..], &before.members));
            assert_eq!(partition.lose(lost, END), after, "it has been replaced");
        }
    }

    #[test]
    fn a_replica_that_differs_is_replaced_on_its_node_unless_something_else_is_under_way() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let before = partition.placement();
        let [first, second, third] = before.members[..] else { panic!("three") };
        let table = partition.table;
        let replace = |partition: &mut Partition, replica| {
            let command = CatalogCommand::Replace { table, partition: 0, replica };
            partition.catalog.apply(&command, &Limits::default()).is_ok()
        };
        assert!(replace(&mut partition, second));
        let after = partition.placement();
        assert!(after.wanted[1] != second && after.on(second.node) == Some(after.wanted[1]));
        assert_eq!((after.wanted[0], after.wanted[2], &after.members), (first, third, &before.members));
        assert!(!replace(&mut partition, second), "it has been replaced");
        assert!(!replace(&mut partition, third), "one at a time");

        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let lost = partition.placement().members[0];
        partition.lose(lost, END);
        let other = partition.placement().members[1];
        assert!(!replace(&mut partition, other), "one has forgotten already");
    }

    #[test]
    fn a_table_without_a_log_begins_anew_when_most_have_forgotten() {
        let mut partition = Partition::new(EngineKind::Memory, 3);
        let before = partition.placement();
        partition.lose(before.members[0], END);
        let after = partition.lose(before.members[1], END);
        assert_eq!((&after.initial_members, &after.members, after.lost.len()), (&after.wanted, &after.wanted, 0));
        assert!(after.wanted.iter().all(|replica| !before.wanted.contains(replica)));
    }

    #[test]
    fn as_many_go_on_as_a_majority_lacks_first_those_with_the_longest_logs() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let members = partition.placement().members;
        partition.lose(members[0], (3, 16));
        let two = partition.lose(members[1], END);
        assert!(two.is_waiting(members[0]) && two.goes_on(members[1]) && two.awaits_leader());
        let three = partition.lose(members[2], (2, 99));
        let go_on: Vec<_> = members.iter().filter(|member| three.goes_on(**member)).copied().collect();
        assert_eq!(go_on, members[..2], "the log of a later term is ahead");
        let after = partition.led(members[1]);
        assert_eq!(after.wanted[..2], members[..2], "who went on stays");
        assert!(after.wanted[2] != members[2] && after.lost.is_empty());
    }

    #[test]
    fn older_data_never_goes_on_by_itself() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let members = partition.placement().members;
        let lost =
            LostReplica { table: partition.table, partition: 0, replica: members[0], end: END, is_overtaken: true };
        let command = CatalogCommand::Lost { replicas: vec![lost] };
        partition.catalog.apply(&command, &Limits::default()).unwrap();
        assert!(!partition.placement().awaits_word(), "two of three are left");
        let after = partition.lose(members[1], (1, 2));
        assert!(after.goes_on(members[1]) && !after.goes_on(members[0]) && !after.awaits_word());
        let led = partition.led(members[2]);
        assert!(led.wanted[0] != members[0] && !led.has_overtaken(), "others have what counts");

        let mut partition = Partition::new(EngineKind::Rocksdb, 1);
        let members = partition.placement().members;
        let lost =
            LostReplica { table: partition.table, partition: 0, replica: members[0], end: END, is_overtaken: true };
        let command = CatalogCommand::Lost { replicas: vec![lost] };
        partition.catalog.apply(&command, &Limits::default()).unwrap();
        assert!(partition.placement().awaits_word() && partition.placement().is_waiting(members[0]));
    }

    #[test]
    fn a_replica_goes_on_rather_than_a_witness() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 2);
        let members = partition.placement().members;
        let (witnesses, data_replicas): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.is_witness());
        partition.lose(witnesses[0], (9, 99));
        let after = partition.lose(data_replicas[0], END);
        assert!(after.goes_on(data_replicas[0]) && after.is_waiting(witnesses[0]));
        let all = partition.lose(data_replicas[1], END);
        assert!(all.goes_on(data_replicas[1]) && all.is_waiting(witnesses[0]), "two of three are enough");
    }

    #[test]
    fn one_that_was_replaced_does_not_count_and_one_that_is_to_go_waits_until_it_has_gone() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let members = partition.placement().members;
        partition.lose(members[0], END);
        partition.led(members[1]);
        let after = partition.lose(members[1], END);
        assert!(after.goes_on(members[1]), "the one that takes the first one's place has nothing yet");

        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let members = partition.placement().members;
        let nodes = members[1..].iter().map(|member| member.node).collect();
        let place = CatalogCommand::Place { table: partition.table, partition: 0, nodes, witness: None };
        partition.catalog.apply(&place, &Limits::default()).unwrap();
        let waits = partition.lose(members[0], END);
        assert!(waits.is_waiting(members[0]) && !waits.awaits_leader());
        assert!(partition.led(members[1]).is_waiting(members[0]));
        let moved = CatalogCommand::moved(partition.table, 0, &partition.placement());
        partition.catalog.apply(&moved, &Limits::default()).unwrap();
        assert!(partition.placement().lost.is_empty());
    }
}
