//! Amnesiac replicas: those that may have forgotten their votes and promises, and what becomes of them.
//!
//! Such a replica takes part in nothing until the catalog has decided, and the content of its disk stays. As soon as
//! another replica leads and serves, that one has everything that counts, and a new replica takes the amnesiac's place.
//! If the other replicas are no majority, no one can have more than all amnesiac replicas have together:
//!
//! - a table without a log starts again empty, unless one of two voters is left. That one has everything that was acknowledged,
//!   since both must have it. When it [says](Survivor) that there are two voters, it goes on as the only one, and a new replica takes
//!   the other one's place. The catalog waits for that as long as somebody may say it. If nobody does, because the voters were being
//!   changed, the partition [begins anew](super::CatalogCommand::BeginAnew) after a while;
//! - in a table with a log, as many amnesiac replicas as a majority lacks are readmitted with what their disks hold: data
//!   replicas before witnesses, and of these the ones with the longest logs. No more are readmitted, so that the replicas that
//!   have not forgotten anything have a say in who leads.
//!
//! A replica from an older copy of its node's data lacks what it had acknowledged, however durable that was. It is
//! never readmitted automatically: the group waits until other replicas come, or until an operator says that the older
//! data counts.

mod replica;
mod survivor;

pub use replica::{Amnesiac, AmnesiacReplica};
pub use survivor::{Survivor, SurvivorKnows};

use super::{Catalog, Placement};
use std::cmp::Reverse;
use tessera_types::{ReplicaId, TableId};

impl Placement {
    /// Whether an amnesiac replica may take part all the same.
    pub fn is_readmitted(&self, replica: ReplicaId) -> bool {
        self.amnesiac.iter().any(|amnesiac| amnesiac.replica == replica && amnesiac.is_readmitted)
    }

    /// Whether an amnesiac replica waits to be replaced or readmitted.
    pub fn is_waiting(&self, replica: ReplicaId) -> bool {
        self.amnesiac.iter().any(|amnesiac| amnesiac.replica == replica && !amnesiac.is_readmitted)
    }

    /// Whether the replica that leads this group should [report it](super::CatalogCommand::Led).
    pub fn awaits_leader(&self) -> bool {
        self.amnesiac.iter().any(|amnesiac| self.is_decided_by_leader(amnesiac))
    }

    /// Whether a replica is amnesiac, and its group has had no leader since.
    pub fn is_amnesiac(&self, replica: ReplicaId) -> bool {
        self.amnesiac.iter().any(|amnesiac| amnesiac.replica == replica)
    }

    /// Whether nobody may lead until other replicas come, or an operator says that older data counts.
    pub fn awaits_word(&self) -> bool {
        self.has_overtaken() && self.lacks_majority()
    }

    /// Whether one of the amnesiac replicas is on a node whose data is older than the data that the node had before.
    pub fn has_overtaken(&self) -> bool {
        self.amnesiac.iter().any(|amnesiac| amnesiac.is_overtaken)
    }

    /// Whether a leader decides about this replica. One that is about to be removed is not replaced, and waits until it
    /// is removed.
    fn is_decided_by_leader(&self, amnesiac: &Amnesiac) -> bool {
        amnesiac.is_readmitted || self.target.contains(&amnesiac.replica)
    }

    /// Whether a member takes part, or is about to.
    fn is_left(&self, member: ReplicaId) -> bool {
        self.on(member.node) == Some(member) && !self.is_waiting(member)
    }

    /// Whether a replica holds what it had acknowledged.
    pub fn remembers(&self, member: ReplicaId) -> bool {
        self.on(member.node) == Some(member) && !self.is_amnesiac(member)
    }

    /// All replicas that are members, or may be.
    pub fn possible_members(&self) -> impl Iterator<Item = ReplicaId> {
        self.current.iter().chain(&self.target).chain(&self.given_up).copied()
    }

    /// Whether a replica may be left that has everything, although most members do not: one of two, or one that was not a member as
    /// far as the catalog knows.
    fn may_have_survivor(&self) -> bool {
        let remembers = |member: ReplicaId| !member.is_witness() && self.remembers(member);
        (self.current.len() == 2 || self.is_moving()) && self.possible_members().any(remembers)
    }

    /// Whether amnesiac replicas wait, and nobody can lead without them as far as the catalog knows. Of a table without a log it then
    /// waits for what [survivors](Survivor) say.
    pub fn awaits_survivor(&self) -> bool {
        self.amnesiac.iter().any(|amnesiac| !amnesiac.is_readmitted) && self.lacks_majority()
    }

    /// Whether this replica is to [go on](tessera_consensus::Inbox::go_on_without) as the only voter.
    pub fn is_survivor(&self, replica: ReplicaId) -> bool {
        self.survivor == Some(replica)
    }

    fn lacks_majority(&self) -> bool {
        let left = self.current.iter().filter(|member| self.is_left(**member)).count();
        left <= self.current.len() / 2
    }

    /// Readmits as many replicas as a majority lacks.
    fn readmit(&mut self) {
        let members = self.current.clone();
        while self.lacks_majority() {
            let waiting = self.amnesiac.iter_mut().filter(|amnesiac| !amnesiac.is_readmitted && !amnesiac.is_overtaken);
            let best = waiting.max_by_key(|amnesiac| {
                (
                    members.contains(&amnesiac.replica),
                    !amnesiac.replica.is_witness(),
                    amnesiac.end,
                    Reverse(amnesiac.replica),
                )
            });
            let Some(best) = best else { return };
            best.is_readmitted = true;
        }
    }
}

impl Catalog {
    /// With `awaits_survivors` a table without a log waits for what those say that may have everything.
    pub(super) fn note_amnesiac(&mut self, amnesiac: &AmnesiacReplica, awaits_survivors: bool) {
        let AmnesiacReplica { table, partition, replica, end, is_overtaken } = *amnesiac;
        let is_volatile = self.is_volatile(table);
        let Ok(placement) = self.placement(table, partition) else { return };
        if placement.on(replica.node) != Some(replica) || placement.is_amnesiac(replica) {
            return; // it has been replaced, or that is known
        }
        placement.amnesiac.push(Amnesiac { replica, end, is_readmitted: false, is_overtaken });
        if !is_volatile {
            placement.readmit();
        } else if placement.lacks_majority() && !(awaits_survivors && placement.may_have_survivor()) {
            self.begin_anew(table, partition);
        }
    }

    /// A partition starts again, empty.
    fn begin_anew(&mut self, table: TableId, partition: u32) {
        let Ok(before) = self.placement(table, partition).cloned() else { return };
        let renewed = before.target.iter().map(|old| self.new_replica(old.node, old.is_witness()));
        let anew = Placement { version: before.version + 1, ..Placement::of_initial_members(renewed.collect()) };
        _ = self.placement(table, partition).map(|placement| *placement = anew);
    }

    pub(super) fn note_survivor(&mut self, survivor: &Survivor) {
        let Survivor { table, partition, replica, ref knows } = *survivor;
        let is_volatile = self.is_volatile(table);
        let Ok(mut after) = self.placement(table, partition).cloned() else { return };
        if !is_volatile || !after.remembers(replica) {
            return; // it is none any more
        }
        match knows {
            SurvivorKnows::Leads(voters) => {
                if !after.awaits_survivor() {
                    return;
                }
                after.current.clone_from(voters);
            }
            SurvivorKnows::Misses(lost) => {
                if after.remembers(*lost) || after.is_survivor(replica) {
                    return; // it is not lost, or that is known
                }
                if let Some(place) = after.target.iter_mut().find(|target| *target == lost) {
                    *place = self.new_replica(lost.node, lost.is_witness());
                }
                after.amnesiac.retain(|amnesiac| amnesiac.replica != *lost);
                after.given_up.retain(|given_up| given_up != lost);
                (after.current, after.survivor, after.version) = (vec![replica], Some(replica), after.version + 1);
            }
        }
        _ = self.placement(table, partition).map(|placement| *placement = after);
    }

    /// A partition begins anew unless its placement has changed, or nobody is waited for any more.
    pub(super) fn give_survivors_up(&mut self, table: TableId, partition: u32, version: u64) {
        let is_volatile = self.is_volatile(table);
        let Ok(placement) = self.placement(table, partition) else { return };
        if is_volatile && placement.version == version && placement.awaits_survivor() {
            self.begin_anew(table, partition);
        }
    }

    fn is_volatile(&self, table: TableId) -> bool {
        self.tables.get(&table).is_some_and(|table| !table.schema.is_persistent())
    }

    pub(super) fn led(&mut self, table: TableId, partition: u32, leader: ReplicaId) {
        let Ok(mut after) = self.placement(table, partition).cloned() else { return };
        let amnesiac: Vec<_> =
            after.amnesiac.iter().filter(|amnesiac| !amnesiac.is_readmitted).map(|amnesiac| amnesiac.replica).collect();
        for target in after.target.iter_mut().filter(|target| **target != leader && amnesiac.contains(target)) {
            *target = self.new_replica(target.node, target.is_witness());
        }
        let before = self.placement(table, partition).expect("just seen");
        after.amnesiac.retain(|amnesiac| !before.is_decided_by_leader(amnesiac));
        after.version += u64::from(after.target != before.target);
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
            Self::in_cluster_of(3, engine, replicas)
        }

        fn in_cluster_of(nodes: u32, engine: EngineKind, replicas: u8) -> Self {
            let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
            let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
            for node in (2..=nodes).map(NodeId) {
                apply(CatalogCommand::AddNode { site: Site::default(), token: None });
                apply(CatalogCommand::Arrived { node, has_vote: false });
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
            let amnesiac = AmnesiacReplica { table: self.table, partition: 0, replica, end, is_overtaken: false };
            let command = CatalogCommand::AwaitSurvivors { amnesiac: vec![amnesiac] };
            self.catalog.apply(&command, &Limits::default()).unwrap();
            self.placement()
        }

        fn survived(&mut self, replica: ReplicaId, lost: ReplicaId) -> Placement {
            self.says(replica, SurvivorKnows::Misses(lost))
        }

        fn says(&mut self, replica: ReplicaId, knows: SurvivorKnows) -> Placement {
            let survivor = Survivor { table: self.table, partition: 0, replica, knows };
            let command = CatalogCommand::Survived { replicas: vec![survivor] };
            self.catalog.apply(&command, &Limits::default()).unwrap();
            self.placement()
        }

        fn give_up(&mut self, version: u64) -> Placement {
            let command = CatalogCommand::BeginAnew { groups: vec![(self.table, 0, version)] };
            self.catalog.apply(&command, &Limits::default()).unwrap();
            self.placement()
        }

        fn place(&mut self, nodes: &[u32]) -> Placement {
            let nodes = nodes.iter().copied().map(NodeId).collect();
            let place = CatalogCommand::Place { table: self.table, partition: 0, nodes, witness: None };
            self.catalog.apply(&place, &Limits::default()).unwrap();
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
            let [amnesiac, leader, _] = before.current[..] else { panic!("three") };
            assert_eq!(
                partition.lose(ReplicaId { node: NodeId(1), incarnation: 9_999 }, END),
                before,
                "no such replica"
            );
            let waits = partition.lose(amnesiac, END);
            assert!(waits.is_waiting(amnesiac) && waits.awaits_leader() && !waits.is_waiting(leader));
            assert_eq!((&waits.target, &waits.current), (&before.target, &before.current), "nothing is given up yet");
            assert_eq!(partition.lose(amnesiac, END), waits, "once");
            let after = partition.led(leader);
            assert!(after.target[0] != amnesiac && after.target[0].node == amnesiac.node && after.amnesiac.is_empty());
            assert_eq!((&after.target[1..], &after.current), (&before.target[1..], &before.current));
            assert_eq!(partition.lose(amnesiac, END), after, "it has been replaced");
        }
    }

    #[test]
    fn a_replica_that_differs_is_replaced_on_its_node_unless_something_else_is_under_way() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let before = partition.placement();
        let [first, second, third] = before.current[..] else { panic!("three") };
        let table = partition.table;
        let replace = |partition: &mut Partition, replica| {
            let command = CatalogCommand::Replace { table, partition: 0, replica };
            partition.catalog.apply(&command, &Limits::default()).is_ok()
        };
        assert!(replace(&mut partition, second));
        let after = partition.placement();
        assert!(after.target[1] != second && after.on(second.node) == Some(after.target[1]));
        assert_eq!((after.target[0], after.target[2], &after.current), (first, third, &before.current));
        assert!(!replace(&mut partition, second), "it has been replaced");
        assert!(!replace(&mut partition, third), "one at a time");

        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let amnesiac = partition.placement().current[0];
        partition.lose(amnesiac, END);
        let other = partition.placement().current[1];
        assert!(!replace(&mut partition, other), "one has forgotten already");
    }

    #[test]
    fn a_table_without_a_log_begins_anew_when_most_have_forgotten() {
        let mut partition = Partition::new(EngineKind::Memory, 3);
        let before = partition.placement();
        partition.lose(before.current[0], END);
        let after = partition.lose(before.current[1], END);
        assert_eq!((&after.initial_members, &after.current, after.amnesiac.len()), (&after.target, &after.target, 0));
        assert!(after.target.iter().all(|replica| !before.target.contains(replica)));
    }

    #[test]
    fn one_of_two_without_a_log_goes_on_alone_when_it_says_that_nobody_else_votes() {
        let mut partition = Partition::in_cluster_of(2, EngineKind::Memory, 2);
        let before = partition.placement();
        let [survivor, lost] = before.current[..] else { panic!("two") };
        assert_eq!(partition.survived(survivor, lost), before, "nobody is missing");
        let waits = partition.lose(lost, END);
        assert!(waits.is_waiting(lost) && !waits.is_survivor(survivor), "{waits:?}");
        assert_eq!((&waits.target, &waits.current), (&before.target, &before.current));
        assert_eq!(partition.survived(lost, survivor), waits, "it has lost everything");
        let after = partition.survived(survivor, lost);
        assert!(after.is_survivor(survivor) && after.amnesiac.is_empty() && after.is_moving(), "{after:?}");
        assert_eq!((&after.current, after.target[0]), (&vec![survivor], survivor));
        assert!(after.target[1] != lost && after.on(lost.node) == Some(after.target[1]), "a new replica is filled");
        assert_eq!(partition.survived(survivor, lost), after, "once");
        let moved = CatalogCommand::moved(partition.table, 0, &after);
        partition.catalog.apply(&moved, &Limits::default()).unwrap();
        let whole = partition.placement();
        assert!(!whole.is_survivor(survivor) && !whole.is_moving());
        // The other way round.
        let waits = partition.lose(survivor, END);
        assert!(waits.is_waiting(survivor) && waits.current == whole.current, "{waits:?}");
    }

    #[test]
    fn one_of_two_begins_anew_when_the_other_one_ends_too_or_others_may_vote() {
        let mut partition = Partition::in_cluster_of(2, EngineKind::Memory, 2);
        let [survivor, lost] = partition.placement().current[..] else { panic!("two") };
        partition.lose(lost, END);
        let anew = partition.lose(survivor, END);
        assert_eq!((&anew.initial_members, &anew.current, anew.amnesiac.len()), (&anew.target, &anew.target, 0));
        assert!(!anew.target.contains(&survivor) && !anew.target.contains(&lost));

        let mut partition = Partition::in_cluster_of(2, EngineKind::Memory, 2);
        let [survivor, lost] = partition.placement().current[..] else { panic!("two") };
        partition.lose(lost, END);
        let alone = partition.survived(survivor, lost);
        let waits = partition.lose(survivor, END);
        assert!(waits.is_waiting(survivor) && waits.target == alone.target, "the comer may have all, and a vote");
        assert_eq!(partition.give_up(waits.version - 1), waits, "something has changed since");
        let anew = partition.give_up(waits.version);
        assert!(anew.current == anew.target && !anew.target.contains(&alone.target[1]) && !anew.awaits_survivor());
        assert_eq!(partition.give_up(anew.version), anew, "nobody is waited for");
    }

    #[test]
    fn whoever_says_that_it_has_everything_counts_while_replicas_move() {
        let mut partition = Partition::new(EngineKind::Memory, 3);
        let [first, second, third] = partition.placement().current[..] else { panic!("three") };
        partition.place(&[first.node.0, second.node.0]);
        let waits = partition.lose(second, END);
        assert!(waits.is_waiting(second), "as far as the catalog knows, two of three are left");
        let after = partition.survived(first, second);
        assert_eq!((after.current.clone(), after.target[0]), (vec![first], first), "the third one was no member");
        assert!(after.target[1] != second && after.on(third.node).is_none());

        let mut partition = Partition::in_cluster_of(3, EngineKind::Memory, 1);
        let [only] = partition.placement().current[..] else { panic!("one") };
        let place = if only.node == NodeId(1) { [1, 2] } else { [only.node.0, 1] };
        let comer = partition.place(&place).target[1];
        let waits = partition.lose(only, END);
        assert!(waits.is_waiting(only), "the comer may have everything, and a vote");
        let after = partition.survived(comer, only);
        assert_eq!(after.current, [comer]);
    }

    /// The catalog does not know of the third voter yet, and the second one ends.
    #[test]
    fn a_leader_of_voters_that_the_catalog_did_not_know_of_says_who_they_are() {
        let mut partition = Partition::in_cluster_of(2, EngineKind::Memory, 2);
        let [leader, lost] = partition.placement().current[..] else { panic!("two") };
        let mut apply = |command| partition.catalog.apply(&command, &Limits::default()).unwrap();
        apply(CatalogCommand::AddNode { site: Site::default(), token: None });
        apply(CatalogCommand::Arrived { node: NodeId(3), has_vote: false });
        let comer = partition.place(&[leader.node.0, 3]).target[1];
        let waits = partition.lose(lost, END);
        assert!(waits.awaits_survivor() && !waits.awaits_leader(), "it is to go, and nobody replaces it");
        let voters = vec![leader, comer];
        let known = partition.says(leader, SurvivorKnows::Leads(voters.clone()));
        assert!(known.current == voters && !known.awaits_survivor());
        assert_eq!(partition.give_up(known.version), known);
        assert_eq!(partition.says(leader, SurvivorKnows::Leads(vec![leader])), known, "that is over");
    }

    /// A leader said that it serves, the other voter ended, and what it had said was carried out only then.
    #[test]
    fn a_survivor_goes_on_also_where_the_other_one_was_replaced_already() {
        let mut partition = Partition::in_cluster_of(2, EngineKind::Memory, 2);
        let [survivor, lost] = partition.placement().current[..] else { panic!("two") };
        partition.lose(lost, END);
        let replaced = partition.led(survivor);
        assert!(!replaced.remembers(lost) && replaced.amnesiac.is_empty());
        let after = partition.survived(survivor, lost);
        assert!(after.is_survivor(survivor) && after.current == [survivor] && after.target == replaced.target);
    }

    #[test]
    fn what_nodes_of_older_versions_do_not_know_is_not_waited_for() {
        let mut partition = Partition::in_cluster_of(2, EngineKind::Memory, 2);
        let lost = partition.placement().current[1];
        let amnesiac =
            AmnesiacReplica { table: partition.table, partition: 0, replica: lost, end: END, is_overtaken: false };
        let command = CatalogCommand::Amnesiac { replicas: vec![amnesiac] };
        partition.catalog.apply(&command, &Limits::default()).unwrap();
        let anew = partition.placement();
        assert_eq!((&anew.initial_members, &anew.current), (&anew.target, &anew.target));
        assert!(!anew.target.contains(&lost));
    }

    #[test]
    fn as_many_go_on_as_a_majority_lacks_first_those_with_the_longest_logs() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let members = partition.placement().current;
        partition.lose(members[0], (3, 16));
        let two = partition.lose(members[1], END);
        assert!(two.is_waiting(members[0]) && two.is_readmitted(members[1]) && two.awaits_leader());
        let three = partition.lose(members[2], (2, 99));
        let go_on: Vec<_> = members.iter().filter(|member| three.is_readmitted(**member)).copied().collect();
        assert_eq!(go_on, members[..2], "the log of a later term is ahead");
        let after = partition.led(members[1]);
        assert_eq!(after.target[..2], members[..2], "who went on stays");
        assert!(after.target[2] != members[2] && after.amnesiac.is_empty());
    }

    #[test]
    fn older_data_never_goes_on_by_itself() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let members = partition.placement().current;
        let amnesiac =
            AmnesiacReplica { table: partition.table, partition: 0, replica: members[0], end: END, is_overtaken: true };
        let command = CatalogCommand::Amnesiac { replicas: vec![amnesiac] };
        partition.catalog.apply(&command, &Limits::default()).unwrap();
        assert!(!partition.placement().awaits_word(), "two of three are left");
        let after = partition.lose(members[1], (1, 2));
        assert!(after.is_readmitted(members[1]) && !after.is_readmitted(members[0]) && !after.awaits_word());
        let led = partition.led(members[2]);
        assert!(led.target[0] != members[0] && !led.has_overtaken(), "others have what counts");

        let mut partition = Partition::new(EngineKind::Rocksdb, 1);
        let members = partition.placement().current;
        let amnesiac =
            AmnesiacReplica { table: partition.table, partition: 0, replica: members[0], end: END, is_overtaken: true };
        let command = CatalogCommand::Amnesiac { replicas: vec![amnesiac] };
        partition.catalog.apply(&command, &Limits::default()).unwrap();
        assert!(partition.placement().awaits_word() && partition.placement().is_waiting(members[0]));
    }

    #[test]
    fn a_replica_goes_on_rather_than_a_witness() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 2);
        let members = partition.placement().current;
        let (witnesses, data_replicas): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.is_witness());
        partition.lose(witnesses[0], (9, 99));
        let after = partition.lose(data_replicas[0], END);
        assert!(after.is_readmitted(data_replicas[0]) && after.is_waiting(witnesses[0]));
        let all = partition.lose(data_replicas[1], END);
        assert!(all.is_readmitted(data_replicas[1]) && all.is_waiting(witnesses[0]), "two of three are enough");
    }

    #[test]
    fn one_that_was_replaced_does_not_count_and_one_that_is_to_go_waits_until_it_has_gone() {
        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let members = partition.placement().current;
        partition.lose(members[0], END);
        partition.led(members[1]);
        let after = partition.lose(members[1], END);
        assert!(after.is_readmitted(members[1]), "the one that takes the first one's place has nothing yet");

        let mut partition = Partition::new(EngineKind::Rocksdb, 3);
        let members = partition.placement().current;
        let nodes = members[1..].iter().map(|member| member.node).collect();
        let place = CatalogCommand::Place { table: partition.table, partition: 0, nodes, witness: None };
        partition.catalog.apply(&place, &Limits::default()).unwrap();
        let waits = partition.lose(members[0], END);
        assert!(waits.is_waiting(members[0]) && !waits.awaits_leader());
        assert!(partition.led(members[1]).is_waiting(members[0]));
        let moved = CatalogCommand::moved(partition.table, 0, &partition.placement());
        partition.catalog.apply(&moved, &Limits::default()).unwrap();
        assert!(partition.placement().amnesiac.is_empty());
    }
}
