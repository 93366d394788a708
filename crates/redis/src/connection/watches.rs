//! What a connection watches for its next transaction.

use crate::commands::CommandError;
use crate::resp::ARGUMENT_OVERHEAD;
use std::sync::Arc;
use tessera_store::Watch;

/// A watched key.
pub(super) enum Watched {
    /// On this node, which is told of writes; with the digest of what was under the key. A write that was evaluated before the watch
    /// began, and was not applied when the key was read, shows in the digest only.
    Here(Arc<Watch>, Vec<u8>),
    /// The node that leads the key's partition in a cluster has given this [token](crate::kept_watches::WatchToken).
    Remote { key: Vec<u8>, token: Vec<u8> },
    /// On this node, which does not know any more whether the key was written.
    Lost { key: Vec<u8> },
}

impl Watched {
    pub(super) fn key(&self) -> &[u8] {
        match self {
            Self::Here(watch, _) => watch.hash_key(),
            Self::Remote { key, .. } | Self::Lost { key } => key,
        }
    }
}

/// Keys that a connection watches at most: EXEC looks at each of them while all others of the partition wait.
const WATCHED_KEYS: usize = 100_000;
/// What a watched key takes beside its bytes, as one of the arguments of a WATCH between nodes, which has a digest after each.
const WATCHED_OVERHEAD: usize = 64 + 2 * ARGUMENT_OVERHEAD;

/// The keys that a connection watches.
#[derive(Default)]
pub(super) struct Watches {
    keys: Vec<Watched>,
    /// What the keys take, bytes.
    bytes: usize,
    /// Whether some of them are in a table that was left: the next transaction is on another one, and does nothing.
    are_left: bool,
}

impl Watches {
    /// Whether these keys may be watched besides, if all together may take `limit` bytes.
    ///
    /// # Errors
    /// In words, if they are more than a connection may watch.
    pub(super) fn check_room(&self, keys: &[&[u8]], limit: usize) -> Result<(), CommandError> {
        let bytes = self.bytes + keys.iter().map(|key| key.len() + WATCHED_OVERHEAD).sum::<usize>();
        if bytes <= limit && self.keys.len() + keys.len() <= WATCHED_KEYS {
            return Ok(());
        }
        Err(CommandError::Reply(format!(
            "ERR a connection watches at most {WATCHED_KEYS} keys of {limit} bytes in all; none of these is watched now"
        ).into()))
    }

    pub(super) fn push(&mut self, watched: Watched) {
        self.bytes += watched.key().len() + WATCHED_OVERHEAD;
        self.keys.push(watched);
    }

    /// Another table is chosen.
    pub(super) fn leave_table(&mut self) {
        self.are_left |= !self.keys.is_empty();
    }

    /// Whether some of the keys are in a table that was left.
    pub(super) fn are_left(&self) -> bool {
        self.are_left
    }

    /// Ends watching; returns what was watched.
    pub(super) fn take(&mut self) -> Vec<Watched> {
        std::mem::take(self).keys
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
