//! Commands for partitions that other nodes lead.
//!
//! A client may ask any node for anything. What concerns partitions led elsewhere gathers as long as keyed commands come
//! one after the other, then goes to all their nodes at once, as RESP inside of a request between nodes; the other node
//! carries it out like a pipeline of its own, and the replies come back as they are. Whatever certainly was not done,
//! because the partition had no leader there, is tried again for a while: this is how requests outlast a failover. A write
//! of which it is not known whether it was done is never tried again, and neither is a read that comes before it in the pipeline, and
//! concerns the same partition.

mod merge;
mod part;
mod request;

use super::Connection;
use super::batch::{Answered, Awaited};
use super::frame::OwnedFrame;
use super::session::Session;
use crate::commands::{Command, FanOut, Keys, NOT_READY, Run, SessionCommand};
use crate::resp::Protocol;
pub(super) use merge::{Merge, sum};
use part::{Part, by_leader, error_reply, keep_order, take_replies};
pub(crate) use request::carry_out;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_store::{Face, Leader, RequestFailure, Table};
use tessera_types::{ReadMode, RecordKey, RequestError};

/// How long commands wait for their partition to get a leader.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries. A group that rests needs a moment to wake, an election half a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Of a part that concerns none: there are fewer partitions.
const NO_PARTITION: u32 = u32::MAX;

/// What has gathered.
#[derive(Default)]
pub(super) struct Elsewhere {
    parts: Vec<Part>,
    replies: Vec<Merge>,
}

impl Elsewhere {
    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Adds a command with its parts.
    fn add(&mut self, command: &Command, parts: Vec<(u32, OwnedFrame)>, merge: Merge) {
        parts.into_iter().for_each(|(partition, frame)| self.push(partition, command, frame));
        self.replies.push(merge);
    }

    fn push(&mut self, partition: u32, command: &Command, frame: OwnedFrame) {
        self.parts.push(Part {
            partition,
            is_confined: command.keys == Keys::None,
            may_repeat: !command.flags.write,
            may_be_outdated: is_keyed_read(command),
            commands: vec![frame],
            reply: None,
        });
    }
}

impl Connection {
    /// Whether commands may have to go to other nodes.
    pub(super) fn may_forward(&self) -> bool {
        let is_splitting = || self.session.table.as_ref().is_some_and(|table| table.is_splitting());
        self.confined.is_none() && (!self.server.store.is_alone() || is_splitting())
    }

    /// Whether a partition is led here.
    pub(super) fn is_here(table: &Table, partition: u32) -> bool {
        table.leader_of(partition) == Leader::Here
    }

    /// Takes a command if it, or one before it, concerns partitions that are led elsewhere. Returns whether it did.
    pub(super) async fn take_elsewhere(&mut self, command: &'static Command, frame: &OwnedFrame) -> bool {
        let Some(table) = self.session.table() else { return false };
        let Some((parts, merge)) = split(&table, command, frame) else { return false };
        let reads = if is_keyed_read(command) { self.session.choices.reads } else { ReadMode::Single };
        let all_here = parts.iter().all(|(partition, _)| table.reader_of(*partition, reads) == Leader::Here);
        if all_here && self.elsewhere.is_empty() {
            return false;
        }
        if let Some(line) = self.redirection(&table, frame, &parts) {
            self.settle().await;
            self.reply().error(&line);
            return true;
        }
        self.settle_writes().await;
        self.elsewhere.add(command, parts, merge);
        true
    }

    /// A command was carried out here, and its reply begins at `began`. If its partition turned out not to be led here any
    /// more, it was not done: then it is taken to where it is led.
    pub(super) fn take_if_not_ready(&mut self, began: usize, command: &'static Command, frame: &OwnedFrame) {
        if !self.may_forward() || !self.is_not_ready(began) {
            return;
        }
        let Some(table) = self.session.table() else { return };
        if let Some((parts, merge)) = split(&table, command, frame) {
            self.output.truncate(began);
            self.elsewhere.add(command, parts, merge);
        }
    }

    /// Whether the reply that begins there says that nothing was done.
    pub(super) fn is_not_ready(&self, began: usize) -> bool {
        self.output[began..].starts_with(NOT_READY)
    }

    /// Likewise for GETs, none of which was done.
    pub(super) fn take_gets(&mut self, keys: impl Iterator<Item = Vec<u8>>) {
        let Some(table) = self.session.table() else { return };
        let command = crate::commands::find(b"get").expect("GET is a command");
        for key in keys {
            let partition = table.partition_of(&RecordKey::new(&key, b""));
            let frame = OwnedFrame::from_arguments([&b"GET"[..], &key].into_iter());
            self.elsewhere.add(command, vec![(partition, frame)], Merge::One);
        }
    }

    /// Writes were carried out here, some parts of them not, since their partitions turned out not to be led here any more. Those
    /// are taken to where they are led. What was done keeps its reply, and is not done again.
    pub(super) async fn finish_elsewhere(&mut self, answered: Answered) {
        let Some(table) = self.session.table() else { return answered.write(&mut self.output) };
        let (answered, replies) = answered.into_parts();
        let (mut rest, mut answered) = (Elsewhere::default(), answered.into_iter());
        for awaited in replies {
            match awaited {
                Awaited::Ready(reply) => {
                    rest.parts.push(Part::answered(reply));
                    rest.replies.push(Merge::One);
                }
                Awaited::Merged(merge) => {
                    for (command, frame, reply) in answered.by_ref().take(merge.parts()) {
                        let partition = match super::dispatch::parts(&table, command, frame.clone()) {
                            Ok(parts) => parts[0].0,
                            Err(error) => return self.reply().error(&error.line()),
                        };
                        rest.push(partition, command, frame);
                        rest.parts.last_mut().expect("it was just pushed").reply = reply;
                    }
                    rest.replies.push(merge);
                }
            }
        }
        let all: Vec<usize> = (0..rest.parts.len()).collect();
        keep_order(&mut rest.parts, &all);
        self.elsewhere = rest;
        self.reach_elsewhere().await;
    }

    /// Carries out a transaction on a partition that is led elsewhere: WATCH, MULTI, the commands, EXEC.
    pub(super) async fn exec_elsewhere(&mut self, partition: u32, commands: Vec<OwnedFrame>) {
        self.elsewhere.parts.push(Part {
            partition,
            is_confined: false,
            may_repeat: false,
            may_be_outdated: false,
            commands,
            reply: None,
        });
        self.elsewhere.replies.push(Merge::One);
        self.reach_elsewhere().await;
    }

    /// Digests of what is under keys, wherever they are.
    ///
    /// # Errors
    /// An error's reply.
    pub(super) async fn digests(&mut self, table: &Arc<Table>, keys: &[&[u8]]) -> Result<Vec<Vec<u8>>, Vec<u8>> {
        let part = |key: &&[u8]| Part {
            partition: table.partition_of(&RecordKey::new(key, b"")),
            is_confined: false,
            may_repeat: true,
            may_be_outdated: false,
            commands: vec![OwnedFrame::from_arguments([&b"OBJECT"[..], b"DIGEST", key].into_iter())],
            reply: None,
        };
        let mut parts: Vec<Part> = keys.iter().map(part).collect();
        self.reach(table, &mut parts).await;
        let digest = |part: Part| {
            let reply = part.reply.unwrap_or_default();
            // $64, the digits, each followed by a line break.
            reply.strip_prefix(b"$64\r\n").and_then(|rest| rest.strip_suffix(b"\r\n")).map(<[u8]>::to_vec).ok_or(reply)
        };
        parts.into_iter().map(digest).collect()
    }

    /// Whether another node speaks here.
    pub(super) fn is_confined(&self) -> bool {
        !self.confined.is_none()
    }

    /// Carries a whole-table command out partition by partition, wherever each is led, and returns the replies.
    pub(super) async fn ask_partitions(
        &mut self,
        table: &Arc<Table>,
        command: &'static Command,
        frame: &OwnedFrame,
        partitions: Range<u32>,
    ) -> Vec<Vec<u8>> {
        let mut gathered = Elsewhere::default();
        partitions.for_each(|partition| gathered.push(partition, command, frame.clone()));
        self.reach(table, &mut gathered.parts).await;
        gathered.parts.into_iter().map(|part| part.reply.unwrap_or_default()).collect()
    }

    /// Sends what has gathered if that is as much as is asked for at a time.
    pub(super) async fn reach_slice(&mut self) {
        if self.elsewhere.parts.len() >= self.turn.slice() {
            self.reach_elsewhere().await;
        }
    }

    /// Sends what has gathered, waits for the replies, and writes them in order.
    pub(super) async fn reach_elsewhere(&mut self) {
        if self.elsewhere.is_empty() {
            return;
        }
        let mut elsewhere = std::mem::take(&mut self.elsewhere);
        let Some(table) = self.session.table() else {
            return elsewhere.replies.iter().for_each(|_| self.reply().error(super::session::NO_TABLE));
        };
        self.reach(&table, &mut elsewhere.parts).await;
        let (parts, replied) = (elsewhere.parts.len(), self.output.len());
        merge(elsewhere, self.session.protocol).iter().for_each(|reply| self.output.extend_from_slice(reply));
        self.turn.note_slice(parts, self.output.len() - replied);
    }

    /// Has every part carried out by whoever leads its partition.
    async fn reach(&mut self, table: &Arc<Table>, parts: &mut [Part]) {
        let (mut began, mut pause) = (Instant::now(), SHORTEST_PAUSE);
        let mut left = parts.len();
        let Session { protocol, choices, .. } = self.session;
        loop {
            if let Some(successor) = table.successor() {
                return Box::pin(self.reach_successor(&successor, parts)).await;
            }
            let place_of = |partition, is_outdated| match is_outdated {
                true => self.server.store.outdated_reader_of(table, partition),
                false => table.leader_of(partition),
            };
            let mut asked = Vec::new();
            for (leader, which) in by_leader(parts, choices.reads, place_of) {
                self.server.forwarded.fetch_add(u64::from(leader.is_some()), Ordering::Relaxed);
                let request = request::encode(table.id(), protocol, choices, which.iter().map(|at| &parts[*at]));
                let server = self.server.clone();
                asked.push((
                    which,
                    tokio::spawn(async move {
                        match leader {
                            None => Ok(carry_out(server, request.into()).await),
                            Some(node) => server.store.ask_face(Face::Redis, node, &request).await,
                        }
                    }),
                ));
            }
            for (which, answer) in asked {
                let answer = answer.await.unwrap_or(Err(RequestFailure::Lost));
                take_replies(parts, &which, answer);
            }
            let left_before = std::mem::replace(&mut left, parts.iter().filter(|part| part.reply.is_none()).count());
            if left == 0 {
                return;
            }
            if left < left_before {
                // One answer may not have had room for all replies.
                (began, pause) = (Instant::now(), SHORTEST_PAUSE);
                continue;
            }
            if began.elapsed() >= PATIENCE {
                for part in parts.iter_mut().filter(|part| part.reply.is_none()) {
                    part.reply = Some(error_reply(RequestError::NotReady));
                }
                return;
            }
            self.server.store.another_leader(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// The table was split: what is not done yet goes to the partitions that took the place of the old ones.
    async fn reach_successor(&mut self, table: &Arc<Table>, parts: &mut [Part]) {
        let (mut again, mut which) = (Elsewhere::default(), Vec::new());
        for (at, part) in parts.iter_mut().enumerate().filter(|(_, part)| part.reply.is_none()) {
            match part.split(table) {
                Ok((parts, merge)) => {
                    which.push(at);
                    again.parts.extend(parts);
                    again.replies.push(merge);
                }
                Err(error) => part.reply = Some(error_reply(error)),
            }
        }
        self.reach(table, &mut again.parts).await;
        for (at, reply) in which.into_iter().zip(merge(again, self.session.protocol)) {
            parts[at].reply = Some(reply);
        }
    }
}

/// Whether a command only reads what is under keys.
fn is_keyed_read(command: &Command) -> bool {
    matches!(command.run, Run::Keyed(_)) && !command.flags.write
}

/// The replies of commands, made of those of their parts.
fn merge(elsewhere: Elsewhere, protocol: Protocol) -> Vec<Vec<u8>> {
    let mut parts = elsewhere.parts.iter().map(|part| part.reply.as_deref().expect("every part has a reply by now"));
    let merge = |merge: &Merge| {
        let mut out = Vec::new();
        merge.write(&mut parts, protocol, &mut out);
        out
    };
    elsewhere.replies.iter().map(merge).collect()
}

/// A command's parts, each with its partition, and how their replies become one; `None` for commands that have no keys or
/// cannot be split, which say so themselves.
pub(super) fn split(table: &Table, command: &Command, frame: &OwnedFrame) -> Option<(Vec<(u32, OwnedFrame)>, Merge)> {
    let args = frame.arguments();
    let partition_of = |key: &[u8]| table.partition_of(&RecordKey::new(key, b""));
    match command.run {
        Run::Session(SessionCommand::Memory | SessionCommand::Object) if args.len() >= 3 => {
            Some((vec![(partition_of(args[2]), frame.clone())], Merge::One))
        }
        Run::Session(SessionCommand::Scan) => {
            let partition = super::table_commands::partition_of_cursor(args[1])?;
            (partition < table.schema().partitions).then(|| (vec![(partition, frame.clone())], Merge::One))
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
            let part = |places: &[usize]| frame.part(std::iter::once(0).chain(places.iter().copied()));
            let parts = by_partition.iter().map(|(partition, places)| (*partition, part(places))).collect();
            Some((parts, Merge::Gather(by_partition.into_values().collect())))
        }
        Run::Keyed(_) => {
            let parts = super::dispatch::parts(table, command, frame.clone()).ok()?;
            let merge = Merge::of(parts.len(), command);
            Some((parts.into_vec(), merge))
        }
    }
}

/// What a connection may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confined {
    /// The whole cluster.
    No,
    /// Partitions that are led here: another node has asked.
    Here,
    /// One partition, which is led here.
    To(u32),
}

impl Confined {
    fn is_none(self) -> bool {
        self == Self::No
    }
}
