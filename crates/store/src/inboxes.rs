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
        // What transactions over partitions have left in a table that was dropped is still brought to its end: other tables may hold
        // something of them.
        if table.is_dropped() && !command.pending_reply.ends_a_transaction() {
            return Err((command, table.not_serving()));
        }
        table.partition(partition).meter().begin_write();
        let group = group_of(table.id(), partition);
        self.of(table.id(), partition).submit(group, command).map_err(|full| (full.0, RequestError::Busy))
    }
}
