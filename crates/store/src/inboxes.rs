//! The way of commands to the loops of partitions.

use crate::group::group_of;
use crate::operation::WriteCommand;
use crate::table::Table;
use std::sync::Arc;
use tessera_consensus::Inbox;
use tessera_types::{RequestError, TableId};

/// The inboxes of a node's workers, each of which runs the loops of a share of the partitions.
pub struct Inboxes(Vec<Arc<Inbox<WriteCommand>>>);

impl Inboxes {
    /// Inboxes of so many workers, each for at most `limit` commands that wait.
    ///
    /// # Panics
    /// If there are no workers.
    pub fn new(workers: usize, limit: usize) -> Self {
        assert!(workers > 0, "a node has a worker");
        Self((0..workers).map(|_| Inbox::new(limit)).collect())
    }

    /// Those of all workers.
    pub fn all(&self) -> &[Arc<Inbox<WriteCommand>>] {
        &self.0
    }

    /// The number of the worker that runs a partition's loop.
    pub fn worker_of(&self, table: TableId, partition: u32) -> usize {
        (table.0 as usize + partition as usize) % self.0.len()
    }

    /// The inbox of the worker that runs a partition's loop.
    pub fn of(&self, table: TableId, partition: u32) -> &Arc<Inbox<WriteCommand>> {
        &self.0[self.worker_of(table, partition)]
    }

    /// Queues a command for a partition's loop.
    ///
    /// # Errors
    /// Gives the command back with the reason when it was not even queued.
    pub fn submit(
        &self,
        table: &Table,
        partition: u32,
        command: WriteCommand,
    ) -> Result<(), (WriteCommand, RequestError)> {
        let command = admitted(table, partition, command)?;
        let group = group_of(table.id(), partition);
        self.of(table.id(), partition).submit(group, command).map_err(|full| (full.0, RequestError::Busy))
    }

    /// Queues commands for the loops of partitions, each of which finds its own together. Those that were not even queued are given
    /// back with the reason.
    pub fn submit_all(
        &self,
        table: &Table,
        commands: impl IntoIterator<Item = (u32, WriteCommand)>,
    ) -> Vec<(WriteCommand, RequestError)> {
        let mut commands = commands.into_iter();
        let Some(first) = commands.next() else { return Vec::new() };
        let Some(second) = commands.next() else {
            return self.submit(table, first.0, first.1).err().into_iter().collect();
        };
        let mut of_workers: Vec<Vec<_>> = self.0.iter().map(|_| Vec::new()).collect();
        let mut refused = Vec::new();
        for (partition, command) in [first, second].into_iter().chain(commands) {
            match admitted(table, partition, command) {
                Ok(command) => {
                    let worker = self.worker_of(table.id(), partition);
                    of_workers[worker].push((group_of(table.id(), partition), command));
                }
                Err(error) => refused.push(error),
            }
        }
        for (inbox, commands) in self.0.iter().zip(of_workers).filter(|(_, commands)| !commands.is_empty()) {
            refused.extend(inbox.submit_all(commands).into_iter().map(|full| (full.0, RequestError::Busy)));
        }
        refused
    }
}

/// A command that a partition may be asked for, which counts as a write that has begun; or it with the reason why not.
fn admitted(
    table: &Table,
    partition: u32,
    command: WriteCommand,
) -> Result<WriteCommand, (WriteCommand, RequestError)> {
    // What transactions over partitions have left in a table that was dropped is still brought to its end: other tables may hold
    // something of them.
    if table.is_dropped() && !command.pending_reply.ends_a_transaction() {
        return Err((command, table.not_serving()));
    }
    table.partition(partition).meter().begin_write();
    Ok(command)
}
