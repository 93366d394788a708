//! A pipeline: the commands that one read brought, each carried out in turn.

use super::gets::Begun;
use super::{Connection, http, turn};
use crate::resp::{ParseError, ParseLimits, Parsed, parse};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_face::{begins_tls, buffers};
use tessera_types::UnixMillis;

/// What a client may send before it has authenticated; Redis' own limits.
const UNAUTHENTICATED: ParseLimits = ParseLimits { bulk_bytes: 16 << 10, arguments: 10, frame_bytes: 64 << 10 };
/// Most arguments of a command.
const ARGUMENTS: usize = 1 << 20;

impl Connection {
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
    pub(super) async fn process(&mut self) -> io::Result<()> {
        // The time of a turn: what expires while a client takes its replies is not there for the commands after them.
        let mut now = match self.stream {
            Some(_) => self.server.store.time_at(self.arrived),
            // What another node has sent may have waited.
            None => self.server.store.now(),
        };
        self.session.follow_split();
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
            if self.is_to_pause() {
                now = self.pause().await?;
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
}
