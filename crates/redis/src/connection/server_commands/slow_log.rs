//! SLOWLOG, and LATENCY, which tells of the same commands.

use super::super::Connection;
use super::unknown_subcommand_named;
use crate::commands::CommandError;
use crate::number::parse_integer;
use tessera_types::UnixMillis;

impl Connection {
    pub(super) fn slow_log(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        match (&args[1].to_ascii_uppercase()[..], &args[2..]) {
            (b"LEN", []) => {
                let length = self.server.slow_log.len();
                self.reply().count(length);
            }
            (b"RESET", []) => {
                self.server.slow_log.clear();
                self.reply().ok();
            }
            (b"GET", rest) => {
                let count = match rest {
                    [] => 10,
                    [count] => match parse_integer(count) {
                        Some(-1) => usize::MAX,
                        Some(count) if count >= 0 => usize::try_from(count).unwrap_or(usize::MAX),
                        _ => return Err(CommandError::text("ERR count should be greater than or equal to -1")),
                    },
                    _ => return Err(CommandError::arity("slowlog|get")),
                };
                let entries = self.server.slow_log.newest(count);
                let mut reply = self.output.writer(self.session.protocol);
                reply.array(entries.len());
                for entry in entries {
                    reply.array(6);
                    reply.integer(i64::try_from(entry.id).unwrap_or(i64::MAX));
                    reply.integer(i64::try_from(entry.at.get() / 1_000).unwrap_or(i64::MAX));
                    reply.integer(i64::try_from(entry.took.as_micros()).unwrap_or(i64::MAX));
                    reply.array(entry.arguments.len());
                    entry.arguments.iter().for_each(|argument| reply.bulk(argument));
                    reply.bulk(entry.client.as_bytes());
                    reply.bulk(entry.client_name.as_bytes());
                }
            }
            _ => return Err(unknown_subcommand_named("SLOWLOG", args[1])),
        }
        Ok(())
    }

    pub(super) fn latency(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let slow = self.server.slow_log.newest(160);
        let seconds = |at: UnixMillis| i64::try_from(at.get() / 1_000).unwrap_or(i64::MAX);
        let millis = |took: std::time::Duration| i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        let mut reply = self.output.writer(self.session.protocol);
        match &args[1].to_ascii_uppercase()[..] {
            b"LATEST" => match slow.first() {
                None => reply.array(0),
                Some(latest) => {
                    reply.array(1);
                    reply.array(4);
                    reply.bulk(b"command");
                    reply.integer(seconds(latest.at));
                    reply.integer(millis(latest.took));
                    reply.integer(slow.iter().map(|entry| millis(entry.took)).max().unwrap_or(0));
                }
            },
            b"HISTORY" if args.len() == 3 => {
                let wanted: Vec<_> = slow.iter().rev().filter(|_| args[2].eq_ignore_ascii_case(b"command")).collect();
                reply.array(wanted.len());
                for entry in wanted {
                    reply.array(2);
                    reply.integer(seconds(entry.at));
                    reply.integer(millis(entry.took));
                }
            }
            b"RESET" => {
                let events = usize::from(!slow.is_empty());
                self.server.slow_log.clear();
                reply.count(events);
            }
            b"DOCTOR" => {
                let count = slow.len();
                reply.verbatim(&format!(
                    "{count} commands in the slow log. SLOWLOG GET lists them; the metric \
                     tessera_log_sync_seconds_total tells how long the disk takes to sync."
                ));
            }
            _ => return Err(unknown_subcommand_named("LATENCY", args[1])),
        }
        Ok(())
    }
}
