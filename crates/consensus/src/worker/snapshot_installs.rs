//! The installation of snapshots.
//!
//! A leader's message only names a snapshot. The state machine fetches the content, which may take long, while the
//! group goes on. Then the group pauses: it receives and sends nothing. The log records which snapshot is about to be
//! installed, because the new state is on disk before the log can say so. Then the state is replaced, which may take
//! long too, while the loop goes on with other groups. At last Raft receives the message and considers the snapshot as
//! installed.

use super::inbox::Message;
use super::{StateMachine, Worker, touch};
use crate::GroupId;
use crate::group::Inconsistent;
use crate::group::message::PeerMessage;
use crate::log::{LogBatch, LogError};
use ahash::AHashMap;

#[derive(Default)]
pub(super) struct SnapshotInstalls {
    by_group: AHashMap<GroupId, SnapshotInstall>,
}

struct SnapshotInstall {
    message: PeerMessage,
    /// Whether it is replacing the state now; before, it is being fetched.
    is_installing: bool,
    /// Whether the group is to be removed when the state is replaced.
    is_removed_after: bool,
}

impl SnapshotInstalls {
    /// Whether the group's state is being replaced.
    pub(super) fn is_installing(&self, group: GroupId) -> bool {
        !self.by_group.is_empty() && self.by_group.get(&group).is_some_and(|install| install.is_installing)
    }

    /// The snapshot of that index, if it is replacing the group's state now.
    fn installing(&self, group: GroupId, index: u64) -> Option<&SnapshotInstall> {
        let is_it = |install: &&SnapshotInstall| install.is_installing && install.message.snapshot().0 == index;
        self.by_group.get(&group).filter(is_it)
    }

    /// Whether a group may be removed now. If not, it is removed once its state is replaced.
    pub(super) fn may_be_removed(&mut self, group: GroupId) -> bool {
        match self.by_group.get_mut(&group).filter(|install| install.is_installing) {
            Some(install) => {
                install.is_removed_after = true;
                false
            }
            None => {
                self.by_group.remove(&group);
                true
            }
        }
    }
}

impl<M: StateMachine> Worker<M> {
    pub(super) fn snapshot_arrived(&mut self, message: PeerMessage) {
        let id = message.group;
        let Some(group) = self.groups.get_mut(&id) else { return };
        if self.snapshot_installs.is_installing(id) {
            return;
        }
        if !group.would_take(&message) || !group.would_install(&message) {
            // Raft may see from the message that this replica is in an old term.
            group.step(message);
            return touch(&mut self.touched, group);
        }
        let is_known = |install: &SnapshotInstall| install.message.snapshot() == message.snapshot();
        let is_on_its_way = self.snapshot_installs.by_group.get(&id).is_some_and(is_known);
        let (index, state) = message.snapshot();
        let is_there = is_on_its_way || group.replica().is_witness() || self.machine.fetch(id, index, state);
        // The message may name the same snapshot again, in a later term.
        self.snapshot_installs
            .by_group
            .insert(id, SnapshotInstall { message, is_installing: false, is_removed_after: false });
        if is_there && !is_on_its_way {
            self.snapshot_fetched(id, index, true);
        }
    }

    pub(super) fn snapshot_fetched(&mut self, id: GroupId, index: u64, is_there: bool) {
        let (Some(group), Some(install)) = (self.groups.get(&id), self.snapshot_installs.by_group.get_mut(&id)) else {
            return;
        };
        if install.message.snapshot().0 != index {
            return;
        }
        let is_apply_behind =
            self.apply_backlog.holds(id) || self.unapplied.iter().any(|committed| committed.group == id);
        if !is_there || is_apply_behind || !group.would_install(&install.message) {
            self.snapshot_installs.by_group.remove(&id);
            return self.machine.discard(id); // if it is still needed, the leader offers it again
        }
        install.is_installing = true;
        let (record, log) = (group.restoring(&install.message), self.log.as_ref());
        let Some((record, log)) = record.zip(log) else { return self.snapshot_noted(id, index) };
        let inbox = self.inbox.clone();
        let completion = move |outcome: Result<(), LogError>| {
            // If the log failed, nothing is persisted any more until the process is restarted.
            if outcome.is_ok() {
                inbox.push(Message::Noted(id, index));
            }
        };
        log.submit(LogBatch { records: vec![record], sync: true, completion: Some(Box::new(completion)) });
    }

    pub(super) fn snapshot_noted(&mut self, id: GroupId, index: u64) {
        let Some(install) = self.snapshot_installs.installing(id, index) else { return };
        let is_witness = self.groups.get(&id).is_none_or(|group| group.replica().is_witness());
        if install.is_removed_after || is_witness || self.machine.prepare(id, index, install.message.snapshot().1) {
            self.snapshot_prepared(id, index);
        }
    }

    pub(super) fn snapshot_prepared(&mut self, id: GroupId, index: u64) {
        if self.snapshot_installs.installing(id, index).is_none() {
            return;
        }
        let Some(SnapshotInstall { message, is_removed_after, .. }) = self.snapshot_installs.by_group.remove(&id)
        else {
            return;
        };
        if is_removed_after {
            return self.remove(id);
        }
        if let Some(group) = self.groups.get_mut(&id) {
            group.step(message);
            if !group.is_installing() {
                let error = "Raft refuses the snapshot, which has already replaced the state".into();
                let persistent = group.is_persistent();
                return self.set_aside(id, persistent, &Inconsistent::Snapshot { index, error });
            }
            touch(&mut self.touched, group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GroupStart, Inbox, Transport};
    use super::*;
    use crate::group::{GroupSettings, MemberChange};
    use crate::{Committed, Evaluated, Failure};
    use bytes::{Bytes, BytesMut};
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;
    use tessera_types::{NodeId, ReplicaId};

    const ID: GroupId = GroupId(1);
    const PATIENCE: Duration = Duration::from_secs(20);

    /// What a slow state machine was asked.
    #[derive(Debug, PartialEq)]
    enum Asked {
        Fetch(u64),
        Prepare(u64),
        Restored(u64),
        Applied(u64),
        Removed,
    }

    struct Slow {
        asked: Sender<Asked>,
    }

    impl StateMachine for Slow {
        type Command = Sender<Result<(), Failure>>;
        type PendingReply = Sender<Result<(), Failure>>;

        fn evaluate(
            &mut self,
            _: GroupId,
            command: Self::Command,
            payload: &mut BytesMut,
        ) -> Evaluated<Self::PendingReply> {
            payload.extend_from_slice(b"x");
            Evaluated::Replicate { reply: command, sync: false, leader_acked: false }
        }

        fn proposed(&mut self, _: GroupId, _: u64, _: &Bytes) {}

        fn apply(&mut self, committed: &[Committed]) -> Result<Vec<GroupId>, String> {
            committed.iter().for_each(|committed| _ = self.asked.send(Asked::Applied(committed.index)));
            Ok(Vec::new())
        }

        fn answer(&mut self, reply: Self::PendingReply, outcome: Result<(), Failure>) {
            let _ = reply.send(outcome);
        }

        fn refuse(&mut self, command: Self::Command, failure: Failure) {
            let _ = command.send(Err(failure));
        }

        fn serving(&mut self, _: GroupId) {}

        fn snapshot(&mut self, _: GroupId) -> Option<(u64, Vec<u8>)> {
            // The index after the entry that opens the term, and ten writes.
            Some((11, b"state".to_vec()))
        }

        fn fetch(&mut self, _: GroupId, index: u64, snapshot: &[u8]) -> bool {
            assert_eq!(snapshot, b"state");
            let _ = self.asked.send(Asked::Fetch(index));
            false
        }

        fn prepare(&mut self, _: GroupId, index: u64, _: &[u8]) -> bool {
            let _ = self.asked.send(Asked::Prepare(index));
            false
        }

        fn restore(&mut self, _: GroupId, index: u64, _: &[u8]) -> Result<(), String> {
            let _ = self.asked.send(Asked::Restored(index));
            Ok(())
        }

        fn removed(&mut self, _: GroupId) {
            let _ = self.asked.send(Asked::Removed);
        }
    }

    type Queue = Arc<Inbox<Sender<Result<(), Failure>>>>;

    struct Loopback(Vec<Queue>);

    impl Transport for Loopback {
        fn send(&self, messages: Vec<PeerMessage>) {
            for message in messages {
                self.0[message.destination().0 as usize - 1].deliver(vec![message]);
            }
        }
    }

    fn replica(node: u32) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation: 0 }
    }

    /// Starts a leader that has ten writes, and a replica that joins it. Returns what the latter's state machine is
    /// asked.
    fn join() -> (Vec<Queue>, Receiver<Asked>) {
        let inboxes: Vec<Queue> = (0..2).map(|_| Inbox::new(10_000)).collect();
        let transport = Arc::new(Loopback(inboxes.clone()));
        let mut asked = Vec::new();
        for (node, inbox) in (1..).zip(&inboxes) {
            let (sender, receiver) = channel();
            asked.push(receiver);
            let worker = Worker::new(Slow { asked: sender }, inbox.clone(), None).with_transport(transport.clone());
            std::thread::spawn(move || {
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(worker.run());
            });
            let initial_members = if node == 1 { vec![replica(1)] } else { Vec::new() };
            let settings = GroupSettings {
                persistent: false,
                synced: false,
                applied: 0,
                applied_term: None,
                replica: replica(node),
                initial_members,
            };
            inbox.start(GroupStart { id: ID, settings, recovered: Default::default() });
        }
        let mut written = 0;
        while written < 10 {
            let (reply, outcome) = channel();
            inboxes[0].submit(ID, reply).unwrap();
            written += usize::from(outcome.recv_timeout(PATIENCE).unwrap().is_ok());
        }
        inboxes[0].change_members(ID, vec![MemberChange::Learner(replica(2))]);
        (inboxes, asked.remove(1))
    }

    fn expect(asked: &Receiver<Asked>, what: &Asked) {
        assert_eq!(asked.recv_timeout(PATIENCE).as_ref(), Ok(what));
    }

    #[test]
    fn a_snapshot_is_fetched_then_taken_then_the_log_goes_on() {
        let (inboxes, asked) = join();
        expect(&asked, &Asked::Fetch(11));
        inboxes[1].fetched(ID, 10, true); // an earlier snapshot, which is ignored
        inboxes[1].fetched(ID, 11, true);
        expect(&asked, &Asked::Prepare(11));
        inboxes[1].prepared(ID, 11);
        expect(&asked, &Asked::Restored(11));
        expect(&asked, &Asked::Applied(12)); // the change that made it a member
    }

    #[test]
    fn a_snapshot_that_cannot_be_fetched_is_offered_again() {
        let (inboxes, asked) = join();
        expect(&asked, &Asked::Fetch(11));
        inboxes[1].fetched(ID, 11, false);
        expect(&asked, &Asked::Fetch(11));
    }

    #[test]
    fn a_group_is_not_removed_while_its_state_is_being_replaced() {
        let (inboxes, asked) = join();
        expect(&asked, &Asked::Fetch(11));
        inboxes[1].fetched(ID, 11, true);
        expect(&asked, &Asked::Prepare(11));
        inboxes[1].remove(ID);
        assert!(asked.recv_timeout(Duration::from_millis(200)).is_err(), "not before the state is whole");
        inboxes[1].prepared(ID, 11);
        expect(&asked, &Asked::Removed);
    }
}
