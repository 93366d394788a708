//! The way from a group's members to those that the catalog wants, a safe step at a time.

use tessera_consensus::{GroupView, MemberChange};
use tessera_types::{NodeId, ReplicaId};

/// A replica that lacks no more entries than this has caught up.
const CLOSE: u64 = 1_000;

/// What the replica that leads a group is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Change(Vec<MemberChange>),
    /// Another replica is to lead.
    HandOver(ReplicaId),
    /// The members are those that were wanted, with the first of them in the lead.
    Done,
    /// Something is under way.
    Wait,
}

/// The next step of the group's leader. New replicas first learn everything, then all that come get their votes and all
/// that go lose theirs in one change; so there is no time at which fewer than before could fail.
pub fn next_step(view: &GroupView, wanted: &[ReplicaId]) -> Step {
    if view.is_changing || wanted.is_empty() {
        return Step::Wait;
    }
    let is_member = |replica: &ReplicaId| view.voters.contains(replica) || view.learners.contains(replica);
    let strangers: Vec<_> = wanted.iter().filter(|replica| !is_member(replica)).collect();
    if !strangers.is_empty() {
        return Step::Change(strangers.into_iter().map(|replica| MemberChange::Learner(*replica)).collect());
    }
    let lag = |replica: &ReplicaId| view.lag.iter().find(|(id, _)| id == replica).map_or(0, |(_, lag)| *lag);
    let comers: Vec<_> = wanted.iter().filter(|replica| !view.voters.contains(replica)).collect();
    let goers: Vec<_> = view.voters.iter().chain(&view.learners).filter(|replica| !wanted.contains(replica)).collect();
    if comers.iter().any(|replica| lag(replica) > CLOSE) {
        return Step::Wait;
    }
    let first = wanted[0];
    if goers.contains(&&view.replica) {
        // Whoever leads cannot leave. The others must have votes first.
        if !comers.is_empty() {
            return Step::Change(comers.into_iter().map(|replica| MemberChange::Voter(*replica)).collect());
        }
        return Step::HandOver(first);
    }
    if !comers.is_empty() || !goers.is_empty() {
        let come = comers.into_iter().map(|replica| MemberChange::Voter(*replica));
        return Step::Change(come.chain(goers.into_iter().map(|replica| MemberChange::Remove(*replica))).collect());
    }
    if view.replica != first && lag(&first) <= CLOSE { Step::HandOver(first) } else { Step::Done }
}

/// Most voters of the catalog's group; on other nodes it has learners.
const CATALOG_VOTERS: usize = 5;

/// A node's replica of the catalog. A node that lost its disk comes back as another node, so there is only one ever.
pub fn catalog_replica(node: NodeId) -> ReplicaId {
    ReplicaId { node, incarnation: 0 }
}

/// The next step of the leader of the catalog's group, so that it has a replica on each of `nodes`.
pub fn next_catalog_step(view: &GroupView, nodes: &[NodeId]) -> Step {
    if view.is_changing {
        return Step::Wait;
    }
    let is_node = |replica: &&ReplicaId| nodes.contains(&replica.node);
    if let Some(goer) = view.voters.iter().chain(&view.learners).find(|replica| !is_node(replica)) {
        if *goer != view.replica {
            return Step::Change(vec![MemberChange::Remove(*goer)]);
        }
        return view.voters.iter().find(is_node).map_or(Step::Wait, |heir| Step::HandOver(*heir));
    }
    let mut replicas = nodes.iter().copied().map(catalog_replica);
    let is_member = |replica: &ReplicaId| view.voters.contains(replica) || view.learners.contains(replica);
    if let Some(comer) = replicas.find(|replica| !is_member(replica)) {
        return Step::Change(vec![MemberChange::Learner(comer)]);
    }
    let lag = |replica: &ReplicaId| view.lag.iter().find(|(id, _)| id == replica).map_or(u64::MAX, |(_, lag)| *lag);
    match view.learners.iter().find(|learner| lag(learner) <= CLOSE) {
        Some(learner) if view.voters.len() < CATALOG_VOTERS => Step::Change(vec![MemberChange::Voter(*learner)]),
        _ => Step::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_consensus::GroupId;
    use tessera_types::NodeId;

    fn replica(node: u32) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation: 1 }
    }

    /// Carries steps out as the group would, until none is left.
    fn reach(members: &[u32], leader: u32, wanted: &[u32]) -> usize {
        let wanted: Vec<_> = wanted.iter().copied().map(replica).collect();
        let mut view = GroupView {
            id: GroupId(1),
            replica: replica(leader),
            term: 1,
            leader: Some(replica(leader)),
            is_serving: true,
            voters: members.iter().copied().map(replica).collect(),
            learners: Vec::new(),
            is_changing: false,
            applied: 0,
            lag: Vec::new(),
            owed_bytes: 0,
            stranded: Vec::new(),
        };
        for steps in 0..10 {
            match next_step(&view, &wanted) {
                Step::Done => {
                    view.voters.sort_unstable();
                    let mut wanted = wanted.clone();
                    wanted.sort_unstable();
                    assert_eq!((&view.voters, view.learners.len()), (&wanted, 0));
                    return steps;
                }
                Step::HandOver(to) => {
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
}
