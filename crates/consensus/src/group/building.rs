//! The entry that is being built in a pass.

use super::message::Payload;
use bytes::BytesMut;

/// An entry's payload is closed when it has grown to this; what follows goes into the next entry.
const ENTRY_BYTES: usize = 1 << 20;
/// A buffer that held an entry longer than this is not kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

/// The effects of the commands that will be proposed as one entry, and their pending replies.
pub(super) struct Building<T> {
    payload: BytesMut,
    /// Whether the entry must be fsynced before it counts.
    sync: bool,
    pending: Vec<T>,
    /// Pending replies that are sent once this replica has persisted the entry.
    leader_acked: Vec<T>,
}

impl<T> Default for Building<T> {
    fn default() -> Self {
        Self { payload: BytesMut::new(), sync: false, pending: Vec::new(), leader_acked: Vec::new() }
    }
}

impl<T> Building<T> {
    /// Where a command appends its effect.
    pub(super) fn payload_mut(&mut self) -> &mut BytesMut {
        &mut self.payload
    }

    /// Whether no command has appended anything.
    pub(super) fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    pub(super) fn has_replies(&self) -> bool {
        !self.pending.is_empty() || !self.leader_acked.is_empty()
    }

    /// Whether a reply waits for the entry to be applied.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Keeps the pending reply of the command whose effect was just appended. Returns whether the entry has become so long
    /// that it is to be proposed.
    pub(super) fn push(&mut self, reply: T, sync: bool, leader_acked: bool) -> bool {
        self.sync |= sync;
        let replies = if leader_acked { &mut self.leader_acked } else { &mut self.pending };
        replies.push(reply);
        self.payload.len() >= ENTRY_BYTES
    }

    /// Keeps the pending reply of a command that has no effect, and is answered when the entry is applied.
    pub(super) fn follow(&mut self, reply: T) {
        self.pending.push(reply);
    }

    /// Ends the entry, and begins the next one. Its replies are [drained](Self::drain_pending) separately.
    pub(super) fn close(&mut self) -> Payload {
        // The rest of the buffer takes the next entry. Once this entry is applied, its memory is used again, too.
        let bytes = self.payload.split().freeze();
        if bytes.len() > KEPT_BYTES {
            self.payload = BytesMut::new();
        }
        Payload { bytes, sync: std::mem::take(&mut self.sync) }
    }

    /// The entry will not be proposed.
    pub(super) fn discard(&mut self) {
        self.payload.clear();
        self.sync = false;
    }

    pub(super) fn drain_pending(&mut self) -> impl Iterator<Item = T> + '_ {
        self.pending.drain(..)
    }

    pub(super) fn drain_leader_acked(&mut self) -> impl Iterator<Item = T> + '_ {
        self.leader_acked.drain(..)
    }

    /// All replies.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.pending.drain(..).chain(self.leader_acked.drain(..))
    }
}
