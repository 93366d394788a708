//! CONFIG.

use super::super::Connection;
use super::unknown_subcommand_named;
use crate::commands::CommandError;
use crate::glob;
use crate::number::parse_integer;
use std::sync::atomic::Ordering;

impl Connection {
    pub(super) fn config(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        match (&args[1].to_ascii_uppercase()[..], &args[2..]) {
            (b"GET", patterns) if !patterns.is_empty() => {
                let wanted = |name: &str| {
                    patterns.iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
                };
                let settings: Vec<_> = self.settings().into_iter().filter(|(name, _)| wanted(name)).collect();
                let mut reply = self.reply();
                reply.map(settings.len());
                for (name, value) in settings {
                    reply.bulk(name.as_bytes());
                    reply.bulk(value.as_bytes());
                }
            }
            (b"SET", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                for pair in pairs.chunks_exact(2) {
                    self.set_setting(&String::from_utf8_lossy(pair[0]).to_lowercase(), pair[1])?;
                }
                self.reply().ok();
            }
            (b"RESETSTAT", []) => {
                self.server.commands.store(0, Ordering::Relaxed);
                *self.server.lookups_before.lock() = self.server.meter.lookups();
                self.reply().ok();
            }
            (b"GET" | b"SET", _) => return Err(CommandError::arity("config")),
            _ => return Err(unknown_subcommand_named("CONFIG", args[1])),
        }
        Ok(())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let server = &self.server;
        vec![
            ("maxclients", server.max_clients.load(Ordering::Relaxed).to_string()),
            ("maxmemory-clients", server.config.client_memory.limit().to_string()),
            ("maxmemory", server.store.memory_limit_bytes().to_string()),
            ("port", server.config.port.to_string()),
            ("databases", (server.config.databases as usize).max(server.store.tables().len()).to_string()),
            ("slowlog-log-slower-than", server.slow_log.threshold_micros().to_string()),
            ("slowlog-max-len", server.slow_log.capacity().to_string()),
            ("proto-max-bulk-len", self.session.limits().value_bytes.to_string()),
            ("save", String::new()),
            ("appendonly", "yes".into()),
        ]
    }

    fn set_setting(&mut self, name: &str, value: &[u8]) -> Result<(), CommandError> {
        let number = || {
            parse_integer(value).ok_or_else(|| {
            CommandError::Reply(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - argument couldn't be parsed into an integer").into())
        })
        };
        let count = || number().map(|number| usize::try_from(number).unwrap_or(0));
        match name {
            "maxclients" => self.server.max_clients.store(count()?.max(1), Ordering::Relaxed),
            "maxmemory-clients" => self.server.config.client_memory.set_limit(count()?),
            "slowlog-log-slower-than" => self.server.slow_log.set_threshold_micros(number()?),
            "slowlog-max-len" => self.server.slow_log.set_capacity(count()?),
            _ => {
                let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
                return Err(CommandError::Reply(text.into()));
            }
        }
        Ok(())
    }
}
