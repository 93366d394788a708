//! MULTI, EXEC, DISCARD, WATCH.

use super::Connection;
use super::batch::{self, Batch, Mode};
use super::forwarding::bulk;
use super::frame::OwnedFrame;
use super::open_transaction::{OpenTransaction, longest_transaction};
use super::partitions::partition_of_all;
use super::replies::reply_of;
use super::watches::Watched;
use crate::commands::{Call, Command, CommandError, digest, object_digest};
use crate::kept_watches::WatchToken;
use crate::resp::{Protocol, Reply};
use std::sync::Arc;
use tessera_store::{Table, Transaction};
use tessera_types::{ReadMode, RecordKey, RequestError, UnixMillis};

impl Connection {
    pub(super) fn queue(&mut self, command: &'static Command, frame: OwnedFrame) {
        let Some(table) = self.session.table() else { return self.refuse(&CommandError::NO_TABLE) };
        let may_span = self.transacts();
        let Some(transaction) = &mut self.session.transaction else { return };
        match transaction.queue(&table, command, &frame, may_span) {
            Ok(()) => self.reply().simple("QUEUED"),
            Err(error) => self.refuse(&error),
        }
    }

    pub(super) fn multi(&mut self) {
        if self.session.transaction.is_some() {
            return self.reply().error("ERR MULTI calls can not be nested");
        }
        self.session.transaction = Some(OpenTransaction::default());
        self.session.update();
        self.reply().ok();
    }

    pub(super) fn discard(&mut self) {
        if self.session.transaction.take().is_none() {
            return self.reply().error("ERR DISCARD without MULTI");
        }
        self.session.watches.clear();
        self.session.update();
        self.reply().ok();
    }

    /// Ends the transaction, if one is open, because `EXEC` itself is refused.
    pub(super) fn abort(&mut self, error: &CommandError) {
        self.session.transaction = None;
        self.session.watches.clear();
        self.session.update();
        let line = error.line();
        let reason = line.strip_prefix("ERR ").unwrap_or(&line);
        self.reply().error(&format!("EXECABORT Transaction discarded because of: {reason}"));
    }

    pub(super) async fn exec(&mut self) {
        let Some(transaction) = self.session.transaction.take() else {
            return self.reply().error("ERR EXEC without MULTI");
        };
        self.session.update();
        let are_left = self.session.watches.are_left();
        let watches = self.session.watches.take();
        if transaction.spoiled {
            return self.reply().error("EXECABORT Transaction discarded because of previous errors.");
        }
        if are_left {
            // A transaction on this table cannot tell whether they were written.
            return self.reply().null_array();
        }
        let Some(table) = self.session.table() else { return self.refuse(&CommandError::NO_TABLE) };
        // Another one than when they were queued, if the table was split since.
        let commands = transaction.commands.iter().map(|(command, frame)| (*command, frame));
        let partition = match partition_of_all(&table, commands).and_then(|at| partition_with(&table, at, &watches)) {
            Ok(partition) => partition,
            Err(RequestError::CrossPartition) if self.transacts() => {
                return self.exec_over_partitions(transaction, watches).await;
            }
            Err(error) => return self.refuse(&CommandError::Request(error)),
        };
        let Some(at) = partition else {
            // Nothing in it needs a partition.
            self.reply().array(transaction.commands.len());
            for (command, frame) in &transaction.commands {
                batch::run_plain(command, frame, self.session.protocol, self.output.buffer());
            }
            return;
        };
        // Another node cannot tell whether what is watched here was written. It may have been.
        let is_watching_here = watches.iter().any(|watched| matches!(watched, Watched::Here(..)));
        if self.may_forward() && !Self::is_here(&table, at) {
            if is_watching_here {
                return self.reply().null_array();
            }
            return self.forward_exec(at, transaction.frames(&watches)).await;
        }
        for (command, frame) in &transaction.commands {
            if !self.admit(command, frame).await {
                return;
            }
        }
        let again = self.may_forward().then(|| transaction.frames(&watches));
        let watches = watches.into_iter().map(|watched| match watched {
            Watched::Remote { key, token } => self.find_watched(&key, &token),
            watched => watched,
        });
        let watches = watches.collect();
        let mut batch = Batch::default();
        batch.push_transaction(at, transaction.commands, watches);
        let answered = self.run_batch(Some(&table), Mode::Write(self.session.options.writes), batch).await;
        match again.filter(|_| answered.has_undone()) {
            None => answered.write(&mut self.output),
            Some(_) if is_watching_here => self.reply().null_array(),
            Some(frames) => self.forward_exec(at, frames).await,
        }
    }

    pub(super) async fn watch(&mut self, keys: &[&[u8]], now: UnixMillis) {
        if self.session.transaction.is_some() {
            return self.reply().error("ERR WATCH inside MULTI is not allowed");
        }
        let Some(table) = self.session.table() else { return self.refuse(&CommandError::NO_TABLE) };
        if self.is_of_node() {
            // From another node, which was given tokens for its client's WATCH.
            for pair in keys.chunks_exact(2) {
                let watched = self.find_watched(pair[0], pair[1]);
                self.session.watches.push(watched);
            }
            return self.reply().ok();
        }
        if let Err(error) = self.session.watches.check_room(keys, longest_transaction(&table)) {
            return self.reply().error(&error.line());
        }
        if self.may_forward() {
            match self.look(&table, keys, b"WATCH").await {
                Ok(tokens) => {
                    for (key, token) in keys.iter().zip(tokens) {
                        self.session.watches.push(Watched::Remote { key: key.to_vec(), token });
                    }
                    self.reply().ok();
                }
                Err(outcome) => self.output.push(reply_of(outcome).one()),
            }
            return;
        }
        for key in keys {
            if let Err(error) = self.await_what_is_acknowledged(&table, key).await {
                return self.refuse(&error);
            }
            let watch = Arc::new(table.watch(key));
            let (table, key) = (table.clone(), key.to_vec());
            let mut digest = self.server.store.disk_readers().read(move || digest_under(&table, &key, now)).await;
            if digest == Err(RequestError::NotReady.into()) {
                digest = self.digest_at_last(watch.hash_key()).await;
            }
            match digest {
                Ok(digest) => self.session.watches.push(Watched::Here(watch, digest)),
                Err(error) => return self.refuse(&error),
            }
        }
        self.reply().ok();
    }

    /// What another node's connection watches, by its token.
    fn find_watched(&self, key: &[u8], token: &[u8]) -> Watched {
        let (key, token) = (key.to_vec(), token.to_vec());
        match WatchToken::decode(&token) {
            // A node of before.
            None => Watched::Remote { key, token },
            Some(token) => match self.server.kept_watches.take(&token) {
                Some(watch) => Watched::Here(watch, token.digest),
                None => Watched::Lost { key },
            },
        }
    }

    /// OBJECT WATCH key, between nodes: watches a key for another node's connection, and replies with a token.
    pub(super) async fn watch_for_another_node(
        &mut self,
        command: &'static Command,
        frame: &OwnedFrame,
        now: UnixMillis,
    ) -> Result<(), CommandError> {
        let table = self.session.table().ok_or(CommandError::NO_TABLE)?;
        let key = frame.arguments().get(2).map(|key| key.to_vec()).unwrap_or_default();
        self.await_what_is_acknowledged(&table, &key).await?;
        // Before it looks at the key: a write that the look does not see touches the watch.
        let watch = Arc::new(table.watch(&key));
        let began = self.output.len();
        self.keyed_subcommand(command, frame, b"WATCH", object_digest, now).await?;
        if let Some(digest) = bulk(&self.output.bytes()[began..]).map(<[u8]>::to_vec) {
            self.output.truncate(began);
            let token = self.server.kept_watches.keep(watch, digest).encode();
            self.reply().bulk(&token);
        }
        Ok(())
    }

    /// Waits until what transactions have written to a key, and may have been acknowledged, is applied: that would touch a watch which
    /// begins before.
    async fn await_what_is_acknowledged(&mut self, table: &Table, key: &[u8]) -> Result<(), CommandError> {
        let partition = table.partition_of(&RecordKey::new(key, b""));
        if table.has_locks(partition) {
            self.await_intents(table, partition).await?;
        }
        Ok(())
    }

    /// The digest of what is under a key that a transaction holds, once it does not hold it any more.
    async fn digest_at_last(&mut self, key: &[u8]) -> Result<Vec<u8>, CommandError> {
        let table = self.session.table().ok_or(CommandError::NO_TABLE)?;
        match self.digests(&table, &[key]).await {
            Ok(mut digests) => digests.pop().ok_or(CommandError::Request(RequestError::NotReady)),
            Err(outcome) => Err(CommandError::Request(outcome.reply().err().unwrap_or(RequestError::NotReady))),
        }
    }

    pub(super) fn unwatch(&mut self) {
        self.session.watches.clear();
        self.reply().ok();
    }
}

/// The one partition of a transaction whose commands concern `partition`, and of what is watched for it.
fn partition_with(table: &Table, partition: Option<u32>, watches: &[Watched]) -> Result<Option<u32>, RequestError> {
    watches.iter().try_fold(partition, |so_far, watched| {
        let watched = table.partition_of(&RecordKey::new(watched.key(), b""));
        if so_far.is_some_and(|so_far| so_far != watched) {
            Err(RequestError::CrossPartition)
        } else {
            Ok(Some(watched))
        }
    })
}

fn digest_under(table: &Table, key: &[u8], now: UnixMillis) -> Result<Vec<u8>, CommandError> {
    let partition = table.partition_of(&RecordKey::new(key, b""));
    let mut transaction = Transaction::read_only(table, partition, ReadMode::Single, now)?;
    let mut unread = Vec::new();
    let call = Call { args: &[], transaction: &mut transaction, reply: Reply::new(&mut unread, Protocol::Resp2) };
    let digest = digest(&call, key)?;
    transaction.check_lease()?;
    Ok(digest.into_bytes())
}
