//! Replicas that do not run, as their logs describe them, and how an operator's decision changes their members.
//!
//! Raft changes members by entries that a majority agrees to. If a majority is gone for good, there can be no such
//! entry. Then, and only then, new members are written into the log of a remaining replica, at the index of its last
//! entry. Changes of members that its log holds up to there no longer count; everything else in it does.

use super::{Inconsistent, from_raft, to_raft};
use crate::GroupId;
use crate::log::{LogRecord, RecoveredGroup, StoredSnapshot, StoredState};
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::{ConfState, EntryType};
use serde::{Deserialize, Serialize};
use tessera_types::ReplicaId;

/// A replica as its log on disk describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedReplica {
    /// Term and index of its last entry. Of two logs of a group, the one with the higher end has every committed entry
    /// that the other one has.
    pub end: (u64, u64),
    /// Everything up to this index is known to be committed. More may be.
    pub committed: u64,
    /// The voters, by the changes that have taken effect; empty for a replica that joins and has nothing yet.
    pub voters: Vec<ReplicaId>,
    /// The previous voters, while a change of several voters is under way: a majority of these must agree too.
    pub outgoing: Vec<ReplicaId>,
    /// Whether the log has a change of members that may not have taken effect.
    pub is_changing: bool,
    /// Whether a snapshot was about to replace its state.
    pub takes_snapshot: bool,
    /// The latest term that it has heard of, and the replica for which it voted in that term.
    pub vote: (u64, u64),
}

impl LoggedReplica {
    /// # Errors
    /// If the members in the log cannot be read.
    pub fn read(recovered: &RecoveredGroup, initial_members: &[ReplicaId]) -> Result<Self, Inconsistent> {
        let RecoveredGroup { state, members: (members_index, members), truncated, entries, restoring } = recovered;
        let ConfState { voters, voters_outgoing, .. } =
            ConfState::decode(members.clone()).map_err(|error| Inconsistent::Members(error.to_string()))?;
        let replicas = |ids: Vec<u64>| ids.into_iter().map(from_raft).collect::<Vec<_>>();
        let is_change =
            |index: u64, kind: u8| index > *members_index && i32::from(kind) != EntryType::EntryNormal as i32;
        let last = entries.back().map(|entry| (entry.term, entry.index));
        Ok(Self {
            end: last.unwrap_or((truncated.1, truncated.0)),
            committed: state.commit.max(truncated.0),
            voters: if members.is_empty() { initial_members.to_vec() } else { replicas(voters) },
            outgoing: replicas(voters_outgoing),
            is_changing: entries.iter().any(|entry| is_change(entry.index, entry.kind)),
            takes_snapshot: restoring.is_some(),
            vote: (state.term, state.vote),
        })
    }
}

/// A replica that remains when others are gone for good.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// The replica that remains.
    pub replica: ReplicaId,
    /// What its node's log holds of it.
    pub logged: &'a LoggedReplica,
    /// Whether its log has all entries that it acknowledged.
    pub has_tail: bool,
}

/// Why acknowledged writes may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// The lost replicas may have been a majority.
    MajorityLost,
    /// The members were being changed, so it is not known which replicas had to agree.
    MembersChanging,
    /// The machine went down, and not every entry is fsynced.
    PowerCut,
    /// A snapshot was about to replace the state.
    TakingSnapshot,
}

/// How a group continues when replicas are lost for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// A majority remains, so the group elects a leader by itself.
    Majority,
    /// The replica at position `at` of the remaining ones has the most, and continues alone.
    Replica {
        /// The position among the remaining replicas, counted from 0.
        at: usize,
        /// Why acknowledged writes may be missing; `None` if none can be.
        lacks: Option<Lack>,
    },
    /// No remaining replica has a state.
    Nobody,
}

/// Whether the remaining voters are a majority, and whether every possible majority includes one of them.
fn weigh(voters: &[ReplicaId], is_left: &dyn Fn(&ReplicaId) -> bool) -> (bool, bool) {
    let left = voters.iter().filter(|voter| is_left(voter)).count();
    (voters.is_empty() || 2 * left > voters.len(), 2 * left >= voters.len())
}

/// Decides which replica continues when only these remain, and what it may lack.
///
/// If every majority that could have agreed to an entry includes a remaining replica, the log that ends last, by term
/// and index, has every committed entry: it would win an election among the remaining replicas, and Raft's proof holds
/// for it.
pub fn heir(left: &[Left<'_>]) -> Heir {
    // A replica that has not heard of any members has no state either.
    let informed = || left.iter().enumerate().filter(|(_, it)| !it.logged.voters.is_empty());
    let data_replicas = informed().filter(|(_, it)| !it.replica.is_witness());
    let best = data_replicas.max_by_key(|(_, it)| (it.logged.end, it.has_tail, !it.logged.takes_snapshot, it.replica));
    // The log that ends last knows the members best, even if it is that of a witness.
    let members = informed().max_by_key(|(_, it)| it.logged.end).map(|(_, it)| it.logged);
    let (Some((at, best)), Some(members)) = (best, members) else { return Heir::Nobody };
    let weigh_all = |is_left: &dyn Fn(&ReplicaId) -> bool| {
        let (now, before) = (weigh(&members.voters, is_left), weigh(&members.outgoing, is_left));
        (now.0 && before.0, now.1 && before.1)
    };
    let is_here = |voter: &ReplicaId| left.iter().any(|it| it.replica == *voter);
    let remembers = |voter: &ReplicaId| left.iter().any(|it| it.replica == *voter && it.has_tail);
    let all_are_here = members.voters.iter().chain(&members.outgoing).all(is_here);
    let (is_majority, meets_all) = weigh_all(&remembers);
    // A change that takes effect later may make lost replicas members.
    if is_majority && (all_are_here || !members.is_changing) {
        return Heir::Majority;
    }
    let met_all = weigh_all(&is_here).1 && best.logged.end >= members.end;
    let lacks = match () {
        () if !met_all => Some(Lack::MajorityLost),
        () if members.is_changing => Some(Lack::MembersChanging),
        () if !meets_all || !best.has_tail => Some(Lack::PowerCut),
        () if best.logged.takes_snapshot => Some(Lack::TakingSnapshot),
        () => None,
    };
    Heir::Replica { at, lacks }
}

fn encoded(voters: &[ReplicaId], learners: &[ReplicaId]) -> Bytes {
    let ids = |replicas: &[ReplicaId]| replicas.iter().map(|replica| to_raft(*replica)).collect();
    ConfState { voters: ids(voters), learners: ids(learners), ..ConfState::default() }.encode_to_vec().into()
}

/// Makes `replica` the only member of a group that does not run, and keeps everything that its log holds. Returns the
/// records to write to the log on disk; to write them twice has the same effect as once.
pub fn leave_alone(group: GroupId, recovered: &mut RecoveredGroup, replica: ReplicaId) -> Vec<LogRecord> {
    let members = encoded(&[replica], &[]);
    let index = recovered.entries.back().map_or(recovered.truncated.0, |last| last.index);
    let index = index.max(recovered.members.0);
    recovered.members = (index, members.clone());
    let mut records = vec![LogRecord::Members { group, index, members: members.clone() }];
    if let Some(taken) = recovered.restoring.take() {
        // If the state turns out to have been replaced, the snapshot's members count, and the log continues after the
        // snapshot.
        let snapshot = StoredSnapshot { members_index: taken.index, members, ..taken };
        recovered.restoring = Some(snapshot.clone());
        records.push(LogRecord::Restoring { group, snapshot });
    }
    records
}

/// The log of a group that continues from a state at an index and a term, with these members, whatever the log held
/// before. Also returns the records to write to the log on disk.
pub fn begin_at(
    group: GroupId,
    (term, index): (u64, u64),
    voters: &[ReplicaId],
    learners: &[ReplicaId],
) -> (RecoveredGroup, Vec<LogRecord>) {
    let members = encoded(voters, learners);
    let state = StoredState { term, vote: 0, commit: index };
    let records = vec![
        LogRecord::Removed { group },
        LogRecord::Restored { group, index, term },
        LogRecord::Members { group, index, members: members.clone() },
        LogRecord::State { group, state },
    ];
    let recovered =
        RecoveredGroup { state, members: (index, members), truncated: (index, term), ..RecoveredGroup::default() };
    (recovered, records)
}

#[cfg(test)]
mod tests {
    use super::super::members::MemberChange;
    use super::super::{Group, GroupSettings, PassOutput};
    use super::*;
    use crate::log::StoredEntry;
    use tessera_types::NodeId;

    const ID: GroupId = GroupId(7);

    fn id(node: u32) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation: 0 }
    }

    fn settings(initial_members: &[u32]) -> GroupSettings {
        let initial_members = initial_members.iter().map(|node| id(*node)).collect();
        GroupSettings {
            persistent: true,
            synced: true,
            applied: 0,
            applied_term: None,
            replica: id(1),
            initial_members,
        }
    }

    fn entry(index: u64, kind: EntryType, payload: &[u8]) -> StoredEntry {
        StoredEntry { index, term: 3, kind: kind as u8, payload: Bytes::copy_from_slice(payload) }
    }

    /// The log of one of two voters: three writes, of which nobody told it that they are committed, and a change of
    /// members that did not take effect.
    fn log() -> RecoveredGroup {
        let change = raft::eraftpb::ConfChangeV2 {
            changes: vec![raft::eraftpb::ConfChangeSingle {
                change_type: raft::eraftpb::ConfChangeType::AddNode as i32,
                node_id: to_raft(id(3)),
            }],
            ..Default::default()
        };
        let mut entries: std::collections::VecDeque<_> =
            (1..=3).map(|index| entry(index, EntryType::EntryNormal, b"write")).collect();
        entries.push_back(entry(4, EntryType::EntryConfChangeV2, &change.encode_to_vec()));
        let state = StoredState { term: 3, vote: to_raft(id(2)), commit: 0 };
        RecoveredGroup { state, entries, ..RecoveredGroup::default() }
    }

    /// Runs a group that has no other member, and returns what it applied.
    fn run(group: &mut Group<u64>) -> Vec<(u64, usize)> {
        let (mut applied, mut now) = (Vec::new(), std::time::Duration::ZERO);
        for _ in 0..100 {
            now += super::super::TICK;
            group.tick(now);
            let mut output = PassOutput::default();
            group.collect(&mut output, &mut |_, _, _| Ok(())).expect("it goes on");
            output.awaiting_stage.iter().chain(&output.awaiting_fsync).for_each(|(_, number)| group.persisted(*number));
            for committed in &output.committed {
                applied.push((committed.index, committed.payloads.len()));
                group.applied(committed.index);
            }
            assert!(output.messages.is_empty(), "there is nobody else");
        }
        applied
    }

    #[test]
    fn one_of_two_goes_on_alone_with_all_that_its_log_holds() {
        let initial_members = [id(1), id(2)];
        let before = LoggedReplica::read(&log(), &initial_members).unwrap();
        assert_eq!((before.end, before.committed, before.is_changing), ((3, 4), 0, true));
        assert_eq!((&before.voters[..], before.outgoing.len()), (&initial_members[..], 0));
        let mut two: Group<u64> = Group::new(ID, settings(&[1, 2]), log()).unwrap();
        let mut output = PassOutput::default();
        two.collect(&mut output, &mut |_, _, _| Ok(())).unwrap();
        assert!(output.committed.is_empty() && !two.is_serving(), "one of two decides nothing");

        let mut recovered = log();
        let records = leave_alone(ID, &mut recovered, id(1));
        let mut again = recovered.clone();
        assert_eq!((leave_alone(ID, &mut again, id(1)), &again), (records, &recovered), "twice is once");
        let after = LoggedReplica::read(&recovered, &initial_members).unwrap();
        assert_eq!((&after.voters[..], after.is_changing, after.end), (&[id(1)][..], false, (3, 4)));
        let mut alone: Group<u64> = Group::new(ID, settings(&[1, 2]), recovered).unwrap();
        let applied = run(&mut alone);
        assert_eq!(applied.iter().map(|(_, payloads)| payloads).sum::<usize>(), 3);
        assert!(alone.is_serving() && alone.members() == (vec![id(1)], vec![]), "{:?}", alone.members());
        // Others may join it as they would any group.
        assert!(alone.change_members(&[MemberChange::Learner(id(4))]));
        let mut output = PassOutput::default();
        for _ in 0..4 {
            alone.collect(&mut output, &mut |_, _, _| Ok(())).unwrap();
            output.awaiting_stage.iter().chain(&output.awaiting_fsync).for_each(|(_, number)| alone.persisted(*number));
        }
        assert_eq!(alone.members(), (vec![id(1)], vec![id(4)]));
    }

    #[test]
    fn members_of_a_snapshot_that_was_being_taken_do_not_come_back() {
        let members = encoded(&[id(1), id(2), id(5)], &[]);
        let snapshot = StoredSnapshot { index: 9, term: 3, members_index: 8, members };
        let mut recovered = RecoveredGroup { restoring: Some(snapshot), ..log() };
        assert!(LoggedReplica::read(&recovered, &[]).unwrap().takes_snapshot);
        leave_alone(ID, &mut recovered, id(1));
        for applied in [0, 9] {
            let settings = GroupSettings { applied, ..settings(&[1, 2]) };
            let mut group: Group<u64> = Group::new(ID, settings, recovered.clone()).unwrap();
            run(&mut group);
            assert!(group.is_serving() && group.members().0 == [id(1)], "applied {applied}");
        }
    }

    #[test]
    fn a_group_begins_at_a_state_with_other_members() {
        let (recovered, records) = begin_at(ID, (9, 40), &[id(1)], &[]);
        assert_eq!(records[0], LogRecord::Removed { group: ID });
        let read = LoggedReplica::read(&recovered, &[]).unwrap();
        assert_eq!((read.end, read.committed, &read.voters[..]), ((9, 40), 40, &[id(1)][..]));
        let settings = GroupSettings { applied: 40, ..settings(&[]) };
        let mut group: Group<u64> = Group::new(ID, settings, recovered).unwrap();
        run(&mut group);
        assert!(group.is_serving() && group.view().term == 10);
    }

    #[test]
    fn two_that_begin_at_one_state_elect_one_of_them() {
        let two = [id(1), id(2)];
        let begin = |replica| {
            let settings = GroupSettings { applied: 40, replica, ..settings(&[]) };
            Group::<u64>::new(ID, settings, begin_at(ID, (9, 40), &two, &[]).0).unwrap()
        };
        let mut groups = two.map(begin);
        let mut now = std::time::Duration::ZERO;
        for _ in 0..200 {
            now += super::super::TICK;
            let mut messages = Vec::new();
            for group in &mut groups {
                group.tick(now);
                let mut output = PassOutput::default();
                group.collect(&mut output, &mut |_, _, _| Ok(())).expect("it goes on");
                output
                    .awaiting_stage
                    .iter()
                    .chain(&output.awaiting_fsync)
                    .for_each(|(_, number)| group.persisted(*number));
                output.committed.iter().for_each(|committed| _ = group.applied(committed.index));
                messages.append(&mut output.messages);
            }
            for message in messages {
                groups[message.destination().0 as usize - 1].step(message);
            }
        }
        assert_eq!(groups.iter().filter(|group| group.is_serving()).count(), 1);
        assert!(groups.iter().all(|group| group.view().applied == 41 && group.members().0 == two));
    }
}
