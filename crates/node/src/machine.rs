//! The state machine of a worker's partitions: from operations to log entries to records.

use crate::cold_commands::ColdCommands;
use crate::held_commands::HeldCommands;
use crate::node_context::NodeContext;
use crate::snapshot::Description;
use crate::stalled_writes::{self, StalledWrite, StalledWrites};
use crate::{comparison, refused_writes, replicas, snapshot};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tessera_consensus::{Committed, Evaluated, Failure, GroupId, Inconsistent, Moment, StateMachine};
use tessera_engine::{Applied, from_caches, mutation};
use tessera_store::hosting::{Overlay, PendingReply, Times, WriteCommand, failed, group_of, partition_of_group};
use tessera_store::{Table, Transaction, Verdict};
use tessera_types::{ReplicaId, RequestError, UnixMillis};

/// Evaluates and applies for all partitions of one worker.
pub(crate) struct PartitionsMachine {
    /// The time of this pass.
    now: UnixMillis,
    partitions: HostedPartitions,
    /// How many [cold](ColdCommands) and [held](HeldCommands) commands of all partitions wait.
    waiting: usize,
    stalled_writes: StalledWrites,
    refused_writes: refused_writes::OfWorker,
    context: Arc<NodeContext>,
}

type HostedPartitions = HashMap<GroupId, HostedPartition, ahash::RandomState>;

struct HostedPartition {
    table: Arc<Table>,
    partition: u32,
    overlay: Overlay,
    /// The latest time that was told the log here, as long as the replica leads; it may be on its way.
    told: UnixMillis,
    cold_commands: ColdCommands,
    held_commands: HeldCommands,
    /// Reads counted when it was last asked whether there were any.
    reads_seen: u64,
}

impl PartitionsMachine {
    pub(crate) fn new(context: Arc<NodeContext>) -> Self {
        Self {
            now: context.clock.now(),
            partitions: HashMap::default(),
            waiting: 0,
            stalled_writes: StalledWrites::default(),
            refused_writes: context.refused_writes.join(),
            context,
        }
    }

    /// Writes committed entries to their engines. Returns the groups whose engine would block.
    fn write(&mut self, committed: &[Committed]) -> Result<Vec<GroupId>, String> {
        // All entries of a pass that concern one table go to its engine in one call.
        let mut by_table: Vec<(Arc<Table>, Vec<Applied<'_>>)> = Vec::new();
        for Committed { group, index, term, payloads } in committed {
            let Some(HostedPartition { table, partition, .. }) = self.host(*group) else { continue };
            let (table, partition) = (table.clone(), *partition);
            if table.engine().applied_index(partition) >= *index {
                continue; // a part of a pass that failed later on
            }
            let mut applied = Applied { partition, index: *index, term: *term, payloads };
            if table.partition(partition).compared_by() != 0 && !self.stalled_writes.hold_up(&table) {
                applied.payloads = &payloads[comparison::apply_marked(&self.context, &table, &applied)?..];
            }
            match by_table.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &table)) {
                Some((_, entries)) => entries.push(applied),
                None => by_table.push((table, vec![applied])),
            }
        }
        let (mut slow, mut stalled_writes) = (Vec::new(), Vec::new());
        for (table, entries) in &by_table {
            let is_held_up = self.stalled_writes.hold_up(table);
            if !is_held_up && stalled_writes::write(table, entries, |engine, entries| engine.try_write(entries))? {
                continue;
            }
            slow.extend(entries.iter().map(|applied| group_of(table.id(), applied.partition)));
            if !is_held_up {
                stalled_writes.push(StalledWrite::new(table, entries));
            }
        }
        self.stalled_writes.begin(&self.context, stalled_writes);
        for Committed { group, index, .. } in committed.iter().filter(|committed| !slow.contains(&committed.group)) {
            if let Some(hosted) = self.partitions.get_mut(group) {
                hosted.overlay.applied(*index);
                let state = hosted.table.partition(hosted.partition);
                state.expiry_fence().set_in_flight(hosted.overlay.judged_from());
                if state.ledger().applied(*index) {
                    self.context.leader_news.notify_waiters();
                }
            }
        }
        Ok(slow)
    }
}

impl StateMachine for PartitionsMachine {
    type Command = WriteCommand;
    type PendingReply = PendingReply;

    fn begin_pass(&mut self) {
        self.now = self.context.clock.now();
    }

    fn begins_entry(&self, command: &WriteCommand) -> bool {
        command.begins_entry
    }

    fn may_use_reserve(&self, command: &WriteCommand) -> bool {
        command.pending_reply.may_use_reserve()
    }

    fn evaluate(&mut self, group: GroupId, command: WriteCommand, payload: &mut BytesMut) -> Evaluated<PendingReply> {
        let (now, context) = (self.now, &self.context);
        let HostedPartition { table, partition, overlay, told, cold_commands, held_commands, .. } =
            hosted(&mut self.partitions, context, group).expect("a serving group's table is open");
        let is_held_up = held_commands.hold_up();
        let is_full = self.waiting >= context.config.queued_writes;
        if cold_commands.hold_up() || is_held_up {
            return wait(command, is_full, &mut self.waiting, |command| match is_held_up {
                true => held_commands.push(command),
                false => cold_commands.push(command),
            });
        }
        if let Some(holder) = held_commands.holder_before(&command) {
            return wait(command, is_full, &mut self.waiting, |command| held_commands.wait_for(holder, command));
        }
        if table.partition(*partition).change_capture().refuses_requests() && !command.pending_reply.seals_or_reopens()
        {
            command.pending_reply.answer(Err(RequestError::NotReady));
            return Evaluated::Refused;
        }
        let began = payload.len();
        let fence = table.partition(*partition).expiry_fence();
        let time = table.engine().time(*partition).max(*told);
        let goes_by_clock = context.clock.is_certain();
        let judged_from = overlay.judged_from().unwrap_or(if goes_by_clock { now.max(time) } else { time });
        let now = fence.begin_write(now, judged_from);
        // Not before: a reader for whom the clock is certain by now may have gone by it.
        let times = Times::of_leader(now, time, context.clock.is_certain());
        let mut transaction = Transaction::new(table, *partition, times, overlay, payload);
        let mut command = command;
        let mut verdict = match cold_commands.is_impatient() {
            false => from_caches(|| command.pending_reply.evaluate(&mut transaction)),
            true => command.pending_reply.evaluate(&mut transaction),
        };
        if let Some(holder) = transaction.take_holder() {
            transaction.abandon();
            fence.set_in_flight(overlay.judged_from());
            return wait(command, is_full, &mut self.waiting, |command| held_commands.wait_for(holder, command));
        }
        if let Some(missing) = transaction.take_missing() {
            transaction.abandon();
            command = match cold_commands.wait_for(context, (table, *partition), missing, command) {
                Ok(()) => {
                    fence.set_in_flight(overlay.judged_from());
                    self.waiting += 1;
                    return Evaluated::Waits;
                }
                Err(command) => command,
            };
            transaction = Transaction::new(table, *partition, times, overlay, payload);
            verdict = command.pending_reply.evaluate(&mut transaction);
            if let Some(holder) = transaction.take_holder() {
                transaction.abandon();
                fence.set_in_flight(overlay.judged_from());
                return wait(command, is_full, &mut self.waiting, |command| held_commands.wait_for(holder, command));
            }
        }
        cold_commands.note_evaluated();
        let WriteCommand { sync, leader_acked, confirm, pending_reply, .. } = command;
        if verdict == Verdict::Abandon {
            transaction.abandon();
            fence.set_in_flight(overlay.judged_from());
            return Evaluated::NoChange { reply: pending_reply, confirm };
        }
        let changes = transaction.into_changes();
        if changes.is_empty() {
            fence.set_in_flight(overlay.judged_from());
            return Evaluated::NoChange { reply: pending_reply, confirm };
        }
        *told = changes.time().map_or(*told, |time| time.max(*told));
        let watched = table.partition(*partition).watched();
        if !watched.is_empty() {
            if changes.clears() {
                watched.touch_all();
            }
            changes.hash_keys(payload).for_each(|hash_key| watched.touch(hash_key));
        }
        changes.enter(overlay, payload);
        fence.set_in_flight(overlay.judged_from());
        let state = table.partition(*partition);
        if held_commands.release(|holder| state.ledger().has_intent(holder)) {
            context.inbox_of(table.id(), *partition).go_on(group);
        }
        state.meter().end_write(payload.len() - began);
        if state.hot_keys().is_counting() {
            changes.hash_keys(payload).for_each(|hash_key| state.hot_keys().write(hash_key));
        }
        Evaluated::Replicate { reply: pending_reply, sync, leader_acked }
    }

    fn has_read(&mut self, group: GroupId) {
        if let Some(hosted) = self.partitions.get_mut(&group) {
            hosted.cold_commands.has_read();
        }
    }

    fn next_waiting(&mut self, group: GroupId) -> Option<WriteCommand> {
        let HostedPartition { cold_commands, held_commands, .. } = self.partitions.get_mut(&group)?;
        for late in held_commands.take_late(Instant::now()) {
            self.waiting -= 1;
            late.pending_reply.answer(Err(RequestError::Held));
        }
        let next = cold_commands.next();
        let next = if next.is_none() && !cold_commands.hold_up() { held_commands.next() } else { next };
        held_commands.note_again(next.is_some());
        self.waiting -= usize::from(next.is_some());
        next
    }

    fn stopping(&mut self) {
        let groups: Vec<_> = self.partitions.keys().copied().collect();
        groups.into_iter().for_each(|group| self.refuse_waiting(group, &Failure::ShuttingDown));
    }

    fn proposed(&mut self, group: GroupId, index: u64, payload: &Bytes) {
        if let Some(hosted) = self.partitions.get_mut(&group) {
            hosted.overlay.proposed(index, payload.clone());
            hosted.table.partition(hosted.partition).ledger().proposed(index);
        }
    }

    fn apply(&mut self, committed: &[Committed]) -> Result<Vec<GroupId>, String> {
        let applied = self.write(committed);
        self.refused_writes.note(applied.as_ref().err());
        applied
    }

    fn answer(&mut self, pending_reply: PendingReply, outcome: Result<(), Failure>) {
        pending_reply.answer(outcome.map_err(failed));
    }

    fn leader_acked(&mut self, group: GroupId, index: u64) {
        if let Some(HostedPartition { table, partition, .. }) = self.host(group) {
            table.partition(*partition).note_leader_acked(index);
        }
    }

    fn refuse(&mut self, command: WriteCommand, failure: Failure) {
        command.pending_reply.answer(Err(failed(failure)));
    }

    fn stepped_down(&mut self, group: GroupId) {
        self.refuse_waiting(group, &Failure::NotServing);
        if let Some(hosted) = self.partitions.get_mut(&group) {
            let state = &hosted.table.partition(hosted.partition);
            state.stop_leading();
            // What was acknowledged early and is lost would be waited for in vain.
            state.forget_leader_acked();
            hosted.overlay = Overlay::default();
            hosted.told = UnixMillis::new(0);
        }
    }

    fn set_aside(&mut self, group: GroupId, reason: &Inconsistent) {
        if let Some(HostedPartition { table, partition, .. }) = self.host(group) {
            let (name, state) = (table.name(), table.partition(*partition));
            tracing::error!(table = %name, partition, %reason, "a replica is set aside; its records and log stay until it is replaced");
            state.stop_leading();
            state.set_readable(false);
        }
        self.context.stop_fetching(group);
        self.context.replicas.set_aside(group, reason);
    }

    fn unusable(&mut self, committed: &[Committed]) -> Vec<(GroupId, String)> {
        let damage = |committed: &Committed| {
            let error =
                committed.payloads.iter().flat_map(|payload| mutation::decode(payload)).find_map(Result::err)?;
            Some((committed.group, format!("up to index {}: {error}", committed.index)))
        };
        committed.iter().filter_map(damage).collect()
    }

    fn removed(&mut self, group: GroupId) {
        self.refuse_waiting(group, &Failure::NotServing);
        if let Some(HostedPartition { table, partition, .. }) = self.partitions.remove(&group) {
            table.partition(partition).stop_leading();
            let context = self.context.clone();
            let remove = move || {
                if let Err(error) = replicas::make_blank(&table, partition) {
                    // Whoever begins a replica here makes sure of it.
                    tracing::warn!(table = %table.name(), partition, %error, "records of a replica that went are left over");
                }
                context.stop_fetching(group);
                context.replicas.left(group);
            };
            // It takes as long as the partition is large, or RocksDB makes writers wait.
            return self.context.threads.run("removal", remove);
        }
        self.context.stop_fetching(group);
        self.context.replicas.left(group);
    }

    fn leader(&mut self, group: GroupId, term: u64, leader: ReplicaId) {
        // A witness that leads does so for a moment only, and serves nothing.
        if !leader.is_witness()
            && let Some(HostedPartition { table, partition, .. }) = self.host(group)
        {
            table.partition(*partition).leader().heard(term, leader);
            self.context.leader_news.notify_waiters();
        }
    }

    fn lease(&mut self, group: GroupId, until: Option<Moment>) {
        if let Some(HostedPartition { table, partition, .. }) = self.host(group) {
            let state = table.partition(*partition);
            state.set_lease(until);
            if until.is_some() {
                self.context.leader_news.notify_waiters();
            }
        }
    }

    fn fresh(&mut self, group: GroupId, as_of: Option<Moment>) {
        if let Some(HostedPartition { table, partition, .. }) = self.host(group) {
            table.partition(*partition).set_as_of(as_of);
        }
    }

    fn is_idle(&mut self, group: GroupId) -> bool {
        let Some(HostedPartition { table, partition, reads_seen, .. }) = self.host(group) else { return true };
        let reads = table.partition(*partition).meter().reads();
        std::mem::replace(reads_seen, reads) == reads
    }

    fn snapshot(&mut self, group: GroupId) -> Option<(u64, Vec<u8>)> {
        let HostedPartition { table, partition, .. } = self.host(group)?;
        let (table, partition, context) = (table.clone(), *partition, self.context.clone());
        // If one is under way, or it is not this group's turn, the group asks again: a leader with a replica that lacks
        // entries does not hibernate, and asks at each heartbeat.
        let (slot, writing) = context.outgoing.begin(group, Instant::now())?;
        let write = move || {
            match context.write_snapshot(&table, partition, slot) {
                Ok((index, file)) => {
                    context.inbox_of(table.id(), partition).offer_snapshot(group, index, file.encode());
                }
                Err(error) => {
                    tracing::warn!(table = %table.name(), partition, %error, "no snapshot can be written")
                }
            }
            drop(writing);
        };
        // Writing takes as long as the partition is large, and the loop must go on.
        if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(write) {
            tracing::warn!(%group, %error, "no thread can be started that writes a snapshot");
        }
        None
    }

    fn fetch(&mut self, group: GroupId, index: u64, snapshot: &[u8]) -> bool {
        let context = self.context.clone();
        if snapshot.is_empty() {
            context.stop_fetching(group);
            return true;
        }
        let hosted = self.host(group);
        if let (Some(HostedPartition { table, partition, .. }), Some(file)) = (hosted, Description::decode(snapshot)) {
            context.fetch_snapshot(table, *partition, index, file);
        }
        false
    }

    fn discard(&mut self, group: GroupId) {
        self.context.stop_fetching(group);
    }

    fn prepare(&mut self, group: GroupId, index: u64, snapshot: &[u8]) -> bool {
        let context = self.context.clone();
        let Some(HostedPartition { table, partition, overlay, .. }) = self.host(group) else { return true };
        let file = Description::decode(snapshot);
        if file.is_none() && !snapshot.is_empty() {
            return true;
        }
        *overlay = Overlay::default();
        table.partition(*partition).expiry_fence().set_in_flight(None);
        let (table, partition) = (table.clone(), *partition);
        let replace = move || {
            match file {
                Some(file) => snapshot::replace_records(&context, &table, partition, index, file),
                None => snapshot::keep_records(&context, &table, partition, index),
            }
            context.inbox_of(table.id(), partition).prepared(group, index);
        };
        // It takes as long as the partition is large.
        self.context.threads.run("restore", replace);
        false
    }

    fn restore(&mut self, group: GroupId, index: u64, _snapshot: &[u8]) -> Result<(), String> {
        let HostedPartition { table, partition, .. } = self.host(group).ok_or("its table is not open")?;
        let applied = table.engine().applied_index(*partition);
        if applied == index { Ok(()) } else { Err(format!("its records are those of index {applied}, not {index}")) }
    }

    fn serving(&mut self, group: GroupId) {
        self.context.elections_won.fetch_add(1, Ordering::Relaxed);
        if let Some(HostedPartition { table, partition, .. }) = self.host(group) {
            let (table, partition) = (table.clone(), *partition);
            let state = table.partition(partition);
            state.lead();
            let restored = state.ledger().restore(table.engine(), partition);
            match restored.and_then(|()| table.is_sealed(partition)) {
                Ok(false) => state.serve(),
                Ok(true) => state.change_capture().seal(),
                Err(error) => {
                    state.change_capture().seal();
                    // So it is looked at again, also if it was the seal that could not be read.
                    state.ledger().reset();
                    tracing::error!(table = %table.name(), partition, %error, "a partition that cannot be read serves nothing");
                }
            }
            self.context.tell_leads(&table, partition);
            self.context.leader_news.notify_waiters();
        }
    }
}

impl PartitionsMachine {
    /// A group's partition; `None` when its table has been purged.
    fn host(&mut self, group: GroupId) -> Option<&mut HostedPartition> {
        hosted(&mut self.partitions, &self.context, group)
    }

    /// Refuses the commands of a group that wait.
    fn refuse_waiting(&mut self, group: GroupId, failure: &Failure) {
        let Some(hosted) = self.partitions.get_mut(&group) else { return };
        let waiting: Vec<_> = hosted.cold_commands.take().into_iter().chain(hosted.held_commands.take()).collect();
        self.waiting -= waiting.len();
        waiting.into_iter().for_each(|command| self.refuse(command, failure.clone()));
    }
}

/// Lets a command wait, if not too many do.
fn wait(
    command: WriteCommand,
    is_full: bool,
    waiting: &mut usize,
    keep: impl FnOnce(WriteCommand),
) -> Evaluated<PendingReply> {
    if is_full {
        command.pending_reply.answer(Err(RequestError::Busy));
        return Evaluated::Refused;
    }
    *waiting += 1;
    keep(command);
    Evaluated::Waits
}

fn hosted<'a>(
    partitions: &'a mut HostedPartitions,
    context: &NodeContext,
    group: GroupId,
) -> Option<&'a mut HostedPartition> {
    match partitions.entry(group) {
        Entry::Occupied(hosted) => Some(hosted.into_mut()),
        Entry::Vacant(place) => {
            let (table, partition) = partition_of_group(group)?;
            let table = context.registry.any(table)?;
            Some(place.insert(HostedPartition {
                table,
                partition,
                overlay: Overlay::default(),
                told: UnixMillis::new(0),
                cold_commands: ColdCommands::default(),
                held_commands: HeldCommands::default(),
                reads_seen: 0,
            }))
        }
    }
}
