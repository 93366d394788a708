//! MULTI, EXEC, DISCARD, WATCH.

use super::Connection;
use super::batch::{self, Batch, Mode};
use super::frame::OwnedFrame;
use super::open_transaction::{OpenTransaction, longest_transaction};
use super::partitions::partition_of_all;
use super::replies::reply_of;
use super::watches::Watched;
use crate::commands::{Call, Command, CommandError};
use crate::resp::{Protocol, Reply};
use tessera_store::{Table, Transaction};
use tessera_types::{ReadMode, RecordKey, RequestError, UnixMillis};

impl Connection {
    pub(super) fn queue(&mut self, command: &'static Command, frame: OwnedFrame) {
        let Some(table) = self.session.table() else { return self.refuse(&CommandError::NO_TABLE) };
        let Some(transaction) = &mut self.session.transaction else { return };
        match transaction.queue(&table, command, &frame) {
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

    pub(super) async fn exec(&mut self) {
        let Some(transaction) = self.session.transaction.take() else {
            return self.reply().error("ERR EXEC without MULTI");
        };
        self.session.update();
        let watches = self.session.watches.take();
        if transaction.spoiled {
            return self.reply().error("EXECABORT Transaction discarded because of previous errors.");
        }
        let Some(table) = self.session.table() else { return self.refuse(&CommandError::NO_TABLE) };
        // Another one than when they were queued, if the table was split since.
        let commands = transaction.commands.iter().map(|(command, frame)| (*command, frame));
        let mut partition = match partition_of_all(&table, commands) {
            Ok(partition) => partition,
            Err(error) => return self.refuse(&CommandError::Request(error)),
        };
        for watched in &watches {
            let watched = table.partition_of(&RecordKey::new(watched.key(), b""));
            if *partition.get_or_insert(watched) != watched {
                return self.refuse(&CommandError::Request(RequestError::CrossPartition));
            }
        }
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
            return self.exec_elsewhere(at, transaction.frames(&watches)).await;
        }
        for (command, frame) in &transaction.commands {
            if !self.admit(command, frame).await {
                return;
            }
        }
        let again = self.may_forward().then(|| transaction.frames(&watches));
        let mut batch = Batch::default();
        batch.push_transaction(at, transaction.commands, watches);
        let Some(answered) = self.run_batch(Mode::Write(self.session.choices.writes), batch).await else {
            return self.refuse(&CommandError::NO_TABLE);
        };
        match again.filter(|_| answered.has_undone()) {
            None => answered.write(&mut self.output),
            Some(_) if is_watching_here => self.reply().null_array(),
            Some(frames) => self.exec_elsewhere(at, frames).await,
        }
    }

    pub(super) async fn watch(&mut self, keys: &[&[u8]], now: UnixMillis) {
        if self.session.transaction.is_some() {
            return self.reply().error("ERR WATCH inside MULTI is not allowed");
        }
        let Some(table) = self.session.table() else { return self.refuse(&CommandError::NO_TABLE) };
        if self.is_confined() {
            // From another node, which has the digests from its client's WATCH.
            for pair in keys.chunks_exact(2) {
                self.session.watches.push(Watched::Digest { key: pair[0].to_vec(), digest: pair[1].to_vec() });
            }
            return self.reply().ok();
        }
        if let Err(error) = self.session.watches.check_room(keys, longest_transaction(&table)) {
            return self.reply().error(&error.line());
        }
        if self.may_forward() {
            match self.digests(&table, keys).await {
                Ok(digests) => {
                    for (key, digest) in keys.iter().zip(digests) {
                        self.session.watches.push(Watched::Digest { key: key.to_vec(), digest });
                    }
                    self.reply().ok();
                }
                Err(outcome) => self.output.push(reply_of(outcome).one()),
            }
            return;
        }
        for key in keys {
            let watch = table.watch(key);
            let (table, key) = (table.clone(), key.to_vec());
            match self.server.store.disk_readers().read(move || exists(&table, &key, now)).await {
                Ok(existed) => self.session.watches.push(Watched::Here(watch, existed)),
                Err(error) => return self.refuse(&error),
            }
        }
        self.reply().ok();
    }

    pub(super) fn unwatch(&mut self) {
        self.session.watches.clear();
        self.reply().ok();
    }
}

fn exists(table: &Table, key: &[u8], now: UnixMillis) -> Result<bool, CommandError> {
    let partition = table.partition_of(&RecordKey::new(key, b""));
    let mut transaction = Transaction::read_only(table, partition, ReadMode::Single, now)?;
    let mut unread = Vec::new();
    let call = Call { args: &[], transaction: &mut transaction, reply: Reply::new(&mut unread, Protocol::Resp2) };
    let exists = call.value(key)?.is_some();
    transaction.check_lease()?;
    Ok(exists)
}
