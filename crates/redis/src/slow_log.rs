//! Commands that took long, newest first, as SLOWLOG and LATENCY show them.

use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tessera_types::UnixMillis;

/// Arguments kept of a command, and bytes of each; Redis' own limits.
const ARGUMENTS: usize = 32;
const ARGUMENT_BYTES: usize = 128;

pub(crate) struct SlowLog {
    entries: Mutex<VecDeque<SlowCommand>>,
    next_id: AtomicU64,
    /// Microseconds from which a command is slow; negative for never.
    threshold_micros: AtomicI64,
    capacity: AtomicUsize,
}

#[derive(Clone)]
pub(crate) struct SlowCommand {
    pub(crate) id: u64,
    pub(crate) at: UnixMillis,
    pub(crate) took: Duration,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) client: String,
    pub(crate) client_name: String,
}

impl SlowLog {
    pub(crate) fn new(threshold_micros: i64, capacity: usize) -> Self {
        Self {
            entries: Mutex::default(),
            next_id: AtomicU64::new(0),
            threshold_micros: AtomicI64::new(threshold_micros),
            capacity: AtomicUsize::new(capacity),
        }
    }

    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        let threshold = self.threshold_micros.load(Ordering::Relaxed);
        u128::try_from(threshold).is_ok_and(|threshold| took.as_micros() >= threshold)
    }

    /// `arguments` hold no passwords; see [`redacted`](crate::redacted::redacted).
    pub(crate) fn push(&self, took: Duration, arguments: &[Cow<'_, [u8]>], client: String, client_name: String) {
        let mut kept: Vec<Vec<u8>> = arguments.iter().take(ARGUMENTS).map(|argument| shorten(argument)).collect();
        if arguments.len() > ARGUMENTS {
            let more = arguments.len() - ARGUMENTS + 1;
            kept[ARGUMENTS - 1] = format!("... ({more} more arguments)").into_bytes();
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.entries.lock();
        entries.push_front(SlowCommand { id, at: UnixMillis::now(), took, arguments: kept, client, client_name });
        entries.truncate(self.capacity.load(Ordering::Relaxed));
    }

    pub(crate) fn newest(&self, count: usize) -> Vec<SlowCommand> {
        self.entries.lock().iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }

    pub(crate) fn threshold_micros(&self) -> i64 {
        self.threshold_micros.load(Ordering::Relaxed)
    }

    pub(crate) fn set_threshold_micros(&self, micros: i64) {
        self.threshold_micros.store(micros, Ordering::Relaxed);
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(crate) fn set_capacity(&self, capacity: usize) {
        self.capacity.store(capacity, Ordering::Relaxed);
        self.entries.lock().truncate(capacity);
    }
}

fn shorten(argument: &[u8]) -> Vec<u8> {
    if argument.len() <= ARGUMENT_BYTES {
        return argument.to_vec();
    }
    let mut kept = argument[..ARGUMENT_BYTES].to_vec();
    kept.extend_from_slice(format!("... ({} more bytes)", argument.len() - ARGUMENT_BYTES).as_bytes());
    kept
}
