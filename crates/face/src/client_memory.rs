//! What all clients of a node may cost together: input that is no whole command yet, and replies that they have not taken.
//!
//! Each connection is bounded by itself, and thousands of them at their bounds are not. So connections say what they hold, and
//! when that is more in sum than the node has for it, the ones that hold the most are closed, as Redis does with
//! `maxmemory-clients`. What a client may still build up before it says so is one reply of each worker's thread.
//!
//! Since all clients are known here, a node that stops has them [end](ClientMemory::end) here too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Clients that hold less do not count: nearly all do, and then the connections of different threads share nothing.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// How often it is looked whether all is answered.
const GLANCE: Duration = Duration::from_millis(2);

/// The memory that clients of all faces share.
#[derive(Debug)]
pub struct ClientMemory {
    /// Bytes; zero for no limit.
    limit: AtomicUsize,
    used: AtomicUsize,
    next_number: AtomicU64,
    evicted: AtomicU64,
    is_ending: AtomicBool,
    shares: Mutex<BTreeMap<u64, Arc<Share>>>,
}

#[derive(Debug, Default)]
struct Share {
    bytes: AtomicUsize,
    is_evicted: AtomicBool,
    /// Whether something that was read is not answered yet.
    is_busy: AtomicBool,
    evict: Arc<Notify>,
}

/// What one client has of it, until dropped.
#[derive(Debug)]
pub struct ClientShare {
    memory: Arc<ClientMemory>,
    number: u64,
    share: Arc<Share>,
}

impl ClientMemory {
    /// `limit` is in bytes; zero is no limit.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            next_number: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            shares: Mutex::default(),
        })
    }

    /// A client that holds nothing yet.
    pub fn join(self: &Arc<Self>) -> Arc<ClientShare> {
        self.join_with(Arc::default())
    }

    /// Likewise, with what tells the client that it is to be closed. A connection that may have to close for other reasons too
    /// then waits for one notification, not for several: each costs something whenever the connection has something to do.
    pub fn join_with(self: &Arc<Self>, evict: Arc<Notify>) -> Arc<ClientShare> {
        let share = Arc::new(Share { evict, ..Share::default() });
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.shares().insert(number, share.clone());
        Arc::new(ClientShare { memory: self.clone(), number, share })
    }

    /// In bytes; zero if there is none.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Counts from the next time on that a client says what it holds.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that clients hold now, without those who hold little.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Clients so far that were closed because they held the most.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// From now on no client [begins](ClientShare::begin) anything. Returns when all that was begun is answered, or after so long.
    pub async fn end(&self, limit: Duration) {
        self.is_ending.store(true, Ordering::SeqCst);
        let began = Instant::now();
        while self.shares().values().any(|share| share.is_busy.load(Ordering::SeqCst)) && began.elapsed() < limit {
            tokio::time::sleep(GLANCE).await;
        }
    }

    fn shares(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Share>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_exceeded_by(&self, bytes: usize) -> bool {
        let limit = self.limit();
        limit > 0 && bytes > limit
    }

    /// Has the clients close that hold the most, until the others are within the limit.
    fn evict(&self) {
        let shares = self.shares();
        let held = |share: &Share| share.bytes.load(Ordering::Relaxed);
        let mut left: Vec<&Arc<Share>> =
            shares.values().filter(|share| !share.is_evicted.load(Ordering::Relaxed) && held(share) > 0).collect();
        left.sort_unstable_by_key(|share| held(share));
        let mut bytes: usize = left.iter().map(|share| held(share)).sum();
        while self.is_exceeded_by(bytes)
            && let Some(most) = left.pop()
        {
            bytes -= held(most).min(bytes);
            most.is_evicted.store(true, Ordering::Relaxed);
            most.evict.notify_one();
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl ClientShare {
    /// Something was read that is to be carried out and answered. False if the node stops: then it must not be carried out, and the
    /// client is to be left when all before it [is answered](Self::answered).
    pub fn begin(&self) -> bool {
        // First this, and then the question: whoever ends the clients does it the other way round, so one of both sees the other.
        self.share.is_busy.store(true, Ordering::SeqCst);
        !self.memory.is_ending.load(Ordering::SeqCst)
    }

    /// All that was begun is answered.
    pub fn answered(&self) {
        self.share.is_busy.store(false, Ordering::SeqCst);
    }

    /// The client holds this many bytes from now on.
    pub fn hold(&self, bytes: usize) {
        let bytes = if bytes < UNCOUNTED_BYTES { 0 } else { bytes };
        if bytes == self.share.bytes.load(Ordering::Relaxed) {
            return;
        }
        let before = self.share.bytes.swap(bytes, Ordering::Relaxed);
        self.count(before, bytes);
    }

    /// The client holds this many bytes more, until the next [`Self::hold`] says how many it holds in all.
    pub fn hold_more(&self, bytes: usize) {
        if bytes > 0 {
            self.share.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.count(0, bytes);
        }
    }

    fn count(&self, before: usize, after: usize) {
        if after <= before {
            self.memory.used.fetch_sub(before - after, Ordering::Relaxed);
            return;
        }
        let used = self.memory.used.fetch_add(after - before, Ordering::Relaxed) + (after - before);
        if self.memory.is_exceeded_by(used) {
            self.memory.evict();
        }
    }

    /// Whether the client is to be closed, as [`Self::evicted`] says.
    pub fn is_evicted(&self) -> bool {
        self.share.is_evicted.load(Ordering::Relaxed)
    }

    /// Returns once the client is to be closed, since it holds more than others and all together hold too much.
    pub async fn evicted(&self) {
        self.share.evict.notified().await;
    }

    /// In bytes; zero if it is little.
    pub fn bytes(&self) -> usize {
        self.share.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        self.hold(0);
        self.memory.shares().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn is_evicted(share: &ClientShare) -> bool {
        share.share.is_evicted.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn who_holds_the_most_goes_and_nobody_else() {
        let memory = ClientMemory::new(10 * MIB);
        let [small, large, larger] = [(); 3].map(|()| memory.join());
        small.hold(2 * MIB);
        larger.hold(5 * MIB);
        large.hold(3 * MIB);
        assert_eq!((memory.used(), memory.evicted()), (10 * MIB, 0));
        small.hold_more(MIB);
        larger.evicted().await;
        assert!(!is_evicted(&small) && !is_evicted(&large));
        // The one that is about to go does not count twice.
        small.hold(4 * MIB);
        assert_eq!(memory.evicted(), 1);
        drop(larger);
        assert_eq!(memory.used(), 7 * MIB);
        small.hold(8 * MIB);
        small.evicted().await;
        assert!(!is_evicted(&large));
        drop((small, large));
        assert_eq!((memory.used(), memory.evicted()), (0, 2));
    }

    #[tokio::test]
    async fn what_was_begun_is_answered_before_the_end_and_nothing_begins_then() {
        let memory = ClientMemory::new(MIB);
        let [quick, slow, idle] = [(); 3].map(|()| memory.join());
        assert!(quick.begin() && slow.begin());
        quick.answered();
        let ended = {
            let memory = memory.clone();
            tokio::spawn(async move { memory.end(Duration::from_secs(60)).await })
        };
        while !memory.is_ending.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert!(!quick.begin() && !idle.begin() && !ended.is_finished());
        drop((quick, idle));
        slow.answered();
        ended.await.unwrap();
        assert!(!slow.begin() && !memory.join().begin());
        // A client that takes nothing of its answer does not keep the node.
        let stuck = ClientMemory::new(MIB);
        let client = stuck.join();
        assert!(client.begin());
        stuck.end(Duration::from_millis(1)).await;
    }

    #[test]
    fn a_client_that_exceeds_the_limit_alone_goes() {
        let memory = ClientMemory::new(MIB);
        let client = memory.join();
        client.hold(2 * MIB);
        assert!(is_evicted(&client));
    }

    #[test]
    fn little_does_not_count_and_no_limit_is_none() {
        let memory = ClientMemory::new(MIB);
        let clients: Vec<_> = (0..100).map(|_| memory.join()).collect();
        clients.iter().for_each(|client| client.hold(UNCOUNTED_BYTES - 1));
        assert_eq!((memory.used(), memory.evicted()), (0, 0));
        memory.set_limit(0);
        clients.iter().for_each(|client| client.hold(MIB));
        assert_eq!((memory.used(), memory.evicted()), (100 * MIB, 0));
        clients.iter().for_each(|client| client.hold(0));
        assert_eq!(memory.used(), 0);
    }
}
