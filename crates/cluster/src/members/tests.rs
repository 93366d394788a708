use super::*;
use crate::rules::without;
use tessera_consensus::GroupId;

fn replica(node: u32) -> ReplicaId {
    catalog_replica(NodeId(node))
}

fn witness(node: u32) -> ReplicaId {
    ReplicaId::new_witness(NodeId(node), 1)
}

/// A member that is there and has everything.
fn sound(replica: ReplicaId) -> MemberView {
    MemberView { replica, is_heard: true, matched: 100, lag: 0, lag_bytes: 0, keeps_up: true, takes_snapshot: false }
}

/// One that was never heard of.
fn ghost(replica: ReplicaId) -> MemberView {
    let lag = 100;
    MemberView { is_heard: false, matched: 0, lag, lag_bytes: u64::MAX, keeps_up: false, ..sound(replica) }
}

/// A group led by the first voter, in which all is well.
fn view(voters: &[ReplicaId], learners: &[ReplicaId]) -> GroupView {
    let others = voters.iter().chain(learners).skip(1).map(|replica| sound(*replica)).collect();
    GroupView {
        id: GroupId(1),
        replica: voters[0],
        term: 1,
        leader: Some(voters[0]),
        is_serving: true,
        owes_answers: false,
        voters: voters.to_vec(),
        learners: learners.to_vec(),
        is_changing: false,
        applied: 100,
        others,
        unreplicated_bytes: 0,
        unreachable_by_log: Vec::new(),
        counterpart: None,
    }
}

fn nodes(numbers: &[u32]) -> Vec<ReplicaId> {
    numbers.iter().copied().map(replica).collect()
}

fn present(numbers: impl IntoIterator<Item = u32>) -> Presence {
    Presence::new(numbers.into_iter().map(|node| (NodeId(node), Standing::Steady)), Default::default())
}

fn set(view: &mut GroupView, member: MemberView) {
    *view.others.iter_mut().find(|other| other.replica == member.replica).unwrap() = member;
}

fn moving(members: &[ReplicaId], target: &[ReplicaId]) -> Placement {
    let mut placement = Placement::of_initial_members(members.to_vec());
    placement.target = target.to_vec();
    placement
}

/// The next step of a group whose members were those that it has now when it began to move.
fn step(view: &GroupView, target: &[ReplicaId], presence: &Presence) -> Step {
    next_step(view, &moving(&view.voters, target), presence)
}

/// Carries steps out as the group would, until none is left.
fn reach(members: &[u32], leader: u32, target: &[u32]) -> usize {
    let target = nodes(target);
    let mut view = view(&nodes(members), &[]);
    view.replica = replica(leader);
    for steps in 0..10 {
        view.others = (1..9).map(|node| sound(replica(node))).collect();
        match step(&view, &target, &present(1..9)) {
            Step::Done => {
                assert!(has_target_members(&view, &target), "{view:?}");
                return steps;
            }
            Step::TransferLeadership(to) => {
                assert!(view.voters.contains(&to));
                view.replica = to;
            }
            Step::Wait => panic!("nothing is under way"),
            Step::Change(changes) => {
                for change in changes {
                    let (MemberChange::Voter(id) | MemberChange::Learner(id) | MemberChange::Remove(id)) = change;
                    assert!(id != view.replica, "the leader stays");
                    view.voters.retain(|voter| *voter != id);
                    view.learners.retain(|learner| *learner != id);
                    match change {
                        MemberChange::Voter(id) => view.voters.push(id),
                        MemberChange::Learner(id) => view.learners.push(id),
                        MemberChange::Remove(_) => {}
                    }
                }
            }
        }
    }
    panic!("no end");
}

#[test]
fn every_change_comes_to_an_end() {
    assert_eq!(reach(&[1, 2, 3], 1, &[1, 2, 3]), 0);
    assert_eq!(reach(&[1, 2, 3], 2, &[1, 2, 3]), 1, "hands over");
    assert_eq!(reach(&[1], 1, &[1, 2, 3]), 2, "learners, then voters");
    assert_eq!(reach(&[1, 2, 3], 1, &[1, 2, 4]), 2);
    assert_eq!(reach(&[1, 2, 3], 1, &[4, 5, 6]), 4);
    assert_eq!(reach(&[1, 2, 3], 3, &[2]), 2);
}

#[test]
fn nobody_gets_a_vote_who_is_not_there_or_has_not_caught_up() {
    let promotes = |member: MemberView, standing: Standing| {
        let mut view = view(&nodes(&[1]), &nodes(&[2]));
        set(&mut view, member);
        let presence = Presence::new([(NodeId(1), Standing::Steady), (NodeId(2), standing)], Default::default());
        let table = step(&view, &nodes(&[1, 2]), &presence);
        let catalog = next_catalog_step(&view, &[NodeId(1), NodeId(2)], &BTreeSet::new(), &presence);
        let promotion = Step::Change(vec![MemberChange::Voter(replica(2))]);
        assert_eq!(table == promotion, catalog == promotion, "the catalog keeps to the same rules");
        table == promotion
    };
    let there = sound(replica(2));
    assert!(promotes(there, Standing::Steady));
    assert!(!promotes(ghost(replica(2)), Standing::Steady), "never heard of");
    assert!(!promotes(there, Standing::Silent) && !promotes(there, Standing::Lost), "its node is gone");
    assert!(!promotes(there, Standing::Here), "its node has just come");
    assert!(!promotes(MemberView { is_heard: false, ..there }, Standing::Steady), "it does not answer any more");
    assert!(!promotes(MemberView { takes_snapshot: true, ..there }, Standing::Steady), "its snapshot is on its way");
    assert!(!promotes(MemberView { keeps_up: false, ..there }, Standing::Steady), "it lags for seconds");
    let bytes = |lag_bytes| MemberView { lag_bytes, lag: 9, ..there };
    assert!(promotes(bytes(CLOSE_BYTES), Standing::Steady) && !promotes(bytes(CLOSE_BYTES + 1), Standing::Steady));
    assert!(
        promotes(MemberView { lag: 1_000_000, ..there }, Standing::Steady),
        "how many entries that is tells nothing"
    );
}

#[test]
fn nobody_learns_who_is_not_there() {
    let presence = present([1, 2, 3]);
    let asks = || step(&view(&nodes(&[1, 2, 3]), &[]), &nodes(&[1, 2, 4]), &presence);
    assert_eq!(asks(), Step::Wait);
    assert_eq!(without(Some(Rule::VotersLive), asks), Step::Change(vec![MemberChange::Learner(replica(4))]));
    let group = view(&[catalog_replica(NodeId(1))], &[]);
    assert_eq!(next_catalog_step(&group, &[NodeId(1), NodeId(4)], &BTreeSet::new(), &presence), Step::Done);
}

#[test]
fn a_sound_replica_goes_only_when_the_others_can_go_on_without_it() {
    // Two of three, of which one is gone.
    let mut group = view(&nodes(&[1, 2, 3]), &[]);
    set(&mut group, ghost(replica(2)));
    let presence = present([1, 3]);
    assert_eq!(step(&group, &nodes(&[1, 2]), &presence), Step::Wait, "nobody would be left to agree with");
    let remove = |node| Step::Change(vec![MemberChange::Remove(replica(node))]);
    assert_eq!(step(&group, &nodes(&[1, 3]), &presence), remove(2), "who is gone may go");
    let catalog = |nodes: &[u32]| {
        next_catalog_step(&group, &nodes.iter().copied().map(NodeId).collect::<Vec<_>>(), &BTreeSet::new(), &presence)
    };
    assert_eq!(catalog(&[1, 2]), Step::Wait);
    assert_eq!(catalog(&[1, 3]), remove(2));

    // A majority would remain, with a copy less.
    let mut group = view(&nodes(&[1, 2, 3, 4, 5]), &[]);
    set(&mut group, ghost(replica(2)));
    assert_eq!(step(&group, &nodes(&[1, 2, 3, 4]), &present([1, 3, 4, 5])), Step::Wait);
    // A witness has no copy.
    let mut group = view(&[replica(1), replica(2), witness(3)], &[replica(4)]);
    set(&mut group, ghost(replica(2)));
    let target = [replica(1), witness(3), replica(4)];
    let swap = vec![MemberChange::Voter(replica(4)), MemberChange::Remove(replica(2))];
    assert_eq!(step(&group, &target, &present([1, 3, 4])), Step::Change(swap));
}

#[test]
fn a_learner_that_is_not_wanted_any_more_goes_at_once() {
    let mut group = view(&nodes(&[1, 2, 3]), &nodes(&[4]));
    set(&mut group, ghost(replica(4)));
    let remove = Step::Change(vec![MemberChange::Remove(replica(4))]);
    assert_eq!(step(&group, &nodes(&[1, 2, 3]), &present([1, 2, 3])), remove);
}

#[test]
fn whoever_is_there_takes_over_from_a_leader_that_goes() {
    let mut group = view(&nodes(&[3, 1, 2]), &[]);
    let target = nodes(&[1, 2]);
    assert_eq!(step(&group, &target, &present([1, 2, 3])), Step::TransferLeadership(replica(1)));
    let stopping = Presence::new([1, 2, 3].map(|node| (NodeId(node), Standing::Steady)), [NodeId(1)].into());
    assert_eq!(
        step(&group, &target, &stopping),
        Step::TransferLeadership(replica(2)),
        "the first one is about to stop"
    );
    set(&mut group, ghost(replica(1)));
    assert_eq!(step(&group, &target, &present([2, 3])), Step::TransferLeadership(replica(2)), "the first one is gone");
    set(&mut group, MemberView { keeps_up: false, ..sound(replica(2)) });
    assert_eq!(step(&group, &target, &present([2, 3])), Step::Wait, "nobody else has everything");
    // Members are as wanted: it is not waited for the first one.
    let mut group = view(&nodes(&[2, 1, 3]), &[]);
    set(&mut group, ghost(replica(1)));
    assert_eq!(step(&group, &nodes(&[1, 2, 3]), &present([2, 3])), Step::Done);
}

#[test]
fn a_voter_of_the_catalog_that_is_lost_gives_way_to_a_learner_that_is_there() {
    let replicas: Vec<_> = (1..=6).map(|node| catalog_replica(NodeId(node))).collect();
    let all: Vec<_> = (1..=6).map(NodeId).collect();
    let mut group = view(&replicas[..5], &replicas[5..]);
    assert_eq!(next_catalog_step(&group, &all, &BTreeSet::new(), &present(1..=6)), Step::Done);
    set(&mut group, ghost(replicas[3]));
    let silent = Presence::new(
        all.iter().map(|node| (*node, if node.0 == 4 { Standing::Away } else { Standing::Steady })),
        Default::default(),
    );
    assert_eq!(next_catalog_step(&group, &all, &BTreeSet::new(), &silent), Step::Done, "it may come back");
    let swap = vec![MemberChange::Voter(replicas[5]), MemberChange::Learner(replicas[3])];
    assert_eq!(next_catalog_step(&group, &all, &BTreeSet::new(), &present([1, 2, 3, 5, 6])), Step::Change(swap));
}

#[test]
fn a_voter_of_the_catalog_is_removed_together_with_a_promotion_if_it_cannot_be_alone() {
    let replicas: Vec<_> = (1..=4).map(|node| catalog_replica(NodeId(node))).collect();
    let mut group = view(&replicas[..3], &replicas[3..]);
    set(&mut group, ghost(replicas[1]));
    let nodes = [1, 2, 4].map(NodeId);
    let swap = vec![MemberChange::Voter(replicas[3]), MemberChange::Remove(replicas[2])];
    assert_eq!(next_catalog_step(&group, &nodes, &BTreeSet::new(), &present([1, 3, 4])), Step::Change(swap));
}

#[test]
fn what_a_move_added_does_not_keep_what_it_replaces() {
    // Node 3 is drained, and led; node 4 is gone all the while.
    let mut group = view(&nodes(&[1, 2, 3, 4]), &[]);
    set(&mut group, ghost(replica(4)));
    let target = nodes(&[1, 2, 4]);
    let placement = moving(&nodes(&[2, 3, 4]), &target);
    let remove = Step::Change(vec![MemberChange::Remove(replica(3))]);
    assert_eq!(next_step(&group, &placement, &present([1, 2, 3])), remove, "there were two copies before");
}

/// A group takes in no witness while a voter stays that lacks entries: it once waited for ever for one that was never
/// to come back, since a leader that goes kept all that were to go with it.
#[test]
fn who_is_not_there_goes_before_a_leader_that_goes() {
    // The first node's replica has forgotten its votes, and another one is to take its place; node 2 leads and is to go.
    let renewed = ReplicaId { node: NodeId(1), incarnation: 9 };
    let target = [renewed, replica(3), witness(4)];
    let mut group = GroupView { replica: replica(2), ..view(&nodes(&[2, 1, 3]), &[renewed, witness(4)]) };
    set(&mut group, ghost(replica(1)));
    let placement = moving(&nodes(&[1, 2, 3]), &target);
    let come = [MemberChange::Voter(renewed), MemberChange::Voter(witness(4))];
    let with = |goer: Option<ReplicaId>| {
        let goers = goer.map(MemberChange::Remove);
        Step::Change(come.iter().copied().chain(goers).collect())
    };
    assert_eq!(next_step(&group, &placement, &present(1..=4)), with(Some(replica(1))));
    set(&mut group, sound(replica(1)));
    assert_eq!(next_step(&group, &placement, &present(1..=4)), with(None), "one that is there stays with the leader");
}

#[test]
fn leadership_returns_to_a_node_that_was_started_again_after_a_while_only() {
    let group = GroupView { replica: replica(2), ..view(&nodes(&[1, 2, 3]), &[]) };
    let group = GroupView { others: [1, 3].map(|node| sound(replica(node))).to_vec(), ..group };
    let target = nodes(&[1, 2, 3]);
    let restarted = present([1, 2, 3]).with_restarted([NodeId(1)].into());
    assert_eq!(step(&group, &target, &restarted), Step::Done, "another one leads as well");
    assert_eq!(step(&group, &target, &present([1, 2, 3])), Step::TransferLeadership(replica(1)));
    // Somebody has to lead in the place of a leader that goes.
    let target = nodes(&[1, 3]);
    assert_eq!(step(&group, &target, &restarted), Step::TransferLeadership(replica(1)));
}

#[test]
fn a_node_that_is_drained_has_no_say_in_the_catalog_where_the_others_bear_as_much() {
    let replicas: Vec<_> = (1..=4).map(|node| catalog_replica(NodeId(node))).collect();
    let nodes: Vec<_> = (1..=4).map(NodeId).collect();
    let all = present(1..=4);
    let next = |count: usize, leader: usize, leaving: u32| {
        let group = GroupView { replica: replicas[leader], ..view(&replicas[..count], &[]) };
        let others = replicas[..count].iter().filter(|it| **it != group.replica).map(|it| sound(*it)).collect();
        next_catalog_step(&GroupView { others, ..group }, &nodes[..count], &[NodeId(leaving)].into(), &all)
    };
    let gives_up = Step::Change(vec![MemberChange::Learner(replicas[1])]);
    assert_eq!(next(2, 0, 2), gives_up, "who is left alone decides alone");
    assert_eq!(next(2, 1, 2), Step::TransferLeadership(replicas[0]));
    assert_eq!(next(3, 0, 2), Step::Done, "two of two would bear less than three");
    assert_eq!(next(3, 1, 2), Step::Done);
    assert_eq!(next(4, 0, 2), gives_up);
    let without = view(&replicas[..1], &replicas[1..2]);
    assert_eq!(next_catalog_step(&without, &nodes[..2], &[NodeId(2)].into(), &all), Step::Done, "it gets no vote");
    let again = Step::Change(vec![MemberChange::Voter(replicas[1])]);
    assert_eq!(next_catalog_step(&without, &nodes[..2], &BTreeSet::new(), &all), again, "once it is to stay");
}
