//! Watches on keys that this node keeps for connections to other nodes.
//!
//! A connection watches a key at the node that leads the key's partition. What it is given stands for the watch: the digest of what is under
//! the key, and the number of the watch, which only the same start of that node knows. `EXEC` does nothing if the node does not know
//! the watch any more: then the key may have been written.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_store::Watch;

/// Watches that are kept at most; the oldest go first.
const MOST: usize = 100_000;
/// How long a watch is kept at most. Nobody says when a watch of another node's connection is not needed any more.
const LONGEST: Duration = Duration::from_secs(600);

/// The watches that are kept.
pub(crate) struct KeptWatches {
    /// Tells this start of the node from all others.
    start: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    kept: BTreeMap<u64, (Instant, Arc<Watch>)>,
}

/// What a connection is given of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchToken {
    /// Of what was under the key.
    pub(crate) digest: Vec<u8>,
    start: u64,
    number: u64,
}

impl WatchToken {
    /// `None` if these bytes are none: nodes of before knew digests only.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(bytes).ok()?.split(':');
        let digest = parts.next()?.as_bytes().to_vec();
        let start = u64::from_str_radix(parts.next()?, 16).ok()?;
        let number = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { digest, start, number })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { digest, start, number } = self;
        [digest, format!(":{start:x}:{number}").as_bytes()].concat()
    }
}

impl Default for KeptWatches {
    fn default() -> Self {
        Self { start: rand::random(), state: Mutex::default() }
    }
}

impl KeptWatches {
    /// Keeps a watch that began before what is under the key was read, whose digest this is.
    pub(crate) fn keep(&self, watch: Arc<Watch>, digest: Vec<u8>) -> WatchToken {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.kept.insert(number, (Instant::now(), watch));
        while let Some(oldest) = state.kept.first_entry()
            && (oldest.get().0.elapsed() > LONGEST || number - oldest.key() >= MOST as u64)
        {
            oldest.remove();
        }
        WatchToken { digest, start: self.start, number }
    }

    /// The watch that a token stands for; `None` if it is not kept, or not here.
    pub(crate) fn find(&self, token: &WatchToken) -> Option<Arc<Watch>> {
        if token.start != self.start {
            return None;
        }
        self.state.lock().kept.get(&token.number).map(|(_, watch)| watch.clone())
    }

    /// As [`Self::find`], and keeps it no longer.
    pub(crate) fn take(&self, token: &WatchToken) -> Option<Arc<Watch>> {
        if token.start != self.start {
            return None;
        }
        self.state.lock().kept.remove(&token.number).map(|(_, watch)| watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let token = WatchToken { digest: b"0a1b".to_vec(), start: u64::MAX, number: 7 };
        assert_eq!(WatchToken::decode(&token.encode()), Some(token));
        for none in [&b"0a1b"[..], b"0a:1", b"0a:x:1", b"0a:1:x", b"0a:1:1:1", b"\xff"] {
            assert_eq!(WatchToken::decode(none), None);
        }
    }
}
