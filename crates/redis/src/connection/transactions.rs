//! MULTI, EXEC, DISCARD, WATCH.

use super::batch::{Batch, Mode, Watched};
use super::frame::OwnedFrame;
use super::replies::reply_of;
use super::{Connection, batch, dispatch, session};
use crate::commands::{Call, Command, CommandError, Run, SessionCommand};
use crate::resp::{ARGUMENT_OVERHEAD, Protocol, Reply};
use tessera_store::{Table, Transaction};
use tessera_types::{ReadMode, RecordKey, RequestError, TableId, UnixMillis};

/// Commands between MULTI and EXEC at most. They are carried out in one go, while all others of the partition wait.
const QUEUED_COMMANDS: usize = 100_000;
/// What a queued command takes beside its bytes.
const QUEUED_OVERHEAD: usize = 128;

/// Keys that a connection watches at most: EXEC looks at each of them while all others of the partition wait.
const WATCHED_KEYS: usize = 100_000;
/// What a watched key takes beside its bytes, as one of the arguments of a WATCH between nodes, which has a digest after each.
const WATCHED_OVERHEAD: usize = 64 + 2 * ARGUMENT_OVERHEAD;

/// The keys that a connection watches.
#[derive(Default)]
pub(super) struct Watches {
    keys: Vec<Watched>,
    /// What the keys take, bytes.
    bytes: usize,
}

impl Watches {
    /// Whether these keys may be watched besides.
    ///
    /// # Errors
    ///
    /// In words, if they are more than a connection may watch.
    fn check_room(&self, keys: &[&[u8]], table: &Table) -> Result<(), CommandError> {
        let limit = longest_transaction(table);
        let bytes = self.bytes + keys.iter().map(|key| key.len() + WATCHED_OVERHEAD).sum::<usize>();
        if bytes <= limit && self.keys.len() + keys.len() <= WATCHED_KEYS {
            return Ok(());
        }
        Err(CommandError::Reply(format!(
            "ERR a connection watches at most {WATCHED_KEYS} keys of {limit} bytes in all; none of these is watched now"
        ).into()))
    }

    fn push(&mut self, watched: Watched) {
        self.bytes += watched.key().len() + WATCHED_OVERHEAD;
        self.keys.push(watched);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// How long a transaction may be, and the keys that are watched for it: as long as one command.
fn longest_transaction(table: &Table) -> usize {
    table.limits().write_bytes.saturating_add(1 << 20)
}

/// What has been queued since MULTI.
#[derive(Default)]
pub(super) struct OpenTransaction {
    commands: Vec<(&'static Command, OwnedFrame)>,
    /// What the commands take, bytes.
    bytes: usize,
    /// Of the keys so far, in the table that there was.
    partition: Option<(TableId, u32)>,
    /// A command was refused, so EXEC will be too.
    pub(super) spoiled: bool,
}

impl OpenTransaction {
    /// The partition of all keys, with those of one command more.
    fn partition_with(
        &self,
        table: &Table,
        command: &'static Command,
        frame: &OwnedFrame,
    ) -> Result<Option<u32>, RequestError> {
        let so_far = match self.partition {
            Some((id, partition)) if id == table.id() => Some(partition),
            Some(_) => {
                // It was split since.
                let commands = self.commands.iter().map(|(command, frame)| (*command, frame));
                dispatch::partition_of_all(table, commands)?
            }
            None => None,
        };
        let next = dispatch::partition_of_all(table, std::iter::once((command, frame)))?;
        match (so_far, next) {
            (Some(so_far), Some(next)) if so_far != next => Err(RequestError::CrossPartition),
            _ => Ok(so_far.or(next)),
        }
    }

    /// The whole transaction, for another node.
    fn frames(&self, watches: &[Watched]) -> Vec<OwnedFrame> {
        let word = |word: &'static [u8]| OwnedFrame::from_arguments(std::iter::once(word));
        let digests = watches.iter().filter_map(|watched| match watched {
            Watched::Digest { key, digest } => Some([&key[..], digest]),
            // Watched before the cluster had a second node.
            Watched::Here(..) => None,
        });
        let watch = std::iter::once(&b"WATCH"[..]).chain(digests.flatten());
        let watch = (!watches.is_empty()).then(|| OwnedFrame::from_arguments(watch));
        let commands = self.commands.iter().map(|(_, frame)| frame.clone());
        watch.into_iter().chain([word(b"MULTI")]).chain(commands).chain([word(b"EXEC")]).collect()
    }
}

/// Commands that are carried out although a transaction is open.
pub(super) fn ends_or_looks_at(command: &Command) -> bool {
    use SessionCommand as S;
    matches!(command.run, Run::Session(S::Exec | S::Discard | S::Multi | S::Watch | S::Quit | S::Reset))
}

impl Connection {
    pub(super) fn queue(&mut self, command: &'static Command, frame: OwnedFrame) {
        let Some(table) = self.session.table() else { return self.reply().error(session::NO_TABLE) };
        let Some(transaction) = &mut self.session.transaction else { return };
        if transaction.spoiled && transaction.commands.is_empty() {
            // Nothing is kept for an EXEC that will refuse it.
            return self.reply().simple("QUEUED");
        }
        match transaction.partition_with(&table, command, &frame) {
            Ok(partition) => {
                transaction.bytes += frame.bytes() + QUEUED_OVERHEAD + frame.len() * ARGUMENT_OVERHEAD;
                let limit = longest_transaction(&table);
                if transaction.bytes > limit || transaction.commands.len() >= QUEUED_COMMANDS {
                    transaction.spoiled = true;
                    transaction.commands = Vec::new();
                    return self.reply().error(&format!(
                        "ERR the transaction is longer than the limit of {QUEUED_COMMANDS} commands or {limit} bytes; EXEC will \
                         discard it"
                    ));
                }
                transaction.partition = partition.map(|partition| (table.id(), partition));
                transaction.commands.push((command, frame.apart()));
                self.reply().simple("QUEUED");
            }
            Err(error) => {
                transaction.spoiled = true;
                self.refuse(&CommandError::Request(error));
            }
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
        let watches = std::mem::take(&mut self.session.watches).keys;
        if transaction.spoiled {
            return self.reply().error("EXECABORT Transaction discarded because of previous errors.");
        }
        let Some(table) = self.session.table() else { return self.reply().error(session::NO_TABLE) };
        // Another one than when they were queued, if the table was split since.
        let commands = transaction.commands.iter().map(|(command, frame)| (*command, frame));
        let mut partition = match dispatch::partition_of_all(&table, commands) {
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
            return self.reply().error(session::NO_TABLE);
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
        let Some(table) = self.session.table() else { return self.reply().error(session::NO_TABLE) };
        if self.is_confined() {
            // From another node, which has the digests from its client's WATCH.
            for pair in keys.chunks_exact(2) {
                self.session.watches.push(Watched::Digest { key: pair[0].to_vec(), digest: pair[1].to_vec() });
            }
            return self.reply().ok();
        }
        if let Err(error) = self.session.watches.check_room(keys, &table) {
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
