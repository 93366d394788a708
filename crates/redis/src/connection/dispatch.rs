//! From commands on keys to the partitions that hold them.

use super::Connection;
use super::batch::{self, Answered, Batch, Mode};
use super::forwarding;
use super::frame::OwnedFrame;
use super::large_hashes::Asked;
use super::output::REPLY_BYTES;
use super::partitions::{Parts, parts};
use super::point_reads::{Keys, NoString, PointReads, is_one_instant, versions};
use super::replies::Replies;
use crate::commands::{Command, CommandError, FanOut};
use crate::resp::LONGEST_REPLY_BYTES;
use std::sync::Arc;
use std::time::Instant;
use tessera_engine::from_caches;
use tessera_store::{InstantScope, KEYS_AT_ONCE, READ_TRIES, Table};
use tessera_types::{ReadMode, RecordKey, RequestError, UnixMillis, ValueKind};

impl Connection {
    /// Adds a write to those to be sent to the partitions, in its parts if they are known. The reply is waited for in [`Self::flush_pending`].
    pub(super) fn add_write(&mut self, command: &'static Command, frame: OwnedFrame, known: Option<Parts>) {
        let parts = match (known, &self.session.table) {
            (Some(parts), _) => Ok(parts),
            (None, Some(table)) => parts(table, command, frame),
            (None, None) => Err(CommandError::NO_TABLE),
        };
        self.forwards.note_write_here(command);
        match parts {
            // Another node has asked, and its table was split here since. One reply cannot tell it which parts were done, so
            // none is: it sends them one by one when it has heard of the split.
            Ok(parts) if parts.len() > 1 && self.is_of_node() => {
                self.answer_write(command, &RequestError::NotReady.into())
            }
            Ok(parts) => self.writes.push(command, parts.into_iter()),
            Err(error) => self.answer_write(command, &error),
        }
    }

    /// Answers a write in its turn without carrying it out.
    fn answer_write(&mut self, command: &'static Command, error: &CommandError) {
        let mut reply = Replies::default();
        reply.error(self.session.protocol, error);
        self.writes.push_answered(command, reply);
    }

    /// Whether commands are pending that must be carried out before the next one of another kind. To be asked before
    /// [`Self::flush_pending`] where most commands pass: the future takes some hundred instructions even if it has nothing to do.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        !self.writes.is_empty() || !self.forwards.is_empty()
    }

    /// Sends the writes that are pending, waits for them, and takes their replies in order.
    pub(super) async fn flush_pending(&mut self) {
        if !self.forwards.is_empty() {
            return self.forward_pending().await;
        }
        if self.writes.is_empty() {
            return;
        }
        let writes = std::mem::take(&mut self.writes);
        let (began, first, replied) = (Instant::now(), writes.first(), self.output.len());
        let table = self.session.table();
        self.output.note_complete();
        let answered = self.run_batch(table.as_deref(), Mode::Write(self.session.options.writes), writes).await;
        let ended = match table.filter(|_| self.may_forward() && answered.has_undone()) {
            Some(table) => {
                let commands: Vec<_> = answered.commands().collect();
                let forwarder = self.forwarder();
                let replies = self.wait_for(None, Box::pin(forwarder.forward_undone(&table, answered))).await;
                replies.iter().for_each(|reply| self.output.push(reply));
                self.note_answered(commands.into_iter(), replied)
            }
            None => {
                answered.write(&mut self.output);
                self.note_answered(answered.commands(), replied)
            }
        };
        self.output.note_complete();
        match std::mem::take(&mut self.returning) {
            0 => {}
            reads => self.turn.note_slice(reads, self.output.len() - replied),
        }
        // One look at the clock for all: of a slow pipeline of writes the first stands for the others.
        if let Some(first) = first {
            self.note_slow(&first, ended - began);
        }
    }

    /// Has the partitions' loops carry a batch out. Without a table it has only commands that are answered already.
    pub(super) async fn run_batch(&mut self, table: Option<&Table>, mode: Mode, batch: Batch) -> Answered {
        let (server, protocol, until) = (self.server.clone(), self.session.protocol, self.patience.until());
        self.wait_for(None, batch.run(&server.store, table, mode, protocol, until)).await
    }

    /// Runs a read where the connection lives.
    pub(super) async fn run_read(&mut self, command: &'static Command, frame: &OwnedFrame, now: UnixMillis) {
        let Some(table) = self.session.table() else {
            return self.refuse(&CommandError::NO_TABLE);
        };
        if self.session.options.reads == ReadMode::Majority {
            return self.read_confirmed(&table, command, frame).await;
        }
        if command.fan_out == FanOut::Gather {
            return self.run_gather(&table, command, frame, now).await;
        }
        let parts = match parts(&table, command, frame.clone()) {
            Ok(parts) => parts,
            Err(error) => return self.refuse(&error),
        };
        let began = self.output.len();
        let mut ends = Vec::new();
        for (partition, frame) in &parts {
            self.read_part(command, &table, *partition, frame, now).await;
            ends.push(self.output.len());
        }
        if parts.len() > 1 {
            let replies = self.output.split_off(began);
            let begins = std::iter::once(began).chain(ends.iter().copied());
            let parts = begins.zip(&ends).map(|(from, to)| replies.part(from - began..to - began));
            forwarding::sum(parts, self.session.protocol, &mut self.output);
        }
    }

    /// Has the partitions' loops make a read, confirmed by a majority of the replicas.
    async fn read_confirmed(&mut self, table: &Arc<Table>, command: &'static Command, frame: &OwnedFrame) {
        let Some((parts, merge)) = forwarding::split(table, command, frame) else {
            return self.refuse(&CommandError::Request(RequestError::CrossPartition));
        };
        let mut replies = Vec::new();
        for (partition, frame) in parts {
            replies.push(self.run_one(table, Mode::Read, command, partition, frame).await);
        }
        let mut replies = replies.iter().map(Replies::one);
        merge.write(&mut replies, self.session.protocol, &mut self.output);
    }

    /// Whether the partition's loop makes a read in its turn that could not be made at once, because a transaction holds a key or there
    /// is no lease now. It waits for these. What another node has asked for does so wherever the partition is led, however long ago it
    /// was used: if it came back undone, and later commands of the client's pipeline were done, it could not be tried again.
    pub(super) fn reads_in_turn(&self, table: &Table, partition: u32) -> bool {
        Self::is_here(table, partition) || self.is_of_node() && table.serves(partition)
    }

    /// Likewise of all keys of an MGET, if they are read partition by partition.
    fn all_read_in_turn(&self, table: &Table, frame: &OwnedFrame) -> bool {
        let partition_of = |key: &&[u8]| table.partition_of(&RecordKey::new(key, b""));
        frame.arguments()[1..].iter().all(|key| self.reads_in_turn(table, partition_of(key)))
    }

    /// Runs a read of one partition so that all it sees is of one instant.
    async fn read_part(
        &mut self,
        command: &'static Command,
        table: &Arc<Table>,
        partition: u32,
        frame: &OwnedFrame,
        now: UnixMillis,
    ) {
        let (protocol, reads, began) = (self.session.protocol, self.session.options.reads, self.output.len());
        let hash = Asked::of(command).filter(|_| reads != ReadMode::Outdated);
        if let Some(asked) = hash {
            let read = self.read_hash(asked, table, partition, frame.arguments()[1], now).await;
            match read {
                Ok(true) => return,
                Ok(false) => {}
                Err(CommandError::Request(RequestError::NotReady)) if self.reads_in_turn(table, partition) => {}
                Err(error) => return self.refuse(&error),
            }
        }
        if hash.is_none() {
            let mut read = from_caches(|| {
                table.read_instant(partition, reads, now, |transaction| {
                    self.output.truncate(began);
                    match batch::run(command, frame, protocol, &mut self.output, transaction) {
                        Err(CommandError::Request(error @ (RequestError::WouldWait | RequestError::NotReady))) => {
                            Err(error)
                        }
                        _ => Ok(Replies::default()),
                    }
                })
            });
            if matches!(read, Err(RequestError::WouldWait)) {
                self.output.truncate(began);
                let (table, frame) = (table.clone(), frame.clone());
                let from_disk = move || {
                    let mut replies = Replies::default();
                    let read = table.read_instant(partition, reads, now, |transaction| {
                        replies.truncate(0);
                        match batch::run(command, &frame, protocol, &mut replies, transaction) {
                            Err(CommandError::Request(error @ RequestError::NotReady)) => Err(error),
                            _ => Ok(()),
                        }
                    });
                    read.map(|read| read.map(|()| replies))
                };
                read = self.server.store.disk_readers().read_from_disk(from_disk).await.flatten();
            }
            match read {
                Ok(Some(reply)) => return self.output.append(reply),
                Ok(None) => {}
                // A transaction holds the key, or there is no lease now: the partition's loop makes the read in its turn.
                Err(RequestError::NotReady) if self.reads_in_turn(table, partition) => {}
                Err(error) => {
                    self.output.truncate(began);
                    return self.refuse(&CommandError::Request(error));
                }
            }
        }
        self.output.truncate(began);
        let mode = Mode::Write(self.session.options.writes);
        let reply = self.run_one(table, mode, command, partition, frame.clone()).await;
        self.output.push(reply.one());
    }

    /// Has one partition's loop carry one command out, and returns the reply.
    async fn run_one(
        &mut self,
        table: &Table,
        mode: Mode,
        command: &'static Command,
        partition: u32,
        frame: OwnedFrame,
    ) -> Replies {
        let (mut batch, mut reply) = (Batch::default(), Replies::default());
        batch.push(command, std::iter::once((partition, frame)));
        self.run_batch(Some(table), mode, batch).await.write(&mut reply);
        reply
    }

    /// MGET: anything but a string reads as nothing. All keys are read at one instant, or those of each partition if transactions over
    /// partitions are off.
    async fn run_gather(&mut self, table: &Arc<Table>, command: &'static Command, frame: &OwnedFrame, now: UnixMillis) {
        let began = self.output.len();
        let reads = self.session.options.reads;
        let is_atomic = self.transacts() && reads != ReadMode::Outdated;
        let scope = if is_atomic { InstantScope::Table } else { InstantScope::Partition };
        let outcome = {
            let args = frame.arguments();
            let keys: Keys<'_> = args[1..].iter().map(|key| RecordKey::new(key, b"")).collect();
            let are_few = keys.len() <= KEYS_AT_ONCE.min(self.turn.slice());
            let mut outcome = Err(RequestError::WouldWait.into());
            let mut tries = if reads == ReadMode::Outdated { 0 } else { READ_TRIES };
            while are_few && tries > 0 {
                self.output.truncate(began);
                outcome = from_caches(|| self.read_few_strings(table, &keys, scope, now));
                tries = if outcome == Ok(false) { tries - 1 } else { 0 };
            }
            if outcome == Err(RequestError::WouldWait.into()) {
                self.output.truncate(began);
                let versions = versions(table, &keys);
                let read = self.read_strings(table, &keys, now).await;
                outcome = read.map(|()| is_one_instant(table, reads, scope, &versions));
            }
            outcome
        };
        match outcome {
            Ok(true) => {}
            // Writes came between, or a transaction holds a key.
            Ok(false) | Err(CommandError::Request(RequestError::NotReady)) if is_atomic => {
                self.output.truncate(began);
                self.read_several_partitions(command, frame).await;
            }
            Err(CommandError::Request(RequestError::NotReady)) if self.all_read_in_turn(table, frame) => {
                self.output.truncate(began);
                self.gather_part_by_part(table, command, frame, now).await;
            }
            // A write came between: each partition is read for itself.
            Ok(false) => {
                self.output.truncate(began);
                self.gather_part_by_part(table, command, frame, now).await;
            }
            Err(error) => {
                self.output.truncate(began);
                self.refuse(&error);
            }
        }
    }

    /// Writes an array of what is under the keys. Returns whether of each partition all were read at one instant.
    fn read_few_strings(
        &mut self,
        table: &Table,
        keys: &[RecordKey<'_>],
        scope: InstantScope,
        now: UnixMillis,
    ) -> Result<bool, CommandError> {
        let began = self.output.len();
        let mut reply = self.output.writer(self.session.protocol);
        reply.array(keys.len());
        let reads = self.session.options.reads;
        let is_one_instant = table.read_at_one_instant(keys, reads, scope, now, &mut |_, stored| match stored
            .filter(|stored| stored.kind == ValueKind::Plain)
        {
            Some(stored) => reply.bulk(stored.payload),
            None => reply.null(),
        })?;
        if self.output.len() - began > LONGEST_REPLY_BYTES {
            return Err(CommandError::REPLY_TOO_LONG);
        }
        self.turn.note_slice(keys.len(), self.output.len() - began);
        Ok(is_one_instant)
    }

    /// Writes an array of what is under the keys, slice by slice.
    async fn read_strings(
        &mut self,
        table: &Arc<Table>,
        keys: &[RecordKey<'_>],
        now: UnixMillis,
    ) -> Result<(), CommandError> {
        let (protocol, reads, began) = (self.session.protocol, self.session.options.reads, self.output.len());
        self.output.writer(protocol).array(keys.len());
        let mut done = 0;
        while done < keys.len() {
            let slice = &keys[done..keys.len().min(done + self.turn.slice())];
            let before = self.output.len();
            let how = PointReads { enough: REPLY_BYTES, no_string: NoString::Null, reads, now, protocol };
            let answered = self.read_keys(table, slice, how).await?.keys;
            done += answered;
            if self.output.len() - began > LONGEST_REPLY_BYTES {
                return Err(CommandError::REPLY_TOO_LONG);
            }
            self.turn.note_slice(answered, self.output.len() - before);
            if done < keys.len() {
                self.turn.note_bytes(self.output.len() - before);
                self.turn.end().await;
            }
        }
        Ok(())
    }

    async fn gather_part_by_part(
        &mut self,
        table: &Arc<Table>,
        command: &'static Command,
        frame: &OwnedFrame,
        now: UnixMillis,
    ) {
        let Some((parts, merge)) = forwarding::split(table, command, frame) else { return };
        let mut replies = Vec::with_capacity(parts.len());
        for (partition, frame) in &parts {
            let began = self.output.len();
            self.read_part(command, table, *partition, frame, now).await;
            replies.push(self.output.split_off(began));
        }
        let mut replies = replies.iter().map(Replies::one);
        merge.write(&mut replies, self.session.protocol, &mut self.output);
    }
}
