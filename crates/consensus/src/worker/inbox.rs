//! The queue in front of a worker, and what may stand in it.

use crate::GroupId;
use crate::group::message::PeerMessage;
use crate::group::origin::last_entry;
use crate::group::{GroupSettings, GroupView, MemberChange, ReadyNumbers};
use crate::log::RecoveredGroup;
use parking_lot::Mutex;
use std::sync::Arc;
use tessera_types::{NodeId, ReplicaId};
use tokio::sync::Notify;

/// The queue in front of a worker.
pub struct Inbox<C> {
    pub(super) messages: Mutex<Vec<Message<C>>>,
    pub(super) wake: Notify,
    limit: usize,
}

/// The inbox is full; it contains the command that was refused.
#[derive(Debug)]
pub struct InboxFull<C>(pub C);

pub(super) enum Message<C> {
    Command(GroupId, C),
    Start(GroupStart),
    Remove(GroupId),
    Persisted(ReadyNumbers),
    Peer(PeerMessage),
    ChangeMembers(GroupId, Vec<MemberChange>),
    TransferLeadership(GroupId, ReplicaId),
    ForceRecover(GroupId, ReplicaId),
    GoOnWithout(GroupId, ReplicaId),
    Snapshot(GroupId, u64, Vec<u8>),
    ForgetSnapshot(GroupId),
    /// The content of the snapshot of that index was fetched, or cannot be fetched.
    Fetched(GroupId, u64, bool),
    /// The log has recorded that the snapshot of that index is about to be installed.
    Noted(GroupId, u64),
    /// The state has been replaced by the snapshot of that index.
    Prepared(GroupId, u64),
    Wake(GroupId),
    WakeThoseThatNeed(Arc<[NodeId]>),
    Status(StatusQuery),
    /// The group's state machine is durable up to the index.
    Durable(GroupId, u64),
    CaughtUp,
    /// What commands of the group wait for is there.
    HasRead(GroupId),
    /// Some commands of the group wait no longer.
    GoOn(GroupId),
    Stop,
}

/// Receives views of all groups of a worker.
pub type StatusQuery = Box<dyn FnOnce(Vec<GroupView>) + Send>;

/// Carries messages to replicas on other nodes.
pub trait Transport: Send + Sync {
    /// Sends the messages of one pass. It may lose, repeat and reorder messages, but it never waits.
    fn send(&self, messages: Vec<PeerMessage>);
}

/// A group to start.
pub struct GroupStart {
    /// The group.
    pub id: GroupId,
    /// How the group is to run.
    pub settings: GroupSettings,
    /// The content of the log for this group; empty for a new group.
    pub recovered: RecoveredGroup,
}

impl GroupStart {
    /// Term and index of the last entry that the replica has, in its log or only in its state; zeros if the two
    /// contradict each other.
    pub fn last_entry(self) -> (u64, u64) {
        last_entry(self.id, &self.settings, self.recovered)
    }
}

impl<C> Inbox<C> {
    /// An inbox that refuses commands while it holds `limit` messages.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { messages: Mutex::new(Vec::new()), wake: Notify::new(), limit })
    }

    /// Queues a command.
    ///
    /// # Errors
    /// Returns the command when the inbox is full: it is not done, and may be tried again later.
    pub fn submit(&self, group: GroupId, command: C) -> Result<(), InboxFull<C>> {
        let mut messages = self.messages.lock();
        if messages.len() >= self.limit {
            return Err(InboxFull(command));
        }
        let was_empty = messages.is_empty();
        messages.push(Message::Command(group, command));
        drop(messages);
        if was_empty {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Queues commands that the worker is to find together: those of one group become one log entry. Returns those for which there is no
    /// room, which are the last ones; they are not done.
    pub fn submit_all(&self, commands: Vec<(GroupId, C)>) -> Vec<InboxFull<C>> {
        let mut commands = commands.into_iter();
        let mut messages = self.messages.lock();
        let was_empty = messages.is_empty();
        let room = self.limit.saturating_sub(messages.len());
        messages.extend(commands.by_ref().take(room).map(|(group, command)| Message::Command(group, command)));
        let is_woken = was_empty && !messages.is_empty();
        drop(messages);
        if is_woken {
            self.wake.notify_one();
        }
        commands.map(|(_, command)| InboxFull(command)).collect()
    }

    /// Has the worker start a group.
    pub fn start(&self, start: GroupStart) {
        self.push(Message::Start(start));
    }

    /// Has the worker stop a group and forget its log.
    pub fn remove(&self, group: GroupId) {
        self.push(Message::Remove(group));
    }

    /// Tells the worker that a group's state machine is durable up to this index, so its log may be cut off up to
    /// there.
    pub fn durable(&self, group: GroupId, index: u64) {
        self.push(Message::Durable(group, index));
    }

    /// Delivers messages from other replicas. Drops them when the inbox is full: Raft copes with lost messages.
    pub fn deliver(&self, messages: Vec<PeerMessage>) {
        if messages.is_empty() {
            return;
        }
        let mut queue = self.messages.lock();
        if queue.len() < self.limit {
            queue.extend(messages.into_iter().map(Message::Peer));
            drop(queue);
            self.wake.notify_one();
        }
    }

    /// Asks for a change of a group's members, if this replica leads it and no change is under way. Whether it was made
    /// [shows](Self::query_status) later.
    pub fn change_members(&self, group: GroupId, changes: Vec<MemberChange>) {
        self.push(Message::ChangeMembers(group, changes));
    }

    /// Asks another replica to lead, if this one leads.
    pub fn transfer_leadership(&self, group: GroupId, to: ReplicaId) {
        self.push(Message::TransferLeadership(group, to));
    }

    /// If this replica is a witness that leads, lets another replica, which lacks entries that the witness has dropped,
    /// continue with its own state. The dropped entries are lost, so this may be used only if no other replica has them
    /// any more.
    pub fn force_recover(&self, group: GroupId, replica: ReplicaId) {
        self.push(Message::ForceRecover(group, replica));
    }

    /// If the replica here is one of two voters whose log is in memory, has it go on as the only one, provided that the other one
    /// is its [counterpart](crate::GroupView::counterpart). To be called only if the other one has lost everything and never
    /// votes again.
    pub fn go_on_without(&self, group: GroupId, lost: ReplicaId) {
        self.push(Message::GoOnWithout(group, lost));
    }

    /// Offers a group a [snapshot](crate::StateMachine::snapshot) that reflects the log up to `index`.
    pub fn offer_snapshot(&self, group: GroupId, index: u64, snapshot: Vec<u8>) {
        self.push(Message::Snapshot(group, index, snapshot));
    }

    /// The snapshot that was offered no longer exists; if it is needed, the group asks for another one.
    pub fn forget_snapshot(&self, group: GroupId) {
        self.push(Message::ForgetSnapshot(group));
    }

    /// The content of the [snapshot](crate::StateMachine::fetch) that reflects the log up to `index` was fetched, or
    /// cannot be fetched.
    pub fn fetched(&self, group: GroupId, index: u64, is_there: bool) {
        self.push(Message::Fetched(group, index, is_there));
    }

    /// A group's state has been [replaced](crate::StateMachine::prepare) by the snapshot that reflects the log up to
    /// `index`.
    pub fn prepared(&self, group: GroupId, index: u64) {
        self.push(Message::Prepared(group, index));
    }

    /// The state machine can now take the entries that it [could not apply](crate::StateMachine::apply).
    pub fn caught_up(&self) {
        self.push(Message::CaughtUp);
    }

    /// The state machine has read what commands of a group [wait](crate::Evaluated::Waits) for.
    pub fn has_read(&self, group: GroupId) {
        self.push(Message::HasRead(group));
    }

    /// Some commands of a group that [wait](crate::Evaluated::Waits) for something else than a read need not wait any more.
    pub fn go_on(&self, group: GroupId) {
        self.push(Message::GoOn(group));
    }

    /// Wakes a group that may hibernate, because somebody wants to read.
    pub fn wake(&self, group: GroupId) {
        self.push(Message::Wake(group));
    }

    /// Wakes hibernating groups whose leader is on one of these nodes, which are not heard from any more, or which are led
    /// here and have no majority without them.
    pub fn wake_those_that_need(&self, silent: Arc<[NodeId]>) {
        self.push(Message::WakeThoseThatNeed(silent));
    }

    /// Calls `look` with views of all groups of the worker.
    pub fn query_status(&self, query: StatusQuery) {
        self.push(Message::Status(query));
    }

    /// Ends the loop, which first refuses all queued commands.
    pub fn stop(&self) {
        self.push(Message::Stop);
    }

    pub(super) fn push(&self, message: Message<C>) {
        self.messages.lock().push(message);
        self.wake.notify_one();
    }
}
