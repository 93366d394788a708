//! The loop that drives the groups of one worker.
//!
//! **One pass** takes everything that is queued: commands, messages, and reports of the log. Commands are evaluated one
//! by one, and all effects on a group in the pass become one entry. Then every group that was touched outputs what Raft
//! has ready; all records go to the log as one batch; committed entries are applied in one call; and pending replies
//! are sent. Nothing ever waits for more to come: while a pass runs or the disk syncs, the work of the next pass
//! gathers.
//!
//! Only the loop touches groups and state machine, so neither needs a lock. It runs as a task on the
//! same thread as the connections of its core: a command sent from there costs no wake-up of another thread, and all
//! connections that were readable in one turn of the event loop are in the same pass.

use crate::group::freshness::Fresh;
use crate::group::message::PeerMessage;
use crate::group::{Group, Inconsistent, PassOutput, ReadyNumbers, TICK};
use crate::log::{Completion, LogBatch, LogRecord, SharedLog};
use crate::{Committed, Evaluated, Failure, GroupId, Moment, StateMachine};
use ahash::AHashMap;
use apply_backlog::ApplyBacklog;
use inbox::Message;
pub use inbox::{GroupStart, Inbox, InboxFull, StatusQuery, Transport};
use refusal::Refusal;
use snapshot_installs::SnapshotInstalls;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The loop checks the log's health, and retries what failed, once in this many ticks.
const DISK_TICKS: u32 = 4;

/// How long a leader whose disk refuses writes waits for another replica to take over, before it reports the disk to
/// clients.
pub const DISK_PATIENCE: Duration = Duration::from_secs(3);

/// How long a stopping worker waits for the disk before it answers waiting commands with an unknown outcome.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// The groups of one worker, their state machine and their loop.
pub struct Worker<M: StateMachine> {
    machine: M,
    groups: AHashMap<GroupId, Group<M::PendingReply>>,
    /// Replicas that are set aside, and whether the log has records of them.
    aside: AHashMap<GroupId, bool>,
    inbox: Arc<Inbox<M::Command>>,
    log: Option<Arc<SharedLog>>,
    transport: Option<Arc<dyn Transport>>,
    /// When the worker began; groups count time from here.
    began: Moment,
    snapshot_installs: SnapshotInstalls,
    /// Groups that this pass touched.
    touched: Vec<GroupId>,
    /// Committed entries that the state machine could not apply. They are submitted again before any others.
    unapplied: Vec<Committed>,
    apply_backlog: ApplyBacklog,
    apply_failure: Option<String>,
    /// Since when the disk has refused writes.
    refusing: Option<Instant>,
    /// Whether entries of other leaders are not taken in this pass: what is left of the disk is kept for what must end.
    declines_entries: bool,
    /// When a stopping worker ends at the latest.
    stopping: Option<Instant>,
}

impl<M: StateMachine> Worker<M> {
    /// A worker without groups. `log` is needed as soon as one of them is persistent.
    pub fn new(machine: M, inbox: Arc<Inbox<M::Command>>, log: Option<Arc<SharedLog>>) -> Self {
        Self {
            transport: None,
            began: Moment::now(),
            machine,
            groups: AHashMap::new(),
            aside: AHashMap::new(),
            inbox,
            log,
            snapshot_installs: SnapshotInstalls::default(),
            touched: Vec::new(),
            unapplied: Vec::new(),
            apply_backlog: ApplyBacklog::default(),
            apply_failure: None,
            refusing: None,
            declines_entries: false,
            stopping: None,
        }
    }

    /// A worker whose groups may have replicas on other nodes.
    #[must_use]
    pub fn with_transport(self, transport: Arc<dyn Transport>) -> Self {
        Self { transport: Some(transport), ..self }
    }

    /// Runs until [`Inbox::stop`]. Dropping the future stops the groups where they are; nothing acknowledged is lost.
    pub async fn run(mut self) {
        let mut messages = Vec::new();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let inbox = self.inbox.clone();
        let mut ticks = 0u32;
        while !self.is_done() {
            tokio::select! {
                biased;
                () = inbox.wake.notified() => {}
                _ = tick.tick() => {
                    ticks = ticks.wrapping_add(1);
                    self.tick();
                    if ticks.is_multiple_of(DISK_TICKS) {
                        self.look_after_disk();
                    }
                }
            }
            std::mem::swap(&mut *inbox.messages.lock(), &mut messages);
            self.pass(&mut messages);
        }
        self.fail_all(|_| true);
    }

    /// Whether the worker was stopped and nobody waits for it any more, or has waited long enough.
    fn is_done(&self) -> bool {
        self.stopping
            .is_some_and(|limit| Instant::now() >= limit || self.groups.values().all(|group| !group.has_pending()))
    }

    fn pass(&mut self, messages: &mut Vec<Message<M::Command>>) {
        let refusal = self.refusal();
        self.refusing = refusal.as_ref().map(|_| self.refusing.unwrap_or_else(Instant::now));
        self.declines_entries = self.log.as_ref().is_some_and(|log| log.is_reserve_low());
        self.machine.begin_pass();
        for message in messages.drain(..) {
            match message {
                Message::Command(group, command) => self.evaluate(group, command, refusal.as_ref()),
                Message::Start(start) => self.start(start),
                Message::Remove(group) => self.remove(group),
                Message::Persisted(readies) => self.persisted(readies),
                Message::Peer(message) => self.step(message),
                Message::Fetched(id, index, is_there) => self.snapshot_fetched(id, index, is_there),
                Message::Noted(id, index) => self.snapshot_noted(id, index),
                Message::Prepared(id, index) => self.snapshot_prepared(id, index),
                Message::ForgetSnapshot(id) => {
                    if let Some(group) = self.groups.get_mut(&id) {
                        group.forget_snapshot();
                    }
                }
                Message::ChangeMembers(id, changes) => {
                    if let Some(group) = self.groups.get_mut(&id) {
                        // If it is not begun now: whoever wants it looks, and asks again.
                        group.change_members(&changes);
                        touch(&mut self.touched, group);
                    }
                }
                Message::TransferLeadership(id, to) => {
                    if let Some(group) = self.groups.get_mut(&id)
                        && group.transfer_leadership(to)
                    {
                        self.machine.lease(id, Some(self.began));
                        touch(&mut self.touched, group);
                    }
                }
                Message::ForceRecover(id, replica) => {
                    if let Some(group) = self.groups.get_mut(&id) {
                        group.force_recover(replica);
                        touch(&mut self.touched, group);
                    }
                }
                Message::GoOnWithout(id, lost) => {
                    if let Some(group) = self.groups.get_mut(&id)
                        && group.go_on_without(lost)
                    {
                        tracing::warn!(group = %id, %lost, "goes on as the only replica: the other one's process has ended");
                        touch(&mut self.touched, group);
                    }
                }
                Message::Snapshot(id, index, snapshot) => {
                    if let Some(group) = self.groups.get_mut(&id) {
                        group.offer_snapshot(index, snapshot);
                        touch(&mut self.touched, group);
                    }
                }
                Message::Wake(id) => {
                    if let Some(group) = self.groups.get_mut(&id) {
                        group.wake_and_renew_lease(self.began.elapsed());
                        touch(&mut self.touched, group);
                    }
                }
                Message::WakeThoseThatNeed(silent) => {
                    self.groups.values_mut().for_each(|group| group.wake_if_it_needs(&silent));
                }
                Message::Status(query) => query(self.groups.values().map(Group::view).collect()),
                Message::Durable(id, index) => self.truncate(id, index),
                Message::CaughtUp => self.catch_up(),
                Message::HasRead(id) => {
                    self.machine.has_read(id);
                    self.evaluate_waiting(id, refusal.as_ref());
                }
                Message::GoOn(id) => self.evaluate_waiting(id, refusal.as_ref()),
                Message::Stop => {
                    self.stopping = Some(Instant::now() + STOP_PATIENCE);
                    self.machine.stopping();
                }
            }
        }
        self.advance();
    }

    fn tick(&mut self) {
        let now = self.began.elapsed();
        for group in self.groups.values_mut().filter(|group| !group.is_hibernating()) {
            if self.snapshot_installs.is_installing(group.id) {
                continue;
            }
            let mut is_touched = group.tick(now);
            match group.fresh() {
                Fresh::Now => self.machine.fresh(group.id, None),
                Fresh::AsOf(as_of) => self.machine.fresh(group.id, Some(self.began + as_of)),
                Fresh::Unknown => {}
            }
            if group.may_hibernate() {
                if self.machine.is_idle(group.id) {
                    group.hibernate();
                    is_touched = true;
                } else {
                    group.reset_idle_ticks();
                }
            }
            if is_touched {
                touch(&mut self.touched, group);
            }
        }
    }

    /// Why persistent groups refuse commands now, if they do.
    fn refusal(&self) -> Option<Refusal> {
        if self.stopping.is_some() {
            return Some(Refusal::of_all(Failure::ShuttingDown));
        }
        match &self.apply_failure {
            Some(error) => Some(Refusal::of_all(Failure::NotApplied(error.clone()))),
            None => Refusal::of_log(self.log.as_ref()?),
        }
    }

    fn refuses_lately(&self) -> bool {
        self.refusing.is_some_and(|since| since.elapsed() < DISK_PATIENCE)
    }

    fn evaluate(&mut self, id: GroupId, command: M::Command, refusal: Option<&Refusal>) {
        let may_serve =
            |group: &&mut Group<M::PendingReply>| group.is_serving() && !self.snapshot_installs.is_installing(id);
        let Some(group) = self.groups.get_mut(&id).filter(may_serve) else {
            return self.machine.refuse(command, Failure::NotServing);
        };
        if let Some(refusal) = refusal.filter(|refusal| group.is_persistent() || refusal.is_shutting_down())
            && refusal.refuses(&self.machine, &command)
        {
            // Another replica may lead soon.
            let is_hopeful = !refusal.is_shutting_down() && !group.is_alone() && self.refuses_lately();
            let failure = if is_hopeful { Failure::NotServing } else { refusal.failure.clone() };
            return self.machine.refuse(command, failure);
        }
        if self.apply_backlog.is_full(id) {
            return self.machine.refuse(command, Failure::Busy);
        }
        if self.machine.begins_entry(&command)
            && let Some((index, payload)) = group.propose()
        {
            self.machine.proposed(id, index, &payload);
            touch(&mut self.touched, group);
        }
        let closed = match self.machine.evaluate(id, command, group.building()) {
            Evaluated::Replicate { reply, sync, leader_acked } => group.replicate(reply, sync, leader_acked),
            Evaluated::NoChange { reply, confirm } => {
                match group.follow(reply, confirm, || self.began.elapsed()) {
                    Some(reply) => self.machine.answer(reply, Ok(())),
                    None => touch(&mut self.touched, group),
                }
                return;
            }
            Evaluated::Refused | Evaluated::Waits => return,
        };
        touch(&mut self.touched, group);
        if let Some((index, payload)) = closed {
            self.machine.proposed(id, index, &payload);
        }
    }

    fn evaluate_waiting(&mut self, id: GroupId, refusal: Option<&Refusal>) {
        while let Some(command) = self.machine.next_waiting(id) {
            self.evaluate(id, command, refusal);
        }
    }

    fn start(&mut self, start: GroupStart) {
        let persistent = start.settings.persistent;
        match Group::new(start.id, start.settings, start.recovered) {
            Ok(mut group) => {
                touch(&mut self.touched, &mut group);
                self.groups.insert(start.id, group);
            }
            Err(reason) => self.set_aside(start.id, persistent, &reason),
        }
    }

    /// Sets a replica aside that cannot go on. Its data on disk stays until it is [removed](Self::remove).
    fn set_aside(&mut self, id: GroupId, persistent: bool, reason: &Inconsistent) {
        if let Some(mut group) = self.groups.remove(&id) {
            for reply in group.take_pending() {
                self.machine.answer(reply, Err(Failure::Interrupted));
            }
            self.machine.stepped_down(id);
        }
        self.aside.insert(id, persistent);
        self.machine.set_aside(id, reason);
    }

    fn remove(&mut self, id: GroupId) {
        if !self.snapshot_installs.may_be_removed(id) || !self.apply_backlog.may_be_removed(id) {
            return; // it is removed once its state is no longer being replaced, or written to
        }
        let persistent = match (self.groups.remove(&id), self.aside.remove(&id)) {
            (Some(mut group), _) => {
                for reply in group.take_pending() {
                    self.machine.answer(reply, Err(Failure::Interrupted));
                }
                group.is_persistent()
            }
            (None, Some(persistent)) => persistent,
            (None, None) => return,
        };
        self.touched.retain(|touched| *touched != id);
        self.unapplied.retain(|committed| committed.group != id);
        // The record must be queued before the machine is told: whoever then starts another replica syncs the log, and
        // with it this record.
        if let Some(log) = self.log.as_ref().filter(|_| persistent) {
            log.submit(LogBatch { records: vec![LogRecord::Removed { group: id }], ..Default::default() });
        }
        self.machine.removed(id);
    }

    fn truncate(&mut self, id: GroupId, durable: u64) {
        let (Some(group), Some(log)) = (self.groups.get(&id), &self.log) else { return };
        if let Some((index, term)) = group.truncation(durable) {
            log.submit(LogBatch {
                records: vec![LogRecord::Truncated { group: id, index, term }],
                ..Default::default()
            });
        }
    }

    /// Drives every touched group until there is nothing left to do but to wait for the disk.
    fn advance(&mut self) {
        while !self.touched.is_empty() {
            let mut output = PassOutput::default();
            let mut inconsistent = Vec::new();
            for id in std::mem::take(&mut self.touched) {
                let Some(group) = self.groups.get_mut(&id) else { continue };
                group.in_pass = false;
                if self.snapshot_installs.is_installing(id) {
                    continue;
                }
                if let Some((index, payload)) = group.propose() {
                    self.machine.proposed(id, index, &payload);
                }
                let machine = &mut self.machine;
                let restore = &mut |id, index, snapshot: &[u8]| machine.restore(id, index, snapshot);
                if let Err(reason) = group.collect(&mut output, restore) {
                    inconsistent.push((id, group.is_persistent(), reason));
                }
            }
            for (id, persistent, reason) in inconsistent {
                self.set_aside(id, persistent, &reason);
            }
            self.step_down(&output.stepped_down);
            for (id, term, leader) in output.leaders {
                self.machine.leader(id, term, leader);
            }
            for (id, until) in output.leases {
                self.machine.lease(id, until.map(|until| self.began + until));
            }
            for id in output.answerable {
                let Some(group) = self.groups.get_mut(&id) else { continue };
                answer(&mut self.machine, group);
            }
            for (id, index) in output.witnessed {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.applied(index);
                }
            }
            for id in output.snapshots_wanted {
                self.offer_snapshot(id);
            }
            if let Some(transport) = self.transport.as_ref().filter(|_| !output.messages.is_empty()) {
                transport.send(output.messages);
            }
            self.append(output.records, output.awaiting_stage, output.awaiting_fsync, output.sync);
            self.unapplied.append(&mut output.committed);
            self.apply();
        }
    }

    fn step_down(&mut self, groups: &[GroupId]) {
        for id in groups {
            let Some(group) = self.groups.get_mut(id) else { continue };
            let unproposed = group.step_down();
            self.machine.stepped_down(*id);
            for reply in unproposed {
                self.machine.answer(reply, Err(Failure::NotServing));
            }
        }
    }

    fn offer_snapshot(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if let Some((index, snapshot)) = self.machine.snapshot(id) {
            group.offer_snapshot(index, snapshot);
        }
    }

    fn step(&mut self, message: PeerMessage) {
        let id = message.group;
        if message.is_snapshot() {
            return self.snapshot_arrived(message);
        }
        let Some(group) = self.groups.get_mut(&id) else { return };
        let is_declined =
            message.has_entries() && (self.apply_backlog.is_full(id) || self.declines_entries && group.is_persistent());
        if self.snapshot_installs.is_installing(id) || is_declined {
            return; // the message counts as lost
        }
        group.step(message);
        if group.is_hibernating() {
            self.machine.fresh(id, None);
        }
        touch(&mut self.touched, group);
    }

    /// Hands records to the log. The Readies in `awaiting_stage` are persisted as soon as the records survive the
    /// process, those in `awaiting_fsync` when the log has the records, fsynced if `sync`.
    fn append(
        &mut self,
        records: Vec<LogRecord>,
        mut awaiting_stage: ReadyNumbers,
        awaiting_fsync: ReadyNumbers,
        sync: bool,
    ) {
        if records.is_empty() && awaiting_stage.is_empty() && awaiting_fsync.is_empty() {
            return;
        }
        let log = self.log.as_ref().expect("a persistent group is started with a log");
        let completion = |readies: ReadyNumbers| -> Completion {
            let inbox = self.inbox.clone();
            Box::new(move |outcome| {
                // After a failure the Readies never count as persisted; the loop sees the log's status.
                if outcome.is_ok() {
                    inbox.push(Message::Persisted(readies));
                }
            })
        };
        if awaiting_stage.is_empty() {
            let completion = (!awaiting_fsync.is_empty()).then(|| completion(awaiting_fsync));
            return log.submit(LogBatch { records, sync, completion });
        }
        log.stage(records, sync, |is_staged| {
            let mut later = if is_staged { ReadyNumbers::new() } else { std::mem::take(&mut awaiting_stage) };
            later.extend(awaiting_fsync);
            (!later.is_empty()).then(|| completion(later))
        });
        self.persisted(awaiting_stage);
    }

    fn persisted(&mut self, readies: ReadyNumbers) {
        for (id, number) in readies {
            if let Some(group) = self.groups.get_mut(&id) {
                group.persisted(number);
                touch(&mut self.touched, group);
            }
        }
    }

    fn apply(&mut self) {
        self.apply_backlog.hold_back_later(&mut self.unapplied);
        if self.unapplied.is_empty() {
            return;
        }
        let slow = match self.machine.apply(&self.unapplied) {
            Ok(slow) => slow,
            Err(error) => {
                let unusable = self.machine.unusable(&self.unapplied);
                if !unusable.is_empty() {
                    for (id, error) in unusable {
                        self.unapplied.retain(|committed| committed.group != id);
                        if let Some(group) = self.groups.get(&id) {
                            let persistent = group.is_persistent();
                            self.set_aside(id, persistent, &Inconsistent::Entry(error));
                        }
                    }
                    return self.apply();
                }
                if self.apply_failure.is_none() {
                    tracing::error!(%error, "committed writes cannot be applied; trying again");
                }
                self.apply_failure = Some(error);
                return;
            }
        };
        self.apply_failure = None;
        for committed in self.unapplied.drain(..) {
            if slow.contains(&committed.group) {
                self.apply_backlog.push(committed);
                continue;
            }
            let Some(group) = self.groups.get_mut(&committed.group) else { continue };
            if group.applied(committed.index) {
                self.machine.lease(committed.group, group.lease().map(|until| self.began + until));
                self.machine.serving(committed.group);
            }
            answer(&mut self.machine, group);
        }
    }

    /// Retries entries that could not be applied, and answers commands that wait for a disk which will not answer soon.
    fn look_after_disk(&mut self) {
        self.apply();
        if self.refusal().is_some_and(|refusal| refusal.is_stuck()) {
            let is_late = !self.refuses_lately();
            self.fail_all(|group| group.is_persistent() && (group.is_alone() || is_late));
        }
    }

    fn fail_all(&mut self, which: impl Fn(&Group<M::PendingReply>) -> bool) {
        for group in self.groups.values_mut().filter(|group| which(group)) {
            for reply in group.take_pending() {
                self.machine.answer(reply, Err(Failure::Interrupted));
            }
        }
    }
}

/// Sends every pending reply that can be sent now.
fn answer<M: StateMachine>(machine: &mut M, group: &mut Group<M::PendingReply>) {
    if let Some(index) = group.leader_acked_index() {
        machine.leader_acked(group.id, index);
    }
    while let Some((reply, outcome)) = group.next_answerable() {
        machine.answer(reply, outcome);
    }
}

fn touch<T>(touched: &mut Vec<GroupId>, group: &mut Group<T>) {
    if !std::mem::replace(&mut group.in_pass, true) {
        touched.push(group.id);
    }
}

mod apply_backlog;
mod inbox;
mod refusal;
mod snapshot_installs;
#[cfg(test)]
mod tests;
