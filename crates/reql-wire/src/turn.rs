//! Turns: how many queries compute at one time, and how those that wait, or take long, make room for others.
//!
//! A query blocks its thread for as long as it is under way. It has a turn while it computes. It gives its turn back while it waits for
//! something that takes long (an index that is built, a partition without a leader), and when it has computed for a
//! [slice](SLICE) and others want to: so queries that wait, or never end, keep nobody from being answered. What queries gather while they
//! compute counts nowhere, so only [some](LONG_QUERIES) are interrupted at one time; the others of those that take long keep their turns.

use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Queries under way that have no turn, each with its thread: those that wait, and those that were interrupted.
const WAITING_QUERIES: usize = 512;
/// For each turn, queries that may be interrupted while they compute.
const LONG_QUERIES: usize = 8;
/// For each turn, queries of one connection that are under way. Fewer than may be interrupted, so that no connection has all of these.
const QUERIES_OF_CONNECTION: usize = 4;
/// How long a query computes before it makes room for others.
const SLICE: Duration = Duration::from_millis(50);
/// How long a query keeps its turn while it waits: most reads and writes are done sooner.
const SHORT_WAIT: Duration = Duration::from_millis(100);
/// The same while it waits for something outside, such as a worker for JavaScript: whoever has that waits for a turn then, and loses it
/// if it takes long.
const SHORT_OUTSIDE: Duration = Duration::from_millis(20);

/// The turns of a node.
pub(crate) struct Turns {
    runtime: Handle,
    count: usize,
    /// One for each query that may compute.
    turns: Arc<Semaphore>,
    /// One for each query that may be under way.
    threads: Arc<Semaphore>,
    /// One for each query that may be interrupted.
    interrupted: Arc<Semaphore>,
    /// Queries that want a turn.
    wanted: AtomicUsize,
}

/// How a query stands with its turn.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    permits: Mutex<Permits>,
}

#[derive(Default)]
struct Permits {
    /// The turn, and since when the query has it.
    turn: Option<(OwnedSemaphorePermit, Instant)>,
    /// That the query may be interrupted.
    long: Option<OwnedSemaphorePermit>,
}

/// That a query is under way. It has no turn any more when this goes.
pub(crate) struct UnderWay {
    turn: Arc<Turn>,
    _thread: OwnedSemaphorePermit,
    _of_connection: OwnedSemaphorePermit,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.turn.permits.lock() = Permits::default();
    }
}

/// Counts a query that wants a turn.
struct Wanted<'a>(&'a AtomicUsize);

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The permit of a semaphore that is never closed.
async fn permit(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    match semaphore.clone().acquire_owned().await {
        Ok(permit) => permit,
        Err(_) => std::future::pending().await,
    }
}

impl Turns {
    /// So many queries compute at one time. `runtime` is that on whose threads they block.
    pub(crate) fn new(runtime: Handle, count: usize) -> Arc<Self> {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Arc::new(Self {
            runtime,
            count,
            turns: semaphore(count),
            threads: semaphore(Self::threads(count)),
            interrupted: semaphore(count * LONG_QUERIES),
            wanted: AtomicUsize::new(0),
        })
    }

    /// The threads that queries take up of which so many compute.
    pub(crate) const fn threads(count: usize) -> usize {
        count + WAITING_QUERIES
    }

    /// For a query that is to come.
    pub(crate) fn turn(self: &Arc<Self>) -> Arc<Turn> {
        Arc::new(Turn { turns: self.clone(), permits: Mutex::default() })
    }

    /// One for each query of a connection that may be under way.
    pub(crate) fn of_connection(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.count * QUERIES_OF_CONNECTION))
    }

    /// Queries that are under way.
    pub(crate) fn under_way(&self) -> usize {
        Self::threads(self.count) - self.threads.available_permits()
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Waits until no query is under way. None begins meanwhile.
    pub(crate) async fn ended(&self) {
        let all = u32::try_from(Self::threads(self.count)).unwrap_or(u32::MAX);
        let _ = self.threads.acquire_many(all).await;
    }
}

impl Turn {
    /// Waits until the query may be under way, as one of those of its connection, and has a turn.
    pub(crate) async fn begin(self: &Arc<Self>, of_connection: &Arc<Semaphore>) -> UnderWay {
        let (of_connection, thread) = (permit(of_connection).await, permit(&self.turns.threads).await);
        self.take().await;
        UnderWay { turn: self.clone(), _thread: thread, _of_connection: of_connection }
    }

    async fn take(&self) {
        self.turns.wanted.fetch_add(1, Ordering::Relaxed);
        let _wanted = Wanted(&self.turns.wanted);
        let turn = permit(&self.turns.turns).await;
        self.permits.lock().turn = Some((turn, Instant::now()));
    }

    fn give_back(&self) -> bool {
        self.permits.lock().turn.take().is_some()
    }

    /// Waits for something that takes long. Blocks, and has no turn meanwhile.
    pub(crate) fn wait_long<T>(&self, future: impl Future<Output = T>) -> T {
        self.turns.runtime.block_on(self.without(future))
    }

    async fn without<T>(&self, future: impl Future<Output = T>) -> T {
        let had_turn = self.give_back();
        let outcome = future.await;
        if had_turn {
            self.take().await;
        }
        outcome
    }

    /// Waits for something that may take long. Blocks.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.turns.runtime.block_on(async {
            let mut future = std::pin::pin!(future);
            match tokio::time::timeout(SHORT_WAIT, &mut future).await {
                Ok(outcome) => outcome,
                Err(_) => self.without(future).await,
            }
        })
    }

    /// Has something done outside, which may take long, and calls often what it is given. Blocks.
    pub(crate) fn outside(&self, act: impl FnOnce(&dyn Fn())) {
        let (began, is_lent) = (Instant::now(), Cell::new(false));
        act(&|| {
            let is_due = !is_lent.get() && self.turns.is_wanted() && began.elapsed() >= SHORT_OUTSIDE;
            if is_due && self.give_back() {
                is_lent.set(true);
            }
        });
        if is_lent.get() {
            self.turns.runtime.block_on(self.take());
        }
    }

    /// Called often by a query that computes: lets others have a turn, if they want one and this query has computed for long.
    pub(crate) fn share(&self) {
        if !self.turns.is_wanted() {
            return;
        }
        let mut permits = self.permits.lock();
        if permits.turn.as_ref().is_none_or(|(_, since)| since.elapsed() < SLICE) {
            return;
        }
        if permits.long.is_none() {
            permits.long = self.turns.interrupted.clone().try_acquire_owned().ok();
        }
        if permits.long.is_some() {
            permits.turn = None;
            drop(permits);
            self.turns.runtime.block_on(self.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Runs work as a query.
    async fn query<T: Send + 'static>(
        turns: &Arc<Turns>,
        of_connection: &Arc<Semaphore>,
        work: impl FnOnce(&Turn) -> T + Send + 'static,
    ) -> T {
        let turn = turns.turn();
        let under_way = turn.begin(of_connection).await;
        let outcome = tokio::task::spawn_blocking(move || work(&turn)).await.unwrap();
        drop(under_way);
        outcome
    }

    #[test]
    fn those_that_wait_and_those_that_never_end_let_others_have_a_turn() {
        let runtime = runtime();
        let turns = Turns::new(runtime.handle().clone(), 1);
        let of_connection = turns.of_connection();
        let end = Arc::new(tokio::sync::Notify::new());
        let has_ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut under_way = Vec::new();
        for at in 0..QUERIES_OF_CONNECTION {
            let (turns, of_connection) = (turns.clone(), of_connection.clone());
            let (end, has_ended) = (end.clone(), has_ended.clone());
            under_way.push(runtime.spawn(async move {
                query(&turns, &of_connection, move |turn| match at {
                    0 => turn.wait(end.notified()),
                    1 => turn.wait_long(end.notified()),
                    _ => {
                        while !has_ended.load(Ordering::Relaxed) {
                            turn.share();
                        }
                    }
                })
                .await;
            }));
        }
        runtime.block_on(async {
            tokio::time::timeout(SOON, async {
                while of_connection.available_permits() > 0 || turns.under_way() < QUERIES_OF_CONNECTION {
                    tokio::task::yield_now().await;
                }
                // Another connection is served, and this one waits.
                for _ in 0..3 {
                    query(&turns, &turns.of_connection(), |_| ()).await;
                }
                let waits = tokio::time::timeout(2 * SLICE, query(&turns, &of_connection, |_| ())).await;
                assert!(waits.is_err(), "a connection has its share");
                has_ended.store(true, Ordering::Relaxed);
                while of_connection.available_permits() < QUERIES_OF_CONNECTION {
                    end.notify_waiters();
                    tokio::task::yield_now().await;
                }
                turns.ended().await;
            })
            .await
            .unwrap();
        });
    }
}
