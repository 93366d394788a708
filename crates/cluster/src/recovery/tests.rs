use super::*;
use crate::test_schema::schema_of;
use crate::{CatalogCommand, Site};
use tessera_types::{EngineKind, Limits, TableSettings};

const FROM: ClusterId = ClusterId(77);

fn group_of(table: TableId, partition: u32) -> u64 {
    u64::from(table.0) << 32 | u64::from(partition) | 1 << 60
}

fn lost(nodes: &[u32]) -> BTreeSet<NodeId> {
    nodes.iter().map(|node| NodeId(*node)).collect()
}

/// A cluster of some nodes with a table `t` of so many replicas, by the disks of all its nodes: every log ends at (2,
/// 10).
struct World {
    catalog: Catalog,
    surveys: Vec<Survey>,
}

impl World {
    fn new(nodes: u32, replicas: u8, durability: Durability) -> Self {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let mut apply = |command| _ = catalog.apply(&command, &Limits::default()).unwrap();
        for node in (2..=nodes).map(NodeId) {
            apply(CatalogCommand::AddNode { site: Site::default(), token: None });
            apply(CatalogCommand::Arrived { node, has_vote: false });
        }
        let schema = schema_of(EngineKind::Memory, durability, 4, replicas);
        let (name, settings, absent) = ("t".into(), TableSettings::default(), BTreeSet::new());
        apply(CatalogCommand::Create { name, schema, settings, absent });
        let surveys = (1..=nodes).map(|node| Self::survey(&catalog, NodeId(node), nodes)).collect();
        Self { catalog, surveys }
    }

    fn survey(catalog: &Catalog, node: NodeId, nodes: u32) -> Survey {
        let logged = |voters: Vec<ReplicaId>| LoggedReplica {
            end: (2, 10),
            committed: 8,
            voters,
            outgoing: Vec::new(),
            is_changing: false,
            takes_snapshot: false,
            vote: (2, 0),
        };
        let mut replicas = BTreeMap::new();
        for table in catalog.tables() {
            for (partition, placement) in (0..).zip(&table.placement) {
                if let Some(here) = placement.on(node) {
                    let logged = logged(placement.current.clone());
                    replicas.insert(group_of(table.id, partition), SurveyedReplica { replica: here, logged });
                }
            }
        }
        let voters = (1..=nodes.min(5)).map(|node| catalog_replica(NodeId(node))).collect();
        Survey {
            mark: ClusterId(1 << node.0),
            at: UnixMillis::new(u64::from(node.0)),
            cluster: FROM,
            node,
            starts: 1,
            has_lost_tail: false,
            is_older_copy: false,
            catalog: CatalogFile { applied_index: 9, catalog: catalog.clone() },
            catalog_replica: SurveyedReplica { replica: catalog_replica(node), logged: logged(voters) },
            replicas,
        }
    }

    fn table(&self) -> &TableEntry {
        self.catalog.by_name("t").unwrap()
    }

    /// What the disk of a node has of partition 0.
    fn at(&mut self, node: u32) -> &mut LoggedReplica {
        let group = group_of(self.table().id, 0);
        &mut self.surveys[node as usize - 1].replicas.get_mut(&group).unwrap().logged
    }

    fn recover(&self, gone: &[u32]) -> Result<Recovery, RecoveryError> {
        let left: Vec<_> = self.surveys.iter().filter(|it| !gone.contains(&it.node.0)).cloned().collect();
        recover(&left, &lost(gone), &group_of)
    }

    /// What becomes of partition 0.
    fn outcome(&self, gone: &[u32]) -> Outcome {
        let table = self.table().id;
        let partitions = self.recover(gone).unwrap().partitions;
        partitions.into_iter().find(|it| it.table == table && it.partition == 0).unwrap().outcome
    }
}

#[test]
fn one_of_two_goes_on_with_everything() {
    let world = World::new(2, 3, Durability::Hard);
    let recovery = world.recover(&[2]).unwrap();
    for it in recovery.partitions {
        let goes_on = matches!(&it.outcome, Outcome::GoesOn { replica, lacks: None, .. } if replica.node == NodeId(1));
        // The first node had the default table for itself before there was a second one.
        assert!(goes_on || it.name == "default" && it.outcome == Outcome::KeepsMajority);
    }
    assert_eq!((recovery.from, recovery.catalog_lacks, recovery.catalog_end), (FROM, None, (3, 11)));
    assert_ne!(recovery.cluster, FROM);
    assert_eq!(recovery.catalog_voters, [ReplicaId { node: NodeId(1), incarnation: 1 }]);
    let catalog = &recovery.catalog;
    assert!(catalog.node(NodeId(2)).is_none() && !catalog.may_be_a_node(NodeId(2)), "its number is never given again");
    assert_eq!(catalog.catalog_replica(NodeId(1)), recovery.catalog_voters[0]);
    let before = world.catalog.by_name("t").unwrap();
    for (old, new) in before.placement.iter().zip(&catalog.by_name("t").unwrap().placement) {
        let here = old.on(NodeId(1)).unwrap();
        assert_eq!((&new.target, &new.current, new.is_moving()), (&vec![here], &vec![here], false));
        assert!(new.version > old.version, "what is known of moves from before does not count");
    }
    let [note] = catalog.recoveries() else { panic!("it is remembered") };
    assert_eq!((&note.lost[..], note.alone, note.may_lack, note.begun_anew), (&[NodeId(2)][..], 4, 0, 0));
}

#[test]
fn every_node_decides_the_same() {
    let world = World::new(5, 5, Durability::Hard);
    let mut left: Vec<_> = world.surveys[..2].to_vec();
    let one = recover(&left, &lost(&[3, 4, 5]), &group_of).unwrap();
    left.reverse();
    assert_eq!(recover(&left, &lost(&[3, 4, 5]), &group_of).unwrap(), one);
    assert_eq!(one.catalog_voters.len(), 2);
}

#[test]
fn nothing_is_guessed() {
    let mut world = World::new(3, 3, Durability::Hard);
    let alone = |world: &World, gone: &[u32]| recover(&world.surveys[..1], &lost(gone), &group_of).unwrap_err();
    assert_eq!(alone(&world, &[]), RecoveryError::NobodyLost);
    assert_eq!(alone(&world, &[2]), RecoveryError::NotSurveyed(NodeId(3)));
    assert_eq!(alone(&world, &[1, 2, 3]), RecoveryError::NotLost(NodeId(1)));
    assert_eq!(alone(&world, &[2, 3, 4]), RecoveryError::NoSuchNode(NodeId(4)));
    assert_eq!(world.recover(&[3]).unwrap_err(), RecoveryError::NothingLacksMajority);
    let twice = [world.surveys[0].clone(), world.surveys[0].clone()];
    assert_eq!(recover(&twice, &lost(&[2, 3]), &group_of).unwrap_err(), RecoveryError::SurveyedTwice(NodeId(1)));
    world.surveys[1].cluster = ClusterId(5);
    assert_eq!(world.recover(&[3]).unwrap_err(), RecoveryError::OtherCluster(NodeId(2)));
    let mut newcomer = World::new(2, 3, Durability::Hard);
    newcomer.surveys[1].catalog_replica.logged.voters.clear();
    assert_eq!(newcomer.recover(&[1]).unwrap_err(), RecoveryError::KnowsNothing);
    world.surveys[0].is_older_copy = true;
    assert_eq!(world.recover(&[2, 3]).unwrap_err(), RecoveryError::OlderCopy(NodeId(1)));
}

#[test]
fn the_log_that_ends_last_counts_and_it_is_said_what_it_may_lack() {
    let mut world = World::new(5, 5, Durability::Hard);
    let first = world.table().placement[0].on(NodeId(1)).unwrap();
    world.at(1).end = (3, 4);
    let lacks = Some(Lack::MajorityLost);
    assert_eq!(
        world.outcome(&[3, 4, 5]),
        Outcome::GoesOn { replica: first, end: (3, 4), committed: 8, lacks },
        "a later term is ahead, whatever the index"
    );
    // Four voters: each three of them, a majority, have one of any two.
    let mut world = World::new(4, 4, Durability::Hard);
    world.at(1).end = (2, 11);
    assert!(matches!(world.outcome(&[3, 4]), Outcome::GoesOn { end: (2, 11), lacks: None, .. }));
    world.at(1).is_changing = true;
    assert!(matches!(world.outcome(&[3, 4]), Outcome::GoesOn { lacks: Some(Lack::MembersChanging), .. }));
    let mut world = World::new(2, 3, Durability::Hard);
    world.at(1).takes_snapshot = true;
    assert!(matches!(world.outcome(&[2]), Outcome::GoesOn { lacks: Some(Lack::TakingSnapshot), .. }));
}

/// Whatever was acknowledged, and whoever is lost: if nothing is said to be lacking, nothing is.
#[test]
fn what_is_called_complete_is_complete() {
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut complete, mut lacking) = (0, 0);
    for _ in 0..400 {
        let nodes = 2 + draw(4) as u32;
        let mut world = World::new(nodes, nodes as u8, Durability::Hard);
        // Two replicas of more nodes have a witness.
        let members: Vec<_> =
            (1..=nodes).filter(|node| world.table().placement[0].on(NodeId(*node)).is_some()).collect();
        let mut ends: Vec<u64> = members.iter().map(|_| 1 + draw(20)).collect();
        for (node, end) in members.iter().zip(&ends) {
            world.at(*node).end = (2, *end);
        }
        ends.sort_unstable_by(|one, other| other.cmp(one));
        let acknowledged = ends[members.len() / 2];
        let gone: Vec<u32> = (1..=nodes).filter(|_| draw(2) == 0).collect();
        let Ok(_) = world.recover(&gone) else { continue };
        match world.outcome(&gone) {
            Outcome::GoesOn { end, lacks: None, .. } => {
                complete += 1;
                assert!(end.1 >= acknowledged, "{ends:?} without {gone:?}");
            }
            Outcome::GoesOn { end, .. } => lacking += usize::from(end.1 < acknowledged),
            _ => {}
        }
    }
    assert!(complete > 20 && lacking > 5, "{complete} complete, {lacking} lacking");
}

#[test]
fn what_a_majority_of_is_left_stays_and_gives_up_the_lost() {
    let world = World::new(5, 3, Durability::Hard);
    let recovery = world.recover(&[3, 4, 5]).unwrap();
    let mut kept = 0;
    let after = recovery.catalog.by_name("t").unwrap();
    for (partition, old) in world.table().placement.iter().enumerate() {
        let new = &after.placement[partition];
        assert!(new.target.iter().all(|replica| replica.node <= NodeId(2)) && !new.target.is_empty());
        if old.current.iter().filter(|member| member.node <= NodeId(2)).count() == 2 {
            kept += 1;
            assert_eq!((&new.current, new.target.len()), (&old.current, 2), "its leader takes the lost one out");
        }
    }
    assert!(kept > 0 && kept < 4, "{kept}");
}

#[test]
fn a_tail_that_was_lost_with_the_power_is_missed() {
    let mut world = World::new(2, 3, Durability::Soft);
    world.surveys[0].has_lost_tail = true;
    assert!(matches!(world.outcome(&[2]), Outcome::GoesOn { lacks: Some(Lack::PowerCut), .. }));
    // Two of three have forgotten their votes, so the third one's loss leaves nobody who could elect.
    let mut world = World::new(3, 3, Durability::Soft);
    world.surveys[0].has_lost_tail = true;
    world.surveys[1].has_lost_tail = true;
    world.at(2).end = (2, 12);
    assert!(
        matches!(world.outcome(&[3]), Outcome::GoesOn { replica, lacks: Some(Lack::PowerCut), .. } if replica.node == NodeId(2))
    );
}

#[test]
fn what_has_no_copy_left_begins_anew() {
    let world = World::new(2, 3, Durability::None);
    assert_eq!(world.outcome(&[2]), Outcome::BeginsAnew { had_log: false });
    // Two replicas and a witness: whoever has only the witness has no records.
    let world = World::new(3, 2, Durability::Hard);
    let placement = &world.table().placement[0];
    let witness = placement.current.iter().find(|member| member.is_witness()).unwrap().node;
    let gone: Vec<u32> = (1..=3).filter(|node| *node != witness.0).collect();
    assert_eq!(world.outcome(&gone), Outcome::BeginsAnew { had_log: true });
    let after = world.recover(&gone).unwrap().catalog.by_name("t").unwrap().placement[0].clone();
    assert_eq!((after.initial_members.len(), after.initial_members[0].node), (1, witness));
    assert!(!after.initial_members[0].is_witness() && !placement.current.contains(&after.initial_members[0]));
}
