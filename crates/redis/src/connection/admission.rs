//! What the chosen table admits of a connection's commands: its rates, and what it denies.

use super::Connection;
use super::frame::OwnedFrame;
use crate::commands::{Command, CommandError};
use std::time::Duration;
use tessera_types::Admitted;

impl Connection {
    /// Has a command that is to be carried out here wait, or answers it with a refusal, as its table wants it. Returns whether
    /// it is to be carried out. What came before it is carried out first if it does not go on at once.
    pub(super) async fn admit(&mut self, command: &Command, frame: &OwnedFrame) -> bool {
        let (reads, is_write) = (command.flags.read, command.flags.write);
        let Some(table) = self.session.table.as_ref().filter(|_| reads || is_write) else { return true };
        let Some(admissions) = table.admissions() else { return true };
        let (error, pause) = match admissions.admit(&**table, is_write, frame.bytes()) {
            Admitted::Now => return true,
            Admitted::After(pause) => (None, pause),
            Admitted::Refused(error, pause) => (Some(error), pause),
            // No client of Redis expects to be left without an answer.
            Admitted::Dropped(error) => (Some(error), Duration::ZERO),
        };
        self.flush_pending().await;
        self.wait_for(None, tokio::time::sleep(pause)).await;
        let Some(error) = error else { return true };
        self.refuse(&CommandError::Request(error));
        false
    }

    /// Counts what a read returned, whose reply begins at `began`.
    pub(super) fn note_read(&self, began: usize) {
        if let Some(admissions) = self.session.table.as_ref().and_then(|table| table.admissions()) {
            admissions.note_read(self.output.len().saturating_sub(began));
        }
    }
}
