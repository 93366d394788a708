//! The life of a connection.
//!
//! **A pipeline** is what one read brought: all its commands are parsed and carried out before the replies go out in
//! one write. Commands take effect in the order in which they came. Reads run at once, where the connection lives;
//! adjacent GETs run as one batch, so that their cache misses overlap. Writes are collected too; before the next read and at the
//! end they are sent to the partitions' loops together and waited for, so a client reads its own writes.
//!
//! **Memory** of a connection is bounded: a command by the limits on what may be sent, replies by writing them out
//! whenever they exceed [`REPLY_BYTES`], one reply by [`LONGEST_REPLY_BYTES`](crate::resp::LONGEST_REPLY_BYTES), and an
//! idle connection has no buffers at all. While a client does not take its replies, nothing more is read from it or carried out for
//! it.
//!
//! **Time** that others wait for a connection of their thread is bounded by its turns; see [`turn`]. How long a client waits for what
//! cannot be done now is bounded by its commands' [`patience`].

mod admission;
mod batch;
mod cluster_command;
mod databases;
mod dispatch;
mod forwarding;
mod frame;
mod gets;
mod http;
mod large_hashes;
mod metering;
mod open_transaction;
mod over_partitions;
mod partitions;
mod patience;
mod point_reads;
mod replies;
mod scan_position;
mod server_commands;
mod session;
mod session_options;
mod table_commands;
#[cfg(test)]
mod tests;
mod transactions;
mod turn;
mod watches;

use crate::clients::Client;
use crate::commands::{self, Command, CommandError, Run, SessionCommand};
use crate::redacted::redacted;
use crate::resp::{Frame, ParseError, ParseLimits, Parsed, Reply, parse};
use crate::server::RedisServer;
use batch::Batch;
pub(crate) use forwarding::carry_out;
use forwarding::{PendingForwards, Place, Reach};
use frame::OwnedFrame;
use gets::Begun;
use patience::Patience;
use replies::Replies;
use session::Session;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_face::{ClientShare, Stream, begins_tls, buffers};
use tessera_types::{RequestError, UnixMillis};
use turn::Turn;

/// Replies are written out when they have grown to this.
const REPLY_BYTES: usize = 1 << 20;
/// To another node, commands that come when the replies have grown to this are answered as not done, and it asks again: what
/// it gets at a time is held in memory on both sides.
const ANSWER_BYTES: usize = 4 << 20;
/// What a client may send before it has authenticated; Redis' own limits.
const UNAUTHENTICATED: ParseLimits = ParseLimits { bulk_bytes: 16 << 10, arguments: 10, frame_bytes: 64 << 10 };
/// Writes of a pipeline that are sent together, at most.
const GATHERED: usize = 16 << 10;
/// Most arguments of a command.
const ARGUMENTS: usize = 1 << 20;

pub(crate) struct Connection {
    server: Arc<RedisServer>,
    client: Arc<Client>,
    /// `None` for commands of another node: replies stay where they are.
    stream: Option<Stream>,
    session: Session,
    memory: Arc<ClientShare>,
    input: Vec<u8>,
    output: Replies,
    /// Writes that are not sent yet.
    writes: Batch,
    /// Commands for other nodes that are not sent yet.
    forwards: PendingForwards,
    reach: Reach,
    /// Room for the arguments of the command being parsed.
    frame: Frame,
    /// Keys of GETs that wait to be run as a batch, as ranges of the input.
    gets: Vec<Range<usize>>,
    turn: Turn,
    /// When the commands that are carried out were read.
    arrived: Instant,
    patience: Patience,
    /// How many fields of a hash are read at a time.
    page: usize,
    /// Pending writes whose replies hold values.
    returning: usize,
    closing: bool,
}

impl Connection {
    pub(crate) fn new(server: Arc<RedisServer>, client: Arc<Client>, stream: Option<Stream>) -> Self {
        let (session, arrived) = (Session::new(&server), Instant::now());
        let memory = server.config.client_memory.join_with(client.end.clone());
        Self {
            memory,
            server,
            client,
            stream,
            session,
            input: Vec::new(),
            output: Replies::default(),
            writes: Batch::default(),
            forwards: PendingForwards::default(),
            reach: Reach::Cluster,
            frame: Frame::default(),
            gets: Vec::new(),
            turn: Turn::default(),
            arrived,
            patience: Patience::since(arrived),
            page: large_hashes::LONGEST_PAGE,
            returning: 0,
            closing: false,
        }
    }

    /// Serves until the client leaves, errs, is killed or stops reading.
    pub(crate) async fn run(mut self) {
        let (client, memory) = (self.client.clone(), self.memory.clone());
        self.session.show(&client);
        let serve = async {
            while !self.closing {
                let Some(stream) = &mut self.stream else { break };
                if stream.read(&mut self.input).await? == 0 || !self.memory.begin() {
                    break;
                }
                self.note_arrival();
                self.process().await?;
                self.patience.note_replies(&self.output);
                if self.patience.may_have_run_out() {
                    self.note_whether_patience_ran_out().await;
                }
                if let Some(written) = self.write_at_once()? {
                    self.write_rest(written).await?;
                }
                self.memory.answered();
            }
            Ok::<(), io::Error>(())
        };
        tokio::select! {
            biased;
            outcome = serve => {
                if let Err(error) = outcome {
                    tracing::debug!(client = client.id, %error, "connection lost");
                }
            }
            () = client.end.notified() => if memory.is_evicted() {
                tracing::warn!(
                    client = client.id,
                    address = %client.address,
                    bytes = memory.bytes(),
                    "clients hold more than `clients.memory_limit_bytes`, and this one, which holds the most, is closed"
                );
            }
        }
    }

    fn parse_limits(&self) -> ParseLimits {
        if self.session.user.is_none() {
            return UNAUTHENTICATED;
        }
        let limits = self.session.limits();
        ParseLimits {
            // The longest argument is a value; a longer one could only be refused.
            bulk_bytes: limits.value_bytes,
            arguments: ARGUMENTS,
            frame_bytes: limits.write_bytes.saturating_add(1 << 20),
        }
    }

    /// Carries out every whole command of the input.
    async fn process(&mut self) -> io::Result<()> {
        // The time of a turn: what expires while a client takes its replies is not there for the commands after them.
        let mut now = match self.stream {
            Some(_) => self.server.store.time_at(self.arrived),
            // What another node has sent may have waited.
            None => self.server.store.now(),
        };
        self.session.follow_split(&self.server);
        if self.session.follow_users(&self.server) {
            self.session.show(&self.client);
        }
        self.output.take_room();
        let mut limits = self.parse_limits();
        let mut frame = std::mem::take(&mut self.frame);
        // Commands on their way to other threads share the input.
        let input = Arc::new(std::mem::take(&mut self.input));
        let mut at = 0;
        let mut commands = 0;
        let mut needed = 0;
        while at < input.len() && !self.closing {
            match parse(&input[at..], &limits, &mut frame) {
                Ok(Parsed::Incomplete(bytes)) => {
                    needed = bytes;
                    break;
                }
                Ok(Parsed::Frame(length)) => {
                    for range in &mut frame.arguments {
                        *range = range.start + at..range.end + at;
                    }
                    let began = at;
                    at += length;
                    if frame.arguments.is_empty() && frame.unquoted.as_ref().is_none_or(Vec::is_empty) {
                        continue;
                    }
                    commands += 1;
                    if input[began] != b'*' {
                        if http::is_request_line(&frame.words(&input)) {
                            self.end_http();
                            break;
                        }
                        if begins_tls(&input[began..]) {
                            self.end_tls();
                            break;
                        }
                    }
                    if let Some(key) = self.plain_get(&input, &frame) {
                        self.gets.push(key);
                        if self.gets.len() >= turn::LONGEST_SLICE {
                            self.run_gets(&input, now, Begun::default()).await?;
                        }
                        continue;
                    }
                    self.turn.note_commands(1);
                    self.turn.note_bytes(length);
                    let had_user = self.session.user.is_some();
                    self.execute(&input, &mut frame, now).await?;
                    if had_user != self.session.user.is_some() {
                        limits = self.parse_limits();
                    }
                }
                Err(error) => {
                    self.refuse_input(&input, &error, now).await?;
                    break;
                }
            }
            let is_much = self.output.len() >= REPLY_BYTES;
            if is_much {
                self.write_out().await?;
            }
            let is_over = self.turn.is_over();
            if is_over {
                self.turn.end().await;
            }
            if is_over || is_much {
                now = self.server.store.now();
            }
        }
        frame.shrink();
        self.frame = frame;
        if !self.gets.is_empty()
            && let Some(begun) = self.run_gets_at_once(&input, now)
        {
            self.run_gets(&input, now, begun).await?;
        }
        if self.has_pending() {
            self.flush_pending().await;
        }
        self.server.commands.fetch_add(commands, Ordering::Relaxed);
        self.client.commands.fetch_add(commands, Ordering::Relaxed);
        self.keep_rest(input, at);
        if !self.input.is_empty() {
            // A large command that has been announced is read into place.
            self.input.reserve(needed.min(limits.frame_bytes));
        }
        self.closing |= self.client.is_killed();
        Ok(())
    }

    /// Keeps what begins at `from` for the next read.
    fn keep_rest(&mut self, input: Arc<Vec<u8>>, from: usize) {
        match Arc::try_unwrap(input) {
            Ok(mut input) if from < input.len() => {
                input.drain(..from);
                self.input = input;
            }
            Ok(mut input) => buffers::give_back(&mut input),
            // Another thread is about to let go of a command.
            Err(shared) => self.input.extend_from_slice(&shared[from..]),
        }
    }

    /// Says what is wrong with the input, and ends the connection: where the next command begins is not known.
    async fn refuse_input(&mut self, input: &[u8], error: &ParseError, now: UnixMillis) -> io::Result<()> {
        self.run_gets(input, now, Begun::default()).await?;
        self.flush_pending().await;
        self.reply().error(&format!("ERR {error}"));
        self.closing = true;
        self.write_out().await?;
        if let Some(stream) = &mut self.stream {
            stream.linger().await;
        }
        Ok(())
    }

    fn reply(&mut self) -> Reply<'_> {
        self.output.writer(self.session.protocol)
    }

    /// Answers a command that failed.
    fn refuse(&mut self, error: &CommandError) {
        self.output.error(self.session.protocol, error);
    }

    /// Bytes that the connection has taken from the node's memory.
    fn held_bytes(&self) -> usize {
        self.input.capacity() + self.frame.held_bytes() + self.output.len()
    }

    async fn write_out(&mut self) -> io::Result<()> {
        match self.write_at_once()? {
            Some(written) => self.write_rest(written).await,
            None => Ok(()),
        }
    }

    /// Writes as much of the output as the stream has room for, nearly always all of it, without a future. Returns how much, if there is
    /// more.
    fn write_at_once(&mut self) -> io::Result<Option<usize>> {
        self.memory.hold(self.held_bytes());
        let Some(stream) = self.stream.as_mut().filter(|_| !self.output.is_empty()) else { return Ok(None) };
        let written = stream.try_write(self.output.unsent())?;
        if written < self.output.unsent().len() {
            return Ok(Some(written));
        }
        self.patience.note_replies(&self.output);
        self.output.give_back();
        Ok(None)
    }

    /// Waits until the output after `written` is written.
    async fn write_rest(&mut self, written: usize) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.write(&self.output.unsent()[written..], self.server.config.write_timeout).await?;
        self.patience.note_replies(&self.output);
        self.output.give_back();
        Ok(())
    }

    /// Carries out one command.
    async fn execute(&mut self, input: &Arc<Vec<u8>>, frame: &mut Frame, now: UnixMillis) -> io::Result<()> {
        self.output.note_complete();
        if !self.gets.is_empty() {
            self.run_gets(input, now, Begun::default()).await?;
        }
        if self.is_full() {
            self.flush_pending().await;
            self.refuse(&CommandError::Request(RequestError::NotReady));
            return Ok(());
        }
        let owned = OwnedFrame::take(input, frame);
        let name = owned.argument(0);
        let Some(command) = commands::find(name) else {
            self.flush_pending().await;
            if http::names_http(name) {
                self.end_http();
                return Ok(());
            }
            self.session.spoil_transaction();
            self.reply().error(&unknown_command(&owned.arguments()));
            self.note_refused(None);
            return Ok(());
        };
        if let Err(error) = self.session.check(command, owned.len()) {
            self.flush_pending().await;
            match command.run {
                Run::Session(SessionCommand::Exec) => self.abort(&error),
                _ => {
                    self.session.spoil_transaction();
                    self.refuse(&error);
                }
            }
            self.note_refused(Some(command));
            return Ok(());
        }
        if self.session.transaction.is_some() && !open_transaction::ends_or_looks_at(command) {
            self.flush_pending().await;
            let replied = self.output.len();
            self.queue(command, owned);
            self.note_answered(std::iter::once(Some(command)), replied);
            return Ok(());
        }
        if self.writes_several_partitions(command, &owned) {
            self.flush_pending().await;
            if !self.admit(command, &owned).await {
                self.note_refused(Some(command));
                return Ok(());
            }
            let (began, replied) = (Instant::now(), self.output.len());
            self.write_several_partitions(command, &owned).await;
            let ended = self.note_answered(std::iter::once(Some(command)), replied);
            self.note_slow(&owned, ended - began);
            return Ok(());
        }
        if self.reads_several_partitions(command, &owned) {
            self.flush_pending().await;
            if !self.admit(command, &owned).await {
                self.note_refused(Some(command));
                return Ok(());
            }
            let (began, replied) = (Instant::now(), self.output.len());
            match self.may_join_batch(command, &owned) {
                true => self.run_read(command, &owned, now).await,
                false => self.read_several_partitions(command, &owned).await,
            }
            self.note_read(replied);
            let ended = self.note_answered(std::iter::once(Some(command)), replied);
            self.note_slow(&owned, ended - began);
            return Ok(());
        }
        let mut parts = None;
        if self.may_forward() {
            match self.place(command, &owned).await {
                Place::Forwarded => {
                    self.forward_slice().await;
                    return Ok(());
                }
                Place::Here(known) => parts = known,
            }
        }
        if !self.admit(command, &owned).await {
            self.note_refused(Some(command));
            return Ok(());
        }
        if let Run::Keyed(_) = command.run
            && command.flags.write
        {
            self.returning += usize::from(returns_values(command, &owned));
            self.add_write(command, owned, parts);
            if self.returning >= self.turn.slice() || self.writes.len() >= GATHERED {
                self.flush_pending().await;
            }
            return Ok(());
        }
        let began = Instant::now();
        if self.has_pending() {
            self.flush_pending().await;
        }
        let replied = self.output.len();
        let ended;
        match command.run {
            Run::Plain(_) => {
                batch::run_plain(command, &owned, self.session.protocol, self.output.buffer());
                ended = self.note_answered(std::iter::once(Some(command)), replied);
            }
            Run::Keyed(_) => {
                self.run_read(command, &owned, now).await;
                self.note_read(replied);
                self.turn.note_bytes(self.output.len() - replied);
                self.take_if_not_ready(replied, command, &owned);
                ended = self.note_answered(std::iter::once(Some(command)), replied);
            }
            Run::Session(which) => {
                self.run_session(which, command, &owned, now).await?;
                // What it found in the parts of a table that was split meanwhile is not all.
                while self.asks_again(which, replied) && self.session.follow_split(&self.server) {
                    self.output.truncate(replied);
                    self.run_session(which, command, &owned, now).await?;
                }
                self.take_if_not_ready(replied, command, &owned);
                let answered = self.note_answered(std::iter::once(Some(command)), replied);
                ended = match self.may_forward() {
                    true => answered,
                    false => {
                        // Writes are pending next, and their replies come later.
                        self.forward_pending().await;
                        Instant::now()
                    }
                };
            }
        }
        let took = ended - began;
        self.turn.note_time(took);
        self.note_slow(&owned, took);
        Ok(())
    }

    /// Whether a command that goes from partition to partition by itself does so again if the table turns out to have been split.
    /// What has deleted records, and is not known to have failed everywhere, is not carried out twice.
    fn asks_again(&self, which: SessionCommand, replied: usize) -> bool {
        match which {
            SessionCommand::DbSize | SessionCommand::RandomKey => true,
            SessionCommand::Flush => self.output.is_undone_at(replied),
            _ => false,
        }
    }

    /// Whether another node has asked for as much as it may get at a time.
    fn is_full(&self) -> bool {
        self.is_of_node() && self.output.len() >= ANSWER_BYTES
    }

    fn note_slow(&self, frame: &OwnedFrame, took: Duration) {
        if self.server.slow_log.is_slow(took) {
            let address = self.client.address.to_string();
            self.server.slow_log.push(took, &redacted(&frame.arguments()), address, self.session.name.clone());
        }
    }
}

/// Whether the reply to a write may hold values that are stored.
fn returns_values(command: &Command, frame: &OwnedFrame) -> bool {
    match command.name {
        "getset" | "getdel" | "getex" | "hgetdel" | "hgetex" => true,
        "set" => frame.len() > 3,
        _ => false,
    }
}

fn unknown_command(args: &[&[u8]]) -> String {
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", printable(args[0], 128));
    for argument in &args[1..] {
        if text.len() > 256 {
            break;
        }
        text += &format!("'{}' ", printable(argument, 128));
    }
    text
}

/// The text up to a NUL, as C prints it.
fn printable(bytes: &[u8], limit: usize) -> String {
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(&bytes[..bytes.len().min(limit)]).into_owned()
}
