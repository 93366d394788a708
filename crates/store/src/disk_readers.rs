//! Threads that read what the disk must be waited for.
//!
//! A worker's thread has the connections of a core and the loop of a share of the partitions: heartbeats, leases and everybody
//! else wait while it does. So it reads [from the caches](tessera_engine::from_caches) only, and what these do not have is read here, by
//! up to `rocksdb.read_threads` threads, so that as many requests are with the disk at one time.
//!
//! **A read may have parts**, which are made beside one another: the GETs of a pipeline. Threads take the parts of different reads
//! in turns, so a long pipeline does not hold up those who ask for one record.
//!
//! **Threads are started when there is work for them**, and stay: a node whose reads are all answered from memory has none. If the
//! system has none to give and none is there, whoever asks makes the read itself, and its connections wait.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tessera_engine::from_caches;
use tessera_types::RequestError;
use tokio::sync::Notify;

/// Reads that may wait for a thread. A connection waits for each of its own or has a limit, so this is for many connections.
const QUEUED: usize = 100_000;

/// What the threads do.
trait DiskRead: Send + Sync {
    /// Makes one part. Each is asked for once, in order.
    fn make(&self, part: usize);

    /// Nobody wants it any more: parts that are asked for from now on are over at once.
    fn give_up(&self);
}

/// A read of which not all parts have been begun.
struct Queued {
    read: Arc<dyn DiskRead>,
    next: usize,
    parts: usize,
}

#[derive(Default)]
struct Queue {
    reads: VecDeque<Queued>,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
    /// Whether one of those was told, and has not come yet. It tells the next one if there is more to do.
    is_told: bool,
    is_closed: bool,
}

/// The threads of a node.
pub struct DiskReaders(Arc<Shared>);

struct Shared {
    /// Threads at most.
    most: usize,
    queue: Mutex<Queue>,
    /// Told when there is work or the queue was closed.
    changed: Condvar,
    /// Told when the last thread has ended.
    ended: Condvar,
    /// Parts so far.
    made: AtomicU64,
}

impl DiskReaders {
    /// A pool of at most `most` threads, and at least one.
    pub fn new(most: usize) -> Self {
        let (queue, changed, ended, made) = Default::default();
        Self(Arc::new(Shared { most: most.max(1), queue, changed, ended, made }))
    }

    /// Has a read made that tells its outcome itself.
    ///
    /// # Errors
    /// As [`Self::submit`]; then it is not made.
    pub fn begin(&self, read: impl FnOnce() + Send + 'static) -> Result<(), RequestError> {
        self.submit(Arc::new(Detached(Mutex::new(Some(read)))), 1)
    }

    /// Makes a read here if the caches have all that it needs, and else on a thread that may wait for the disk.
    ///
    /// Cancellation: a read that was not begun is not made.
    ///
    /// # Errors
    /// Those of `read`, and of [`Self::read_from_disk`].
    pub async fn read<T, E>(&self, read: impl Fn() -> Result<T, E> + Send + Sync + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<RequestError> + PartialEq + Send + 'static,
    {
        match from_caches(&read) {
            Err(error) if error == RequestError::WouldWait.into() => self.read_from_disk(read).await?,
            read => read,
        }
    }

    /// Makes a read on a thread that may wait for the disk.
    ///
    /// Cancellation: a read that was not begun is not made.
    ///
    /// # Errors
    /// [`RequestError::Busy`] if too many wait, [`RequestError::ShuttingDown`], or [`RequestError::Engine`] if it has panicked.
    pub async fn read_from_disk<T: Send + 'static>(
        &self,
        read: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<T, RequestError> {
        let mut values = self.read_parts(1, move |_| read()).await?;
        values.pop().ok_or_else(ended)
    }

    /// Makes the parts of a read on threads that may wait for the disk: parts are begun in order, and made beside one another.
    /// Returns what each of them came to.
    ///
    /// Cancellation: parts that were not begun are not made.
    ///
    /// # Errors
    /// As [`Self::read_from_disk`].
    pub async fn read_parts<T: Send + 'static>(
        &self,
        parts: usize,
        read: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Result<Vec<T>, RequestError> {
        if parts == 0 {
            return Ok(Vec::new());
        }
        let progress = Progress { values: std::iter::repeat_with(|| None).take(parts).collect(), missing: parts };
        let (progress, finished, is_given_up) = (Mutex::new(progress), Notify::new(), AtomicBool::new(false));
        let read = Arc::new(Parts { read, progress, finished, is_given_up });
        self.submit(read.clone(), parts)?;
        let awaited = Awaited(&read.is_given_up);
        read.finished.notified().await;
        drop(awaited);
        let values = std::mem::take(&mut read.progress.lock().values);
        values.into_iter().collect::<Option<Vec<_>>>().ok_or_else(ended)
    }

    /// How many reads were made, or parts of them.
    pub fn made(&self) -> u64 {
        self.0.made.load(Ordering::Relaxed)
    }

    /// Has a read made.
    ///
    /// # Errors
    /// [`RequestError::Busy`] if too many wait, [`RequestError::ShuttingDown`].
    fn submit(&self, read: Arc<dyn DiskRead>, parts: usize) -> Result<(), RequestError> {
        let mut queue = self.0.queue.lock();
        if queue.is_closed {
            return Err(RequestError::ShuttingDown);
        }
        if queue.reads.len() >= QUEUED {
            return Err(RequestError::Busy);
        }
        queue.reads.push_back(Queued { read, next: 0, parts });
        let is_there = self.0.find_thread(&mut queue);
        if queue.threads == 0 {
            queue = self.0.work_off(queue);
        }
        drop(queue);
        if is_there {
            self.0.changed.notify_one();
        }
        Ok(())
    }

    /// Makes no more reads, and waits until those that were begun are over.
    pub fn close(&self) {
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        let given_up = std::mem::take(&mut queue.reads);
        self.0.changed.notify_all();
        MutexGuard::unlocked(&mut queue, || {
            for Queued { read, next, parts } in given_up {
                read.give_up();
                (next..parts).for_each(|part| read.make(part));
            }
        });
        while queue.threads > 0 {
            self.0.ended.wait(&mut queue);
        }
    }
}

impl Shared {
    /// Finds another thread for what is queued. Returns whether one is there, which must be told once the queue is let go; if not,
    /// one is started, if there may be more.
    fn find_thread(self: &Arc<Self>, queue: &mut Queue) -> bool {
        if queue.idle > 0 {
            return !std::mem::replace(&mut queue.is_told, true);
        }
        if queue.threads < self.most {
            let shared = self.clone();
            match std::thread::Builder::new().name("disk-read".into()).spawn(move || shared.run()) {
                Ok(_) => queue.threads += 1,
                Err(error) => tracing::debug!(%error, "no thread can be started for reads; those there are go on"),
            }
        }
        false
    }

    /// Makes all that is queued.
    fn work_off<'a>(self: &'a Arc<Self>, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        while let Some(Queued { read, next, parts }) = queue.reads.pop_front() {
            if next + 1 < parts {
                queue.reads.push_back(Queued { read: read.clone(), next: next + 1, parts });
            }
            let is_there = !queue.reads.is_empty() && self.find_thread(&mut queue);
            MutexGuard::unlocked(&mut queue, || {
                if is_there {
                    self.changed.notify_one();
                }
                self.made.fetch_add(1, Ordering::Relaxed);
                // Whoever waits for it is told that it failed; the panic itself was printed.
                let _ = catch_unwind(AssertUnwindSafe(|| read.make(next)));
                drop(read);
            });
        }
        queue
    }

    fn run(self: Arc<Self>) {
        let mut queue = self.queue.lock();
        while !queue.is_closed {
            queue = self.work_off(queue);
            if !queue.is_closed {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
                queue.is_told = false;
            }
        }
        queue.threads -= 1;
        self.ended.notify_all();
    }
}

/// Parts of which each comes to a value.
struct Parts<T, F> {
    read: F,
    progress: Mutex<Progress<T>>,
    /// Told once, when no part is missing any more.
    finished: Notify,
    /// Nobody waits any more.
    is_given_up: AtomicBool,
}

struct Progress<T> {
    /// In order; `None` for those that are not over or have panicked.
    values: Vec<Option<T>>,
    missing: usize,
}

impl<T: Send, F: Fn(usize) -> T + Send + Sync> DiskRead for Parts<T, F> {
    fn make(&self, part: usize) {
        let mut over = Over { parts: self, part, value: None };
        if !self.is_given_up.load(Ordering::Relaxed) {
            over.value = Some((self.read)(part));
        }
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// A part that is over when this is dropped, whatever became of it.
struct Over<'a, T, F> {
    parts: &'a Parts<T, F>,
    part: usize,
    value: Option<T>,
}

impl<T, F> Drop for Over<'_, T, F> {
    fn drop(&mut self) {
        let progress = &mut *self.parts.progress.lock();
        progress.values[self.part] = self.value.take();
        progress.missing -= 1;
        if progress.missing == 0 {
            self.parts.finished.notify_one();
        }
    }
}

/// Gives a read up when nobody waits for it any more.
struct Awaited<'a>(&'a AtomicBool);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A read that tells its outcome itself.
struct Detached<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send> DiskRead for Detached<F> {
    fn make(&self, _part: usize) {
        let read = self.0.lock().take();
        if let Some(read) = read {
            read();
        }
    }

    fn give_up(&self) {
        let _ = self.0.lock().take();
    }
}

fn ended() -> RequestError {
    RequestError::Engine("a read ended without an outcome".into())
}

#[cfg(test)]
mod tests;
