//! The origin of a group after a start: what its log holds, and how far its state machine is.
//!
//! Usually the log reaches back at least to the entry that the state reflects, and the later entries are applied again.
//! But the state may also be *ahead* of the log:
//! - A snapshot has replaced the state, and the process ended before the log had recorded that. Before the replacement the log had
//!   recorded which snapshot is being installed ([`LogRecord::Restoring`]), so term and members are known. An election with a
//!   guessed term could lose entries that a majority has, and one among former members could make a second leader.
//! - The state machine wrote to its disk by itself, and the machine went down before the log was synced. The state reflects the
//!   lost entries, and remembers the term of the last one ([`GroupSettings::applied_term`]). The log may still have entries at
//!   that index and after it which the lost entries had replaced. A state of an earlier version does not remember the term; then
//!   the latest term that the replica had heard of is used, which may be too late.
//!
//! In both cases the log continues after a hole, and a record must say so: otherwise the next start would find the hole.

use super::{GroupSettings, to_raft};
use crate::GroupId;
use crate::log::{LogRecord, RecoveredGroup, StoredEntry, StoredSnapshot};
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::{ConfState, EntryType, HardState};
use std::collections::VecDeque;

/// Why a replica cannot go on with its log and state. Another replica must take its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistent {
    /// Entries between the state and the log are missing.
    #[error(
        "the state machine reflects the log up to {applied}, and the log begins after {begins}: the entries between are lost"
    )]
    StateBehindLog {
        /// The index up to which the state machine reflects the log.
        applied: u64,
        /// The index after which the log's entries begin.
        begins: u64,
    },
    /// An entry in the middle of the log is missing.
    #[error("the log lacks entry {missing}, but has entry {found}")]
    Hole {
        /// The index that should come next.
        missing: u64,
        /// The index that comes instead.
        found: u64,
    },
    /// The list of members does not decode, for this reason.
    #[error("the members in the log cannot be read: {0}")]
    Members(String),
    /// An entry that changes the members cannot follow the members that the log has.
    #[error("the change of members in entry {index} does not fit the members before it: {error}")]
    Change {
        /// The index of the entry.
        index: u64,
        /// Why it does not fit.
        error: String,
    },
    /// The tail of the log was lost, and with it maybe a later change of the members.
    #[error(
        "entry {index} changes the members, and entries that the log has lost may have replaced it: so the members are not \
         known"
    )]
    ReplacedChange {
        /// The index of the entry.
        index: u64,
    },
    /// The replica acknowledged more than it has.
    #[error(
        "the leader knows that this replica had the log up to {had}, and it has the log up to {has} only: it has lost what it \
         acknowledged, as if its disk had been set back to an earlier time"
    )]
    Forgotten {
        /// The index that the replica had acknowledged to the leader.
        had: u64,
        /// The index of its last entry.
        has: u64,
    },
    /// The state machine refuses an entry, for this reason.
    #[error("an entry cannot be applied: {0}")]
    Entry(String),
    /// The state machine refuses a snapshot.
    #[error("the snapshot of index {index} cannot be installed: {error}")]
    Snapshot {
        /// The log index that the snapshot reflects.
        index: u64,
        /// Why it was refused.
        error: String,
    },
}

#[derive(Debug)]
pub(super) struct Origin {
    pub(super) applied: u64,
    pub(super) hard_state: HardState,
    /// Index and term of the entry before the first one in `entries`.
    pub(super) before: (u64, u64),
    pub(super) entries: VecDeque<StoredEntry>,
    pub(super) members: (u64, ConfState),
    /// Changes of members that are applied and not in `members` yet.
    pub(super) changes: Vec<(u64, Bytes)>,
    /// Records that the log lacks.
    pub(super) records: Vec<LogRecord>,
}

impl Origin {
    pub(super) fn find(
        id: GroupId,
        settings: &GroupSettings,
        mut recovered: RecoveredGroup,
    ) -> Result<Self, Inconsistent> {
        let GroupSettings { replica, initial_members, persistent, .. } = settings;
        let mut applied = if replica.is_witness() { recovered.truncated.0 } else { settings.applied };
        let mut applied_term = settings.applied_term.filter(|_| applied > 0 && !replica.is_witness());
        let mut log_knows = true;
        if let Some(taken) = recovered.restoring.take().filter(|snapshot| was_taken(snapshot, applied, &recovered)) {
            recovered.truncated = (taken.index, taken.term);
            recovered.entries.clear();
            if !taken.members.is_empty() {
                recovered.members = (taken.members_index, taken.members);
            }
            log_knows = false;
        }
        let RecoveredGroup { state, members: (members_index, members), mut truncated, mut entries, .. } = recovered;
        if members.is_empty() && initial_members.is_empty() {
            // The replica joined, and the process ended after a snapshot had replaced its state and before the log had
            // recorded it. An earlier version wrote no record before the replacement. Without the members it must
            // receive another snapshot.
            (applied, applied_term, truncated) = (0, None, (0, 0));
            entries.clear();
        }
        let is_stored = !members.is_empty();
        let conf_state = if is_stored {
            ConfState::decode(members.clone()).map_err(|error| Inconsistent::Members(error.to_string()))?
        } else {
            let voters = initial_members.iter().map(|first_member| to_raft(*first_member)).collect();
            ConfState { voters, ..Default::default() }
        };
        let mut before = truncated;
        let mut changes = Vec::new();
        while let Some(first) = entries.pop_front_if(|first| first.index <= applied) {
            before = (first.index, first.term);
            if first.index > members_index && i32::from(first.kind) == EntryType::EntryConfChangeV2 as i32 {
                changes.push((first.index, first.payload));
            }
        }
        if entries.front().is_some_and(|first| first.term < before.1) {
            // A snapshot replaced these entries. A segment of the log begins with the index of the snapshot, and may
            // survive the record that the snapshot replaced everything.
            entries.clear();
            log_knows = false;
        }
        let is_ahead = before.0 < applied && entries.is_empty();
        let is_of = |term: &u64| before.0 == applied && before.1 == *term;
        match applied_term.filter(|term| (is_ahead || before.0 == applied) && !is_of(term)) {
            Some(term) => {
                // The state reflects the last entries of the log only as far as they were committed, unless log and
                // state end in the same term.
                let is_replaced = |(index, _): &&(u64, Bytes)| term != before.1 && *index > state.commit;
                if let Some((index, _)) = changes.iter().find(is_replaced) {
                    return Err(Inconsistent::ReplacedChange { index: *index });
                }
                entries.clear();
                before = (applied, term);
                log_knows = false;
            }
            None if is_ahead => {
                before = (applied, state.term.max(before.1));
                log_knows = false;
            }
            None => {}
        }
        if before.0 > applied {
            return Err(Inconsistent::StateBehindLog { applied, begins: before.0 });
        }
        let missing = (before.0 + 1..).zip(&entries).find(|(due, entry)| entry.index != *due);
        if let Some((missing, entry)) = missing {
            return Err(Inconsistent::Hole { missing, found: entry.index });
        }
        if before.0 < applied {
            return Err(Inconsistent::Hole { missing: before.0 + 1, found: applied });
        }
        let mut records = Vec::new();
        if *persistent && !log_knows {
            records.push(LogRecord::Restored { group: id, index: before.0, term: before.1 });
            if is_stored {
                records.push(LogRecord::Members { group: id, index: members_index, members });
            }
        }
        let last = entries.back().map_or(before.0, |last| last.index);
        let (term, commit) = (state.term.max(before.1), state.commit.clamp(applied, last));
        let hard_state = HardState { term, vote: state.vote, commit };
        Ok(Self { applied, hard_state, before, entries, members: (members_index, conf_state), changes, records })
    }
}

/// Term and index of the last entry that a replica has, in its log or in a state that is ahead of the log; zeros if the
/// two contradict each other.
pub(crate) fn last_entry(id: GroupId, settings: &GroupSettings, recovered: RecoveredGroup) -> (u64, u64) {
    let Ok(Origin { before, entries, .. }) = Origin::find(id, settings, recovered) else { return (0, 0) };
    entries.back().map_or((before.1, before.0), |last| (last.term, last.index))
}

/// Whether the state was replaced by the snapshot that was being installed. If it was not, and the state is as far as
/// the snapshot all the same, the state got there by the log, which then has the snapshot's last entry, or had it.
fn was_taken(snapshot: &StoredSnapshot, applied: u64, recovered: &RecoveredGroup) -> bool {
    let is_entry = |entry: &&StoredEntry| entry.index == snapshot.index;
    let term = recovered.entries.iter().find(is_entry).map(|entry| entry.term);
    applied >= snapshot.index && recovered.truncated.0 < snapshot.index && term != Some(snapshot.term)
}

#[cfg(test)]
mod tests {
    use super::super::{Group, PassOutput};
    use super::*;
    use crate::log::StoredState;
    use raft::eraftpb::MessageType;
    use tessera_types::{NodeId, ReplicaId};

    const ID: GroupId = GroupId(1);

    fn id(node: u32) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation: 0 }
    }

    fn settings(node: u32, applied: u64) -> GroupSettings {
        let initial_members = vec![id(1), id(2), id(3)];
        GroupSettings {
            persistent: true,
            synced: true,
            applied,
            applied_term: None,
            replica: id(node),
            initial_members,
        }
    }

    fn entries(terms: impl IntoIterator<Item = (u64, u64)>) -> VecDeque<StoredEntry> {
        terms.into_iter().map(|(index, term)| StoredEntry { index, term, kind: 0, payload: Bytes::new() }).collect()
    }

    fn snapshot(index: u64, term: u64) -> Option<StoredSnapshot> {
        let voters = [1, 2, 4].map(|node| to_raft(id(node))).to_vec();
        let members = ConfState { voters, ..Default::default() }.encode_to_vec().into();
        Some(StoredSnapshot { index, term, members_index: 19, members })
    }

    /// A log that ends with index 10 in term 5, of a replica that has heard of term 7, in which nobody wrote anything.
    fn log(restoring: Option<StoredSnapshot>) -> RecoveredGroup {
        let state = StoredState { term: 7, vote: 0, commit: 10 };
        RecoveredGroup { state, entries: entries((1..=10).map(|index| (index, 5))), restoring, ..Default::default() }
    }

    /// It once took the latest term that it had heard of for that of its last entry, and won elections against replicas
    /// that had more; and it went on among the members from before.
    #[test]
    fn a_snapshot_that_was_taken_and_not_noted_any_more_is_known_by_what_was_noted_before() {
        let origin = Origin::find(ID, &settings(2, 20), log(snapshot(20, 6))).expect("it goes on");
        assert_eq!((origin.applied, origin.before, origin.hard_state.term), (20, (20, 6), 7));
        assert_eq!((origin.members.0, &origin.members.1.voters[2]), (19, &to_raft(id(4))));
        assert!(origin.entries.is_empty());
        // The log is told, or what it gets next would be behind a hole.
        assert_eq!(origin.records[0], LogRecord::Restored { group: ID, index: 20, term: 6 });
        assert!(matches!(&origin.records[1], LogRecord::Members { index: 19, .. }));
    }

    /// What was in the log when the snapshot was taken is not that of which the snapshot was made.
    #[test]
    fn entries_that_a_snapshot_replaced_do_not_come_back() {
        let mut recovered = log(snapshot(20, 6));
        recovered.entries = entries((1..=25).map(|index| (index, 5)));
        let origin = Origin::find(ID, &settings(2, 20), recovered).expect("it goes on");
        assert_eq!((origin.before, origin.entries.len()), ((20, 6), 0));
    }

    /// The log kept where the snapshot stands for, and lost that it took the place of all entries.
    #[test]
    fn entries_of_an_earlier_term_than_the_snapshots_do_not_come_back() {
        let mut recovered = log(None);
        (recovered.truncated, recovered.entries) = ((20, 6), entries((21..=25).map(|index| (index, 5))));
        let origin = Origin::find(ID, &settings(2, 20), recovered).expect("it goes on");
        assert_eq!((origin.before, origin.entries.len()), ((20, 6), 0));
        assert_eq!(origin.records, [LogRecord::Restored { group: ID, index: 20, term: 6 }]);
    }

    #[test]
    fn a_snapshot_that_was_not_taken_changes_nothing() {
        let origin = Origin::find(ID, &settings(2, 8), log(snapshot(20, 6))).expect("it goes on");
        assert_eq!((origin.before, origin.entries.len(), origin.members.0, origin.records), ((8, 5), 2, 0, vec![]));
        // Later the log has reached that index by itself.
        let mut recovered = log(snapshot(20, 6));
        recovered.entries.extend(entries((11..=22).map(|index| (index, if index < 15 { 5 } else { 6 }))));
        let origin = Origin::find(ID, &settings(2, 21), recovered).expect("it goes on");
        assert_eq!((origin.before, origin.entries.len(), origin.members.0, origin.records), ((21, 6), 1, 0, vec![]));
    }

    /// RocksDB writes to its files by itself; then the machine goes down, and the log lacks its end. The latest term
    /// that the replica had heard of was once taken for that of the state's last entry.
    #[test]
    fn a_state_that_is_ahead_of_its_log_remembers_the_term_of_its_last_entry() {
        let settings = |applied, term| GroupSettings { applied_term: Some(term), ..settings(2, applied) };
        let origin = Origin::find(ID, &settings(12, 6), log(None)).expect("it goes on");
        assert_eq!((origin.before, origin.hard_state.term), ((12, 6), 7));
        assert_eq!(origin.records, [LogRecord::Restored { group: ID, index: 12, term: 6 }]);
        assert_eq!(last_entry(ID, &settings(12, 6), log(None)), (6, 12));
        assert_eq!(last_entry(ID, &settings(9, 5), log(None)), (5, 10), "the log has more");
        let origin = Origin::find(ID, &settings(9, 5), log(None)).expect("it goes on");
        assert_eq!((origin.before, origin.entries.len(), origin.records), ((9, 5), 1, vec![]));
    }

    /// Of the entries that replaced those from 8 on the log lost all. It once counted what was replaced as what the state
    /// reflects, and a leader with the replaced entries found that everything fitted.
    #[test]
    fn what_was_replaced_by_what_the_state_reflects_does_not_count() {
        let settings = GroupSettings { applied_term: Some(6), ..settings(2, 9) };
        let origin = Origin::find(ID, &settings, log(None)).expect("it goes on");
        assert_eq!((origin.before, origin.entries.len(), origin.hard_state.commit), ((9, 6), 0, 9));
        assert_eq!(origin.records, [LogRecord::Restored { group: ID, index: 9, term: 6 }]);
        // Whether a change of members among them was replaced nothing tells, unless it is known to be committed.
        let mut recovered = log(None);
        recovered.state.commit = 6;
        (recovered.entries[6].kind, recovered.entries[6].payload) = (EntryType::EntryConfChangeV2 as u8, Bytes::new());
        let error = Origin::find(ID, &settings, recovered.clone()).expect_err("it may have been replaced");
        assert_eq!(error, Inconsistent::ReplacedChange { index: 7 });
        recovered.state.commit = 7;
        let origin = Origin::find(ID, &settings, recovered).expect("it goes on");
        assert_eq!((origin.before, origin.changes.len()), ((9, 6), 1));
    }

    /// The next start once found a hole in the log, and ended the process.
    #[test]
    fn a_log_that_lost_its_end_is_told_where_it_goes_on() {
        let origin = Origin::find(ID, &settings(2, 12), log(None)).expect("it goes on");
        assert_eq!(origin.records, [LogRecord::Restored { group: ID, index: 12, term: 7 }]);
        let mut group: Group<u64> = Group::new(ID, settings(2, 12), log(None)).expect("it goes on");
        let mut output = PassOutput::default();
        group.collect(&mut output, &mut |_, _, _| Ok(())).expect("it goes on");
        assert_eq!(output.records.first(), Some(&LogRecord::Restored { group: ID, index: 12, term: 7 }));
    }

    #[test]
    fn a_log_that_does_not_fit_its_state_is_no_panic() {
        let find = |applied, recovered| Origin::find(ID, &settings(2, applied), recovered).expect_err("inconsistent");
        let mut recovered = log(None);
        recovered.truncated = (15, 5);
        recovered.entries = entries([(16, 5)]);
        assert_eq!(find(10, recovered.clone()), Inconsistent::StateBehindLog { applied: 10, begins: 15 });
        recovered.entries = entries([(16, 5), (18, 5)]);
        assert_eq!(find(15, recovered.clone()), Inconsistent::Hole { missing: 17, found: 18 });
        recovered.entries = entries([(18, 5)]);
        assert_eq!(find(16, recovered.clone()), Inconsistent::Hole { missing: 16, found: 18 });
        recovered.members = (3, Bytes::from_static(b"\xff"));
        assert!(matches!(find(15, recovered), Inconsistent::Members(_)));
    }

    #[test]
    fn a_replica_that_was_killed_in_a_snapshot_takes_nothing_from_a_majority() {
        let restoring =
            snapshot(20, 5).map(|taken| StoredSnapshot { members: Bytes::new(), members_index: 0, ..taken });
        takes_nothing_from_a_majority(settings(2, 20), log(restoring));
    }

    #[test]
    fn a_replica_whose_state_is_ahead_of_its_log_takes_nothing_from_a_majority() {
        let settings = |applied_term| GroupSettings { applied_term, ..settings(2, 20) };
        takes_nothing_from_a_majority(settings(Some(5)), log(None));
        // The latest term that it has heard of is later than that of the others' last entry: it leads, and 21 to 25 are
        // lost.
        let by_a_guess = std::panic::catch_unwind(|| takes_nothing_from_a_majority(settings(None), log(None)));
        assert!(by_a_guess.is_err());
    }

    /// The second replica has the log up to 20, the others up to 25. They win against it, whatever terms it has heard
    /// of; and it goes on as their follower.
    fn takes_nothing_from_a_majority(second: GroupSettings, recovered: RecoveredGroup) {
        let longer = || RecoveredGroup { entries: entries((1..=25).map(|index| (index, 5))), ..log(None) };
        let group = |settings, recovered| Group::<u64>::new(ID, settings, recovered).expect("sound");
        let mut groups = [group(settings(1, 15), longer()), group(second, recovered), group(settings(3, 15), longer())];
        let mut now = std::time::Duration::ZERO;
        for _ in 0..400 {
            now += super::super::TICK;
            let mut messages = Vec::new();
            for group in &mut groups {
                group.tick(now);
                let mut output = PassOutput::default();
                group.collect(&mut output, &mut |_, _, _| Ok(())).expect("sound");
                output
                    .awaiting_stage
                    .iter()
                    .chain(&output.awaiting_fsync)
                    .for_each(|(_, number)| group.persisted(*number));
                output.committed.iter().for_each(|committed| _ = group.applied(committed.index));
                let is_snapshot =
                    |message: &super::super::PeerMessage| message.message.msg_type() == MessageType::MsgSnapshot;
                assert!(!output.messages.iter().any(is_snapshot), "it has what the log does not reach");
                messages.append(&mut output.messages);
            }
            for message in messages {
                groups[message.destination().0 as usize - 1].step(message);
            }
        }
        let last = groups.each_ref().map(|group| group.node.raft.raft_log.last_index());
        assert!(last[0] > 25 && last.iter().all(|it| *it == last[0]), "{last:?}");
        assert!(groups.iter().all(|group| group.view().applied == last[0]));
    }
}
