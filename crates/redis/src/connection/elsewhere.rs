//! Commands for partitions that other nodes lead.
//!
//! A client may ask any node for anything. What concerns partitions led elsewhere gathers as long as keyed commands come
//! one after the other, then goes to all their nodes at once, as RESP inside of a request between nodes; the other node
//! carries it out like a pipeline of its own, and the replies come back as they are. Whatever certainly was not done,
//! because the partition had no leader there, is tried again for a while: this is how requests outlast a failover. A write
//! of which it is not known whether it was done is never tried again.

use super::frame::OwnedFrame;
use super::session::Session;
use super::{Connection, Stream, batch};
use crate::clients::Client;
use crate::commands::{Command, CommandError, FanOut, Keys, Run, SessionCommand};
use crate::resp::{Protocol, Reply, reply_length};
use crate::server::RedisServer;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_store::{Answer, Leader, RequestFailure, Table};
use tessera_types::{Durability, NodeId, ReadMode, RecordKey, RequestError, TableId};

/// How long commands wait for their partition to get a leader.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries. A group that rests needs a moment to wake, an election half a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// The code of [`RequestError::NotReady`], which means that nothing was done.
const NOT_READY: &[u8] = b"-LOADING ";
/// In a request: the commands are not confined to one partition.
const ANY: u32 = u32::MAX;

/// What has gathered.
#[derive(Default)]
pub(super) struct Elsewhere {
    parts: Vec<Part>,
    replies: Vec<Merge>,
}

/// Commands that go to one partition together.
struct Part {
    partition: u32,
    /// A command on a whole table, of which this partition is to do its part.
    is_confined: bool,
    may_repeat: bool,
    /// The last one's reply counts.
    commands: Vec<OwnedFrame>,
    reply: Option<Vec<u8>>,
}

/// How a reply is made of those of the next parts.
pub(super) enum Merge {
    One,
    Sum(usize),
    Same(usize),
    /// Arrays: for each part, where its elements belong.
    Gather(Vec<Vec<usize>>),
    Arrays(usize),
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
            commands: vec![frame],
            reply: None,
        });
    }
}

impl Connection {
    /// Whether commands may have to go to other nodes.
    pub(super) fn may_forward(&self) -> bool {
        self.confined.is_none() && !self.server.store.is_alone()
    }

    /// Whether a partition is led here.
    pub(super) fn is_here(table: &Table, partition: u32) -> bool {
        table.leader_of(partition) == Leader::Here
    }

    /// Takes a command if it, or one before it, concerns partitions that are led elsewhere. Returns whether it did.
    pub(super) async fn take_elsewhere(&mut self, command: &'static Command, frame: &OwnedFrame) -> bool {
        let Some(table) = self.session.table() else { return false };
        let Some((parts, merge)) = split(&table, command, frame) else { return false };
        let all_here = parts.iter().all(|(partition, _)| Self::is_here(&table, *partition));
        if all_here && self.elsewhere.is_empty() {
            return false;
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

    /// Writes were carried out here, and their replies begin at `began`. Those that were not done, since their partitions
    /// turned out not to be led here any more, are taken to where they are led.
    pub(super) async fn redo_writes(&mut self, began: usize, writes: Vec<(&'static Command, OwnedFrame)>) {
        if memchr::memmem::find(&self.output[began..], NOT_READY).is_none() {
            return;
        }
        let Some(table) = self.session.table() else { return };
        let replies = self.output.split_off(began);
        let mut rest = &replies[..];
        let mut kept = Vec::with_capacity(writes.len());
        for _ in &writes {
            let (reply, after) = rest.split_at(reply_length(rest).unwrap_or(rest.len()));
            rest = after;
            kept.push(Some(reply));
        }
        // What comes later in the pipeline must not take effect earlier; see `take_replies`.
        let (mut served, mut undone) = (BTreeSet::new(), Vec::new());
        for (reply, (command, frame)) in kept.iter_mut().zip(writes).rev() {
            let Some((parts, merge)) = split(&table, command, &frame) else { continue };
            let is_undone = reply.is_some_and(|reply| reply.starts_with(NOT_READY));
            if is_undone && parts.iter().all(|(partition, _)| !served.contains(partition)) {
                undone.push((command, parts, merge));
                *reply = None;
            } else {
                served.extend(parts.iter().map(|(partition, _)| *partition));
            }
        }
        let mut again = Elsewhere::default();
        undone.into_iter().rev().for_each(|(command, parts, merge)| again.add(command, parts, merge));
        self.reach(&table, &mut again.parts).await;
        let merged = merge(again, self.session.protocol);
        let mut merged = merged.iter();
        for reply in kept {
            self.output.extend_from_slice(reply.unwrap_or_else(|| merged.next().expect("one for each")));
        }
    }

    /// Carries out a transaction on a partition that is led elsewhere.
    pub(super) async fn exec_elsewhere(&mut self, partition: u32, commands: Vec<OwnedFrame>) {
        let word = |word: &'static [u8]| OwnedFrame::from_arguments(std::iter::once(word));
        let commands = std::iter::once(word(b"MULTI")).chain(commands).chain(std::iter::once(word(b"EXEC")));
        let commands = commands.collect();
        self.elsewhere.parts.push(Part { partition, is_confined: false, may_repeat: false, commands, reply: None });
        self.elsewhere.replies.push(Merge::One);
        self.reach_elsewhere().await;
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
        merge(elsewhere, self.session.protocol).iter().for_each(|reply| self.output.extend_from_slice(reply));
    }

    /// Has every part carried out by whoever leads its partition.
    async fn reach(&mut self, table: &Arc<Table>, parts: &mut [Part]) {
        let (began, mut pause) = (Instant::now(), SHORTEST_PAUSE);
        let Session { protocol, durability, reads, .. } = self.session;
        loop {
            let mut by_leader: BTreeMap<Option<NodeId>, Vec<usize>> = BTreeMap::new();
            for (at, part) in parts.iter().enumerate().filter(|(_, part)| part.reply.is_none()) {
                match table.leader_of(part.partition) {
                    Leader::Here => by_leader.entry(None).or_default().push(at),
                    Leader::Node(node) => by_leader.entry(Some(node)).or_default().push(at),
                    Leader::Unknown => {}
                }
            }
            let mut asked = Vec::new();
            for (leader, which) in by_leader {
                let request = encode(table.id(), protocol, durability, reads, which.iter().map(|at| &parts[*at]));
                let server = self.server.clone();
                asked.push((
                    which,
                    tokio::spawn(async move {
                        match leader {
                            None => Ok(carry_out(server, request.into()).await),
                            Some(node) => server.store.ask_face(node, &request).await,
                        }
                    }),
                ));
            }
            for (which, answer) in asked {
                let answer = answer.await.unwrap_or(Err(RequestFailure::Lost));
                take_replies(parts, &which, answer);
            }
            if parts.iter().all(|part| part.reply.is_some()) {
                return;
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
}

/// The replies of commands, made of those of their parts.
fn merge(elsewhere: Elsewhere, protocol: Protocol) -> Vec<Vec<u8>> {
    let mut parts = elsewhere.parts.into_iter().map(|part| part.reply.expect("every part has a reply by now"));
    let merge = |merge: Merge| {
        let mut out = Vec::new();
        merge.write(parts.by_ref().take(merge.parts()).collect(), protocol, &mut out);
        out
    };
    elsewhere.replies.into_iter().map(merge).collect()
}

impl Merge {
    /// How many replies become one.
    fn parts(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Sum(count) | Self::Same(count) | Self::Arrays(count) => *count,
            Self::Gather(places) => places.len(),
        }
    }

    pub(super) fn write(&self, replies: Vec<Vec<u8>>, protocol: Protocol, out: &mut Vec<u8>) {
        match self {
            Self::One => out.extend_from_slice(&replies[0]),
            Self::Sum(_) => batch::sum(replies.iter().map(Vec::as_slice), protocol, out),
            Self::Same(_) => {
                // An error is worth more than an OK.
                let error = replies.iter().find(|reply| reply.first() == Some(&b'-'));
                out.extend_from_slice(error.unwrap_or(&replies[0]));
            }
            Self::Gather(places) => gather(places, &replies, protocol, out),
            Self::Arrays(_) => join_arrays(&replies, protocol, out),
        }
    }
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
        Run::Session(_) => None,
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
            let merge = match (parts.len(), command.fan_out) {
                (1, _) => Merge::One,
                (count, FanOut::Sum) => Merge::Sum(count),
                (count, _) => Merge::Same(count),
            };
            Some((parts.into_vec(), merge))
        }
    }
}

/// Gives parts their replies out of an answer; those that certainly were not done stay without.
fn take_replies(parts: &mut [Part], which: &[usize], answer: Result<Bytes, RequestFailure>) {
    let mut replies: &[u8] = match &answer {
        Ok(answer) => answer,
        Err(RequestFailure::NotSent) => return,
        Err(RequestFailure::Lost) => {
            for at in which {
                let part = &mut parts[*at];
                part.reply = (!part.may_repeat).then(|| error_reply(RequestError::Interrupted));
            }
            return;
        }
    };
    if replies.is_empty() {
        return; // refused as a whole: the other node is just starting, or does not know the table yet
    }
    for at in which {
        let part = &mut parts[*at];
        let mut last: &[u8] = b"";
        for _ in &part.commands {
            let Some(length) = reply_length(replies) else {
                part.reply = Some(error_reply(RequestError::Interrupted));
                break;
            };
            (last, replies) = replies.split_at(length);
        }
        if part.reply.is_none() && !last.starts_with(NOT_READY) {
            part.reply = Some(last.to_vec());
        }
    }
    // What comes later in the pipeline must not take effect earlier: when a partition began to serve halfway, what came
    // before that stays undone.
    let mut served = BTreeSet::new();
    for at in which.iter().rev() {
        let part = &mut parts[*at];
        if part.reply.is_some() {
            served.insert(part.partition);
        } else if served.contains(&part.partition) {
            part.reply = Some(error_reply(RequestError::NotReady));
        }
    }
}

fn error_reply(error: RequestError) -> Vec<u8> {
    let mut reply = Vec::new();
    Reply::new(&mut reply, Protocol::Resp2).error(&CommandError::Request(error).line());
    reply
}

/// Puts arrays together so that each element stands where it was asked for; places count from one.
fn gather(places: &[Vec<usize>], replies: &[Vec<u8>], protocol: Protocol, out: &mut Vec<u8>) {
    let count = places.iter().map(Vec::len).sum();
    let mut elements: Vec<&[u8]> = vec![b""; count];
    for (places, reply) in places.iter().zip(replies) {
        let Some(mut rest) = array_elements(reply).map(|(_, elements)| elements) else {
            return out.extend_from_slice(reply); // an error
        };
        for place in places {
            let (element, after) = rest.split_at(reply_length(rest).unwrap_or(rest.len()));
            (elements[place - 1], rest) = (element, after);
        }
    }
    Reply::new(out, protocol).array(count);
    elements.into_iter().for_each(|element| out.extend_from_slice(element));
}

fn join_arrays(replies: &[Vec<u8>], protocol: Protocol, out: &mut Vec<u8>) {
    let mut arrays = Vec::with_capacity(replies.len());
    for reply in replies {
        match array_elements(reply) {
            Some(array) => arrays.push(array),
            None => return out.extend_from_slice(reply),
        }
    }
    Reply::new(out, protocol).array(arrays.iter().map(|(count, _)| count).sum());
    arrays.into_iter().for_each(|(_, elements)| out.extend_from_slice(elements));
}

/// Number of an array's elements, and their bytes.
fn array_elements(reply: &[u8]) -> Option<(usize, &[u8])> {
    let line = memchr::memmem::find(reply, b"\r\n")?;
    let count = std::str::from_utf8(reply[..line].strip_prefix(b"*")?).ok()?.parse().ok()?;
    Some((count, &reply[line + 2..]))
}

/// A request between nodes: `u32 table | u8 protocol | u8 durability | u8 read mode`, then commands of which some are
/// confined to a partition: `u32 partition | u32 length | RESP`.
fn encode<'a>(
    table: TableId,
    protocol: Protocol,
    durability: Option<Durability>,
    reads: ReadMode,
    parts: impl Iterator<Item = &'a Part>,
) -> Vec<u8> {
    let mut out = BytesMut::new();
    out.put_u32_le(table.0);
    out.put_u8(if protocol == Protocol::Resp3 { 3 } else { 2 });
    out.put_u8(durability.map_or(0, |durability| 1 + durability as u8));
    out.put_u8(reads as u8);
    let mut open: Option<(u32, usize)> = None;
    for part in parts {
        let confined = if part.is_confined { part.partition } else { ANY };
        if open.is_none_or(|(before, _)| before != confined) {
            close(&mut out, open);
            out.put_u32_le(confined);
            out.put_u32_le(0);
            open = Some((confined, out.len()));
        }
        for command in &part.commands {
            let args = command.arguments();
            out.put_slice(format!("*{}\r\n", args.len()).as_bytes());
            for arg in args {
                out.put_slice(format!("${}\r\n", arg.len()).as_bytes());
                out.put_slice(arg);
                out.put_slice(b"\r\n");
            }
        }
    }
    close(&mut out, open);
    out.to_vec()
}

fn close(out: &mut BytesMut, open: Option<(u32, usize)>) {
    if let Some((_, began)) = open {
        let length = u32::try_from(out.len() - began).expect("a pipeline is shorter than 4 GiB");
        out[began - 4..began].copy_from_slice(&length.to_le_bytes());
    }
}

/// Carries out what [`encode`] wrote. Returns the replies, nothing if the table is not known here.
pub(crate) fn carry_out(server: Arc<RedisServer>, request: Bytes) -> Answer {
    Box::pin(carry_out_now(server, request))
}

async fn carry_out_now(server: Arc<RedisServer>, mut request: Bytes) -> Bytes {
    let mut connection = match session_for(&server, &mut request) {
        Some(session) => Connection::of_another_node(server, session),
        None => return Bytes::new(),
    };
    while let (Ok(confined), Ok(length)) = (request.try_get_u32_le(), request.try_get_u32_le()) {
        if length as usize > request.len() {
            break;
        }
        connection.confined = Some(confined).filter(|partition| *partition != ANY).map_or(Confined::Here, Confined::To);
        connection.input = request.split_to(length as usize).to_vec();
        if connection.process().await.is_err() {
            break;
        }
    }
    std::mem::take(&mut connection.output).into()
}

fn session_for(server: &RedisServer, request: &mut Bytes) -> Option<Session> {
    let table = server.store.table(TableId(request.try_get_u32_le().ok()?))?;
    let mut session = Session::of_another_node(table);
    session.protocol = if request.try_get_u8().ok()? == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
    session.durability = match request.try_get_u8().ok()? {
        1 => Some(Durability::None),
        2 => Some(Durability::Soft),
        3 => Some(Durability::Hard),
        _ => None,
    };
    session.reads =
        if request.try_get_u8().ok()? == ReadMode::Majority as u8 { ReadMode::Majority } else { ReadMode::Single };
    session.update();
    Some(session)
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

impl Connection {
    fn of_another_node(server: Arc<RedisServer>, session: Session) -> Self {
        let client = Arc::new(Client::of_another_node());
        let mut connection = Self::new(server, client, Stream::Nowhere);
        connection.session = session;
        connection
    }
}
