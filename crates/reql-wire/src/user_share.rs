//! What one user may take of a node, through all connections together, so that the others have their part.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tessera_reql::{ErrorKind, Failure, Stage};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a user may have of a node.
#[derive(Clone, Copy, Debug)]
pub struct UserLimits {
    /// Queries that are under way, those that wait for a thread included; zero is no limit.
    pub queries: usize,
    /// The share of the threads on which queries block, in hundredths.
    pub threads_percent: usize,
}

/// The users who have connections.
pub(crate) struct Users {
    limits: UserLimits,
    /// The threads of each.
    threads: usize,
    /// Queries of each that may be interrupted while they compute.
    interrupted: usize,
    known: Mutex<BTreeMap<String, Weak<UserShare>>>,
    last_number: AtomicU64,
    refused: Arc<AtomicU64>,
}

/// What a user has, for as long as one of the connections is there.
pub(crate) struct UserShare {
    pub(crate) name: String,
    /// No other user, and no earlier share of the same user, has this number.
    pub(crate) number: u64,
    limit: usize,
    /// One for each query that may be under way.
    queries: Arc<Semaphore>,
    refused: Arc<AtomicU64>,
    /// One for each query that may have a thread.
    pub(crate) threads: Arc<Semaphore>,
    /// One for each query that may be interrupted.
    pub(crate) interrupted: Arc<Semaphore>,
}

impl Users {
    /// Of a node on which so many queries have a thread, and so many of each user may be interrupted.
    pub(crate) fn new(limits: UserLimits, threads: usize, interrupted: usize) -> Self {
        let threads = (threads * limits.threads_percent / 100).max(1);
        let (known, last_number, refused) = (Mutex::default(), AtomicU64::new(0), Arc::default());
        Self { limits, threads, interrupted, known, last_number, refused }
    }

    /// The share of the user of this name.
    pub(crate) fn share(&self, name: &str) -> Arc<UserShare> {
        let mut known = self.known.lock();
        if let Some(share) = known.get(name).and_then(Weak::upgrade) {
            return share;
        }
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let limit = match self.limits.queries {
            0 => Semaphore::MAX_PERMITS,
            limit => limit,
        };
        let share = Arc::new(UserShare {
            name: name.into(),
            number: self.last_number.fetch_add(1, Ordering::Relaxed) + 1,
            limit,
            queries: semaphore(limit),
            refused: self.refused.clone(),
            threads: semaphore(self.threads),
            interrupted: semaphore(self.interrupted),
        });
        known.retain(|_, share| share.strong_count() > 0);
        known.insert(name.into(), Arc::downgrade(&share));
        share
    }

    /// Queries so far that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl UserShare {
    /// Takes a place among the queries of the user. A query whose answer nobody waits for waits for it, since nobody would learn that it
    /// was not carried out.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) async fn place(&self, is_noreply: bool) -> Result<OwnedSemaphorePermit, Failure> {
        if is_noreply {
            return Ok(permit(&self.queries).await);
        }
        self.queries.clone().try_acquire_owned().map_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let message = format!(
                "The user `{}` has {} queries under way on this node, which is the limit (`reql.user_queries`); this one was not \
                 begun. Try again when some of them have ended.",
                self.name, self.limit
            );
            Failure { stage: Stage::Run, kind: ErrorKind::ResourceLimit, message, backtrace: Vec::new() }
        })
    }
}

/// The permit of a semaphore that is never closed.
pub(crate) async fn permit(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    match semaphore.clone().acquire_owned().await {
        Ok(permit) => permit,
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    fn users(queries: usize, threads_percent: usize) -> Users {
        Users::new(UserLimits { queries, threads_percent }, 50, 8)
    }

    #[tokio::test]
    async fn a_user_has_one_share_for_all_connections() {
        let users = users(2, 50);
        let [one, other] = [(); 2].map(|()| users.share("ann"));
        assert!(Arc::ptr_eq(&one, &other));
        let bob = users.share("bob");
        assert_ne!(one.number, bob.number);
        let places = [one.place(false).await.unwrap(), other.place(true).await.unwrap()];
        let refusal = other.place(false).await.unwrap_err();
        assert_eq!((refusal.kind, users.refused()), (ErrorKind::ResourceLimit, 1));
        assert!(refusal.message.starts_with("The user `ann` has 2 queries under way"), "{}", refusal.message);
        assert!(bob.place(false).await.is_ok());
        // One whose answer nobody waits for is not lost.
        {
            let mut waits = std::pin::pin!(one.place(true));
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(places);
            drop(waits.await.unwrap());
        }
        assert!(one.place(false).await.is_ok());
        drop((one, other));
        // Those who have left are forgotten when somebody comes.
        users.share("cy");
        assert_eq!(users.known.lock().keys().collect::<Vec<_>>(), ["bob", "cy"]);
    }

    #[test]
    fn shares_are_as_large_as_is_set() {
        for (queries, percent, (expected, threads)) in
            [(7, 50, (7, 25)), (0, 100, (Semaphore::MAX_PERMITS, 50)), (1, 1, (1, 1))]
        {
            let share = users(queries, percent).share("ann");
            let permits = [&share.queries, &share.threads, &share.interrupted].map(|has| has.available_permits());
            assert_eq!(permits, [expected, threads, 8]);
        }
    }
}
