//! From commands on keys to the partitions that hold them.

use super::operation::{self, CommandOperation, OwnedFrame, Parts, PendingReply};
use super::{Connection, session};
use crate::commands::{Call, Command, CommandError, FanOut};
use crate::resp::Reply;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tessera_store::{Table, Transaction};
use tessera_types::{RecordKey, RequestError, UnixMillis};
use tokio::sync::oneshot;

/// How often a read that several writes overtook is tried here before the partition's owner makes it.
const READ_TRIES: usize = 4;

/// GET on a table that may hold hashes.
pub(super) fn get(
    table: &Table,
    key: &RecordKey<'_>,
    now: UnixMillis,
    reply: &mut Reply<'_>,
    hits: &mut u64,
) -> Result<(), RequestError> {
    let mut is_field = false;
    let found = table.read(key, now, &mut |stored| {
        is_field = stored.is_field;
        if !is_field {
            reply.bulk(stored.payload);
        }
    })?;
    if found && !is_field {
        *hits += 1;
        return Ok(());
    }
    let mut transaction = Transaction::read_only(table, table.partition_of(key), now)?;
    let mut unread = Vec::new();
    let call = Call { args: &[], transaction: &mut transaction, reply: Reply::new(&mut unread, reply.protocol()) };
    match call.value(key.hash_key) {
        Ok(None) => reply.null(),
        Ok(Some(_)) => reply.error(&CommandError::WRONG_TYPE.line()),
        Err(CommandError::Request(error)) => return Err(error),
        Err(error) => reply.error(&error.line()),
    }
    Ok(())
}

/// A command's part in one partition.
struct Part {
    partition: u32,
    frame: Arc<OwnedFrame>,
}

/// Cuts a command into one per partition. Commands without keys, and those whose keys are together, stay whole.
fn parts(table: &Table, command: &Command, frame: &Arc<OwnedFrame>) -> Result<Vec<Part>, CommandError> {
    let args = frame.arguments();
    let partition_of = |at: usize| table.partition_of(&RecordKey::new(args[at], b""));
    let mut positions = command.key_positions(args.len());
    let Some(first) = positions.next() else { return Ok(vec![Part { partition: 0, frame: frame.clone() }]) };
    let partition = partition_of(first);
    if positions.all(|at| partition_of(at) == partition) {
        return Ok(vec![Part { partition, frame: frame.clone() }]);
    }
    if command.fan_out == FanOut::Refuse {
        return Err(RequestError::CrossPartition.into());
    }
    let step = match command.keys {
        crate::commands::Keys::Every(step) => step,
        _ => 1,
    };
    if !(args.len() - 1).is_multiple_of(step) {
        return Err(CommandError::arity(command.name));
    }
    let mut by_partition: BTreeMap<u32, Vec<&[u8]>> = BTreeMap::new();
    for at in command.key_positions(args.len()) {
        let part = by_partition.entry(partition_of(at)).or_insert_with(|| vec![args[0]]);
        part.extend_from_slice(&args[at..at + step]);
    }
    let part =
        |(partition, args): (u32, Vec<&[u8]>)| Part { partition, frame: OwnedFrame::from_arguments(args.into_iter()) };
    Ok(by_partition.into_iter().map(part).collect())
}

impl Connection {
    /// Sends a write to the partitions of its keys. The reply is waited for later.
    pub(super) fn send_write(&mut self, command: &'static Command, frame: Arc<OwnedFrame>) {
        let parts = match self.session.table() {
            None => Err(CommandError::text(session::NO_TABLE)),
            Some(table) => parts(&table, command, &frame).map(|parts| (table, parts)),
        };
        let parts = match parts {
            Err(error) => {
                let mut reply = Vec::new();
                Reply::new(&mut reply, self.session.protocol).error(&error.line());
                Parts::Ready(reply)
            }
            Ok((table, parts)) => {
                let mut receivers: Vec<_> =
                    parts.into_iter().map(|part| self.send_part(command, &table, part)).collect();
                match (receivers.len(), command.fan_out) {
                    (1, _) => Parts::One(receivers.remove(0)),
                    (_, FanOut::Sum) => Parts::Sum(receivers),
                    _ => Parts::Same(receivers),
                }
            }
        };
        if self.pending.is_empty() {
            self.pending_since = Instant::now();
        }
        self.pending.push_back(PendingReply { parts, frame });
    }

    fn send_part(&self, command: &'static Command, table: &Arc<Table>, part: Part) -> oneshot::Receiver<Vec<u8>> {
        let (sender, receiver) = oneshot::channel();
        let protocol = self.session.protocol;
        let operation = CommandOperation { command, frame: part.frame, protocol, reply: Vec::new(), sender };
        self.server.store.write_partition(table, part.partition, self.session.durability, Box::new(operation));
        receiver
    }

    /// Runs a read where the connection lives.
    pub(super) async fn run_read(&mut self, command: &'static Command, frame: &Arc<OwnedFrame>, now: UnixMillis) {
        let Some(table) = self.session.table() else {
            return self.reply().error(session::NO_TABLE);
        };
        if command.fan_out == FanOut::Gather {
            return self.run_gather(&table, frame, now);
        }
        let parts = match parts(&table, command, frame) {
            Ok(parts) => parts,
            Err(error) => return self.reply().error(&error.line()),
        };
        if let [part] = &parts[..] {
            let mut reply = Vec::new();
            self.read_part(command, &table, part, now, &mut reply).await;
            self.output.append(&mut reply);
            return;
        }
        let mut replies = Vec::new();
        for part in &parts {
            let (sender, receiver) = oneshot::channel();
            let mut reply = Vec::new();
            self.read_part(command, &table, part, now, &mut reply).await;
            let _ = sender.send(reply);
            replies.push(receiver);
        }
        let pending = PendingReply { parts: Parts::Sum(replies), frame: frame.clone() };
        pending.wait(&mut self.output, self.session.protocol).await;
    }

    /// Runs a read of one partition so that all it sees is of one instant.
    async fn read_part(
        &self,
        command: &'static Command,
        table: &Arc<Table>,
        part: &Part,
        now: UnixMillis,
        out: &mut Vec<u8>,
    ) {
        let protocol = self.session.protocol;
        for _ in 0..READ_TRIES {
            out.clear();
            let before = table.version(part.partition);
            match Transaction::read_only(table, part.partition, now) {
                Ok(mut transaction) => _ = operation::run(command, &part.frame, protocol, out, &mut transaction),
                Err(error) => return Reply::new(out, protocol).error(&CommandError::Request(error).line()),
            }
            if before.is_some() && before == table.version(part.partition) {
                return;
            }
        }
        let part = Part { partition: part.partition, frame: part.frame.clone() };
        let receiver = self.send_part(command, table, part);
        out.clear();
        PendingReply { parts: Parts::One(receiver), frame: OwnedFrame::from_arguments([].into_iter()) }
            .wait(out, protocol)
            .await;
    }

    /// MGET: anything but a string reads as nothing.
    fn run_gather(&mut self, table: &Table, frame: &OwnedFrame, now: UnixMillis) {
        let args = frame.arguments();
        let keys: Vec<_> = args[1..].iter().map(|key| RecordKey::new(key, b"")).collect();
        let began = self.output.len();
        let mut reply = Reply::new(&mut self.output, self.session.protocol);
        reply.array(keys.len());
        let outcome = table.read_many(&keys, now, &mut |_, stored| match stored.filter(|stored| !stored.is_field) {
            Some(stored) => reply.bulk(stored.payload),
            None => reply.null(),
        });
        if let Err(error) = outcome {
            self.output.truncate(began);
            self.reply().error(&CommandError::Request(error).line());
        }
    }
}
