//! One group: Raft's state, and beside it the state that Raft need not touch.
//!
//! A group is a step function. Messages, ticks and reports of the log go in; what must be logged, sent and applied
//! comes out ([`PassOutput`]). The group does no I/O and reads no clock, so the same code runs in the worker's loop and
//! in simulation.
//!
//! A [`Group`] consists of values, each of which keeps one part of that state with its rules, and knows nothing of the
//! others. What takes Raft and several of them is a method of the group, in the file that is named after the subject.

mod acceptance;
mod building;
mod commands;
mod entries;
#[cfg(any(test, feature = "exposure"))]
pub mod exposure;
pub(crate) mod freshness;
mod group_log;
mod hibernation;
mod in_doubt;
mod leadership;
mod lease;
mod logged;
mod member_progress;
mod members;
pub(crate) mod message;
pub(crate) mod origin;
mod payloads;
mod peers;
mod refusals;
mod replicated;
mod replies;
mod snapshots_sent;
mod standby;
mod storage;
mod survival;
mod ticks;
mod witness;

use crate::log::{LogRecord, RecoveredGroup, StoredState};
use crate::{Committed, GroupId};
use ahash::RandomState;
use entries::Appended;
pub use entries::KEPT_FOR_LAGGARDS;
use freshness::Freshness;
use group_log::{Awaits, GroupLog, LogKind};
use hibernation::Hibernation;
use leadership::Leadership;
pub use logged::{Heir, Lack, Left, LoggedReplica, begin_at, heir, leave_alone};
pub use member_progress::MemberView;
pub use members::MemberChange;
use message::{Payload, PeerMessage};
pub use origin::Inconsistent;
use origin::Origin;
use payloads::Payloads;
use peers::Peers;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType};
use raft::{Config, RawNode, SnapshotStatus, StateRole};
use refusals::Refusals;
use replies::Replies;
use std::time::Duration;
use storage::GroupStorage;
use tessera_types::{NodeId, ReplicaId};
use ticks::{Beginning, Ticks};

/// Bytes of the payloads of one message between replicas, about.
const MESSAGE_BYTES: u64 = 1 << 20;

/// The interval at which [`Group::tick`] must be called.
pub const TICK: Duration = Duration::from_millis(50);
/// A follower that has not heard from a leader for this many ticks, or up to twice as many, calls an election.
const ELECTION_TICKS: usize = 10;
const HEARTBEAT_TICKS: usize = 2;

/// How a group is stored, and from where it continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Whether its log is on disk. If not, a replica whose process ended must not come back as itself: it has forgotten
    /// its votes.
    pub persistent: bool,
    /// Whether every entry is fsynced before it counts as persisted. If not, an entry that does not ask for an fsync
    /// may count earlier, and a replica whose machine went down before the log was synced must not come back as itself.
    pub synced: bool,
    /// The log index that the state machine already reflects. A witness has no state machine.
    pub applied: u64,
    /// The term of that entry, if the state machine remembers it.
    pub applied_term: Option<u64>,
    /// The replica on this node.
    pub replica: ReplicaId,
    /// The members with which the group begins, the same on each of them; the first one calls the first election. Empty
    /// for a replica that joins later: it knows nothing until it receives a snapshot.
    pub initial_members: Vec<ReplicaId>,
}

impl GroupSettings {
    /// A group that is on this node only.
    pub fn alone(persistent: bool, applied: u64) -> Self {
        let replica = ReplicaId { node: NodeId(1), incarnation: 0 };
        Self { persistent, synced: false, applied, applied_term: None, replica, initial_members: vec![replica] }
    }
}

/// The number that Raft knows a replica by.
fn to_raft(replica: ReplicaId) -> u64 {
    u64::from(replica.node.0) << 32 | u64::from(replica.incarnation)
}

fn from_raft(number: u64) -> ReplicaId {
    // `to_raft` put the node into the upper half and the incarnation into the lower one.
    ReplicaId { node: NodeId((number >> 32) as u32), incarnation: number as u32 }
}

/// A group; `T` is a pending reply.
pub(crate) struct Group<T> {
    pub(crate) id: GroupId,
    node: RawNode<GroupStorage>,
    payloads: Payloads,
    log: GroupLog,
    /// The index of the last entry that the state machine has applied.
    applied: u64,
    freshness: Freshness,
    ticks: Ticks,
    hibernation: Hibernation,
    leadership: Leadership,
    replies: Replies<T>,
    peers: Peers,
    refusals: Refusals,
    /// Whether the group is in the worker's list for this pass.
    pub(crate) in_pass: bool,
}

/// A group as its replica on this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The group.
    pub id: GroupId,
    /// The replica on this node.
    pub replica: ReplicaId,
    /// Raft's term, as far as this replica knows.
    pub term: u64,
    /// The leader that this replica knows of.
    pub leader: Option<ReplicaId>,
    /// Whether this replica leads, and has applied all that earlier leaders committed, so that it takes commands.
    pub is_serving: bool,
    /// Whether this replica has accepted commands that are not answered yet.
    pub owes_answers: bool,
    /// The members with a vote, those of both configurations while the members change.
    pub voters: Vec<ReplicaId>,
    /// The members without a vote.
    pub learners: Vec<ReplicaId>,
    /// Whether a change of members is under way.
    pub is_changing: bool,
    /// The index of the last entry that the state machine has applied.
    pub applied: u64,
    /// What this replica knows of each other member; empty unless it leads.
    pub others: Vec<MemberView>,
    /// On a leader: an estimate of the bytes of entries that some data replica lacks.
    pub unreplicated_bytes: u64,
    /// On a witness that leads: live data replicas that lack entries which the witness has dropped. They wait for
    /// another leader.
    pub unreachable_by_log: Vec<ReplicaId>,
    /// The only other voter, if the log is in memory, this replica is one of two voters and knows of no leader, and no change
    /// of the voters may be under way. If everything that it had is lost, this replica has what counts and may
    /// [go on without it](crate::Inbox::go_on_without).
    pub counterpart: Option<ReplicaId>,
}

/// Raft `Ready`s that wait to be persisted: groups, each with the number of its Ready.
pub(crate) type ReadyNumbers = Vec<(GroupId, u64)>;

/// What a pass must do outside of the groups.
#[derive(Default)]
pub(crate) struct PassOutput {
    pub(crate) records: Vec<LogRecord>,
    /// Readies that are persisted once the records survive the process.
    pub(crate) awaiting_stage: ReadyNumbers,
    /// Readies that wait for an fsync: the one of these records if `sync`, otherwise an earlier one.
    pub(crate) awaiting_fsync: ReadyNumbers,
    pub(crate) sync: bool,
    pub(crate) committed: Vec<Committed>,
    pub(crate) messages: Vec<PeerMessage>,
    /// Groups whose replica here led, and leads no longer.
    pub(crate) stepped_down: Vec<GroupId>,
    /// Groups whose leader became known or changed, with the term.
    pub(crate) leaders: Vec<(GroupId, u64, ReplicaId)>,
    /// Groups that may have replies to send although nothing was applied.
    pub(crate) answerable: Vec<GroupId>,
    /// Witnesses, with the index of entries that are committed; a witness applies nothing.
    pub(crate) witnessed: Vec<(GroupId, u64)>,
    /// Groups whose leader may answer reads until the given time; `None`: it is the only member, so for ever.
    pub(crate) leases: Vec<(GroupId, Option<Duration>)>,
    /// Groups that need a snapshot of their state machine for a replica that lags.
    pub(crate) snapshots_wanted: Vec<GroupId>,
}

/// Replaces the state of a group by that of a snapshot. Returns an error if that cannot be done.
pub(crate) type Restore<'a> = dyn FnMut(GroupId, u64, &[u8]) -> Result<(), String> + 'a;

impl<T> Group<T> {
    /// # Errors
    /// If log and state machine contradict each other.
    pub(crate) fn new(id: GroupId, settings: GroupSettings, recovered: RecoveredGroup) -> Result<Self, Inconsistent> {
        let is_new = recovered == RecoveredGroup::default();
        let origin = Origin::find(id, &settings, recovered)?;
        let GroupSettings { persistent, synced, replica, initial_members, .. } = settings;
        let own = to_raft(replica);
        let Origin { applied, hard_state, before, entries, members, changes, records } = origin;
        let storage = GroupStorage::new(hard_state, members, before, entries);
        let config = Config {
            applied,
            pre_vote: true,
            check_quorum: true,
            election_tick: ELECTION_TICKS,
            max_election_tick: 3 * ELECTION_TICKS,
            // Each may have a megabyte; that much may wait in a replica whose disk is stuck.
            max_inflight_msgs: 64,
            // Heartbeats go out together with the leader's question for its lease.
            heartbeat_tick: ELECTION_TICKS - 1,
            max_size_per_msg: MESSAGE_BYTES,
            // Followers learn the committed index from the next entries or the next heartbeat. A separate message would
            // wake each of them once more for every write.
            skip_bcast_commit: true,
            ..Config::new(own)
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let is_first_member = is_new && initial_members.first() == Some(&replica);
        let node = RawNode::new(&config, storage, &silent).expect("the configuration is fixed and valid");
        let log_kind = match (persistent, synced) {
            (false, _) => LogKind::InMemory,
            (true, false) => LogKind::OnDisk,
            (true, true) => LogKind::Fsynced,
        };
        let mut group = Self {
            id,
            node,
            payloads: Payloads::default(),
            log: GroupLog::new(log_kind, records),
            applied,
            freshness: Freshness::default(),
            ticks: Ticks::default(),
            hibernation: Hibernation::default(),
            leadership: Leadership::default(),
            replies: Replies::default(),
            peers: Peers::default(),
            refusals: Refusals::default(),
            in_pass: false,
        };
        for (index, change) in changes {
            group.apply_change(index, &change)?;
        }
        group.peers.are_none = group.has_no_peers();
        if is_first_member {
            group.ticks.begin(Beginning::first_election());
        }
        if group.is_alone() || is_first_member {
            // The only voter wins at once; it serves when the entry that opens its term is applied. The first voter of
            // a new group need not wait until the others notice that there is no leader.
            group.node.campaign().expect("a voter may campaign");
        } else if !is_new {
            group.ticks.begin(Beginning::silent());
        }
        Ok(group)
    }

    /// Passes time. Returns whether there is something to [collect](Self::collect).
    pub(crate) fn tick(&mut self, now: Duration) -> bool {
        self.ticks.pass(now);
        let is_overdue = self.replies.tick();
        if self.is_hibernating() || (self.is_alone() && self.is_leader()) {
            return is_overdue;
        }
        self.refresh();
        self.hibernation.count_idle_tick();
        self.ticks.count();
        self.ask_for_first_votes();
        let patience = self.patience();
        self.node.raft.set_randomized_election_timeout(patience);
        if self.is_leader() || self.may_campaign() {
            self.node.tick();
        }
        // If one has arrived after all, Raft ignores this report.
        let node = &mut self.node;
        self.peers.snapshots_sent.tick(|replica| node.report_snapshot(replica, SnapshotStatus::Failure));
        let prs = self.node.raft.prs();
        self.peers.snapshots_sent.retain(|replica| prs.get(replica).is_some_and(standby::takes_snapshot));
        let term = self.node.raft.term;
        if self.is_leader() && self.leadership.was_transferred_in(term) && self.node.raft.lead_transferee.is_none() {
            // Nobody took over. The next leader, in another term, may have leases again.
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
        if self.is_leader() && self.ticks.take_heartbeat() {
            self.ask_for_confirmation(now);
            // Raft asks only once an entry of its term is committed; until then the leader only sends heartbeats.
            if !self.node.raft.commit_to_current_term() {
                self.node.ping();
            }
            self.leave_joint();
            self.tell_who_is_gone();
            self.update_unreplicated_bytes();
        }
        if self.is_leader() {
            self.peers.progress.tick(&self.node.raft);
            self.update_standby_witnesses();
        }
        self.transfer_leadership_from_witness();
        // An entry that could not be proposed while leadership was being transferred is proposed again.
        is_overdue || self.node.has_ready() || !self.replies.building.is_empty()
    }

    /// Asks for the votes of those that did not know of the new group when they were asked before.
    fn ask_for_first_votes(&mut self) {
        let is_unanswered = self.node.raft.state == StateRole::PreCandidate;
        if self.ticks.is_first_election() && is_unanswered && self.may_campaign() {
            self.node.campaign().expect("a voter may campaign");
        }
    }

    /// The ticks without a leader after which this replica calls an election. The number differs between replicas and
    /// terms, as Raft requires, but it is not drawn by Raft's random numbers, so that a simulated world can be
    /// repeated.
    fn patience(&self) -> usize {
        // The numbers are hashed, not used as seeds: the hash hardly depends on some of the seeds, and two replicas
        // with equal patience in one term would collide in every term.
        let hash = RandomState::with_seeds(1, 2, 3, 4).hash_one((self.id.0, self.node.raft.id, self.node.raft.term));
        // A witness cannot serve, so data replicas go first.
        let base = if self.replica().is_witness() { 2 * ELECTION_TICKS } else { ELECTION_TICKS };
        base + usize::try_from(hash % ELECTION_TICKS as u64).expect("below the ticks")
    }

    /// Takes a message from another replica.
    pub(crate) fn step(&mut self, message: PeerMessage) {
        let is_unknown = self.node.store().members().voters.is_empty() && message.is_whole_log();
        let is_silent = self.ticks.is_silent() && message.is_request_for_vote();
        // A replica that joins needs the members too, and a log from its first entry on does not contain them.
        if message.to() != self.replica() || is_silent || is_unknown {
            return;
        }
        if let Err(reason) = self.accepts(&message) {
            let loss = self.reveals_loss(&message.message);
            if self.refusals.note(loss) {
                let (group, from) = (self.id, message.from());
                tracing::warn!(%group, %from, reason, "dropped a message that no sound replica sends; further ones of this group are dropped silently");
            }
            return;
        }
        let message = if self.force_recovery_must_wait(&message) { self.commit_own_log(message) } else { message };
        let PeerMessage { message, payloads, hibernates, progress, .. } = message;
        let (kind, from, term) = (message.msg_type(), message.from, message.term);
        for (entry, payload) in message.entries.iter().zip(payloads) {
            self.payloads.came(entry, payload);
        }
        // Raft refuses messages that do not concern it, such as answers from nodes that are no longer members.
        let is_of_now = message.term >= self.node.raft.term;
        let _ = self.node.step(message);
        if !is_of_now || self.node.raft.leader_id != from {
            // Only a leader's message carries progress.
        } else if self.replica().is_witness() {
            self.on_replicated_index(progress);
        } else if progress > 0 {
            self.on_commit_index(progress);
        }
        self.on_message_from(from, term);
        self.hibernate_or_wake(kind, from, hibernates);
    }

    /// Whether [`Self::step`] would take the message.
    pub(crate) fn would_take(&self, message: &PeerMessage) -> bool {
        self.accepts(message).is_ok()
    }

    /// Whether the snapshot of a message would replace state and log now. Raft decides in the same way.
    pub(crate) fn would_install(&self, message: &PeerMessage) -> bool {
        let (raft, snapshot) = (&self.node.raft, message.message.get_snapshot());
        let metadata = snapshot.get_metadata();
        let ConfState { voters, learners, voters_outgoing, .. } = metadata.get_conf_state();
        let is_member = voters.iter().chain(learners).chain(voters_outgoing).any(|id| *id == raft.id);
        message.to() == self.replica()
            && message.message.term >= raft.term
            && raft.state != StateRole::Leader
            && metadata.index > raft.raft_log.committed
            && !raft.raft_log.match_term(metadata.index, metadata.term)
            && is_member
            && !self.force_recovery_must_wait(message)
    }

    /// Whether Raft has taken a snapshot that is not [collected](Self::collect) yet.
    pub(crate) fn is_installing(&self) -> bool {
        self.node.raft.raft_log.unstable.snapshot.is_some()
    }

    /// The snapshot that was offered no longer exists.
    pub(crate) fn forget_snapshot(&mut self) {
        self.node.mut_store().forget_snapshot();
    }

    pub(crate) fn replica(&self) -> ReplicaId {
        from_raft(self.node.raft.id)
    }

    pub(crate) fn view(&self) -> GroupView {
        let raft = &self.node.raft;
        let (voters, learners) = self.members();
        GroupView {
            id: self.id,
            replica: self.replica(),
            term: raft.term,
            leader: Some(raft.leader_id).filter(|id| *id != raft::INVALID_ID).map(from_raft),
            is_serving: self.is_serving(),
            owes_answers: self.replies.are_owed(),
            voters,
            learners,
            is_changing: self.is_changing(),
            applied: self.applied,
            others: self.others(),
            unreplicated_bytes: self.unreplicated_bytes(),
            unreachable_by_log: self.unreachable_by_log(),
            counterpart: self.counterpart(),
        }
    }

    /// Whether this replica is the only member.
    pub(crate) fn is_alone(&self) -> bool {
        self.peers.are_none
    }

    /// Whether its log is on disk.
    pub(crate) fn is_persistent(&self) -> bool {
        self.log.is_on_disk()
    }

    fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Offers lagging replicas the state as it was when `index` had been applied.
    pub(crate) fn offer_snapshot(&mut self, index: u64, state: Vec<u8>) {
        self.node.mut_store().offer_snapshot(index, state);
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.is_leader() && self.leadership.is_serving_in(self.node.raft.term)
    }

    /// Takes what Raft has ready: records for the log, messages to send, committed entries to apply. After an error the
    /// replica cannot go on, and sends nothing more.
    pub(crate) fn collect(&mut self, output: &mut PassOutput, restore: &mut Restore<'_>) -> Result<(), Inconsistent> {
        if let Some(loss) = self.refusals.take_loss() {
            return Err(loss);
        }
        self.log.take_owed(&mut output.records);
        if self.leadership.has_served() && !self.is_serving() {
            output.stepped_down.push(self.id);
        }
        if self.replies.are_answerable(self.node.raft.raft_log.persisted) {
            output.answerable.push(self.id);
        }
        let (term, leader) = (self.node.raft.term, self.node.raft.leader_id);
        self.ask_for_those_who_wait();
        if leader != raft::INVALID_ID && self.leadership.is_news(term, leader) {
            output.leaders.push((self.id, term, from_raft(leader)));
        }
        let released = self.log.take_released();
        self.send(released, output);
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            for state in ready.take_read_states() {
                self.extend_lease(&state.request_ctx, output);
            }
            let mut sync = false;
            if !ready.snapshot().is_empty() {
                sync = true;
                self.install(ready.snapshot(), output, restore)?;
            }
            self.commit(&ready.take_committed_entries(), output)?;
            let entries = ready.take_entries();
            let before = self.node.store().hard_state();
            let now = ready.hs().unwrap_or(before).clone();
            let votes = (now.term, now.vote) != (before.term, before.vote);
            sync |= votes;
            // A change of members is proposed when the one before is committed. A replica that has the later one in its
            // log must not forget the earlier one: with the members from before both, it could win an election that the
            // others do not know of. Nor may a state machine's disk have what comes after a change that the log can
            // still lose.
            let changes_members = entries.iter().any(|entry| entry.entry_type() != EntryType::EntryNormal);
            sync |= changes_members;
            if self.is_persistent() && (votes || changes_members) {
                let state = StoredState { term: now.term, vote: now.vote, commit: now.commit };
                output.records.push(LogRecord::State { group: self.id, state });
            }
            self.node.mut_store().set_hard_state(now);
            let appended = if entries.is_empty() { Appended::default() } else { self.append(&entries, output) };
            sync |= appended.sync;
            self.send(ready.take_messages(), output);
            let held_back = ready.take_persisted_messages();
            // A replica must not forget entries that it acknowledged to its leader, even if its process is killed. One
            // that has no peers acknowledges only payloads, to clients.
            let is_written = appended.has_payload || !entries.is_empty() && !self.is_alone();
            if self.log.must_wait(sync || is_written) {
                output.sync |= sync;
                let readies = match self.log.hold_back(ready.number(), held_back, sync) {
                    Awaits::Stage => &mut output.awaiting_stage,
                    Awaits::Fsync => &mut output.awaiting_fsync,
                };
                readies.push((self.id, ready.number()));
                self.node.advance_append_async(ready);
            } else {
                self.send(held_back, output);
                let mut light = self.node.advance_append(ready);
                self.send(light.take_messages(), output);
                self.commit(&light.take_committed_entries(), output)?;
                self.report_applied();
            }
        }
        self.payloads.clear();
        self.forget_on_disk(output);
        // A witness has no snapshot: a replica that needs one waits for another leader. So it is with one that led before.
        if self.node.store().wants_snapshot.get() && self.is_leader() && !self.replica().is_witness() {
            output.snapshots_wanted.push(self.id);
        }
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>, output: &mut PassOutput) {
        for message in messages {
            let Some(payloads) = self.payloads_of(&message) else { continue };
            if message.msg_type() == MessageType::MsgSnapshot {
                self.peers.snapshots_sent.push(message.to);
            }
            let (hibernates, progress) = (self.announces_hibernation(&message), self.progress_for(&message));
            output.messages.push(PeerMessage { group: self.id, hibernates, progress, message, payloads });
        }
    }

    /// The payloads of the entries that a message names. `None` if one of these entries was forgotten or replaced since
    /// Raft made the message. Its term shows that it was replaced: a message that a leader made just before it stepped
    /// down waits for the log, and by then the next leader's entry may have the same index. Raft makes another message
    /// if one is still needed.
    fn payloads_of(&self, message: &Message) -> Option<Vec<Payload>> {
        let (Some(first), Some(last)) = (message.entries.first(), message.entries.last()) else {
            return Some(Vec::new());
        };
        let mut held = self.node.store().range(first.index, last.index);
        let payload = |entry: &Entry| {
            let held = held.next().filter(|held| (held.index, held.term) == (entry.index, entry.term))?;
            Some(held.payload.clone())
        };
        message.entries.iter().map(payload).collect()
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_member_of_a_new_group_asks_again_those_that_may_not_have_known_the_group() {
        let members = [1, 2, 3].map(|node| ReplicaId { node: NodeId(node), incarnation: 1 }).to_vec();
        let group = |at: usize| {
            let settings = GroupSettings { replica: members[at], ..GroupSettings::alone(false, 0) };
            let settings = GroupSettings { initial_members: members.clone(), ..settings };
            Group::<()>::new(GroupId(1), settings, RecoveredGroup::default()).expect("a new group")
        };
        let votes_asked_for = |group: &mut Group<()>| {
            let mut output = PassOutput::default();
            group.collect(&mut output, &mut |_, _, _| Ok(())).expect("a sound group");
            let is_request = |message: &&PeerMessage| message.message.msg_type() == MessageType::MsgRequestPreVote;
            output.messages.iter().filter(is_request).count()
        };
        let (mut first, mut second) = (group(0), group(1));
        assert_eq!((votes_asked_for(&mut first), votes_asked_for(&mut second)), (2, 0));
        for tick in 1..5 {
            first.tick(TICK * tick);
            second.tick(TICK * tick);
            assert_eq!((votes_asked_for(&mut first), votes_asked_for(&mut second)), (2, 0), "tick {tick}");
        }
    }
}
