//! One group: Raft's state, and beside it what Raft need not touch.
//!
//! A group is a step function: messages, ticks and the log's news go in, and what is to be logged, sent and applied
//! comes out ([`PassOutput`]). It does no I/O and reads no clock, so the same code runs in the worker's loop and in
//! simulation.
//!
//! **Reads under a lease.** Every [`HEARTBEAT_TICKS`] a leader asks its peers to confirm it. A majority that answered had
//! heard of it after the question was sent, and whoever has heard of a leader takes part in no election for
//! [`ELECTION_TICKS`] of his own clock; neither does a replica that has just started, since it may have promised that
//! before. So from the question on, for the length of [`LEASE`], nobody else leads, as long as no clock runs more than
//! a tenth faster than another. For that time a leader that has applied the entry that opened its term may answer reads
//! by itself.

pub(crate) mod message;
mod storage;

use crate::log::{LogRecord, RecoveredGroup, StoredEntry, StoredState};
use crate::{Committed, GroupId, NodeId};
use ahash::{AHashMap, RandomState};
use bytes::{Bytes, BytesMut};
use message::{Payload, PeerMessage};
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Message, MessageType, Snapshot};
use raft::{Config, RawNode, SnapshotStatus, StateRole};
use std::collections::VecDeque;
use std::time::Duration;
use storage::{GroupStorage, Held};

/// An entry's payload is closed when it has grown to this; what follows goes into the next entry.
const ENTRY_BYTES: usize = 1 << 20;
/// A buffer that held an entry longer than this is not kept for the next one.
const KEPT_BYTES: usize = 64 << 10;
/// Payloads of one message between replicas, about.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Applied entries that a leader keeps for replicas that lag; who lags more gets a snapshot.
const LEADER_KEEPS_BYTES: usize = 16 << 20;
/// Applied entries that a follower keeps, in case it is to lead.
const FOLLOWER_KEEPS_BYTES: usize = 256 << 10;

/// How often [`Group::tick`] is to be called.
pub const TICK: Duration = Duration::from_millis(50);
/// A follower that has not heard of a leader for so many ticks, or up to twice as many, calls an election.
const ELECTION_TICKS: usize = 10;
const HEARTBEAT_TICKS: usize = 2;
/// A snapshot that brought no answer in so many ticks is sent again.
const SNAPSHOT_TICKS: usize = 100;
/// How long a confirmed leader may answer reads. A follower counts from the first tick after it heard of the leader,
/// hence the tick less; a tenth less for clocks that run apart.
const LEASE: Duration = Duration::from_millis((ELECTION_TICKS as u64 - 1) * 50 * 9 / 10);

/// How a group is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Whether its log is on disk. Groups of several voters are.
    pub persistent: bool,
    /// The log index that the state machine reflects already.
    pub applied: u64,
    /// The node this replica is on.
    pub node: NodeId,
    /// The nodes that hold replicas, this one among them; the same on each. The first calls the first election.
    pub voters: Vec<NodeId>,
}

impl GroupSettings {
    /// A group that is on this node only.
    pub fn alone(persistent: bool, applied: u64) -> Self {
        Self { persistent, applied, node: NodeId(1), voters: vec![NodeId(1)] }
    }
}

/// A group with `T` as tickets of the commands on their way.
pub(crate) struct Group<T> {
    pub(crate) id: GroupId,
    pub(crate) persistent: bool,
    node: RawNode<GroupStorage>,
    is_alone: bool,
    /// Payloads of entries that were proposed in this pass, and of those that came from the leader; Raft hands the
    /// entries back in [`Self::collect`].
    proposed: VecDeque<(u64, Payload)>,
    incoming: AHashMap<(u64, u64), Payload>,
    /// Each waits for its index to be applied. Indexes ascend.
    tickets: VecDeque<(u64, T)>,
    /// The entry being put together in this pass.
    pub(crate) building: BytesMut,
    building_sync: bool,
    building_tickets: Vec<T>,
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
    /// Whether the group is in the worker's list for this pass.
    pub(crate) in_pass: bool,
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
    /// Groups that may answer reads until then.
    pub(crate) leases: Vec<(GroupId, Duration)>,
    /// Groups that a state machine's snapshot is wanted of.
    pub(crate) snapshots_wanted: Vec<GroupId>,
}

/// Replaces the state of a group by a snapshot's. Returns an error if that cannot be done now.
pub(crate) type Restore<'a> = dyn FnMut(GroupId, u64, &[u8]) -> Result<(), String> + 'a;

impl<T> Group<T> {
    /// # Panics
    /// If the log does not reach back to the applied index: state in between would be missing.
    pub(crate) fn new(id: GroupId, settings: GroupSettings, recovered: RecoveredGroup) -> Self {
        let GroupSettings { persistent, applied, node: own, voters } = settings;
        let is_alone = voters == [own];
        assert!(voters.contains(&own), "{id:?}: a replica on a node that is no member");
        assert!(is_alone || persistent, "{id:?}: replicas vote, and votes are kept on disk");
        let is_new = recovered == RecoveredGroup::default();
        let RecoveredGroup { state, truncated, mut entries } = recovered;
        let mut before = truncated;
        while let Some(first) = entries.front().filter(|first| first.index <= applied) {
            before = (first.index, first.term);
            entries.pop_front();
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
        let members = ConfState { voters: voters.iter().map(|voter| voter.0).collect(), ..Default::default() };
        let storage = GroupStorage::new(hard_state, members, before, entries);
        let config = Config {
            applied,
            pre_vote: true,
            check_quorum: true,
            election_tick: ELECTION_TICKS,
            // Heartbeats go with the question for the lease.
            heartbeat_tick: ELECTION_TICKS - 1,
            max_size_per_msg: MESSAGE_BYTES,
            ..Config::new(own.0)
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let mut node = RawNode::new(&config, storage, &silent).expect("the configuration is fixed and valid");
        if is_alone || (is_new && voters[0] == own) {
            // The only voter wins at once; it serves when the entry that opens its term is applied. A new group's first
            // voter need not wait for the others to notice that there is no leader.
            node.campaign().expect("a voter may campaign");
        }
        Self {
            id,
            persistent,
            node,
            is_alone,
            proposed: VecDeque::new(),
            incoming: AHashMap::new(),
            tickets: VecDeque::new(),
            building: BytesMut::new(),
            building_sync: false,
            building_tickets: Vec::new(),
            applied,
            waiting: VecDeque::new(),
            released: Vec::new(),
            now: Duration::ZERO,
            silent_ticks: if is_alone || is_new { 0 } else { ELECTION_TICKS },
            heartbeat_ticks: 0,
            snapshots_sent: Vec::new(),
            serving: None,
            in_pass: false,
        }
    }

    /// Passes time. Returns whether there is something to [collect](Self::collect).
    pub(crate) fn tick(&mut self, now: Duration) -> bool {
        self.now = now;
        if self.is_alone {
            return false;
        }
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
        self.heartbeat_ticks += 1;
        if self.is_leader() && self.heartbeat_ticks >= HEARTBEAT_TICKS {
            self.heartbeat_ticks = 0;
            self.node.read_index(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).to_le_bytes().to_vec());
            // Raft asks only once an entry of its term is committed; until then it just makes itself heard.
            if !self.node.raft.commit_to_current_term() {
                self.node.ping();
            }
        }
        self.node.has_ready()
    }

    /// Ticks without a leader after which this replica calls an election: another number for each replica and term, as
    /// Raft wants it, but not by Raft's own dice, so that a simulated world repeats.
    fn patience(&self) -> usize {
        let hash = RandomState::with_seeds(self.id.0, self.node.raft.id, self.node.raft.term, 0).hash_one(0);
        ELECTION_TICKS + usize::try_from(hash % ELECTION_TICKS as u64).expect("below the ticks")
    }

    /// Takes a message from another replica.
    pub(crate) fn step(&mut self, message: PeerMessage) {
        if self.silent_ticks > 0 && message.is_request_for_vote() {
            return;
        }
        let PeerMessage { message, payloads, .. } = message;
        for (entry, payload) in message.entries.iter().zip(payloads) {
            self.incoming.insert((entry.index, entry.term), payload);
        }
        // Raft refuses what does not concern it, such as answers from nodes that are no members any more.
        let _ = self.node.step(message);
    }

    fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Gives a replica that lags the state as it was when `index` had been applied.
    pub(crate) fn offer_snapshot(&mut self, index: u64, data: Vec<u8>) {
        self.node.mut_store().offer_snapshot(index, data);
    }

    pub(crate) fn applied_index(&self) -> u64 {
        self.applied
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.is_leader() && self.serving == Some(self.node.raft.term)
    }

    /// Takes a ticket for what was just appended to `building`. Returns the entry that closed, if one did.
    pub(crate) fn replicate(&mut self, ticket: T, sync: bool) -> Option<(u64, Bytes)> {
        self.building_sync |= sync;
        self.building_tickets.push(ticket);
        if self.building.len() >= ENTRY_BYTES { self.propose() } else { None }
    }

    /// Takes a ticket for a command that changed nothing. Gives it back if nothing is on its way that the answer could rest on.
    pub(crate) fn follow(&mut self, ticket: T) -> Option<T> {
        if !self.building.is_empty() {
            self.building_tickets.push(ticket);
            return None;
        }
        let last = self.node.raft.raft_log.last_index();
        if last <= self.applied {
            return Some(ticket);
        }
        self.tickets.push_back((last, ticket));
        None
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
        Some((index, bytes))
    }

    /// Takes what Raft has ready: records for the log, messages to send, committed entries to apply.
    pub(crate) fn collect(&mut self, output: &mut PassOutput, restore: &mut Restore<'_>) {
        if self.serving.is_some() && !self.is_serving() {
            self.serving = None;
            output.deposed.push(self.id);
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
            let hard_state = ready.hs().cloned();
            let before = self.node.store().hard_state();
            let votes = hard_state.as_ref().is_some_and(|now| (now.term, now.vote) != (before.term, before.vote));
            sync |= votes;
            if self.persistent
                && let Some(now) = hard_state.as_ref().filter(|_| votes)
            {
                let state = StoredState { term: now.term, vote: now.vote, commit: now.commit };
                output.records.push(LogRecord::State { group: self.id, state });
            }
            if let Some(now) = hard_state {
                self.node.mut_store().set_hard_state(now);
            }
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
            }
        }
        self.incoming.clear();
        self.proposed.clear();
        if self.node.store().wants_snapshot.get() {
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
            output.messages.push(PeerMessage { group: self.id, message, payloads });
        }
    }

    fn extend_lease(&self, context: &[u8], output: &mut PassOutput) {
        if let Ok(asked) = <[u8; 8]>::try_from(context)
            && self.is_serving()
        {
            output.leases.push((self.id, Duration::from_nanos(u64::from_le_bytes(asked)) + LEASE));
        }
    }

    /// Puts a snapshot in the place of state and log.
    fn install(&mut self, snapshot: &Snapshot, output: &mut PassOutput, restore: &mut Restore<'_>) {
        let metadata = snapshot.get_metadata().clone();
        // Without the state there is nothing that this replica could do; it starts anew from its old one.
        restore(self.id, metadata.index, &snapshot.data)
            .unwrap_or_else(|error| panic!("{:?}: a snapshot cannot be restored: {error}", self.id));
        self.node.mut_store().restore(&metadata);
        self.applied = metadata.index;
        output.records.push(LogRecord::Truncated { group: self.id, index: metadata.index, term: metadata.term });
    }

    /// Puts entries into the log, in memory and on disk. Returns whether one of them asks for an fsync.
    fn append(&mut self, entries: &[Entry], output: &mut PassOutput) -> bool {
        let mut sync = !self.is_alone;
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
        debug_assert!(entries.iter().all(|entry| entry.entry_type() == EntryType::EntryNormal));
        let held = self.node.store().range(first.index, last.index).filter(|held| !held.payload.bytes.is_empty());
        let payloads = held.map(|held| held.payload.bytes.clone()).collect();
        output.committed.push(Committed { group: self.id, index: last.index, payloads });
    }

    /// The log has fsynced the ready of that number, and with it all before.
    pub(crate) fn persisted(&mut self, number: u64) {
        while let Some((_, messages)) = self.waiting.pop_front_if(|(waiting, _)| *waiting <= number) {
            self.released.extend(messages);
        }
        self.node.on_persist_ready(number);
    }

    /// Entries up to `index` are applied. Returns whether the group begins to serve with that.
    pub(crate) fn applied(&mut self, index: u64) -> bool {
        if index <= self.applied {
            return false; // a snapshot came in between
        }
        self.applied = index;
        self.node.advance_apply_to(index);
        self.forget();
        // What a leader commits first in its own term covers everything before it.
        let term = self.node.raft.term;
        let begins = !self.is_serving() && self.is_leader() && self.node.store().term_at(index) == Some(term);
        if begins {
            self.serving = Some(term);
        }
        begins
    }

    /// Drops applied entries from memory, except those that another replica may still ask for.
    fn forget(&mut self) {
        let (mut everybody_has, mut keeps) = (self.applied, 0);
        if !self.is_alone {
            keeps = FOLLOWER_KEEPS_BYTES;
            if self.is_leader() {
                let matched = self.node.raft.prs().iter().map(|(_, progress)| progress.matched);
                everybody_has = everybody_has.min(matched.min().unwrap_or(0));
                keeps = LEADER_KEEPS_BYTES;
            } else {
                everybody_has = 0;
            }
        }
        let applied = self.applied;
        let store = self.node.mut_store();
        store.truncate(everybody_has);
        while let Some(first) = store.first().map(|held| held.index)
            && store.payload_bytes() > keeps
            && first <= applied
        {
            store.truncate(first);
        }
    }

    /// The next ticket that needs no more waiting.
    pub(crate) fn next_answerable(&mut self) -> Option<T> {
        let applied = self.applied;
        self.tickets.pop_front_if(|(index, _)| *index <= applied).map(|(_, ticket)| ticket)
    }

    pub(crate) fn has_tickets(&self) -> bool {
        !self.tickets.is_empty() || !self.building_tickets.is_empty()
    }

    /// Gives up everything that waits: tickets of what was proposed, which may still take effect, and of what was not.
    pub(crate) fn depose(&mut self) -> (Vec<T>, Vec<T>) {
        self.building.clear();
        self.building_sync = false;
        let proposed = self.tickets.drain(..).map(|(_, ticket)| ticket).collect();
        (proposed, self.building_tickets.drain(..).collect())
    }

    /// All tickets, answerable or not, oldest first.
    pub(crate) fn take_tickets(&mut self) -> impl Iterator<Item = T> + '_ {
        self.tickets.drain(..).map(|(_, ticket)| ticket).chain(self.building_tickets.drain(..))
    }

    /// Index and term that the log may forget once the state machine is durable up to `durable`.
    pub(crate) fn truncation(&self, durable: u64) -> Option<(u64, u64)> {
        let index = durable.min(self.applied);
        self.node.store().term_at(index).map(|term| (index, term))
    }
}

#[cfg(test)]
mod simulation;
