//! What messages that were refused have shown.

use super::Inconsistent;

#[derive(Default)]
pub(super) struct Refusals {
    /// Why the replica cannot go on, if a message revealed that.
    loss: Option<Inconsistent>,
    /// Whether a message was refused before.
    has_refused: bool,
}

impl Refusals {
    /// A message was refused, and revealed that the replica has lost something, if it did. Returns whether it is the first
    /// one that was refused.
    pub(super) fn note(&mut self, loss: Option<Inconsistent>) -> bool {
        self.loss = self.loss.take().or(loss);
        !std::mem::replace(&mut self.has_refused, true)
    }

    /// Why the replica cannot go on.
    pub(super) fn take_loss(&mut self) -> Option<Inconsistent> {
        self.loss.take()
    }
}
