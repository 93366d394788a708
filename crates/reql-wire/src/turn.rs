//! Turns: how many queries compute at one time, and how those that wait, or take long, make room for others.
//!
//! A query blocks its thread for as long as it is under way. It has a turn while it computes. It gives its turn back while it waits for
//! something that takes long (an index that is built, a partition without a leader), and when it has computed for a
//! [slice](SLICE) and others want to: so queries that wait, or never end, keep nobody from being answered. What queries gather while they
//! compute counts nowhere, so only [some](LONG_QUERIES) of a user are interrupted at one time; the others of those that take long keep their
//! turns, unless a user waits who has fewer.

use crate::turn_queue::{End, HeldTurn, TurnQueue};
use crate::user_share::{UserLimits, UserShare, Users, permit};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Queries under way that have no turn, each with its thread: those that wait, and those that were interrupted.
const WAITING_QUERIES: usize = 512;
/// For each turn, queries of a user that may be interrupted while they compute.
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
    /// Who computes.
    queue: Arc<TurnQueue>,
    /// One for each query that may be under way.
    threads: Arc<Semaphore>,
    pub(crate) users: Users,
}

/// How a query stands with its turn.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    user: Arc<UserShare>,
    permits: Mutex<Permits>,
}

#[derive(Default)]
struct Permits {
    /// The turn, and since when the query has it.
    turn: Option<(HeldTurn, Instant)>,
    /// That the query may be interrupted.
    long: Option<OwnedSemaphorePermit>,
}

/// That a query is under way. It has no turn any more when this goes.
pub(crate) struct UnderWay {
    turn: Arc<Turn>,
    /// Its thread, as one of the node, of its user, and of its connection.
    _places: [OwnedSemaphorePermit; 3],
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.turn.permits.lock() = Permits::default();
    }
}

impl Turns {
    /// So many queries compute at one time. `runtime` is that on whose threads they block.
    pub(crate) fn new(runtime: Handle, count: usize, limits: UserLimits) -> Arc<Self> {
        let threads = Self::threads(count);
        Arc::new(Self {
            runtime,
            count,
            queue: TurnQueue::new(count),
            threads: Arc::new(Semaphore::new(threads)),
            users: Users::new(limits, threads, count * LONG_QUERIES),
        })
    }

    /// The threads that queries take up of which so many compute.
    pub(crate) const fn threads(count: usize) -> usize {
        count + WAITING_QUERIES
    }

    /// For a query of this user that is to come.
    pub(crate) fn turn(self: &Arc<Self>, user: &Arc<UserShare>) -> Arc<Turn> {
        Arc::new(Turn { turns: self.clone(), user: user.clone(), permits: Mutex::default() })
    }

    /// One for each query of a connection that may be under way.
    pub(crate) fn of_connection(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.count * QUERIES_OF_CONNECTION))
    }

    /// Queries that are under way.
    pub(crate) fn under_way(&self) -> usize {
        Self::threads(self.count) - self.threads.available_permits()
    }

    /// Waits until no query is under way. None begins meanwhile.
    pub(crate) async fn ended(&self) {
        let all = u32::try_from(Self::threads(self.count)).unwrap_or(u32::MAX);
        let _ = self.threads.acquire_many(all).await;
    }
}

impl Turn {
    /// Waits until the query may be under way, as one of those of its connection and of its user, and has a turn.
    pub(crate) async fn begin(self: &Arc<Self>, of_connection: &Arc<Semaphore>) -> UnderWay {
        let (of_connection, of_user) = (permit(of_connection).await, permit(&self.user.threads).await);
        let places = [permit(&self.turns.threads).await, of_user, of_connection];
        self.take().await;
        UnderWay { turn: self.clone(), _places: places }
    }

    async fn take(&self) {
        let turn = self.turns.queue.take(self.user.number).await;
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
            let is_due = !is_lent.get() && self.turns.queue.is_wanted() && began.elapsed() >= SHORT_OUTSIDE;
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
        let queue = &self.turns.queue;
        if !queue.is_wanted() {
            return;
        }
        let mut permits = self.permits.lock();
        if permits.turn.as_ref().is_none_or(|(_, since)| since.elapsed() < SLICE) {
            return;
        }
        if permits.long.is_none() {
            permits.long = self.user.interrupted.clone().try_acquire_owned().ok();
        }
        let end = match permits.long {
            Some(_) => End::Back,
            // It goes on before other queries of its user begin, so that of each no more than there are turns are interrupted like this.
            None if queue.is_owed_by(self.user.number) => End::Front,
            None => return,
        };
        let turn = permits.turn.take();
        drop(permits);
        if let Some((turn, _)) = turn {
            let turn = self.turns.runtime.block_on(turn.pass_on(end));
            self.permits.lock().turn = Some((turn, Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const SOON: Duration = Duration::from_secs(20);
    const NO_LIMITS: UserLimits = UserLimits { queries: 0, threads_percent: 100 };

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Runs work as a query.
    async fn query<T: Send + 'static>(
        turns: &Arc<Turns>,
        of_connection: &Arc<Semaphore>,
        work: impl FnOnce(&Turn) -> T + Send + 'static,
    ) -> T {
        query_of("ann", turns, of_connection, work).await
    }

    async fn query_of<T: Send + 'static>(
        user: &str,
        turns: &Arc<Turns>,
        of_connection: &Arc<Semaphore>,
        work: impl FnOnce(&Turn) -> T + Send + 'static,
    ) -> T {
        let turn = turns.turn(&turns.users.share(user));
        let under_way = turn.begin(of_connection).await;
        let outcome = tokio::task::spawn_blocking(move || work(&turn)).await.unwrap();
        drop(under_way);
        outcome
    }

    #[test]
    fn those_that_wait_and_those_that_never_end_let_others_have_a_turn() {
        let runtime = runtime();
        let turns = Turns::new(runtime.handle().clone(), 1, NO_LIMITS);
        let of_connection = turns.of_connection();
        let end = Arc::new(tokio::sync::Notify::new());
        let has_ended = Arc::new(AtomicBool::new(false));
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

    /// Of so many queries of a user the last ones are not interrupted, and kept their turns from everybody.
    #[test]
    fn a_user_with_many_queries_that_never_end_leaves_others_their_turns() {
        let runtime = runtime();
        let turns = Turns::new(runtime.handle().clone(), 2, UserLimits { threads_percent: 50, ..NO_LIMITS });
        let has_ended = Arc::new(AtomicBool::new(false));
        let count = 2 * LONG_QUERIES + 4;
        for _ in 0..count {
            let (turns, has_ended) = (turns.clone(), has_ended.clone());
            runtime.spawn(async move {
                query(&turns, &turns.of_connection(), move |turn| {
                    while !has_ended.load(Ordering::Relaxed) {
                        turn.share();
                    }
                })
                .await;
            });
        }
        runtime.block_on(async {
            tokio::time::timeout(SOON, async {
                let ann = turns.users.share("ann");
                while turns.under_way() < count || ann.interrupted.available_permits() > 0 {
                    tokio::task::yield_now().await;
                }
                for _ in 0..3 {
                    query_of("bob", &turns, &turns.of_connection(), |_| ()).await;
                }
                // Of the threads, the half is left to others.
                assert_eq!(ann.threads.available_permits(), Turns::threads(2) / 2 - count);
                has_ended.store(true, Ordering::Relaxed);
                turns.ended().await;
            })
            .await
            .unwrap();
        });
    }
}
