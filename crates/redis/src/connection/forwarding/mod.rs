//! Commands for partitions that other nodes lead.
//!
//! A client may ask any node for anything. What concerns partitions that others lead is collected as long as keyed commands come
//! one after the other, then the store's [router](tessera_store::Route) takes it to all their nodes at once, as RESP inside of a
//! request between nodes; the other node carries it out like a pipeline of its own, and the replies come back as they are.
//!
//! Writes to partitions that are led here are collected beside it, and both are carried out at the same time. No partition has commands in
//! both: those of one partition take effect in their order.

mod forwarder;
mod front;
mod merge;
mod part;
mod request;

use super::Connection;
use super::frame::OwnedFrame;
use super::partitions::{self, Parts};
use super::replies::{Replies, reply_of};
use super::scan_position::ScanPosition;
use crate::commands::{Command, CommandError, FanOut, Keys, Run, SessionCommand};
pub(super) use front::Front;
pub(super) use merge::{Merge, sum};
use part::{Commands, Part, part};
pub(crate) use request::carry_out;
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tessera_store::{Leader, PartOutcome, Table};
use tessera_types::{ReadMode, RecordKey};

/// Commands that are to be forwarded, with the writes beside them.
#[derive(Default)]
pub(super) struct PendingForwards {
    parts: Vec<Part>,
    /// How the replies of all commands are made, in their order, also of the writes that are pending here.
    /// With the command that is counted for each; `None` if whoever sends it counts it.
    replies: Vec<(Option<&'static Command>, Merge)>,
}

/// Where a command is carried out.
pub(super) enum Place {
    /// It has been taken, and is carried out with those that are pending.
    Forwarded,
    /// Here, in these parts if it has keys.
    Here(Option<Parts>),
}

impl PendingForwards {
    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// A write that comes next is carried out here.
    pub(super) fn note_write_here(&mut self, command: &'static Command) {
        if !self.is_empty() {
            self.replies.push((Some(command), Merge::Here));
        }
    }

    fn concerns(&self, parts: &[(u32, OwnedFrame)]) -> bool {
        self.parts.iter().any(|pending| parts.iter().any(|(partition, _)| pending.partition == *partition))
    }

    /// Adds a command with its parts, of which reads are made as `reads` says.
    fn add(&mut self, command: &'static Command, parts: Parts, merge: Merge, reads: ReadMode) {
        parts.into_iter().for_each(|(partition, frame)| self.push(partition, command, frame, reads));
        self.replies.push((Some(command), merge));
    }

    fn push(&mut self, partition: u32, command: &Command, frame: OwnedFrame, reads: ReadMode) {
        let commands = Commands { is_in_partition: command.keys == Keys::None, frames: vec![frame] };
        let reads = if is_keyed_read(command) { reads } else { ReadMode::Single };
        self.parts.push(part(partition, reads, !command.flags.write, commands));
    }
}

impl Connection {
    /// Whether commands may have to go to other nodes.
    pub(super) fn may_forward(&self) -> bool {
        let is_splitting = || self.session.table.as_ref().is_some_and(|table| table.is_splitting());
        self.reach.is_cluster() && (!self.server.store.is_alone() || is_splitting())
    }

    /// Whether a partition is led here.
    pub(super) fn is_here(table: &Table, partition: u32) -> bool {
        table.leader_of(partition) == Leader::Here
    }

    /// Takes a command that concerns partitions which other nodes lead; or one that need not wait for such commands before it, but
    /// would have to if it were carried out here.
    pub(super) async fn place(&mut self, command: &'static Command, frame: &OwnedFrame) -> Place {
        let Some(table) = self.session.table() else { return Place::Here(None) };
        let Some((parts, merge)) = split(&table, command, frame) else { return Place::Here(None) };
        let reads = if is_keyed_read(command) { self.session.options.reads } else { ReadMode::Single };
        let is_write = matches!(command.run, Run::Keyed(_)) && command.flags.write;
        let is_here =
            |parts: &Parts| parts.iter().all(|(partition, _)| table.reader_of(*partition, reads) == Leader::Here);
        if is_here(&parts) && (self.forwards.is_empty() || is_write && !self.forwards.concerns(&parts)) {
            return Place::Here(Some(parts));
        }
        if let Some(line) = self.redirection(&table, frame, &parts) {
            self.flush_pending().await;
            self.reply().error(&line);
            self.note_refused(Some(command));
            return Place::Forwarded;
        }
        if self.writes.concerns(&parts) {
            self.flush_pending().await;
            if is_here(&parts) {
                return Place::Here(Some(parts));
            }
        }
        if self.forwards.is_empty() {
            self.forwards.replies.extend(self.writes.commands().map(|command| (command, Merge::Here)));
        }
        self.forwards.add(command, parts, merge, reads);
        Place::Forwarded
    }

    /// A command was carried out here, and its reply begins at `began`. If its partition turned out not to be led here any
    /// more, it was not done: then it is taken to where it is led.
    pub(super) fn take_if_not_ready(&mut self, began: usize, command: &'static Command, frame: &OwnedFrame) {
        if self.is_of_node() || !self.output.is_undone_at(began) {
            return;
        }
        let Some(table) = self.session.table() else { return };
        if let Some((parts, merge)) = split(&table, command, frame) {
            // Of a partition that a node leads which is alone, a transaction has held the key.
            if !self.may_forward() && !parts.iter().all(|(partition, _)| Self::is_here(&table, *partition)) {
                return;
            }
            self.output.truncate(began);
            self.forwards.add(command, parts, merge, self.session.options.reads);
        }
    }

    /// Takes GETs, none of which was done, to where their keys are led.
    pub(super) fn take_gets(&mut self, keys: impl Iterator<Item = Vec<u8>>) {
        let Some(table) = self.session.table() else { return };
        let command = crate::commands::find(b"get").expect("GET is a command");
        for key in keys {
            let partition = table.partition_of(&RecordKey::new(&key, b""));
            let frame = OwnedFrame::from_arguments([&b"GET"[..], &key].into_iter());
            self.forwards.add(command, smallvec![(partition, frame)], Merge::One, self.session.options.reads);
        }
    }

    /// Carries out a transaction on a partition that another node leads: WATCH, MULTI, the commands, EXEC.
    pub(super) async fn forward_exec(&mut self, partition: u32, commands: Vec<OwnedFrame>) {
        let commands = Commands { is_in_partition: false, frames: commands };
        self.forwards.parts.push(part(partition, ReadMode::Single, false, commands));
        self.forwards.replies.push((None, Merge::One));
        self.forward_pending().await;
    }

    /// Digests of what is under keys, wherever they are.
    ///
    /// # Errors
    /// What became of the first one that could not be had.
    pub(super) async fn digests(&mut self, table: &Arc<Table>, keys: &[&[u8]]) -> Result<Vec<Vec<u8>>, PartOutcome> {
        self.look(table, keys, b"DIGEST").await
    }

    /// What OBJECT with this subcommand says of keys, wherever they are, which must be a string.
    ///
    /// # Errors
    /// What became of the first one that could not be had.
    pub(super) async fn look(
        &mut self,
        table: &Arc<Table>,
        keys: &[&[u8]],
        subcommand: &[u8],
    ) -> Result<Vec<Vec<u8>>, PartOutcome> {
        let look = |key: &&[u8]| {
            let frames = vec![OwnedFrame::from_arguments([&b"OBJECT"[..], subcommand, key].into_iter())];
            let partition = table.partition_of(&RecordKey::new(key, b""));
            part(partition, ReadMode::Single, true, Commands { is_in_partition: false, frames })
        };
        let looks = keys.iter().map(look).collect();
        let string = |outcome: PartOutcome| match &outcome {
            PartOutcome::Done(reply) => bulk(reply).map(<[u8]>::to_vec).ok_or(outcome),
            PartOutcome::NotDone(_) | PartOutcome::Unknown => Err(outcome),
        };
        let forwarder = self.forwarder();
        let outcomes = self.wait_for(None, Box::pin(forwarder.forward(table, looks, None))).await;
        outcomes.into_iter().map(string).collect()
    }

    /// Whether another node speaks here.
    pub(super) fn is_of_node(&self) -> bool {
        !self.reach.is_cluster()
    }

    /// Carries a whole-table command out partition by partition, wherever each is led, and returns the replies.
    pub(super) async fn ask_partitions(
        &mut self,
        table: &Arc<Table>,
        command: &'static Command,
        frame: &OwnedFrame,
        partitions: Range<u32>,
    ) -> Vec<Replies> {
        let mut pending = PendingForwards::default();
        partitions.for_each(|partition| pending.push(partition, command, frame.clone(), ReadMode::Single));
        let forwarder = self.forwarder();
        let outcomes = self.wait_for(None, Box::pin(forwarder.forward(table, pending.parts, None))).await;
        outcomes.into_iter().map(reply_of).collect()
    }

    /// Sends what is pending if that is as much as is asked for at a time.
    pub(super) async fn forward_slice(&mut self) {
        if self.forwards.parts.len() >= self.turn.slice() {
            self.forward_pending().await;
        }
    }

    /// Sends what is pending, also the writes to be carried out here, waits for the replies, and writes them in order.
    pub(super) async fn forward_pending(&mut self) {
        if self.forwards.is_empty() {
            return;
        }
        let PendingForwards { parts, replies } = std::mem::take(&mut self.forwards);
        let writes = std::mem::take(&mut self.writes);
        let (commands, merges): (Vec<_>, Vec<_>) = replies.into_iter().unzip();
        let Some(table) = self.session.table() else {
            let replied = self.output.len();
            merges.iter().for_each(|_| self.refuse(&CommandError::NO_TABLE));
            self.note_answered(commands.into_iter(), replied);
            return;
        };
        let (began, first) = (Instant::now(), writes.first());
        let (count, replied) = (parts.len() + std::mem::take(&mut self.returning), self.output.len());
        let (forwarder, front) = (self.forwarder(), Front::new(merges, self.session.protocol));
        // On the heap: what goes to other nodes is rare where clients know the leaders, and would make every connection larger.
        let there = Box::pin(forwarder.forward(&table, parts, Some(&front)));
        self.output.note_complete();
        let outcomes = if writes.is_empty() {
            self.wait_for(Some(&front), there).await
        } else {
            let here = async { front.note_here(forwarder.carry_out_here(&table, writes).await) };
            let both = Box::pin(async { tokio::join!(here, there).1 });
            self.wait_for(Some(&front), both).await
        };
        front.make(|part| outcomes.get(part));
        self.output.append(front.take());
        self.output.note_complete();
        let ended = self.note_answered(commands.into_iter(), replied);
        self.turn.note_slice(count, self.output.len() - replied);
        if let Some(first) = first {
            self.note_slow(&first, ended - began);
        }
    }
}

/// The string that a reply is.
pub(super) fn bulk(reply: &[u8]) -> Option<&[u8]> {
    let line = memchr::memmem::find(reply, b"\r\n")?;
    reply.first().filter(|first| **first == b'$')?;
    reply.get(line + 2..)?.strip_suffix(b"\r\n")
}

/// Whether a command only reads what is under keys.
fn is_keyed_read(command: &Command) -> bool {
    matches!(command.run, Run::Keyed(_)) && !command.flags.write
}

/// A command's parts, each with its partition, and how their replies become one; `None` for commands that have no keys or
/// cannot be split, which say so themselves.
pub(super) fn split(table: &Table, command: &Command, frame: &OwnedFrame) -> Option<(Parts, Merge)> {
    let args = frame.arguments();
    let partition_of = |key: &[u8]| table.partition_of(&RecordKey::new(key, b""));
    match command.run {
        Run::Session(SessionCommand::Memory | SessionCommand::Object) if args.len() >= 3 => {
            Some((smallvec![(partition_of(args[2]), frame.clone())], Merge::One))
        }
        Run::Session(SessionCommand::Scan) => {
            let partition = ScanPosition::parse(args[1]).ok()?.partition;
            (partition < table.schema().partitions).then(|| (smallvec![(partition, frame.clone())], Merge::One))
        }
        Run::Session(SessionCommand::Keys) => {
            let all = 0..table.schema().partitions;
            Some((all.clone().map(|partition| (partition, frame.clone())).collect(), Merge::Arrays(all.len())))
        }
        Run::Session(_) | Run::Plain(_) => None,
        Run::Keyed(_) if command.fan_out == FanOut::Gather => {
            let mut by_partition: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
            for at in 1..args.len() {
                by_partition.entry(partition_of(args[at])).or_default().push(at);
            }
            let part = |places: &[usize]| frame.part(places.iter().copied(), 1);
            let parts = by_partition.iter().map(|(partition, places)| (*partition, part(places))).collect();
            Some((parts, Merge::Gather(by_partition.into_values().collect())))
        }
        Run::Keyed(_) => {
            let parts = partitions::parts(table, command, frame.clone()).ok()?;
            let merge = Merge::of(parts.len(), command);
            Some((parts, merge))
        }
    }
}

/// What a connection may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The whole cluster.
    Cluster,
    /// Partitions that are led here: another node has asked.
    Node,
    /// One partition, which is led here.
    Partition(u32),
}

impl Reach {
    fn is_cluster(self) -> bool {
        self == Self::Cluster
    }
}
