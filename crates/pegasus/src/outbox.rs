//! Replies on their way to a client, from whichever thread has one.

use crate::frame::Frame;
use crate::known_partitions::SplitTable;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_face::buffers;
use tessera_types::RequestError;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Outbox {
    content: Mutex<Content>,
    /// Requests whose reply is not here yet.
    waiting: AtomicUsize,
    changed: Notify,
}

#[derive(Default)]
pub(crate) struct Content {
    /// Whole replies.
    pub(crate) replies: Vec<u8>,
    /// Requests that were not carried out, since their partition turned out not to be led here, and why not.
    pub(crate) elsewhere: Vec<(Frame, RequestError)>,
    /// Tables of which the replies tell how many partitions they have.
    pub(crate) told: Vec<SplitTable>,
}

impl Outbox {
    /// Notes that a reply will come.
    pub(crate) fn expect(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes an expected reply, which `write` appends.
    pub(crate) fn reply(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut content = self.content.lock();
        buffers::take(&mut content.replies);
        write(&mut content.replies);
        drop(content);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// Takes a request back whose reply was expected: it is still to be carried out.
    pub(crate) fn take_back(&self, frame: Frame, reason: RequestError) {
        self.content.lock().elsewhere.push((frame, reason));
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// Notes that a reply which comes next tells the client how many partitions a table has.
    pub(crate) fn note_told(&self, table: SplitTable) {
        self.content.lock().told.push(table);
    }

    /// How many replies are still to come.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// What has come.
    pub(crate) fn take(&self) -> Content {
        std::mem::take(&mut *self.content.lock())
    }

    /// Waits until something has come since this was last waited for.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
