//! Commands on the connection and the server.

mod access;
mod client;
mod command;
mod config;
mod info;
mod slow_log;
mod users;

use super::frame::OwnedFrame;
use super::replies::Replies;
use super::{Connection, session::Session};
use crate::commands::{self, Command, CommandError, SessionCommand as S};
use std::io;
use std::time::{Duration, Instant};
use tessera_store::Transaction;
use tessera_types::{ReadMode, RecordKey, RequestError, UnixMillis};

/// Between two looks at a key that a transaction holds.
const HELD_PAUSE: Duration = Duration::from_millis(1);

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
        let asks_for_help = args.len() == 2 && args[1].eq_ignore_ascii_case(b"HELP");
        let outcome = match which {
            S::Acl
            | S::Client
            | S::Cluster
            | S::Command
            | S::Config
            | S::Latency
            | S::Memory
            | S::Object
            | S::SlowLog
                if asks_for_help =>
            {
                self.help(command);
                Ok(())
            }
            // Changes of users are large, and must not make every connection as large.
            S::Acl => Box::pin(self.acl(&args)).await,
            S::Auth => self.auth(&args).await,
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
            S::Hello => self.hello(&args).await,
            S::Info => {
                // On the heap, as few connections ask for it.
                Box::pin(self.info(&args[1..])).await;
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
            S::Object if args[1] == b"WATCH" && self.is_of_node() => {
                self.watch_for_another_node(command, frame, now).await
            }
            S::Object if args[1] == b"RECORDS" && self.is_of_node() => {
                self.keyed_subcommand(command, frame, b"RECORDS", commands::object_records, now).await
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
            S::Scan => self.scan(&args, now).await,
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
            self.refuse(&error);
        }
        Ok(())
    }

    /// What a command does, and which subcommands of it there are here, as the table of commands says it.
    fn help(&mut self, command: &Command) {
        let name = command.name.to_uppercase();
        let summary = format!("{name} <subcommand> [<argument> ...]. {}.", command.summary);
        let mut reply = self.reply();
        reply.array(1 + usize::from(command.difference.is_some()));
        reply.simple(&summary);
        command.difference.into_iter().for_each(|difference| reply.simple(difference));
    }

    /// MEMORY USAGE key, OBJECT ENCODING key.
    pub(super) async fn keyed_subcommand(
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
            return Err(CommandError::NO_TABLE);
        };
        let partition = table.partition_of(&RecordKey::new(args[2], b""));
        drop(args);
        let (asked, frame, protocol) = (table.clone(), frame.clone(), self.session.protocol);
        let read = move || {
            let mut replies = Replies::default();
            let mut transaction = Transaction::read_only(&table, partition, ReadMode::Single, now)?;
            let (args, reply) = (frame.arguments(), replies.writer(protocol));
            run(&mut commands::Call { args: &args, transaction: &mut transaction, reply })?;
            Ok::<_, CommandError>(replies)
        };
        loop {
            match self.server.store.disk_readers().read(read.clone()).await {
                // A transaction holds the key, or there is no lease now.
                Err(CommandError::Request(RequestError::NotReady))
                    if Self::is_here(&asked, partition) && Instant::now() < self.patience.until() =>
                {
                    let server = self.server.clone();
                    self.wait_for(None, server.store.another_leader(HELD_PAUSE)).await;
                }
                replies => {
                    self.output.append(replies?);
                    return Ok(());
                }
            }
        }
    }
}

pub(super) fn unknown_subcommand_named(command: &str, subcommand: &[u8]) -> CommandError {
    let subcommand = String::from_utf8_lossy(&subcommand[..subcommand.len().min(128)]);
    CommandError::Reply(format!("ERR unknown subcommand '{subcommand}'. Try {command} HELP.").into())
}

#[cfg(test)]
mod tests {
    use crate::commands;
    use crate::connection::tests::connection;
    use crate::test_cluster::{TestNode, config};
    use tessera_types::EngineKind;

    /// MEMORY DOCTOR once was promised and unknown, and so was the HELP to which the refusal pointed.
    #[tokio::test]
    async fn every_subcommand_that_the_table_of_commands_names_is_known() {
        let node = TestNode::start(None, config());
        let table = node.create_table("t", EngineKind::Memory, 2).await;
        let mut connection = connection(&node, &table);
        let mut named = 0;
        for name in ["ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "LATENCY", "MEMORY", "OBJECT", "SLOWLOG"] {
            let help = connection.given(&format!("{name} HELP")).await;
            let difference = commands::find(name.as_bytes()).unwrap().difference.unwrap();
            assert!(help.starts_with("*2\r\n") && help.contains(difference), "{help}");
            // They are named first.
            let words = difference.split([';', '.']).next().unwrap().split([' ', ',']);
            let is_one =
                |word: &&str| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '-');
            for subcommand in words.filter(is_one) {
                let mut replies = Vec::new();
                for arguments in ["", " a", " a b"] {
                    replies.push(connection.given(&format!("{name} {subcommand}{arguments}")).await);
                }
                assert!(
                    replies.iter().any(|reply| !reply.contains("unknown subcommand")),
                    "{name} {subcommand}: {replies:?}"
                );
                named += 1;
            }
        }
        assert!(named > 30, "{named}");
        assert!(connection.given("MEMORY DOCTOR").await.contains("unknown subcommand 'DOCTOR'. Try MEMORY HELP."));
    }
}
