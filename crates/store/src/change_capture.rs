//! The capture of newly applied writes of a partition while it is being split.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// When this many bytes wait in the tap, the partition refuses requests until some of the bytes are taken.
const TAP_BYTES: usize = 64 << 20;

/// Keeps what a partition applies while a tap is open, and says whether the partition refuses requests. Without a tap it costs
/// writers two loads.
#[derive(Default)]
pub struct ChangeCapture {
    is_tapped: AtomicBool,
    refuses_requests: AtomicBool,
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
    change_capture: &'a ChangeCapture,
    number: u64,
}

impl ChangeCapture {
    fn update(&self, state: &State, is_tapped: bool) {
        self.is_tapped.store(is_tapped, Ordering::Release);
        self.refuses_requests.store(state.is_sealed || state.bytes > TAP_BYTES, Ordering::Release);
    }

    /// Whether requests are refused.
    pub fn refuses_requests(&self) -> bool {
        self.refuses_requests.load(Ordering::Acquire)
    }

    /// Opens a tap. Everything that is applied after this has returned can be [taken](Tap::take).
    pub fn tap(&self) -> Tap<'_> {
        let mut state = self.state.lock();
        *state = State { tap: state.tap + 1, is_sealed: state.is_sealed, ..State::default() };
        self.update(&state, true);
        Tap { change_capture: self, number: state.tap }
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

    /// The seal has no meaning any more. For the partition's loop, which has the partition serve at the same time.
    pub fn unseal(&self) {
        let mut state = self.state.lock();
        state.is_sealed = false;
        self.update(&state, self.is_tapped.load(Ordering::Acquire));
    }

    /// The partition is led by another node, or is not here any more: its copier on this node must stop.
    pub fn end(&self) {
        let mut state = self.state.lock();
        *state = State { tap: state.tap + 1, ..State::default() };
        self.update(&state, false);
    }
}

impl Tap<'_> {
    /// What was applied since the last call; `None` if the partition is led here no longer.
    pub fn take(&self) -> Option<Vec<Bytes>> {
        let mut state = self.change_capture.state.lock();
        if state.tap != self.number {
            return None;
        }
        state.bytes = 0;
        let payloads = std::mem::take(&mut state.payloads);
        self.change_capture.update(&state, true);
        Some(payloads)
    }
}

impl Drop for Tap<'_> {
    fn drop(&mut self) {
        let mut state = self.change_capture.state.lock();
        if state.tap == self.number {
            *state = State { tap: state.tap, is_sealed: state.is_sealed, ..State::default() };
            self.change_capture.update(&state, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_has_what_was_applied_while_it_is_open() {
        let (change_capture, payload) = (ChangeCapture::default(), [Bytes::from_static(b"payload")]);
        change_capture.applied(&payload);
        let first = change_capture.tap();
        change_capture.applied(&payload);
        assert_eq!(first.take(), Some(payload.to_vec()));
        assert_eq!(first.take(), Some(Vec::new()));
        let second = change_capture.tap();
        change_capture.applied(&payload);
        assert_eq!(first.take(), None, "another one has begun");
        drop(first);
        assert_eq!(second.take(), Some(payload.to_vec()));
        change_capture.end();
        assert_eq!(second.take(), None);
    }

    #[test]
    fn a_full_tap_shuts_the_partition_until_it_is_emptied_and_a_seal_until_the_end() {
        let change_capture = ChangeCapture::default();
        let large = [Bytes::from(vec![0; TAP_BYTES + 1])];
        change_capture.applied(&large);
        assert!(!change_capture.refuses_requests());
        let tap = change_capture.tap();
        change_capture.applied(&large);
        assert!(change_capture.refuses_requests());
        assert_eq!(tap.take().unwrap().len(), 1);
        assert!(!change_capture.refuses_requests());
        change_capture.applied(&large);
        drop(tap);
        assert!(!change_capture.refuses_requests());
        change_capture.seal();
        drop(change_capture.tap());
        assert!(change_capture.refuses_requests());
        change_capture.end();
        assert!(!change_capture.refuses_requests());
    }
}
