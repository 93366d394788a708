//! Who gets a worker, and for how long.
//!
//! A query has a worker only while it waits for an answer from it. Then it gives the worker back, and gets the same one for its next
//! call, with what its programs have kept there, unless others wait: when the query has had the worker for a [`SLICE`], whoever
//! waits longest gets it and begins anew, and the query queues. So the number of workers bounds what runs at one time, and neither
//! queries that run for long nor streams that nobody reads keep others from theirs.

use crate::worker::{LONGEST, LOOK, Launch, Patience, Worker};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tessera_reql::{ScriptFailure, ScriptSource};

/// For so long a query keeps its worker although others wait.
const SLICE: Duration = Duration::from_millis(100);
/// Workers that are kept for queries to come.
const SPARE: usize = 2;

/// Workers, and who has them.
pub struct Pool {
    launch: Launch,
    most: usize,
    state: Mutex<State>,
    /// Told when a worker is free or may be started.
    freed: Condvar,
    /// Numbers for queries, and for those who wait.
    numbers: AtomicU64,
    calls: AtomicU64,
    killed: AtomicU64,
}

#[derive(Default)]
struct State {
    idle: Vec<Held>,
    /// All workers, those that are asked something included.
    count: usize,
    /// Who waits, longest first.
    queue: VecDeque<u64>,
}

/// A worker and the query whose programs it has.
struct Held {
    worker: Worker,
    /// `None` if the query has ended.
    query: Option<u64>,
    since: Instant,
}

/// What the workers have done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Workers now.
    pub workers: usize,
    /// Programs that were run and functions that were called.
    pub calls: u64,
    /// Workers that took too long, or ended by themselves.
    pub killed: u64,
}

/// What a query may have.
enum Taken {
    Worker(Held),
    /// Room for another worker, which counts already.
    Room,
}

impl State {
    /// What a query may have now. `place` is its place in the queue, if it waits.
    fn take(&mut self, query: u64, place: u64, most: usize) -> Option<Taken> {
        let is_next = self.queue.front().is_none_or(|first| *first == place);
        let is_over = |held: &Held| held.since.elapsed() >= SLICE;
        let own = self.idle.iter().position(|held| held.query == Some(query));
        let at = match own.filter(|at| is_next || !is_over(&self.idle[*at])) {
            Some(at) => Some(at),
            None if !is_next => return None,
            None => self.idle.iter().position(|held| held.query.is_none()),
        };
        if at.is_none() && self.count < most {
            self.count += 1;
            return Some(Taken::Room);
        }
        let at = at.or_else(|| self.idle.iter().position(is_over))?;
        Some(Taken::Worker(self.idle.swap_remove(at)))
    }
}

impl Pool {
    pub fn new(launch: Launch, most: usize) -> Self {
        Self {
            launch,
            most,
            state: Mutex::default(),
            freed: Condvar::new(),
            numbers: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            killed: AtomicU64::new(0),
        }
    }

    pub fn counts(&self) -> Counts {
        Counts {
            workers: self.state.lock().count,
            calls: self.calls.load(Ordering::Relaxed),
            killed: self.killed.load(Ordering::Relaxed),
        }
    }

    /// A number that nobody else has.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Has a worker do something for a query.
    pub fn with<T>(
        &self,
        query: u64,
        source: &ScriptSource,
        goes_on: &dyn Fn() -> bool,
        act: impl FnOnce(&mut Worker, &Patience<'_>) -> Result<T, ScriptFailure>,
    ) -> Result<T, ScriptFailure> {
        let patience = Patience { until: Instant::now() + source.timeout.min(LONGEST), goes_on };
        let mut held = self.acquire(query, &patience)?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let outcome = act(&mut held.worker, &patience);
        let has_answered = matches!(outcome, Ok(_) | Err(ScriptFailure::Failed(_)));
        if !has_answered {
            self.killed.fetch_add(1, Ordering::Relaxed);
        }
        // The kernel ends a worker that has computed for much longer.
        if has_answered && held.worker.busy < LONGEST {
            self.state.lock().idle.push(held);
            self.freed.notify_all();
        } else {
            self.end(held.worker);
        }
        outcome
    }

    fn acquire(&self, query: u64, patience: &Patience<'_>) -> Result<Held, ScriptFailure> {
        let place = self.number();
        loop {
            let mut held = match self.wait(query, place, patience)? {
                Taken::Worker(held) => held,
                Taken::Room => {
                    let worker = Worker::start(&self.launch, patience).inspect_err(|_| self.leave_room())?;
                    return Ok(Held { worker, query: Some(query), since: Instant::now() });
                }
            };
            if held.query == Some(query) {
                return Ok(held);
            }
            match held.worker.forget() {
                Ok(()) => return Ok(Held { worker: held.worker, query: Some(query), since: Instant::now() }),
                // It has ended meanwhile, which is no fault of this query.
                Err(_) => self.end(held.worker),
            }
        }
    }

    /// Waits until a query may have a worker.
    fn wait(&self, query: u64, place: u64, patience: &Patience<'_>) -> Result<Taken, ScriptFailure> {
        let mut state = self.state.lock();
        let taken = loop {
            if let Some(taken) = state.take(query, place, self.most) {
                break Ok(taken);
            }
            if !state.queue.contains(&place) {
                state.queue.push_back(place);
            }
            self.freed.wait_for(&mut state, LOOK);
            if patience.check().is_err() {
                break Err(ScriptFailure::Busy);
            }
        };
        state.queue.retain(|other| *other != place);
        // There may be something for the next one, too.
        self.freed.notify_all();
        taken
    }

    fn end(&self, worker: Worker) {
        // So that there are never more than may be.
        drop(worker);
        self.leave_room();
    }

    fn leave_room(&self) {
        self.state.lock().count -= 1;
        self.freed.notify_all();
    }

    /// A query has ended, and whatever its programs have kept goes.
    pub fn end_query(&self, query: u64) {
        let mut state = self.state.lock();
        let Some(at) = state.idle.iter().position(|held| held.query == Some(query)) else { return };
        let spare = state.idle.iter().filter(|held| held.query.is_none()).count();
        let held = &mut state.idle[at];
        held.query = None;
        if spare < SPARE && held.worker.forget().is_ok() {
            self.freed.notify_all();
            return;
        }
        let held = state.idle.swap_remove(at);
        drop(state);
        self.end(held.worker);
    }
}
