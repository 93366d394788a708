//! Commands of a partition that read what only the disk has.
//!
//! A command is evaluated on the partition's loop, which must not stand still while the disk looks for a record. So commands read
//! from the caches, and one that does not find all that it needs there is taken back as if it had not been evaluated. A [thread
//! that may wait](tessera_store::DiskReaders) reads what it lacked, which brings that into the caches, and then it is evaluated again.
//! Commands of the same partition that come meanwhile wait behind it: they take effect in the order in which they came. Other
//! partitions go on.

use crate::host::Host;
use std::collections::VecDeque;
use std::sync::Arc;
use tessera_store::Table;
use tessera_store::hosting::{Missing, WriteCommand, group_of};
use tessera_types::RequestError;

/// How often a command is evaluated in vain before it waits for the disk where it is: caches may be too small for all that it
/// reads.
const TRIES: u32 = 256;

/// The commands of one partition that wait.
#[derive(Default)]
pub(crate) struct ColdCommands {
    waiting: VecDeque<WriteCommand>,
    is_reading: bool,
    /// How often the first one was evaluated in vain.
    tries: u32,
}

/// Tells the loop when it is dropped, however the read ended: the command finds out.
struct HasRead {
    table: Arc<Table>,
    partition: u32,
}

impl Drop for HasRead {
    fn drop(&mut self) {
        self.table.partition(self.partition).inbox().has_read(group_of(self.table.id(), self.partition));
    }
}

impl ColdCommands {
    /// Whether commands that come now have to wait behind others.
    pub(crate) fn hold_up(&self) -> bool {
        self.is_reading
    }

    /// Lets a command wait behind others.
    pub(crate) fn push(&mut self, host: &Host, command: WriteCommand) {
        if self.waiting.len() < host.config.queued_writes {
            self.waiting.push_back(command);
        } else {
            command.ticket.answer(Err(RequestError::Busy));
        }
    }

    /// Whether the command that is evaluated next has to wait for the disk where it is.
    pub(crate) fn is_impatient(&self) -> bool {
        self.tries >= TRIES
    }

    /// Notes that a command was evaluated.
    pub(crate) fn note_evaluated(&mut self) {
        self.tries = 0;
    }

    /// Lets a command wait for what it lacks. Gives it back if that cannot be read elsewhere.
    pub(crate) fn wait_for(
        &mut self,
        host: &Host,
        (table, partition): (&Arc<Table>, u32),
        missing: Missing,
        command: WriteCommand,
    ) -> Result<(), WriteCommand> {
        let has_read = HasRead { table: table.clone(), partition };
        let read = move || {
            let HasRead { table, partition } = &has_read;
            if let Err(error) = missing.read(table, *partition) {
                tracing::debug!(%error, "what a command needs cannot be read; the command finds out");
            }
        };
        self.is_reading = true;
        self.tries += 1;
        if host.disk_readers.begin(read).is_err() {
            self.is_reading = false;
            self.tries = TRIES;
            return Err(command);
        }
        self.waiting.push_front(command);
        Ok(())
    }

    pub(crate) fn has_read(&mut self) {
        self.is_reading = false;
    }

    /// The next one to be evaluated again.
    pub(crate) fn next(&mut self) -> Option<WriteCommand> {
        if self.is_reading { None } else { self.waiting.pop_front() }
    }

    /// All of them, when the partition leaves.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = WriteCommand> + use<> {
        std::mem::take(&mut self.waiting).into_iter()
    }
}
