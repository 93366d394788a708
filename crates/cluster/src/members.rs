//! The steps from a group's current members to its target members, one safe step at a time.
//!
//! A step never leaves a group able to bear less than before. Votes go to members that are alive and have caught up. A
//! replica is removed only when the remaining ones are a majority without it and hold as many complete copies as
//! before. A step that cannot be taken now waits; [`next_moves`](crate::next_moves) decides whether it is worth waiting
//! for.

use crate::rules::{Rule, holds};
use crate::{Placement, Presence, Standing};
use std::collections::BTreeSet;
use tessera_consensus::{GroupView, MemberChange, MemberView};
use tessera_types::{NodeId, ReplicaId};

/// A member has caught up if it lacks no more bytes of entries than this, and has what was committed a second or two
/// ago.
pub(crate) const CLOSE_BYTES: u64 = 4 << 20;

/// The next step of the replica that leads a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The group's members should change in this way, in one step.
    Change(Vec<MemberChange>),
    /// Another replica should lead.
    TransferLeadership(ReplicaId),
    /// The members are the target members, and the first of them that is alive leads.
    Done,
    /// A change is under way, or nothing can be done until a node comes back.
    Wait,
}

/// A group's members as its leader sees them, and the nodes as the leader's node sees them.
struct Members<'a> {
    view: &'a GroupView,
    presence: &'a Presence,
}

impl Members<'_> {
    fn is_voter(&self, replica: &ReplicaId) -> bool {
        self.view.voters.contains(replica)
    }

    fn is_member(&self, replica: &ReplicaId) -> bool {
        self.is_voter(replica) || self.view.learners.contains(replica)
    }

    fn other(&self, replica: &ReplicaId) -> Option<&MemberView> {
        self.view.others.iter().find(|other| other.replica == *replica)
    }

    /// Whether the leader hears from a member, and its node from the member's node.
    fn is_there(&self, replica: &ReplicaId) -> bool {
        let is_heard = || self.other(replica).is_some_and(|other| other.is_heard);
        *replica == self.view.replica || (self.presence.is_here(replica.node) && is_heard())
    }

    fn has_caught_up(&self, replica: &ReplicaId) -> bool {
        let is_close = |other: &MemberView| {
            let keeps_up = other.matched > 0 && other.keeps_up || !holds(Rule::VotersKeepUp);
            let has_snapshot = !other.takes_snapshot || !holds(Rule::SnapshotIsThere);
            keeps_up && has_snapshot && (other.lag_bytes <= CLOSE_BYTES || !holds(Rule::LackIsBounded))
        };
        *replica == self.view.replica || self.other(replica).is_some_and(is_close)
    }

    /// Whether a member is alive and has caught up, so that the group could go on with it if another member were lost
    /// now.
    fn is_sound(&self, replica: &ReplicaId) -> bool {
        self.is_there(replica) && self.has_caught_up(replica)
    }

    fn may_get_vote(&self, replica: &ReplicaId) -> bool {
        let lives = self.is_there(replica) && self.presence.of(replica.node) >= Standing::Steady;
        (lives || !holds(Rule::VotersLive)) && self.has_caught_up(replica)
    }

    fn may_lead(&self, replica: &ReplicaId) -> bool {
        let is_able = self.is_voter(replica) && !replica.is_witness();
        is_able && self.is_sound(replica) && self.presence.may_lead(replica.node)
    }

    /// How many more sound voters there are than a majority needs; negative if they are no majority.
    fn spare(&self, voters: &[ReplicaId]) -> isize {
        let sound = voters.iter().filter(|voter| self.is_sound(voter)).count();
        sound as isize - (voters.len() / 2 + 1) as isize
    }

    /// The number of complete copies of the records.
    fn copies(&self, voters: &[ReplicaId]) -> usize {
        voters.iter().filter(|voter| !voter.is_witness() && self.is_sound(voter)).count()
    }

    /// The voters after a change.
    fn after(&self, comers: &[ReplicaId], goers: &[ReplicaId]) -> Vec<ReplicaId> {
        let stays = self.view.voters.iter().filter(|voter| !goers.contains(voter));
        stays.chain(comers).copied().collect()
    }
}

/// Whether a group has exactly the target members.
pub fn has_target_members(view: &GroupView, target: &[ReplicaId]) -> bool {
    let (mut voters, mut target) = (view.voters.clone(), target.to_vec());
    voters.sort_unstable();
    target.sort_unstable();
    voters == target && view.learners.is_empty() && !view.is_changing
}

/// The next step of the group's leader. New replicas are first filled as learners. Then all new voters get their votes,
/// and all leaving voters lose theirs, in one change. So at no time can the group bear fewer failures than before.
///
/// A change leaves at least as many complete copies as there were among the current members, or as there are target
/// members, whichever is less.
pub fn next_step(view: &GroupView, placement: &Placement, presence: &Presence) -> Step {
    let target = &placement.target[..];
    if view.is_changing || target.is_empty() {
        return Step::Wait;
    }
    let members = Members { view, presence };
    let is_here = |replica: &&ReplicaId| presence.is_here(replica.node) || !holds(Rule::VotersLive);
    let strangers = target.iter().filter(|replica| !members.is_member(replica)).filter(is_here);
    let strangers: Vec<_> = strangers.map(|replica| MemberChange::Learner(*replica)).collect();
    if !strangers.is_empty() {
        return Step::Change(strangers);
    }
    let is_goer = |replica: &&ReplicaId| !target.contains(replica);
    let left_over: Vec<_> = view.learners.iter().filter(is_goer).map(|it| MemberChange::Remove(*it)).collect();
    if !left_over.is_empty() {
        return Step::Change(left_over);
    }
    let comers: Vec<_> = target.iter().filter(|replica| !members.is_voter(replica)).copied().collect();
    let mut goers: Vec<_> = view.voters.iter().filter(is_goer).copied().collect();
    if !comers.iter().all(|comer| members.may_get_vote(comer)) {
        return Step::Wait;
    }
    let goes = goers.contains(&view.replica);
    if goes && comers.is_empty() {
        // A leader cannot remove itself.
        let heirs = if holds(Rule::AnyHeir) { target } else { &target[..1] };
        return heirs
            .iter()
            .find(|heir| members.may_lead(heir))
            .map_or(Step::Wait, |heir| Step::TransferLeadership(*heir));
    }
    if goes {
        // The new voters must have votes first. A member that is not alive is of no use meanwhile, and no witness may
        // be added while a voter stays that lacks entries.
        goers.retain(|goer| !members.is_there(goer));
    }
    if comers.is_empty() && goers.is_empty() {
        let first = target[0];
        let may_lead = members.may_lead(&first) && presence.may_lead_again(first.node);
        let transfers_leadership = view.replica != first && may_lead;
        return if transfers_leadership { Step::TransferLeadership(first) } else { Step::Done };
    }
    let after = members.after(&comers, &goers);
    let target_copies = target.iter().filter(|replica| !replica.is_witness()).count();
    let has_majority = members.spare(&after) >= 0 || !holds(Rule::MajorityRemains);
    // It may not be known yet whether a live member is complete.
    let is_copy = |voter: &&ReplicaId| placement.current.contains(voter) && !voter.is_witness();
    let copies = view.voters.iter().filter(is_copy).filter(|voter| members.is_there(voter)).count();
    let has_copies = members.copies(&after) >= copies.min(target_copies) || !holds(Rule::CopiesRemain);
    if !has_majority || !has_copies {
        return Step::Wait;
    }
    let come = comers.into_iter().map(MemberChange::Voter);
    Step::Change(come.chain(goers.into_iter().map(MemberChange::Remove)).collect())
}

/// The largest number of voters of the catalog's group; on other nodes it has learners.
const CATALOG_VOTERS: usize = 5;

/// A node's first replica of the catalog. A node that lost its disk comes back as another node. A node whose data is
/// older than what it had gets [another replica](crate::renewal).
pub fn catalog_replica(node: NodeId) -> ReplicaId {
    ReplicaId { node, incarnation: 0 }
}

/// The next step of the leader of the catalog's group, which should have a replica on each of `nodes`. Nodes that are
/// `leaving`, because they are being drained, give up their votes if the others alone can bear as many failures. So the
/// drained one of two nodes can be stopped then.
pub fn next_catalog_step(view: &GroupView, nodes: &[NodeId], leaving: &BTreeSet<NodeId>, presence: &Presence) -> Step {
    if view.is_changing {
        return Step::Wait;
    }
    let members = Members { view, presence };
    let is_node = |replica: &&ReplicaId| nodes.contains(&replica.node);
    if let Some(goer) = view.learners.iter().find(|replica| !is_node(replica)) {
        return Step::Change(vec![MemberChange::Remove(*goer)]);
    }
    let stays = |replica: &&ReplicaId| !leaving.contains(&replica.node);
    let ready = view.learners.iter().filter(stays).filter(|learner| members.may_get_vote(learner));
    let ready: Vec<_> = ready.copied().collect();
    let remains = |comers: &[ReplicaId], goers: &[ReplicaId]| {
        members.spare(&members.after(comers, goers)) >= 0 || !holds(Rule::MajorityRemains)
    };
    let goers = || view.voters.iter().filter(|replica| !is_node(replica)).copied();
    for goer in goers().filter(|goer| *goer != view.replica) {
        let (heir, goer) = (ready.first().copied(), [goer]);
        if remains(&[], &goer) {
            return Step::Change(vec![MemberChange::Remove(goer[0])]);
        }
        if let Some(heir) = heir.filter(|heir| remains(&[*heir], &goer)) {
            return Step::Change(vec![MemberChange::Voter(heir), MemberChange::Remove(goer[0])]);
        }
    }
    if goers().any(|goer| goer == view.replica)
        && let Some(heir) = view.voters.iter().filter(is_node).find(|heir| members.may_lead(heir))
    {
        return Step::TransferLeadership(*heir);
    }
    let is_spare = |leaver: &&ReplicaId| members.spare(&members.after(&[], &[**leaver])) >= members.spare(&view.voters);
    let leavers = || view.voters.iter().filter(|voter| leaving.contains(&voter.node)).filter(is_spare);
    if let Some(leaver) = leavers().find(|leaver| **leaver != view.replica) {
        return Step::Change(vec![MemberChange::Learner(*leaver)]);
    }
    if leavers().next().is_some()
        && let Some(heir) = view.voters.iter().filter(stays).find(|heir| members.may_lead(heir))
    {
        return Step::TransferLeadership(*heir);
    }
    let is_here = |replica: &ReplicaId| presence.is_here(replica.node) || !holds(Rule::VotersLive);
    // Any replica on the node counts; [`renewal`](crate::renewal) makes it the right one.
    let has_member = |node| view.voters.iter().chain(&view.learners).any(|member| member.node == node);
    let mut strangers = nodes.iter().copied().map(catalog_replica).filter(|replica| !has_member(replica.node));
    if let Some(comer) = strangers.find(is_here) {
        return Step::Change(vec![MemberChange::Learner(comer)]);
    }
    let Some(heir) = ready.first().copied() else {
        return if goers().next().is_some() { Step::Wait } else { Step::Done };
    };
    let is_lost = |voter: &&ReplicaId| presence.of(voter.node) == Standing::Lost && **voter != view.replica;
    let lost = view.voters.iter().find(is_lost).filter(|_| holds(Rule::LostVotersAreReplaced));
    if let Some(lost) = lost.filter(|lost| remains(&[heir], &[**lost])) {
        return Step::Change(vec![MemberChange::Voter(heir), MemberChange::Learner(*lost)]);
    }
    // One more voter must not leave the group able to bear fewer failures.
    let after = members.after(&[heir], &[]);
    let bears_as_much = members.spare(&after) >= members.spare(&view.voters) || !holds(Rule::MajorityRemains);
    if view.voters.len() < CATALOG_VOTERS && bears_as_much {
        return Step::Change(vec![MemberChange::Voter(heir)]);
    }
    Step::Done
}

#[cfg(test)]
mod tests;
