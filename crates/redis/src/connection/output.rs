//! How the replies of a connection go to its client, and when it pauses for that.

use super::Connection;
use std::io;
use tessera_types::UnixMillis;

/// Replies are written out when they have grown to this.
pub(super) const REPLY_BYTES: usize = 1 << 20;

impl Connection {
    /// Bytes that the connection has taken from the node's memory.
    fn held_bytes(&self) -> usize {
        self.input.capacity() + self.frame.held_bytes() + self.output.len()
    }

    /// Whether many replies are to be written out, or others to have a turn, before the connection goes on.
    pub(super) fn is_to_pause(&self) -> bool {
        self.output.len() >= REPLY_BYTES || self.turn.is_over()
    }

    /// Does that. Returns the time for what comes next.
    pub(super) async fn pause(&mut self) -> io::Result<UnixMillis> {
        if self.output.len() >= REPLY_BYTES {
            self.write_out().await?;
        }
        self.turn.end().await;
        Ok(self.server.store.now())
    }

    pub(super) async fn write_out(&mut self) -> io::Result<()> {
        match self.write_at_once()? {
            Some(written) => self.write_rest(written).await,
            None => Ok(()),
        }
    }

    /// Writes as much of the output as the stream has room for, nearly always all of it, without a future. Returns how much, if there is
    /// more.
    pub(super) fn write_at_once(&mut self) -> io::Result<Option<usize>> {
        self.memory.hold(self.held_bytes());
        let Some(stream) = self.stream.as_mut().filter(|_| !self.output.is_empty()) else { return Ok(None) };
        let written = stream.try_write(self.output.unsent())?;
        if written < self.output.unsent().len() {
            return Ok(Some(written));
        }
        self.patience.note_replies(&self.output);
        self.output.give_back();
        Ok(None)
    }

    /// Waits until the output after `written` is written.
    pub(super) async fn write_rest(&mut self, written: usize) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.write(&self.output.unsent()[written..], self.server.config.write_timeout).await?;
        self.patience.note_replies(&self.output);
        self.output.give_back();
        Ok(())
    }
}
