//! One command, from its words to its reply, or to the place where it waits for others.

use super::forwarding::Place;
use super::frame::OwnedFrame;
use super::gets::Begun;
use super::{Connection, batch, http, open_transaction};
use crate::commands::{self, Command, CommandError, Run, SessionCommand};
use crate::resp::Frame;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tessera_types::{RequestError, UnixMillis};

/// To another node, commands that come when the replies have grown to this are answered as not done, and it asks again: what
/// it gets at a time is held in memory on both sides.
const ANSWER_BYTES: usize = 4 << 20;
/// Writes of a pipeline that are sent together, at most.
const GATHERED: usize = 16 << 10;

impl Connection {
    /// Carries out one command.
    pub(super) async fn execute(&mut self, input: &Arc<Vec<u8>>, frame: &mut Frame, now: UnixMillis) -> io::Result<()> {
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
        let writes_several = self.writes_several_partitions(command, &owned);
        if writes_several || self.reads_several_partitions(command, &owned) {
            self.flush_pending().await;
            if !self.admit(command, &owned).await {
                self.note_refused(Some(command));
                return Ok(());
            }
            let (began, replied) = (Instant::now(), self.output.len());
            if writes_several {
                self.write_several_partitions(command, &owned).await;
            } else {
                match self.may_join_batch(command, &owned) {
                    true => self.run_read(command, &owned, now).await,
                    false => self.read_several_partitions(command, &owned).await,
                }
                self.note_read(replied);
            }
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
                while self.asks_again(which, replied) && self.session.follow_split() {
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
    pub(super) fn asks_again(&self, which: SessionCommand, replied: usize) -> bool {
        match which {
            SessionCommand::DbSize | SessionCommand::RandomKey => true,
            SessionCommand::Flush => self.output.is_undone_at(replied),
            _ => false,
        }
    }

    /// Whether another node has asked for as much as it may get at a time.
    pub(super) fn is_full(&self) -> bool {
        self.is_of_node() && self.output.len() >= ANSWER_BYTES
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
