//! What leaves a partition that is being split.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many bytes may wait in the tap; then the partition takes no more until some are gone.
const TAP_BYTES: usize = 64 << 20;

/// A tap on what a partition applies, and whether it takes anything more. Costs writers two loads while there is none.
#[derive(Default)]
pub struct Outflow {
    is_tapped: AtomicBool,
    is_shut: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts taps; one at a time is open.
    tap: u64,
    payloads: Vec<Bytes>,
    bytes: usize,
    is_sealed: bool,
}

/// A tap, which is closed when this is dropped.
pub struct Tap<'a> {
    outflow: &'a Outflow,
    number: u64,
}

impl Outflow {
    fn update(&self, state: &State, is_tapped: bool) {
        self.is_tapped.store(is_tapped, Ordering::Release);
        self.is_shut.store(state.is_sealed || state.bytes > TAP_BYTES, Ordering::Release);
    }

    /// Whether requests are refused.
    pub fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// From when this returns on, what is applied can be [taken](Tap::take).
    pub fn tap(&self) -> Tap<'_> {
        let mut state = self.state.lock();
        *state = State { tap: state.tap + 1, is_sealed: state.is_sealed, ..State::default() };
        self.update(&state, true);
        Tap { outflow: self, number: state.tap }
    }

    /// Called when payloads have been applied, not before.
    pub fn applied(&self, payloads: &[Bytes]) {
        if !self.is_tapped.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        if self.is_tapped.load(Ordering::Acquire) {
            state.bytes += payloads.iter().map(Bytes::len).sum::<usize>();
            state.payloads.extend_from_slice(payloads);
            self.update(&state, true);
        }
    }

    /// The partition takes nothing any more, or does so as long as it is led here.
    pub fn seal(&self) {
        let mut state = self.state.lock();
        state.is_sealed = true;
        self.update(&state, self.is_tapped.load(Ordering::Acquire));
    }

    /// It is not known whether the seal is in the log, so it will be put there again.
    pub fn unseal(&self) {
        let mut state = self.state.lock();
        state.is_sealed = false;
        self.update(&state, self.is_tapped.load(Ordering::Acquire));
    }

    /// The partition is led elsewhere, or not here any more at all: whoever copies it here must not go on.
    pub fn end(&self) {
        let mut state = self.state.lock();
        *state = State { tap: state.tap + 1, ..State::default() };
        self.update(&state, false);
    }
}

impl Tap<'_> {
    /// What was applied since the last call; `None` if the partition is led here no longer.
    pub fn take(&self) -> Option<Vec<Bytes>> {
        let mut state = self.outflow.state.lock();
        if state.tap != self.number {
            return None;
        }
        state.bytes = 0;
        let payloads = std::mem::take(&mut state.payloads);
        self.outflow.update(&state, true);
        Some(payloads)
    }
}

impl Drop for Tap<'_> {
    fn drop(&mut self) {
        let mut state = self.outflow.state.lock();
        if state.tap == self.number {
            *state = State { tap: state.tap, is_sealed: state.is_sealed, ..State::default() };
            self.outflow.update(&state, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_has_what_was_applied_while_it_is_open() {
        let (outflow, payload) = (Outflow::default(), [Bytes::from_static(b"payload")]);
        outflow.applied(&payload);
        let first = outflow.tap();
        outflow.applied(&payload);
        assert_eq!(first.take(), Some(payload.to_vec()));
        assert_eq!(first.take(), Some(Vec::new()));
        let second = outflow.tap();
        outflow.applied(&payload);
        assert_eq!(first.take(), None, "another one has begun");
        drop(first);
        assert_eq!(second.take(), Some(payload.to_vec()));
        outflow.end();
        assert_eq!(second.take(), None);
    }

    #[test]
    fn a_full_tap_shuts_the_partition_until_it_is_emptied_and_a_seal_until_the_end() {
        let outflow = Outflow::default();
        let large = [Bytes::from(vec![0; TAP_BYTES + 1])];
        outflow.applied(&large);
        assert!(!outflow.is_shut());
        let tap = outflow.tap();
        outflow.applied(&large);
        assert!(outflow.is_shut());
        assert_eq!(tap.take().unwrap().len(), 1);
        assert!(!outflow.is_shut());
        outflow.applied(&large);
        drop(tap);
        assert!(!outflow.is_shut());
        outflow.seal();
        drop(outflow.tap());
        assert!(outflow.is_shut());
        outflow.end();
        assert!(!outflow.is_shut());
    }
}
