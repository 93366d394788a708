//! Who waits on this node for changes of a partition that it leads.

use super::record::{Keys, is_wanted};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_types::TableId;
use tokio::sync::Notify;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Waiters {
    by_partition: Mutex<HashMap<(TableId, u32), Vec<Waiter>>>,
    next: AtomicU64,
}

struct Waiter {
    number: u64,
    ranges: Vec<Keys>,
    /// Bytes of changes that it does not want, since it was woken last; and after how many it is woken.
    passed: u64,
    most_passed: u64,
    woken: Arc<Notify>,
}

/// Somebody who waits, until dropped.
pub(crate) struct Waiting<'a> {
    waiters: &'a Waiters,
    number: u64,
    places: Vec<(TableId, u32)>,
    pub(crate) woken: Arc<Notify>,
}

impl Waiters {
    /// Waits for changes of documents with these keys in these partitions, or until about `most_passed` bytes of other changes have
    /// come in one of them. What is applied after this has returned wakes it.
    pub(crate) fn wait<'a>(
        &self,
        table: TableId,
        most_passed: u64,
        places: impl Iterator<Item = (u32, &'a [Keys])>,
    ) -> Waiting<'_> {
        let (number, woken) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::<Notify>::default());
        let mut waiting = Waiting { waiters: self, number, places: Vec::new(), woken: woken.clone() };
        let mut by_partition = self.by_partition.lock();
        for (partition, ranges) in places {
            let ranges = ranges.to_vec();
            let waiter = Waiter { number, ranges, passed: 0, most_passed, woken: woken.clone() };
            by_partition.entry((table, partition)).or_default().push(waiter);
            waiting.places.push((table, partition));
        }
        waiting
    }

    /// A document has changed, by a change of so many bytes.
    pub(crate) fn wake(&self, table: TableId, partition: u32, primary: &[u8], bytes: usize) {
        let mut by_partition = self.by_partition.lock();
        for waiter in by_partition.get_mut(&(table, partition)).into_iter().flatten() {
            waiter.passed += bytes as u64;
            if waiter.passed >= waiter.most_passed || is_wanted(&waiter.ranges, primary) {
                waiter.passed = 0;
                waiter.woken.notify_one();
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut by_partition = self.waiters.by_partition.lock();
        for place in &self.places {
            if let Some(waiters) = by_partition.get_mut(place) {
                waiters.retain(|waiter| waiter.number != self.number);
                if waiters.is_empty() {
                    by_partition.remove(place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[tokio::test]
    async fn those_are_woken_that_want_the_document() {
        let waiters = Waiters::default();
        let some = [(Bytes::from_static(b"b"), Some(Bytes::from_static(b"c")))];
        let (all, few) = (
            waiters.wait(TableId(1), 100, [(3, &[][..])].into_iter()),
            waiters.wait(TableId(1), 100, [(3, &some[..]), (4, &some[..])].into_iter()),
        );
        let is_woken = async |waiting: &Waiting<'_>| {
            tokio::select! {
                biased;
                () = waiting.woken.notified() => true,
                () = std::future::ready(()) => false,
            }
        };
        waiters.wake(TableId(1), 3, b"a", 60);
        assert!(is_woken(&all).await && !is_woken(&few).await);
        waiters.wake(TableId(1), 4, b"bx", 60);
        assert!(!is_woken(&all).await && is_woken(&few).await);
        // What it does not want must not become more than what is kept, unseen.
        waiters.wake(TableId(1), 3, b"a", 39);
        assert!(is_woken(&all).await && !is_woken(&few).await);
        waiters.wake(TableId(1), 3, b"a", 1);
        assert!(is_woken(&few).await);
        drop((all, few));
        assert!(waiters.by_partition.lock().is_empty());
    }
}
