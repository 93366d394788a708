//! What stands between MULTI and EXEC.

use super::frame::OwnedFrame;
use super::partitions::partition_of_all;
use super::watches::Watched;
use crate::commands::{Command, CommandError, Run, SessionCommand};
use crate::resp::ARGUMENT_OVERHEAD;
use tessera_store::Table;
use tessera_types::{RequestError, TableId};

/// Commands between MULTI and EXEC at most. They are carried out in one go, while all others of the partition wait.
const QUEUED_COMMANDS: usize = 100_000;
/// What a queued command takes beside its bytes.
const QUEUED_OVERHEAD: usize = 128;

/// How long a transaction may be, and the keys that are watched for it: as long as one command.
pub(super) fn longest_transaction(table: &Table) -> usize {
    table.limits().write_bytes.saturating_add(1 << 20)
}

/// What has been queued since MULTI.
#[derive(Default)]
pub(super) struct OpenTransaction {
    pub(super) commands: Vec<(&'static Command, OwnedFrame)>,
    /// What the commands take, bytes.
    bytes: usize,
    /// The partition of the keys so far, in the table that was chosen then; of a transaction that has to be in one.
    partition: Option<(TableId, u32)>,
    /// A command was refused, so EXEC will be too.
    pub(super) spoiled: bool,
}

impl OpenTransaction {
    /// Queues a command. With `may_span`, those of a transaction may concern several partitions.
    ///
    /// # Errors
    /// Why not, and then EXEC will discard the transaction.
    pub(super) fn queue(
        &mut self,
        table: &Table,
        command: &'static Command,
        frame: &OwnedFrame,
        may_span: bool,
    ) -> Result<(), CommandError> {
        if self.spoiled && self.commands.is_empty() {
            // Nothing is kept for an EXEC that will refuse it.
            return Ok(());
        }
        let queued = self.add(table, command, frame, may_span);
        self.spoiled |= queued.is_err();
        queued
    }

    fn add(
        &mut self,
        table: &Table,
        command: &'static Command,
        frame: &OwnedFrame,
        may_span: bool,
    ) -> Result<(), CommandError> {
        let partition = match may_span {
            true => None,
            false => self.partition_with(table, command, frame)?,
        };
        self.bytes += frame.bytes() + QUEUED_OVERHEAD + frame.len() * ARGUMENT_OVERHEAD;
        let limit = longest_transaction(table);
        if self.bytes > limit || self.commands.len() >= QUEUED_COMMANDS {
            self.commands = Vec::new();
            let text = format!(
                "ERR the transaction is longer than the limit of {QUEUED_COMMANDS} commands or {limit} bytes; EXEC will discard it"
            );
            return Err(CommandError::Reply(text.into()));
        }
        self.partition = partition.map(|partition| (table.id(), partition));
        self.commands.push((command, frame.apart()));
        Ok(())
    }

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
                partition_of_all(table, commands)?
            }
            None => None,
        };
        let next = partition_of_all(table, std::iter::once((command, frame)))?;
        match (so_far, next) {
            (Some(so_far), Some(next)) if so_far != next => Err(RequestError::CrossPartition),
            _ => Ok(so_far.or(next)),
        }
    }

    /// The whole transaction, for another node.
    pub(super) fn frames(&self, watches: &[Watched]) -> Vec<OwnedFrame> {
        let word = |word: &'static [u8]| OwnedFrame::from_arguments(std::iter::once(word));
        let tokens = watches.iter().filter_map(|watched| match watched {
            Watched::Remote { key, token } => Some([&key[..], token]),
            // Watched before the cluster had a second node.
            Watched::Here(..) | Watched::Lost { .. } => None,
        });
        let watch = std::iter::once(&b"WATCH"[..]).chain(tokens.flatten());
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
