//! One group: Raft's state, and beside it what Raft need not touch.
//!
//! A group is a step function: messages, ticks and the log's news go in, and what is to be logged, sent and applied
//! comes out ([`PassOutput`]). It does no I/O and reads no clock, so the same code runs in the worker's loop and in
//! simulation.

pub(crate) mod freshness;
mod lease;
mod members;
pub(crate) mod message;
mod orphans;
mod rest;
mod storage;
mod witness;

use crate::log::{LogRecord, RecoveredGroup, StoredEntry, StoredState};
use crate::{Committed, Failure, GroupId};
use ahash::{AHashMap, RandomState};
use bytes::{Bytes, BytesMut};
pub use members::MemberChange;
use message::{Payload, PeerMessage};
use prost::Message as _;
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Message, MessageType, Snapshot};
use raft::{Config, ProgressState, RawNode, SnapshotStatus, StateRole};
use std::collections::VecDeque;
use std::time::Duration;
use storage::{GroupStorage, Held};
use tessera_types::{NodeId, ReplicaId};

/// An entry's payload is closed when it has grown to this; what follows goes into the next entry.
const ENTRY_BYTES: usize = 1 << 20;
/// A buffer that held an entry longer than this is not kept for the next one.
const KEPT_BYTES: usize = 64 << 10;
/// Payloads of one message between replicas, about.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Bytes of applied entries that a leader keeps for replicas that lag; who lags more gets a snapshot. So does a witness.
pub const KEPT_FOR_LAGGARDS: usize = 16 << 20;
/// Likewise while a replica takes a snapshot: when it has it, it needs what came since.
const KEPT_FOR_COMERS: usize = 8 * KEPT_FOR_LAGGARDS;
/// Applied entries that a follower keeps, in case it is to lead.
const FOLLOWER_KEEPS_BYTES: usize = 256 << 10;

/// How often [`Group::tick`] is to be called.
pub const TICK: Duration = Duration::from_millis(50);
/// A follower that has not heard of a leader for so many ticks, or up to twice as many, calls an election.
const ELECTION_TICKS: usize = 10;
const HEARTBEAT_TICKS: usize = 2;
/// A snapshot that brought no answer in so many ticks is sent again.
const SNAPSHOT_TICKS: usize = 100;

/// How a group is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Whether its log is on disk. If not, a replica that ends must not come back as itself: it has forgotten its votes.
    pub persistent: bool,
    /// Whether every entry is fsynced before it counts as persisted. If not, an entry that does not ask for it may count
    /// earlier, and a replica whose machine went down before the log was synced must not come back as itself.
    pub synced: bool,
    /// The log index that the state machine reflects already. A witness has no state machine.
    pub applied: u64,
    pub replica: ReplicaId,
    /// The group's first members, the same on each of them; the first one calls the first election. Empty for a replica
    /// that joins later: it knows nothing until it gets a snapshot.
    pub founders: Vec<ReplicaId>,
}

impl GroupSettings {
    /// A group that is on this node only.
    pub fn alone(persistent: bool, applied: u64) -> Self {
        let replica = ReplicaId { node: NodeId(1), incarnation: 0 };
        Self { persistent, synced: false, applied, replica, founders: vec![replica] }
    }
}

/// The number that Raft knows a replica by.
fn to_raft(replica: ReplicaId) -> u64 {
    u64::from(replica.node.0) << 32 | u64::from(replica.incarnation)
}

fn from_raft(number: u64) -> ReplicaId {
    // The halves, by construction.
    ReplicaId { node: NodeId((number >> 32) as u32), incarnation: number as u32 }
}

/// A group with `T` as tickets of the commands on their way.
pub(crate) struct Group<T> {
    pub(crate) id: GroupId,
    pub(crate) persistent: bool,
    synced: bool,
    node: RawNode<GroupStorage>,
    /// Whether there is no other member.
    is_alone: bool,
    /// Payloads of entries that were proposed in this pass, and of those that came from the leader; Raft hands the
    /// entries back in [`Self::collect`].
    proposed: VecDeque<(u64, Payload)>,
    incoming: AHashMap<(u64, u64), Payload>,
    /// Each waits for its index to be applied. Indexes ascend.
    tickets: VecDeque<(u64, T)>,
    orphans: orphans::Orphans<T>,
    /// Likewise; each waits for its index to be persisted here.
    early: VecDeque<(u64, T)>,
    /// The entry being put together in this pass.
    pub(crate) building: BytesMut,
    building_sync: bool,
    building_tickets: Vec<T>,
    building_early: Vec<T>,
    applied: u64,
    /// Readies that wait for the log, by number, with the messages that must not be sent before.
    waiting: VecDeque<(u64, Vec<Message>)>,
    /// Messages that need wait no longer.
    released: Vec<Message>,
    /// Time since the process began, as of the last tick.
    now: Duration,
    /// Ticks for which requests for votes are ignored; see above.
    silent_ticks: usize,
    heartbeat_ticks: usize,
    /// Replicas that were sent a snapshot, each with the ticks until it is taken for lost.
    snapshots_sent: Vec<(u64, usize)>,
    /// The term in which this replica leads and has applied everything acknowledged before.
    serving: Option<u64>,
    /// Until when nobody else leads; `None` is for ever.
    lease: Option<Duration>,
    /// Tickets that changed nothing and came when there was no lease: index to be applied first, and when they came.
    unconfirmed: Vec<(u64, Duration, T)>,
    /// When confirmation was last asked for.
    asked: Duration,
    /// The term in which this replica asked another one to take over, which then need not wait for a lease to end.
    handed_over: u64,
    /// The leader last told.
    told_leader: (u64, u64),
    rest: rest::Rest,
    freshness: freshness::Freshness,
    witness: witness::Witness,
    /// Whether the group is in the worker's list for this pass.
    pub(crate) in_pass: bool,
}

/// A group as its replica here sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    pub id: GroupId,
    pub replica: ReplicaId,
    pub term: u64,
    /// As far as this replica knows.
    pub leader: Option<ReplicaId>,
    pub is_serving: bool,
    pub voters: Vec<ReplicaId>,
    pub learners: Vec<ReplicaId>,
    /// Whether a change of members is under way.
    pub is_changing: bool,
    pub applied: u64,
    /// Of a leader: how many entries each other member lacks.
    pub lag: Vec<(ReplicaId, u64)>,
    /// Of a leader: bytes of entries that a replica with records lacks, about.
    pub owed_bytes: u64,
}

/// What a pass has to do outside of the groups.
#[derive(Default)]
pub(crate) struct PassOutput {
    pub(crate) records: Vec<LogRecord>,
    /// Readies that count as persisted once the records are fsynced.
    pub(crate) waiting: Vec<(GroupId, u64)>,
    pub(crate) committed: Vec<Committed>,
    pub(crate) messages: Vec<PeerMessage>,
    /// Groups that lead no longer.
    pub(crate) deposed: Vec<GroupId>,
    /// Groups of which another leader is known, with the term.
    pub(crate) leaders: Vec<(GroupId, u64, ReplicaId)>,
    /// Groups whose tickets may be answerable although nothing was applied.
    pub(crate) answerable: Vec<GroupId>,
    /// Witnesses, with the index of entries that are committed and not to be applied.
    pub(crate) witnessed: Vec<(GroupId, u64)>,
    /// Groups that may answer reads until then; `None` for ever, since there is no other replica.
    pub(crate) leases: Vec<(GroupId, Option<Duration>)>,
    /// Groups that a state machine's snapshot is wanted of.
    pub(crate) snapshots_wanted: Vec<GroupId>,
}

/// Replaces the state of a group by a snapshot's. Returns an error if that cannot be done now.
pub(crate) type Restore<'a> = dyn FnMut(GroupId, u64, &[u8]) -> Result<(), String> + 'a;

impl<T> Group<T> {
    /// # Panics
    /// If the log does not reach back to the applied index: state in between would be missing.
    pub(crate) fn new(id: GroupId, settings: GroupSettings, recovered: RecoveredGroup) -> Self {
        let GroupSettings { persistent, synced, applied, replica, founders } = settings;
        let own = to_raft(replica);
        let is_new = recovered == RecoveredGroup::default();
        let RecoveredGroup { state, members: (members_index, members), truncated, mut entries } = recovered;
        let applied = if replica.is_witness() { truncated.0 } else { applied };
        let members = if members.is_empty() {
            let voters = founders.iter().map(|founder| to_raft(*founder)).collect();
            ConfState { voters, ..Default::default() }
        } else {
            ConfState::decode(members).unwrap_or_else(|error| panic!("{id:?}: members in the log: {error}"))
        };
        let mut before = truncated;
        let mut changes = Vec::new();
        while let Some(first) = entries.pop_front_if(|first| first.index <= applied) {
            before = (first.index, first.term);
            if first.index > members_index && i32::from(first.kind) == EntryType::EntryConfChangeV2 as i32 {
                changes.push((first.index, first.payload));
            }
        }
        if before.0 < applied {
            assert!(entries.is_empty(), "{id:?}: the log begins behind the applied index {applied}");
            // The state is ahead of a log that lost its unsynced tail; it stands for the lost entries.
            before = (applied, state.term.max(before.1));
        }
        assert_eq!(before.0, applied, "{id:?}: the state machine lost entries that it had called durable");
        let last = entries.back().map_or(before.0, |last| last.index);
        let hard_state =
            HardState { term: state.term.max(before.1), vote: state.vote, commit: state.commit.clamp(applied, last) };
        let storage = GroupStorage::new(hard_state, (members_index, members), before, entries);
        let config = Config {
            applied,
            pre_vote: true,
            check_quorum: true,
            election_tick: ELECTION_TICKS,
            max_election_tick: 3 * ELECTION_TICKS,
            // Each may have a megabyte: as much waits in a replica whose disk does not take it.
            max_inflight_msgs: 64,
            // Heartbeats go with the question for the lease.
            heartbeat_tick: ELECTION_TICKS - 1,
            max_size_per_msg: MESSAGE_BYTES,
            ..Config::new(own)
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let is_founded = is_new && founders.first() == Some(&replica);
        let node = RawNode::new(&config, storage, &silent).expect("the configuration is fixed and valid");
        let mut group = Self {
            id,
            persistent,
            synced,
            node,
            is_alone: false,
            proposed: VecDeque::new(),
            incoming: AHashMap::new(),
            tickets: VecDeque::new(),
            orphans: orphans::Orphans::default(),
            early: VecDeque::new(),
            building: BytesMut::new(),
            building_sync: false,
            building_tickets: Vec::new(),
            building_early: Vec::new(),
            applied,
            waiting: VecDeque::new(),
            released: Vec::new(),
            now: Duration::ZERO,
            silent_ticks: 0,
            heartbeat_ticks: 0,
            snapshots_sent: Vec::new(),
            serving: None,
            lease: Some(Duration::ZERO),
            unconfirmed: Vec::new(),
            asked: Duration::ZERO,
            handed_over: 0,
            told_leader: (0, 0),
            rest: rest::Rest::default(),
            freshness: freshness::Freshness::default(),
            witness: witness::Witness::default(),
            in_pass: false,
        };
        for (index, change) in changes {
            group.apply_change(index, &change);
        }
        group.is_alone = group.has_no_peers();
        if group.is_alone || is_founded {
            // The only voter wins at once; it serves when the entry that opens its term is applied. A new group's first
            // voter need not wait for the others to notice that there is no leader.
            group.node.campaign().expect("a voter may campaign");
        } else if !is_new {
            group.silent_ticks = ELECTION_TICKS;
        }
        group
    }

    /// Passes time. Returns whether there is something to [collect](Self::collect).
    pub(crate) fn tick(&mut self, now: Duration) -> bool {
        self.now = now;
        let is_overdue = self.count_orphans_tick();
        if self.is_resting() || (self.is_alone && self.is_leader()) {
            return is_overdue;
        }
        self.refresh();
        self.count_idle_tick();
        self.silent_ticks = self.silent_ticks.saturating_sub(1);
        let patience = self.patience();
        self.node.raft.set_randomized_election_timeout(patience);
        self.node.tick();
        for (replica, ticks) in &mut self.snapshots_sent {
            *ticks -= 1;
            if *ticks == 0 {
                // It may have arrived after all: then Raft knows better.
                self.node.report_snapshot(*replica, SnapshotStatus::Failure);
            }
        }
        self.snapshots_sent.retain(|(_, ticks)| *ticks > 0);
        let term = self.node.raft.term;
        if self.is_leader() && self.handed_over == term && self.node.raft.lead_transferee.is_none() {
            // Nobody took over. Whoever leads next, in another term, may have leases again.
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
        self.heartbeat_ticks += 1;
        if self.is_leader() && self.heartbeat_ticks >= HEARTBEAT_TICKS {
            self.heartbeat_ticks = 0;
            self.ask_for_confirmation(now);
            // Raft asks only once an entry of its term is committed; until then it just makes itself heard.
            if !self.node.raft.commit_to_current_term() {
                self.node.ping();
            }
            self.leave_joint();
            self.count_what_is_owed();
        }
        self.lead_no_longer_than_needed();
        // What could not be proposed while another replica was to take over is tried again.
        is_overdue || self.node.has_ready() || !self.building.is_empty()
    }

    /// Ticks without a leader after which this replica calls an election: another number for each replica and term, as
    /// Raft wants it, but not by Raft's own dice, so that a simulated world repeats.
    fn patience(&self) -> usize {
        let hash = RandomState::with_seeds(self.id.0, self.node.raft.id, self.node.raft.term, 0).hash_one(0);
        // A witness could not serve, so others go first.
        let base = if self.replica().is_witness() { 2 * ELECTION_TICKS } else { ELECTION_TICKS };
        base + usize::try_from(hash % ELECTION_TICKS as u64).expect("below the ticks")
    }

    /// Takes a message from another replica.
    pub(crate) fn step(&mut self, message: PeerMessage) {
        let is_unknown = self.node.store().members().voters.is_empty() && message.is_whole_log();
        let is_silent = self.silent_ticks > 0 && message.is_request_for_vote();
        // A replica that joins needs the members too, which a log from its beginning does not tell.
        if message.to() != self.replica() || is_silent || is_unknown {
            return;
        }
        let PeerMessage { message, payloads, rests, progress, .. } = message;
        let (kind, from) = (message.msg_type(), message.from);
        if self.replica().is_witness() {
            self.hear_what_everybody_has(progress);
        } else if progress > 0 {
            self.hear_what_is_committed(progress);
        }
        for (entry, payload) in message.entries.iter().zip(payloads) {
            self.incoming.insert((entry.index, entry.term), payload);
        }
        // Raft refuses what does not concern it, such as answers from nodes that are no members any more.
        let _ = self.node.step(message);
        self.rest_or_stir(kind, from, rests);
    }

    /// Whether a snapshot that comes now would take the place of state and log. Raft decides it likewise.
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
    }

    /// Whether Raft has taken a snapshot that is not [collected](Self::collect) yet.
    pub(crate) fn is_installing(&self) -> bool {
        self.node.raft.raft_log.unstable.snapshot.is_some()
    }

    /// The snapshot that was offered is gone.
    pub(crate) fn forget_snapshot(&mut self) {
        self.node.mut_store().forget_snapshot();
    }

    pub(crate) fn replica(&self) -> ReplicaId {
        from_raft(self.node.raft.id)
    }

    pub(crate) fn view(&self) -> GroupView {
        let raft = &self.node.raft;
        let (voters, learners) = self.members();
        let last = raft.raft_log.last_index();
        let others = raft.prs().iter().filter(|(id, _)| **id != raft.id && self.is_leader());
        GroupView {
            id: self.id,
            replica: self.replica(),
            term: raft.term,
            leader: Some(raft.leader_id).filter(|id| *id != raft::INVALID_ID).map(from_raft),
            is_serving: self.is_serving(),
            voters,
            learners,
            is_changing: self.is_changing(),
            applied: self.applied,
            lag: others.map(|(id, progress)| (from_raft(*id), last - progress.matched.min(last))).collect(),
            owed_bytes: self.owed_bytes(),
        }
    }

    /// Whether there is no other member.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Gives a replica that lags the state as it was when `index` had been applied.
    pub(crate) fn offer_snapshot(&mut self, index: u64, state: Vec<u8>) {
        self.node.mut_store().offer_snapshot(index, state);
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.is_leader() && self.serving == Some(self.node.raft.term)
    }

    /// Takes a ticket for what was just appended to `building`. Returns the entry that closed, if one did.
    pub(crate) fn replicate(&mut self, ticket: T, sync: bool, early: bool) -> Option<(u64, Bytes)> {
        self.stir();
        self.building_sync |= sync;
        // Where there is nobody else, what is persisted is committed.
        let tickets = if early && !self.is_alone { &mut self.building_early } else { &mut self.building_tickets };
        tickets.push(ticket);
        if self.building.len() >= ENTRY_BYTES { self.propose() } else { None }
    }

    /// Proposes what was put together. Returns the entry's index and payload; `None` also if the group leads no longer,
    /// which the next [`Self::collect`] tells.
    pub(crate) fn propose(&mut self) -> Option<(u64, Bytes)> {
        if self.building.is_empty() || self.node.propose(vec![], vec![]).is_err() {
            return None;
        }
        let index = self.node.raft.raft_log.last_index();
        // What is left of the buffer takes the next entry; once this one is applied, so does its room.
        let bytes = self.building.split().freeze();
        if bytes.len() > KEPT_BYTES {
            self.building = BytesMut::new();
        }
        let sync = std::mem::take(&mut self.building_sync);
        self.proposed.push_back((index, Payload { bytes: bytes.clone(), sync }));
        self.tickets.extend(self.building_tickets.drain(..).map(|ticket| (index, ticket)));
        self.early.extend(self.building_early.drain(..).map(|ticket| (index, ticket)));
        Some((index, bytes))
    }

    /// Takes what Raft has ready: records for the log, messages to send, committed entries to apply.
    pub(crate) fn collect(&mut self, output: &mut PassOutput, restore: &mut Restore<'_>) {
        if self.serving.is_some() && !self.is_serving() {
            output.deposed.push(self.id);
        }
        if self.orphans.are_overdue() || self.early_index().is_some() {
            output.answerable.push(self.id);
        }
        let leads = (self.node.raft.term, self.node.raft.leader_id);
        self.ask_for_those_who_wait();
        if leads.1 != raft::INVALID_ID && leads != self.told_leader {
            self.told_leader = leads;
            output.leaders.push((self.id, leads.0, from_raft(leads.1)));
        }
        let released = std::mem::take(&mut self.released);
        self.send(released, output);
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            for state in ready.take_read_states() {
                self.extend_lease(&state.request_ctx, output);
            }
            let mut sync = false;
            if !ready.snapshot().is_empty() {
                sync = true;
                self.install(ready.snapshot(), output, restore);
            }
            self.commit(&ready.take_committed_entries(), output);
            let entries = ready.take_entries();
            let before = self.node.store().hard_state();
            let now = ready.hs().unwrap_or(before).clone();
            let votes = (now.term, now.vote) != (before.term, before.vote);
            sync |= votes;
            // A change of members is proposed when the one before is committed. Whoever has the later one in his log must
            // not forget that: with members from before both he could win an election that the others do not see.
            let changes_members = entries.iter().any(|entry| entry.entry_type() != EntryType::EntryNormal);
            if self.persistent && (votes || changes_members) {
                let state = StoredState { term: now.term, vote: now.vote, commit: now.commit };
                output.records.push(LogRecord::State { group: self.id, state });
            }
            self.node.mut_store().set_hard_state(now);
            if !entries.is_empty() {
                sync |= self.append(&entries, output);
            }
            self.send(ready.take_messages(), output);
            let held_back = ready.take_persisted_messages();
            // A ready that came back counts for all before it, so none may overtake one that still waits.
            if self.persistent && (sync || !self.waiting.is_empty()) {
                self.waiting.push_back((ready.number(), held_back));
                output.waiting.push((self.id, ready.number()));
                self.node.advance_append_async(ready);
            } else {
                self.send(held_back, output);
                let mut light = self.node.advance_append(ready);
                self.send(light.take_messages(), output);
                self.commit(&light.take_committed_entries(), output);
                self.tell_what_is_applied();
            }
        }
        self.incoming.clear();
        self.proposed.clear();
        self.forget_on_disk(output);
        // A witness has none to give: a replica that needs one waits for another leader.
        if self.node.store().wants_snapshot.get() && !self.replica().is_witness() {
            output.snapshots_wanted.push(self.id);
        }
    }

    fn send(&mut self, messages: Vec<Message>, output: &mut PassOutput) {
        for message in messages {
            let payloads = match (message.entries.first(), message.entries.last()) {
                (Some(first), Some(last)) => {
                    self.node.store().range(first.index, last.index).map(|held| held.payload.clone()).collect()
                }
                _ => Vec::new(),
            };
            if payloads.len() != message.entries.len() {
                // An entry was replaced or forgotten since Raft made the message; Raft will make another one.
                continue;
            }
            if message.msg_type() == MessageType::MsgSnapshot {
                self.snapshots_sent.push((message.to, SNAPSHOT_TICKS));
            }
            let (rests, progress) = (self.tells_rest(&message), self.tells_progress(&message));
            output.messages.push(PeerMessage { group: self.id, rests, progress, message, payloads });
        }
    }

    /// Puts a snapshot in the place of state and log.
    fn install(&mut self, snapshot: &Snapshot, output: &mut PassOutput, restore: &mut Restore<'_>) {
        let metadata = snapshot.get_metadata().clone();
        // Without the state there is nothing that this replica could do; it starts anew from its old one.
        let (members_index, state) = snapshot.data.split_first_chunk().expect("it begins with the members' index");
        if !self.replica().is_witness() {
            restore(self.id, metadata.index, state)
                .unwrap_or_else(|error| panic!("{:?}: a snapshot cannot be restored: {error}", self.id));
        }
        self.node.mut_store().restore(&metadata, u64::from_le_bytes(*members_index));
        self.applied = metadata.index;
        output.records.push(LogRecord::Restored { group: self.id, index: metadata.index, term: metadata.term });
        self.members_changed(output);
    }

    /// Puts entries into the log, in memory and on disk. Returns whether one of them asks for an fsync.
    fn append(&mut self, entries: &[Entry], output: &mut PassOutput) -> bool {
        let mut sync = self.synced && !self.is_alone;
        let held: Vec<Held> = entries
            .iter()
            .map(|entry| {
                let payload = self.payload_of(entry);
                sync |= payload.sync;
                Held { index: entry.index, term: entry.term, kind: entry.entry_type, payload }
            })
            .collect();
        if self.persistent {
            let stored = |held: &Held| StoredEntry {
                index: held.index,
                term: held.term,
                kind: u8::try_from(held.kind).expect("Raft has three entry types"),
                payload: held.payload.bytes.clone(),
            };
            output.records.push(LogRecord::Entries { group: self.id, entries: held.iter().map(stored).collect() });
        }
        self.node.mut_store().append(held.into_iter());
        sync
    }

    fn payload_of(&mut self, entry: &Entry) -> Payload {
        if !entry.data.is_empty() {
            // Raft's own, a change of members.
            return Payload { bytes: entry.data.clone().into(), sync: true };
        }
        if let Some(payload) = self.incoming.remove(&(entry.index, entry.term)) {
            return payload;
        }
        while self.proposed.front().is_some_and(|(index, _)| *index < entry.index) {
            self.proposed.pop_front();
        }
        // Entries that Raft makes itself have no payload.
        let own = self.proposed.pop_front_if(|(index, _)| *index == entry.index);
        own.map(|(_, payload)| payload).unwrap_or_default()
    }

    fn commit(&mut self, entries: &[Entry], output: &mut PassOutput) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let (mut payloads, mut changes) = (Vec::new(), Vec::new());
        for held in self.node.store().range(first.index, last.index) {
            if !held.is_command() {
                changes.push((held.index, held.payload.bytes.clone()));
            } else if !held.payload.bytes.is_empty() {
                payloads.push(held.payload.bytes.clone());
            }
        }
        if self.replica().is_witness() {
            output.witnessed.push((self.id, last.index));
        } else {
            output.committed.push(Committed { group: self.id, index: last.index, payloads });
        }
        let members_index = self.node.store().members_index();
        changes.retain(|(index, _)| *index > members_index);
        for (index, change) in changes {
            self.apply_change(index, &change);
            self.members_changed(output);
        }
    }

    /// The log has fsynced the ready of that number, and with it all before.
    pub(crate) fn persisted(&mut self, number: u64) {
        while let Some((_, messages)) = self.waiting.pop_front_if(|(waiting, _)| *waiting <= number) {
            self.released.extend(messages);
        }
        self.node.on_persist_ready(number);
        self.tell_what_is_applied();
    }

    /// What a snapshot brought was applied before it was persisted, and Raft wants to hear of it afterwards.
    fn tell_what_is_applied(&mut self) {
        let log = &self.node.raft.raft_log;
        let applied = self.applied.min(log.persisted).min(log.committed);
        if applied > log.applied {
            self.node.advance_apply_to(applied);
        }
    }

    /// Entries up to `index` are applied. Returns whether the group begins to serve with that.
    pub(crate) fn applied(&mut self, index: u64) -> bool {
        if index <= self.applied {
            return false; // a snapshot came in between
        }
        self.applied = index;
        self.node.advance_apply_to(index);
        self.forget();
        self.refresh_after_apply();
        // What a leader commits first in its own term covers everything before it.
        let term = self.node.raft.term;
        let may_serve = self.is_leader() && !self.replica().is_witness();
        let begins = !self.is_serving() && may_serve && self.node.store().term_at(index) == Some(term);
        if begins {
            self.serving = Some(term);
            self.lease = if self.is_alone { None } else { Some(Duration::ZERO) };
        }
        begins
    }

    /// Drops applied entries from memory, except those that another replica may still ask for.
    fn forget(&mut self) {
        let applied = self.applied;
        let (everybody_has, keeps) = if self.is_alone {
            (applied, 0)
        } else if self.is_leader() || self.replica().is_witness() {
            let is_filling = self.node.raft.prs().iter().any(|(_, progress)| progress.state == ProgressState::Snapshot);
            (self.everybody_has().min(applied), if is_filling { KEPT_FOR_COMERS } else { KEPT_FOR_LAGGARDS })
        } else {
            (0, FOLLOWER_KEEPS_BYTES)
        };
        let store = self.node.mut_store();
        // Without its first entry a log cannot be taken for complete, so that a replica that joins gets a snapshot.
        store.truncate(everybody_has.max(applied.min(1)));
        while let Some(first) = store.first().map(|held| held.index)
            && store.payload_bytes() > keeps
            && first <= applied
        {
            store.truncate(first);
        }
    }

    /// The index up to which commands may be answered early, if some wait for that.
    pub(crate) fn early_index(&self) -> Option<u64> {
        let persisted = self.node.raft.raft_log.persisted;
        self.early.front().filter(|(index, _)| *index <= persisted).map(|_| persisted)
    }

    /// The next ticket that needs no more waiting, with what became of it.
    pub(crate) fn next_answerable(&mut self) -> Option<(T, Result<(), Failure>)> {
        let applied = self.applied;
        if let Some(orphan) = self.next_answerable_orphan() {
            return Some(orphan);
        }
        if let Some(persisted) = self.early_index() {
            return self.early.pop_front_if(|(index, _)| *index <= persisted).map(|(_, ticket)| (ticket, Ok(())));
        }
        self.tickets.pop_front_if(|(index, _)| *index <= applied).map(|(_, ticket)| (ticket, Ok(())))
    }

    pub(crate) fn has_tickets(&self) -> bool {
        !self.tickets.is_empty()
            || !self.building_tickets.is_empty()
            || !self.unconfirmed.is_empty()
            || !self.orphans.is_empty()
            || !self.building_early.is_empty()
            || !self.early.is_empty()
    }

    /// Gives up what was not proposed. What was may still take effect: its tickets wait for the news.
    pub(crate) fn depose(&mut self) -> Vec<T> {
        self.building.clear();
        self.building_sync = false;
        self.lease = Some(Duration::ZERO);
        let term = self.serving.take().unwrap_or_default();
        self.orphans.take_in(term, self.tickets.drain(..).chain(self.early.drain(..)));
        let unconfirmed = self.unconfirmed.drain(..).map(|(_, _, ticket)| ticket);
        self.building_tickets.drain(..).chain(self.building_early.drain(..)).chain(unconfirmed).collect()
    }

    /// All tickets, answerable or not, oldest first.
    pub(crate) fn take_tickets(&mut self) -> impl Iterator<Item = T> + '_ {
        let unconfirmed = self.unconfirmed.drain(..).map(|(_, _, ticket)| ticket);
        let proposed = self.tickets.drain(..).chain(self.early.drain(..)).map(|(_, ticket)| ticket);
        let building = self.building_tickets.drain(..).chain(self.building_early.drain(..));
        self.orphans.drain().chain(proposed).chain(building).chain(unconfirmed)
    }

    /// Index and term that the log may forget once the state machine is durable up to `durable`.
    pub(crate) fn truncation(&self, durable: u64) -> Option<(u64, u64)> {
        let index = durable.min(self.applied);
        self.node.store().term_at(index).map(|term| (index, term))
    }
}

#[cfg(test)]
mod simulation;
