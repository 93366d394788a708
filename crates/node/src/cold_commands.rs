//! Commands of a partition that read what only the disk has.
//!
//! A command is evaluated on the partition's loop, which must not stand still while the disk looks for a record. So commands read
//! from the caches, and one that does not find all that it needs there is taken back as if it had not been evaluated. A [thread
//! that may wait](tessera_store::DiskReaders) reads what it lacked, which brings that into the caches, and then it is evaluated
//! again. Commands of the same partition that come meanwhile wait behind it: they take effect in the order in which they came.
//! Other partitions go on.
//!
//! A partition that leads no more refuses those that wait at once: nothing of them has happened.

use crate::node_context::NodeContext;
use std::collections::VecDeque;
use std::sync::Arc;
use tessera_consensus::{GroupId, Inbox};
use tessera_store::Table;
use tessera_store::hosting::{Missing, WriteCommand, group_of};

/// How often a command is evaluated in vain before it waits for the disk where it is.
const TRIES: u32 = 256;
/// How often in a row a command lacks the same before it waits for the disk where it is: the caches are too small to keep that.
const SAME_TRIES: u32 = 3;

/// The commands of one partition that wait.
#[derive(Default)]
pub(crate) struct ColdCommands {
    waiting: VecDeque<WriteCommand>,
    is_reading: bool,
    tries: Tries,
}

/// How the first of the commands was evaluated in vain.
#[derive(Default)]
struct Tries {
    all: u32,
    /// How often in a row it lacked `lacked`.
    same: u32,
    lacked: Option<Missing>,
}

impl Tries {
    fn note(&mut self, missing: &Missing) {
        self.all += 1;
        if self.lacked.as_ref() == Some(missing) {
            self.same += 1;
        } else {
            (self.same, self.lacked) = (1, Some(missing.clone()));
        }
    }

    fn are_enough(&self) -> bool {
        self.all >= TRIES || self.same >= SAME_TRIES
    }
}

/// Tells the loop when it is dropped, however the read ended: the command finds out.
struct HasRead {
    inbox: Arc<Inbox<WriteCommand>>,
    group: GroupId,
}

impl Drop for HasRead {
    fn drop(&mut self) {
        self.inbox.has_read(self.group);
    }
}

impl ColdCommands {
    /// Whether commands that come now have to wait behind others.
    pub(crate) fn hold_up(&self) -> bool {
        self.is_reading
    }

    /// Lets a command wait behind others.
    pub(crate) fn push(&mut self, command: WriteCommand) {
        self.waiting.push_back(command);
    }

    /// Whether the command that is evaluated next has to wait for the disk where it is.
    pub(crate) fn is_impatient(&self) -> bool {
        self.tries.are_enough()
    }

    /// Notes that a command was evaluated.
    pub(crate) fn note_evaluated(&mut self) {
        if self.tries.all > 0 {
            self.tries = Tries::default();
        }
    }

    /// Lets a command wait for what it lacks. Gives it back if that cannot be read elsewhere.
    pub(crate) fn wait_for(
        &mut self,
        context: &NodeContext,
        (table, partition): (&Arc<Table>, u32),
        missing: Missing,
        command: WriteCommand,
    ) -> Result<(), WriteCommand> {
        self.tries.note(&missing);
        let inbox = context.inbox_of(table.id(), partition).clone();
        let has_read = HasRead { inbox, group: group_of(table.id(), partition) };
        let table = table.clone();
        let read = move || {
            let _has_read = has_read;
            if let Err(error) = missing.read(&table, partition) {
                tracing::debug!(%error, "what a command needs cannot be read; the command finds out");
            }
        };
        self.is_reading = true;
        if context.disk_readers.begin(read).is_err() {
            self.is_reading = false;
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

    /// Takes all of them out, to be refused.
    pub(crate) fn take(&mut self) -> VecDeque<WriteCommand> {
        self.tries = Tries::default();
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests;
