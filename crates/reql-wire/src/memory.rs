//! What a connection holds of the memory that the clients of all faces share.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use tessera_face::ClientShare;

/// About what the tree and the plan of a query take for each of its values, beside their text.
const VALUE_BYTES: usize = 128;

/// What a connection holds: queries that are not answered yet, answers that are not taken, and rows that have no room in an answer.
pub(crate) struct Held {
    share: Arc<ClientShare>,
    now: Mutex<Now>,
}

/// In one lock, since each connection has one.
#[derive(Default)]
struct Now {
    bytes: usize,
    /// What is carried out that the node waits for when it stops.
    carried_out: usize,
}

/// That something is carried out which the node waits for when it stops, until dropped.
pub(crate) struct CarriedOut(Arc<Held>);

/// A part of it, until dropped.
pub(crate) struct Kept {
    held: Arc<Held>,
    bytes: usize,
}

impl Held {
    pub(crate) fn new(share: Arc<ClientShare>) -> Arc<Self> {
        Arc::new(Self { share, now: Mutex::default() })
    }

    /// Something is to be carried out and answered. `None` if the node stops: then it must not be.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<CarriedOut> {
        let may_begin = {
            let mut now = self.now.lock();
            now.carried_out += 1;
            self.share.begin()
        };
        let carried_out = CarriedOut(self.clone());
        may_begin.then_some(carried_out)
    }

    pub(crate) fn keep(self: &Arc<Self>, bytes: usize) -> Kept {
        let mut kept = Kept { held: self.clone(), bytes: 0 };
        kept.change(bytes);
        kept
    }

    /// The same bytes, which count for as long as somebody has a part of them.
    pub(crate) fn keep_bytes(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        let kept = self.keep(bytes.len());
        Bytes::from_owner(KeptBytes { bytes, _kept: kept })
    }
}

struct KeptBytes {
    bytes: Bytes,
    _kept: Kept,
}

impl AsRef<[u8]> for KeptBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CarriedOut {
    fn drop(&mut self) {
        let mut now = self.0.now.lock();
        now.carried_out -= 1;
        if now.carried_out == 0 {
            // Said under the lock: otherwise something else may have begun.
            self.0.share.answered();
        }
    }
}

impl Kept {
    pub(crate) fn change(&mut self, bytes: usize) {
        let mut now = self.held.now.lock();
        now.bytes = now.bytes - self.bytes + bytes;
        self.bytes = bytes;
        // Said under the lock, so that what is said last is what holds.
        self.held.share.hold(now.bytes);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.change(0);
    }
}

/// Waits until the client is to be closed. Returns what it holds, which it will have let go of when that is told.
pub(crate) async fn evicted(memory: &ClientShare) -> usize {
    memory.evicted().await;
    memory.bytes()
}

/// What a query costs until it is answered, without what it finds. Known before it is read, which may take many times its text.
pub(crate) fn cost(text: &[u8]) -> usize {
    // Counted in bytes and without a branch for each, so that the compiler looks at many at once.
    let in_part = |part: &[u8]| part.iter().map(|byte| u8::from(matches!(byte, b',' | b'[' | b'{'))).sum::<u8>();
    let values = text.chunks(usize::from(u8::MAX)).map(|part| usize::from(in_part(part))).sum::<usize>();
    text.len() + VALUE_BYTES * values
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_face::ClientMemory;

    #[test]
    fn parts_add_up_and_go() {
        let memory = ClientMemory::new(0);
        let held = Held::new(memory.join());
        let mut first = held.keep(1 << 20);
        let second = held.keep(2 << 20);
        assert_eq!(memory.used(), 3 << 20);
        first.change(5 << 20);
        assert_eq!(memory.used(), 7 << 20);
        drop(second);
        assert_eq!(memory.used(), 5 << 20);
        drop(first);
        assert_eq!(memory.used(), 0);
        let part = held.keep_bytes(vec![b'x'; 1 << 20].into()).slice(7..9);
        assert_eq!((memory.used(), &part[..]), (1 << 20, &b"xx"[..]));
        drop(part);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_query_of_many_values_costs_more_than_a_long_text() {
        let (many, long) = ([b"[", &b"1,".repeat(1000)[..], b"1]"].concat(), vec![b'x'; 2000]);
        assert!(cost(&many) > 50 * cost(&long));
    }
}
