//! Commands on the connection and the server.

use super::frame::OwnedFrame;
use super::{Connection, session::Session};
use crate::commands::{self, Command, CommandError, Keys, Run, SessionCommand as S, table::COMMANDS};
use crate::glob;
use crate::number::parse_integer;
use crate::resp::{Protocol, Reply};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_types::{ReadMode, RecordKey, UnixMillis};

/// What INFO and HELLO tell as the version of Redis whose commands these are: clients choose features by it.
const REDIS_VERSION: &str = "7.4.0";

impl Connection {
    pub(super) async fn run_session(
        &mut self,
        which: S,
        command: &'static Command,
        frame: &OwnedFrame,
        now: UnixMillis,
    ) -> io::Result<()> {
        let args = frame.arguments();
        let outcome = match which {
            S::Acl => self.acl(&args),
            S::Auth => self.auth(&args),
            S::Client => self.client_command(&args),
            S::Cluster => self.cluster(&args),
            S::Command => self.command_command(&args),
            S::Config => self.config(&args),
            S::DbSize => {
                self.db_size(command, frame).await;
                Ok(())
            }
            S::Discard => {
                self.discard();
                Ok(())
            }
            S::Acks => self.acks(&args),
            S::Durability => self.durability(&args),
            S::Exec => {
                let _: () = self.exec().await;
                Ok(())
            }
            S::Flush => self.flush(command, frame).await,
            S::Hello => self.hello(&args),
            S::Info => {
                self.info(&args[1..]);
                Ok(())
            }
            S::Keys => self.keys(args[1], now).await,
            S::Latency => self.latency(&args),
            S::Memory => self.keyed_subcommand(command, frame, b"USAGE", commands::memory_usage, now).await,
            S::Multi => {
                self.multi();
                Ok(())
            }
            S::Object if args[1].eq_ignore_ascii_case(b"DIGEST") => {
                self.keyed_subcommand(command, frame, b"DIGEST", commands::object_digest, now).await
            }
            S::Object => self.keyed_subcommand(command, frame, b"ENCODING", commands::object_encoding, now).await,
            S::Quit => {
                self.reply().ok();
                self.closing = true;
                Ok(())
            }
            S::RandomKey => self.random_key(command, frame, now).await,
            S::Reads => self.reads(&args),
            S::Reset => {
                self.session = Session::new(&self.server);
                self.session.show(&self.client);
                self.reply().simple("RESET");
                Ok(())
            }
            S::Scan => self.scan(&args, now),
            S::Select => self.select(args[1]).await,
            S::SlowLog => self.slow_log(&args),
            S::Table => self.choose_by_name(&args).await,
            S::Unwatch => {
                self.unwatch();
                Ok(())
            }
            S::Watch => {
                let _: () = self.watch(&args[1..], now).await;
                Ok(())
            }
        };
        if let Err(error) = outcome {
            self.reply().error(&error.line());
        }
        Ok(())
    }

    /// MEMORY USAGE key, OBJECT ENCODING key.
    async fn keyed_subcommand(
        &mut self,
        command: &'static Command,
        frame: &OwnedFrame,
        name: &[u8],
        run: fn(&mut commands::Call<'_, '_>) -> Result<(), CommandError>,
        now: UnixMillis,
    ) -> Result<(), CommandError> {
        let args = frame.arguments();
        if !args[1].eq_ignore_ascii_case(name) {
            return Err(unknown_subcommand_named(&command.name.to_uppercase(), args[1]));
        }
        if args.len() < 3 {
            let subcommand = String::from_utf8_lossy(name).to_lowercase();
            return Err(CommandError::arity(&format!("{}|{subcommand}", command.name)));
        }
        let Some(table) = self.session.table() else {
            return Err(CommandError::text(super::session::NO_TABLE));
        };
        let key = RecordKey::new(args[2], b"");
        let partition = table.partition_of(&key);
        let mut transaction = tessera_store::Transaction::read_only(&table, partition, ReadMode::Single, now)?;
        let reply = Reply::new(&mut self.output, self.session.protocol);
        run(&mut commands::Call { args: &args, transaction: &mut transaction, reply })
    }

    fn log_in(&mut self, name: &str, password: &[u8]) -> Result<(), CommandError> {
        let user = self.server.config.access.authenticate(name, password).cloned();
        let user = user.ok_or(CommandError::text("WRONGPASS invalid username-password pair or user is disabled."))?;
        self.session.become_user(&self.server, user);
        self.session.show(&self.client);
        Ok(())
    }

    fn auth(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        match args {
            [_, password] => {
                if !self.server.config.access.default_has_password() {
                    return Err(CommandError::text(
                        "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                         your configuration is correct?",
                    ));
                }
                self.log_in("default", password)?;
            }
            [_, name, password] => self.log_in(&String::from_utf8_lossy(name), password)?,
            _ => return Err(CommandError::SYNTAX),
        }
        self.reply().ok();
        Ok(())
    }

    fn hello(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let mut protocol = self.session.protocol;
        if let Some(version) = args.get(1) {
            protocol = match parse_integer(version) {
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                Some(_) => return Err(CommandError::text("NOPROTO unsupported protocol version")),
                None => return Err(CommandError::text("ERR Protocol version is not an integer or out of range")),
            };
        }
        let mut at = 2;
        let mut name = None;
        let mut credentials = None;
        while at < args.len() {
            if args[at].eq_ignore_ascii_case(b"AUTH") && at + 2 < args.len() {
                credentials = Some((String::from_utf8_lossy(args[at + 1]).into_owned(), args[at + 2]));
                at += 3;
            } else if args[at].eq_ignore_ascii_case(b"SETNAME") && at + 1 < args.len() {
                name = Some(client_name(args[at + 1])?);
                at += 2;
            } else {
                let option = String::from_utf8_lossy(args[at]);
                return Err(CommandError::Reply(format!("ERR Syntax error in HELLO option '{option}'").into()));
            }
        }
        if let Some((user, password)) = credentials {
            self.log_in(&user, password)?;
        }
        if self.session.user.is_none() {
            return Err(CommandError::text(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
                 <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            ));
        }
        self.session.protocol = protocol;
        if let Some(name) = name {
            self.session.name = name;
        }
        self.session.show(&self.client);
        let id = i64::try_from(self.client.id).unwrap_or(i64::MAX);
        let mut reply = self.reply();
        reply.map(7);
        for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            reply.bulk(key.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"proto");
        reply.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
        reply.bulk(b"id");
        reply.integer(id);
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            reply.bulk(key.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"modules");
        reply.array(0);
        Ok(())
    }

    fn client_command(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let subcommand = args[1].to_ascii_uppercase();
        match (&subcommand[..], &args[2..]) {
            (b"ID", []) => {
                let id = i64::try_from(self.client.id).unwrap_or(i64::MAX);
                self.reply().integer(id);
            }
            (b"GETNAME", []) => {
                let name = self.session.name.clone();
                if name.is_empty() { self.reply().null() } else { self.reply().bulk(name.as_bytes()) }
            }
            (b"SETNAME", [name]) => {
                self.session.name = client_name(name)?;
                self.session.show(&self.client);
                self.reply().ok();
            }
            (b"SETINFO", [attribute, value]) => {
                let value = client_name(value)?;
                if attribute.eq_ignore_ascii_case(b"LIB-NAME") {
                    self.session.library.0 = value;
                } else if attribute.eq_ignore_ascii_case(b"LIB-VER") {
                    self.session.library.1 = value;
                } else {
                    let attribute = String::from_utf8_lossy(attribute);
                    return Err(CommandError::Reply(format!("ERR Unrecognized option '{attribute}'").into()));
                }
                self.session.show(&self.client);
                self.reply().ok();
            }
            (b"INFO", []) => {
                let text = self.client.describe() + "\n";
                self.reply().verbatim(&text);
            }
            (b"LIST", _) => {
                let text: String = self.server.clients.list().iter().map(|client| client.describe() + "\n").collect();
                self.reply().verbatim(&text);
            }
            (b"KILL", rest) => self.kill(rest)?,
            (b"NO-EVICT" | b"NO-TOUCH", [_]) => self.reply().ok(),
            _ => return Err(unknown_subcommand_named("CLIENT", args[1])),
        }
        Ok(())
    }

    fn kill(&mut self, rest: &[&[u8]]) -> Result<(), CommandError> {
        let matching = |address: Option<&[u8]>, id: Option<u64>| -> Vec<_> {
            let is_it = |client: &Arc<crate::clients::Client>| {
                address.is_none_or(|address| client.address.to_string().as_bytes() == address)
                    && id.is_none_or(|id| client.id == id)
            };
            self.server.clients.list().into_iter().filter(is_it).collect()
        };
        if let [address] = rest {
            let found = matching(Some(address), None);
            found.iter().for_each(|client| client.end());
            if found.is_empty() {
                return Err(CommandError::text("ERR No such client"));
            }
            self.reply().ok();
            return Ok(());
        }
        let (mut address, mut id) = (None, None);
        for pair in rest.chunks(2) {
            match pair {
                [filter, value] if filter.eq_ignore_ascii_case(b"ADDR") => address = Some(*value),
                [filter, value] if filter.eq_ignore_ascii_case(b"ID") => {
                    let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
                    id = Some(number.ok_or(CommandError::text("ERR client-id should be greater than 0"))?);
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        let found = matching(address, id);
        found.iter().for_each(|client| client.end());
        self.reply().count(found.len());
        Ok(())
    }

    fn acl(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let user = self.session.user.clone();
        match &args[1].to_ascii_uppercase()[..] {
            b"WHOAMI" => self.reply().bulk(user.map(|user| user.name).unwrap_or_default().as_bytes()),
            b"USERS" | b"LIST" => {
                let names_only = args[1].eq_ignore_ascii_case(b"USERS");
                let users = self.server.config.access.users().to_vec();
                let mut reply = self.reply();
                reply.array(users.len());
                for user in users {
                    reply.bulk(if names_only { user.name } else { user.describe() }.as_bytes());
                }
            }
            b"CAT" => {
                let mut reply = self.reply();
                reply.array(3);
                for category in ["read", "write", "admin"] {
                    reply.bulk(category.as_bytes());
                }
            }
            _ => return Err(unknown_subcommand_named("ACL", args[1])),
        }
        Ok(())
    }

    fn command_command(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let subcommand = args.get(1).map(|word| word.to_ascii_uppercase());
        let named = |names: &[&[u8]]| -> Vec<Option<&'static Command>> {
            if names.is_empty() {
                COMMANDS.iter().map(Some).collect()
            } else {
                names.iter().map(|name| commands::find(name)).collect()
            }
        };
        let mut reply = Reply::new(&mut self.output, self.session.protocol);
        match subcommand.as_deref() {
            None => {
                reply.array(COMMANDS.len());
                COMMANDS.iter().for_each(|command| describe(&mut reply, command));
            }
            Some(b"COUNT") => reply.count(COMMANDS.len()),
            Some(b"LIST") => {
                reply.array(COMMANDS.len());
                COMMANDS.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
            }
            Some(b"INFO") => {
                let found = named(&args[2..]);
                reply.array(found.len());
                for command in found {
                    match command {
                        Some(command) => describe(&mut reply, command),
                        None => reply.null_array(),
                    }
                }
            }
            Some(b"DOCS") => {
                let found: Vec<_> = named(&args[2..]).into_iter().flatten().collect();
                reply.map(found.len());
                for command in found {
                    reply.bulk(command.name.as_bytes());
                    let fields =
                        [("summary", command.summary), ("since", command.since), ("group", command.group.name())];
                    reply.map(fields.len());
                    for (name, text) in fields {
                        reply.bulk(name.as_bytes());
                        reply.bulk(text.as_bytes());
                    }
                }
            }
            Some(b"GETKEYS") => {
                let command = args.get(2).and_then(|name| commands::find(name));
                let command = command.ok_or(CommandError::text("ERR Invalid command specified"))?;
                if !command.takes(args.len() - 2) {
                    return Err(CommandError::text("ERR Invalid number of arguments specified for command"));
                }
                let positions: Vec<_> = command.key_positions(args.len() - 2).collect();
                if positions.is_empty() {
                    return Err(CommandError::text("ERR The command has no key arguments"));
                }
                reply.array(positions.len());
                positions.iter().for_each(|at| reply.bulk(args[2 + at]));
            }
            Some(_) => return Err(unknown_subcommand_named("COMMAND", args[1])),
        }
        Ok(())
    }

    fn config(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
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
                self.server.read_hits.store(0, Ordering::Relaxed);
                self.server.read_misses.store(0, Ordering::Relaxed);
                self.reply().ok();
            }
            (b"GET" | b"SET", _) => return Err(CommandError::arity("config")),
            _ => return Err(unknown_subcommand_named("CONFIG", args[1])),
        }
        Ok(())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let server = &self.server;
        let statistics = server.store.statistics();
        vec![
            ("maxclients", server.max_clients.load(Ordering::Relaxed).to_string()),
            ("maxmemory", statistics.memory_limit_bytes.to_string()),
            ("port", server.config.port.to_string()),
            ("databases", server.store.tables().len().to_string()),
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
            "slowlog-log-slower-than" => self.server.slow_log.set_threshold_micros(number()?),
            "slowlog-max-len" => self.server.slow_log.set_capacity(count()?),
            _ => {
                let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
                return Err(CommandError::Reply(text.into()));
            }
        }
        Ok(())
    }

    fn slow_log(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
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
                let mut reply = self.reply();
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

    fn latency(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let slow = self.server.slow_log.newest(160);
        let seconds = |at: UnixMillis| i64::try_from(at.get() / 1_000).unwrap_or(i64::MAX);
        let millis = |took: std::time::Duration| i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        let mut reply = Reply::new(&mut self.output, self.session.protocol);
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
                     tessera_log_sync_seconds tells how long the disk takes to sync."
                ));
            }
            _ => return Err(unknown_subcommand_named("LATENCY", args[1])),
        }
        Ok(())
    }

    fn info(&mut self, sections: &[&[u8]]) {
        let server = self.server.clone();
        let statistics = server.store.statistics();
        let wants = |name: &str| {
            sections.is_empty()
                || sections.iter().any(|section| {
                    [name, "all", "default", "everything"]
                        .iter()
                        .any(|known| section.eq_ignore_ascii_case(known.as_bytes()))
                })
        };
        let mut text = String::new();
        let mut section = |name: &str, lines: Vec<(String, String)>| {
            if wants(name) {
                let title = name[..1].to_uppercase() + &name[1..];
                text += &format!("# {title}\r\n");
                lines.iter().for_each(|(key, value)| text += &format!("{key}:{value}\r\n"));
                text += "\r\n";
            }
        };
        let line = |key: &str, value: &dyn ToString| (key.to_string(), value.to_string());
        let uptime = server.started.elapsed().as_secs();
        section(
            "server",
            vec![
                line("redis_version", &REDIS_VERSION),
                line("tessera_version", &env!("CARGO_PKG_VERSION")),
                line("redis_mode", &"standalone"),
                line("process_id", &std::process::id()),
                line("tcp_port", &server.config.port),
                line("uptime_in_seconds", &uptime),
                line("uptime_in_days", &(uptime / 86_400)),
            ],
        );
        section(
            "clients",
            vec![
                line("connected_clients", &server.clients.count()),
                line("maxclients", &server.max_clients.load(Ordering::Relaxed)),
                line("blocked_clients", &0),
            ],
        );
        section(
            "memory",
            vec![
                line("used_memory", &statistics.memory_used_bytes),
                line("used_memory_rss", &resident_bytes()),
                line("maxmemory", &statistics.memory_limit_bytes),
                line("mem_allocator", &"mimalloc"),
            ],
        );
        section(
            "persistence",
            vec![
                line("loading", &u8::from(!server.store.is_serving())),
                line("log_bytes", &statistics.log.disk_bytes),
                line("log_segments", &statistics.log.segments),
                line("log_syncs", &statistics.log.syncs),
            ],
        );
        section(
            "stats",
            vec![
                line("total_connections_received", &server.clients.total.load(Ordering::Relaxed)),
                line("rejected_connections", &server.clients.refused.load(Ordering::Relaxed)),
                line("total_commands_processed", &server.commands.load(Ordering::Relaxed)),
                line("keyspace_hits", &server.read_hits.load(Ordering::Relaxed)),
                line("keyspace_misses", &server.read_misses.load(Ordering::Relaxed)),
                line("expired_keys", &statistics.tables.iter().map(|table| table.engine.expired_removed).sum::<u64>()),
                line("evicted_keys", &statistics.tables.iter().map(|table| table.engine.evicted).sum::<u64>()),
            ],
        );
        section("replication", vec![line("role", &"master"), line("connected_slaves", &0)]);
        let keyspace = statistics.tables.iter().map(|table| {
            let keys = table.engine.hash_keys.unwrap_or(table.engine.records);
            (format!("db{}", table.number), format!("keys={keys},expires=0,avg_ttl=0,name={}", table.name))
        });
        section("keyspace", keyspace.collect());
        self.reply().verbatim(&text);
    }
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0);
    // SAFETY: a plain query of a system constant.
    pages * u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Names are shown in lists of words, so they hold none of what separates those.
fn client_name(name: &[u8]) -> Result<String, CommandError> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(String::from_utf8_lossy(name).into_owned())
    } else {
        Err(CommandError::text("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}

pub(super) fn unknown_subcommand_named(command: &str, subcommand: &[u8]) -> CommandError {
    let subcommand = String::from_utf8_lossy(&subcommand[..subcommand.len().min(128)]);
    CommandError::Reply(format!("ERR unknown subcommand '{subcommand}'. Try {command} HELP.").into())
}

/// One entry of COMMAND.
fn describe(reply: &mut Reply<'_>, command: &Command) {
    let (first, last, step) = match command.keys {
        Keys::None => (0, 0, 0),
        Keys::One(at) => (at, at, 1),
        Keys::Two => (1, 2, 1),
        Keys::Every(step) => (1, usize::MAX, step),
    };
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    let flags = command.flags;
    let names: Vec<&str> = [
        (flags.write, "write"),
        (flags.read, "readonly"),
        (flags.fast, "fast"),
        (flags.admin, "admin"),
        (flags.no_auth, "no_auth"),
        (matches!(command.run, Run::Session(_)) && !flags.read && !flags.write, "noscript"),
    ]
    .into_iter()
    .filter_map(|(is, name)| is.then_some(name))
    .collect();
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
    reply.count(first);
    reply.integer(if last == usize::MAX { -1 } else { i64::try_from(last).unwrap_or(-1) });
    reply.count(step);
    reply.set(0);
    reply.set(0);
    reply.set(0);
    reply.array(0);
}
