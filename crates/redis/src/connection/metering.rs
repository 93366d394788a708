//! What a connection tells the meter of the face: how long commands took, which of them failed, and which of the keys that they looked
//! for were there. Commands that another node has sent are counted there, where their client is.

use super::Connection;
use super::frame::OwnedFrame;
use crate::commands::{Command, kind_of, place_of};
use crate::redacted::redacted;
use crate::resp::reply_length;
use std::time::{Duration, Instant};
use tessera_store::RequestKind;

fn is_error(reply: &[u8]) -> bool {
    reply.first() == Some(&b'-')
}

fn is_nothing(reply: &[u8]) -> bool {
    [&b"$-1"[..], b"_", b"*-1", b"*0", b"%0"].iter().any(|nothing| reply.starts_with(nothing))
}

/// The first of some replies, and the others.
fn split_first(replies: &[u8]) -> (&[u8], &[u8]) {
    replies.split_at(reply_length(replies).unwrap_or(replies.len()))
}

/// How much of what a command looked for was there, by its reply, and how much was not. Of several keys or fields each counts.
fn lookups(command: &Command, reply: &[u8]) -> (u64, u64) {
    let (mut hits, mut misses) = (0, 0);
    let mut note = |reply: &[u8]| *(if is_nothing(reply) { &mut misses } else { &mut hits }) += 1;
    if !matches!(command.name, "mget" | "hmget") {
        note(reply);
        return (hits, misses);
    }
    let line = memchr::memchr(b'\n', reply).map_or(reply.len(), |line| line + 1);
    let mut elements = &reply[line..];
    while !elements.is_empty() {
        let (element, others) = split_first(elements);
        note(element);
        elements = others;
    }
    (hits, misses)
}

impl Connection {
    /// Notes commands that were carried out or refused. Their replies, in their order, are the end of the output, from `began` on; there
    /// are none if the command is still to be carried out elsewhere. A command is `None` if whoever sent it notes it. Returns the time,
    /// for which the clock was looked at.
    pub(super) fn note_answered(
        &self,
        commands: impl Iterator<Item = Option<&'static Command>>,
        began: usize,
    ) -> Instant {
        let now = Instant::now();
        let mut replies = self.output.bytes().get(began..).unwrap_or_default();
        if self.is_of_node() || replies.is_empty() {
            return now;
        }
        let mut commands = commands.peekable();
        let [mut reads, mut writes, mut others] = [0; 3];
        while let Some(command) = commands.next() {
            let is_last = commands.peek().is_none();
            let (reply, after) = if is_last { (replies, &[][..]) } else { split_first(replies) };
            replies = after;
            let Some(command) = command else { continue };
            match kind_of(command) {
                RequestKind::Read => reads += 1,
                RequestKind::Write => writes += 1,
                RequestKind::Other | RequestKind::Query => others += 1,
            }
            self.note_reply(command, reply);
        }
        for (kind, count) in [(RequestKind::Read, reads), (RequestKind::Write, writes), (RequestKind::Other, others)] {
            if count > 0 {
                self.note_requests(kind, count, now);
            }
        }
        now
    }

    /// Notes a command that took long.
    pub(super) fn note_slow(&self, frame: &OwnedFrame, took: Duration) {
        if self.server.slow_log.is_slow(took) {
            let address = self.client.address.to_string();
            self.server.slow_log.push(took, &redacted(&frame.arguments()), address, self.session.name.clone());
        }
    }

    fn note_reply(&self, command: &'static Command, reply: &[u8]) {
        let (meter, place) = (&self.server.meter, place_of(Some(command)));
        if is_error(reply) {
            meter.note_errors(place, 1);
        } else if meter.counts_lookups_of(place) && !reply.starts_with(b"+QUEUED") {
            let (hits, misses) = lookups(command, reply);
            meter.note_lookups(place, hits, misses);
        }
    }

    fn note_requests(&self, kind: RequestKind, count: u64, now: Instant) {
        let took = now.saturating_duration_since(self.arrived);
        self.server.meter.note_requests(self.session.table.as_deref(), kind, count, took);
    }

    /// Notes a command that was answered with an error; an unknown one if it is `None`.
    pub(super) fn note_refused(&self, command: Option<&'static Command>) {
        if !self.is_of_node() {
            self.server.meter.note_errors(place_of(command), 1);
            self.note_requests(command.map_or(RequestKind::Other, kind_of), 1, Instant::now());
        }
    }

    /// Notes GETs that have run together, of which so many have found something, and whose replies begin at `began`. It is one look at
    /// the clock for all.
    pub(super) fn note_gets(&self, gets: usize, hits: u64, began: usize) {
        if self.is_of_node() {
            return;
        }
        let (gets, get, meter) = (gets as u64, self.server.get, &self.server.meter);
        let errors = if hits < gets { self.errors_among(gets, began) } else { 0 };
        if errors > 0 {
            meter.note_errors(get, errors);
        }
        meter.note_lookups(get, hits, gets - hits - errors);
        self.note_requests(RequestKind::Read, gets, Instant::now());
    }

    /// How many of so many replies at the end of the output are errors.
    fn errors_among(&self, replies: u64, began: usize) -> u64 {
        let mut rest = self.output.bytes().get(began..).unwrap_or_default();
        let mut errors = 0;
        for at in 0..replies {
            errors += u64::from(is_error(rest));
            if at + 1 < replies {
                rest = split_first(rest).1;
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::find;

    #[test]
    fn a_reply_tells_what_was_there() {
        let of = |name: &str, reply: &str| lookups(find(name.as_bytes()).unwrap(), reply.as_bytes());
        assert_eq!(of("get", "$3\r\nabc\r\n"), (1, 0));
        assert_eq!(of("get", "$0\r\n\r\n"), (1, 0));
        assert_eq!(of("hget", "$-1\r\n"), (0, 1));
        assert_eq!(of("hget", "_\r\n"), (0, 1));
        assert_eq!(of("hgetall", "*0\r\n"), (0, 1));
        assert_eq!(of("hgetall", "%0\r\n"), (0, 1));
        assert_eq!(of("hgetall", "*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n"), (1, 0));
        assert_eq!(of("mget", "*3\r\n$-1\r\n$2\r\n_\r\r\n$1\r\nb\r\n"), (2, 1));
        assert_eq!(of("hmget", "*2\r\n_\r\n_\r\n"), (0, 2));
    }
}
