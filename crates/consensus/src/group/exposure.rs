//! A group that hears anything: bytes say what, and in which order with what a worker does. Nothing of it may end the
//! process.

use super::message::{Payload, PeerMessage};
use super::*;
use crate::log::StoredEntry;
use bytes::{Bytes, BytesMut};
use prost::Message as _;
#[cfg(test)]
use raft::eraftpb::ConfChangeType;
use raft::eraftpb::{ConfChangeSingle, ConfChangeV2, ConfState, Snapshot, SnapshotMetadata};

const ID: GroupId = GroupId(1);

fn id(node: u32) -> ReplicaId {
    ReplicaId { node: NodeId(node), incarnation: 0 }
}

/// Bytes as they come; zeros when there are no more.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Mostly numbers like those that a young group has.
    fn number(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..240 => u64::from(byte % 16),
            byte @ 240..248 => u64::MAX - u64::from(byte - 240),
            byte => 1 << (8 * (byte - 248)),
        }
    }

    fn replica(&mut self) -> u64 {
        match self.byte() % 6 {
            0 => self.number(),
            node => to_raft(id(u32::from(node))),
        }
    }

    fn replicas(&mut self) -> Vec<u64> {
        (0..self.byte() % 4).map(|_| self.replica()).collect()
    }

    fn members(&mut self) -> ConfState {
        let (voters, learners) = (self.replicas(), self.replicas());
        let (voters_outgoing, learners_next) = (self.replicas(), self.replicas());
        ConfState { voters, learners, voters_outgoing, learners_next, auto_leave: self.byte().is_multiple_of(2) }
    }

    fn change(&mut self) -> Vec<u8> {
        let change = |source: &mut Self| ConfChangeSingle {
            change_type: i32::from(source.byte() % 4),
            node_id: source.replica(),
        };
        let changes = (0..self.byte() % 4).map(|_| change(self)).collect();
        ConfChangeV2 { transition: i32::from(self.byte() % 4), changes, context: Vec::new() }.encode_to_vec()
    }
}

struct Exposed {
    group: Group<()>,
    unpersisted: Vec<u64>,
    now: Duration,
}

impl Exposed {
    fn new(source: &mut Source<'_>) -> Option<Self> {
        let kind = source.byte();
        let own = if kind.is_multiple_of(5) { ReplicaId::new_witness(NodeId(1), 0) } else { id(1) };
        let mut initial_members = vec![own, id(2), id(3)];
        initial_members.extend((kind & 32 != 0).then(|| id(4)));
        let is_joiner = kind.is_multiple_of(7);
        let count = if is_joiner { 0 } else { u64::from(source.byte() % 16) };
        let stored = |index| StoredEntry { index, term: 1 + index / 4, kind: 0, payload: Bytes::new() };
        let entries: std::collections::VecDeque<_> = (1..=count).map(stored).collect();
        let term = if is_joiner { 0 } else { 1 + count / 4 };
        let state = StoredState { term, vote: 0, commit: count / 2 };
        let settings = GroupSettings {
            persistent: kind & 64 != 0,
            synced: true,
            applied: count / 3,
            applied_term: None,
            replica: own,
            initial_members: if is_joiner { Vec::new() } else { initial_members },
        };
        let group = Group::new(ID, settings, RecoveredGroup { state, entries, ..Default::default() }).ok()?;
        Some(Self { group, unpersisted: Vec::new(), now: Duration::ZERO })
    }

    /// What a worker does after messages and ticks. Returns whether the replica goes on.
    fn collect(&mut self) -> bool {
        let mut output = PassOutput::default();
        if self.group.collect(&mut output, &mut |_, _, _| Ok(())).is_err() {
            return false;
        }
        for message in &output.messages {
            let mut encoded = BytesMut::new();
            message.encode(&mut encoded);
            assert_eq!(PeerMessage::decode(&mut encoded.freeze()).as_ref(), Some(message));
        }
        output.stepped_down.iter().for_each(|_| drop(self.group.step_down()));
        output.witnessed.iter().for_each(|(_, index)| _ = self.group.applied(*index));
        output.committed.iter().for_each(|committed| _ = self.group.applied(committed.index));
        output.snapshots_wanted.iter().for_each(|_| self.group.offer_snapshot(self.group.applied, vec![1]));
        self.unpersisted.extend(output.awaiting_stage.iter().chain(&output.awaiting_fsync).map(|(_, number)| *number));
        true
    }

    fn persist(&mut self) {
        if let Some(last) = self.unpersisted.drain(..).next_back() {
            self.group.persisted(last);
        }
    }

    fn tick(&mut self, ticks: u8) {
        for _ in 0..ticks {
            self.now += TICK;
            self.group.tick(self.now);
        }
    }

    /// Whatever it may be.
    fn message(&self, source: &mut Source<'_>) -> Message {
        let raft = &self.group.node.raft;
        let term = match source.byte() % 4 {
            0 => source.number(),
            1 => raft.term + 1,
            _ => raft.term,
        };
        let index = match source.byte() % 4 {
            0 => source.number(),
            1 => raft.raft_log.committed,
            _ => raft.raft_log.last_index(),
        };
        let of_index = raft.raft_log.term(index).unwrap_or_default();
        let log_term = if source.byte().is_multiple_of(3) { source.number() } else { of_index };
        let is_odd = source.byte().is_multiple_of(8);
        let entry = |source: &mut Source<'_>, at: u64| Entry {
            entry_type: if is_odd { i32::from(source.byte() % 4) } else { i32::from(source.byte() % 4 / 3 * 2) },
            index: if is_odd { source.number() } else { index.wrapping_add(at + 1) },
            term: if is_odd { source.number() } else { term },
            ..Default::default()
        };
        let mut entries: Vec<_> = (0..u64::from(source.byte() % 4)).map(|at| entry(source, at)).collect();
        for entry in entries.iter_mut().filter(|entry| entry.entry_type != 0) {
            entry.data = source.change();
        }
        let metadata = SnapshotMetadata { conf_state: Some(source.members()), index: source.number(), term: log_term };
        let data = if is_odd { vec![0; usize::from(source.byte() % 12)] } else { vec![0; 9] };
        let kind = i32::from(source.byte() % 20);
        Message {
            msg_type: kind,
            to: if source.byte().is_multiple_of(16) { source.replica() } else { raft.id },
            from: source.replica(),
            term,
            log_term,
            index,
            entries: if kind == MessageType::MsgAppend as i32 || is_odd { entries } else { Vec::new() },
            commit: source.number(),
            commit_term: source.number(),
            snapshot: Some(Snapshot { data, metadata: Some(metadata) }),
            request_snapshot: if is_odd { source.number() } else { 0 },
            reject: source.byte().is_multiple_of(2),
            reject_hint: if is_odd { source.number() } else { index },
            context: if source.byte().is_multiple_of(4) { b"CampaignTransfer".to_vec() } else { Vec::new() },
            priority: i64::from(source.byte()),
            ..Default::default()
        }
    }

    fn deliver(&mut self, message: PeerMessage) {
        self.group.would_install(&message);
        self.group.restoring(&message);
        self.group.step(message);
    }

    fn deliver_anything(&mut self, source: &mut Source<'_>) {
        let message = self.message(source);
        let payloads = message.entries.iter().map(|_| Payload::default()).collect();
        let progress = if source.byte().is_multiple_of(4) { source.number() } else { 0 };
        let hibernates = source.byte().is_multiple_of(8);
        self.deliver(PeerMessage { group: ID, hibernates, progress, message, payloads });
    }

    /// Others vote for it as soon as it asks, so that it leads.
    fn elect(&mut self) {
        for _ in 0..4 {
            if self.group.node.raft.state == StateRole::Follower {
                self.tick(30);
            }
            if !self.collect() {
                return;
            }
            self.persist();
            let raft = &self.group.node.raft;
            let (to, term) = (raft.id, raft.term);
            let (kind, term) = match raft.state {
                StateRole::PreCandidate => (MessageType::MsgRequestPreVoteResponse, term + 1),
                StateRole::Candidate => (MessageType::MsgRequestVoteResponse, term),
                _ => continue,
            };
            for from in [id(2), id(3), id(4)].map(to_raft) {
                let message = Message { msg_type: kind as i32, to, from, term, ..Default::default() };
                self.deliver(PeerMessage { group: ID, hibernates: false, progress: 0, message, payloads: Vec::new() });
            }
        }
    }
}

/// Does with a group what the bytes say.
///
/// # Panics
/// If that ends the group's process.
pub fn expose(bytes: &[u8]) {
    let mut source = Source(bytes);
    let Some(mut exposed) = Exposed::new(&mut source) else { return };
    while !source.0.is_empty() {
        let goes_on = match source.byte() % 16 {
            0 => exposed.collect(),
            1 => {
                exposed.persist();
                exposed.collect()
            }
            2 => {
                exposed.tick(source.byte() % 40);
                true
            }
            3 => {
                exposed.elect();
                true
            }
            4 => {
                exposed.group.replicate((), true, false);
                exposed.group.building().extend_from_slice(b"command");
                exposed.group.propose();
                true
            }
            5 => {
                let change = [MemberChange::Voter(id(5)), MemberChange::Remove(id(2))][usize::from(source.byte() % 2)];
                exposed.group.change_members(&[change]);
                true
            }
            6 => {
                exposed.group.transfer_leadership(id(3));
                true
            }
            7 => {
                let mut rest = Bytes::copy_from_slice(source.0);
                match PeerMessage::decode(&mut rest) {
                    Some(message) => exposed.deliver(message),
                    None => exposed.deliver_anything(&mut source),
                }
                true
            }
            _ => {
                exposed.deliver_anything(&mut source);
                true
            }
        };
        if !goes_on {
            return;
        }
    }
    exposed.collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `TESSERA_MESSAGES` sets how many groups are tried.
    fn cases() -> u32 {
        std::env::var("TESSERA_MESSAGES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3_000)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

        #[test]
        fn no_message_ends_the_process(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            expose(&bytes);
        }
    }

    /// A founder of three whose log has 15 entries, of which 7 are committed and 5 applied.
    fn exposed() -> Exposed {
        Exposed::new(&mut Source(&[64 + 2, 15])).expect("it is sound")
    }

    fn deliver(exposed: &mut Exposed, message: Message) {
        let (from, to) = (to_raft(id(2)), to_raft(id(1)));
        let payloads = message.entries.iter().map(|_| Payload::default()).collect();
        let message = Message { from, to, ..message };
        exposed.deliver(PeerMessage { group: ID, hibernates: false, progress: 0, message, payloads });
    }

    #[test]
    fn all_roles_are_exposed() {
        let mut exposed = exposed();
        exposed.elect();
        assert!(exposed.group.is_leader());
    }

    #[test]
    fn a_heartbeat_that_commits_what_is_not_there_is_dropped() {
        let mut exposed = exposed();
        let heartbeat =
            |commit| Message { msg_type: MessageType::MsgHeartbeat as i32, term: 9, commit, ..Default::default() };
        deliver(&mut exposed, heartbeat(16));
        assert_eq!((exposed.group.node.raft.term, exposed.group.node.raft.raft_log.committed), (4, 7));
        deliver(&mut exposed, heartbeat(15));
        assert_eq!((exposed.group.node.raft.term, exposed.group.node.raft.raft_log.committed), (9, 15));
    }

    /// One that is well formed and cannot be made is committed and known as such only then; the replica goes no further.
    #[test]
    fn a_change_of_members_that_cannot_be_made_sets_the_replica_aside() {
        let change = |changes: &[(u64, ConfChangeType)]| {
            let single =
                |(id, kind): &(u64, ConfChangeType)| ConfChangeSingle { change_type: *kind as i32, node_id: *id };
            ConfChangeV2 { changes: changes.iter().map(single).collect(), ..Default::default() }.encode_to_vec()
        };
        let append = |data: Vec<u8>| {
            let entry_type = EntryType::EntryConfChangeV2 as i32;
            let entries = vec![Entry { entry_type, index: 16, term: 9, data, ..Default::default() }];
            let msg_type = MessageType::MsgAppend as i32;
            Message { msg_type, term: 9, index: 15, log_term: 4, commit: 16, entries, ..Default::default() }
        };
        let mut exposed = exposed();
        deliver(&mut exposed, append(vec![0xff]));
        assert_eq!(exposed.group.node.raft.raft_log.last_index(), 15, "it is no change at all");
        let all = [1, 2, 3].map(|node| (to_raft(id(node)), ConfChangeType::RemoveNode));
        deliver(&mut exposed, append(change(&all)));
        assert_eq!(exposed.group.node.raft.raft_log.last_index(), 16);
        assert!(exposed.collect(), "it is not on disk yet");
        exposed.persist();
        assert!(!exposed.collect());
    }

    /// It once looked for entries that the snapshot had replaced, and ended the process.
    #[test]
    fn no_election_is_called_before_the_log_has_the_snapshot() {
        let mut exposed = exposed();
        let voters = [1, 2, 3].map(|node| to_raft(id(node))).to_vec();
        let conf_state = Some(ConfState { voters, ..Default::default() });
        let metadata = Some(SnapshotMetadata { conf_state, index: 30, term: 8 });
        let snapshot = Some(Snapshot { data: vec![0; 9], metadata });
        let msg_type = MessageType::MsgSnapshot as i32;
        deliver(&mut exposed, Message { msg_type, term: 9, snapshot, ..Default::default() });
        assert!(exposed.collect());
        assert_eq!(exposed.group.view().applied, 30);
        exposed.tick(100);
        let timeout = Message { msg_type: MessageType::MsgTimeoutNow as i32, term: 9, ..Default::default() };
        deliver(&mut exposed, timeout);
        assert_eq!(exposed.group.node.raft.state, StateRole::Follower);
        exposed.persist();
        exposed.tick(100);
        assert_eq!(exposed.group.node.raft.state, StateRole::PreCandidate);
    }
}
