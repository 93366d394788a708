//! Connections that have not said yet who they are.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Handshakes under way: those of nodes, and those of clients. They run side by side, so that a slow or silent one keeps nobody waiting;
/// there is a limit to how long one takes and to how many there are. When there are too many the oldest is given up, since most
/// likely it is one of those that never end: whoever comes now gets in however many of them there are.
pub struct Handshakes {
    most: usize,
    patience: Duration,
    under_way: Mutex<VecDeque<Arc<Notify>>>,
}

/// One that is under way, until dropped.
struct UnderWay<'a> {
    handshakes: &'a Handshakes,
    give_up: Arc<Notify>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.handshakes.under_way.lock().retain(|other| !Arc::ptr_eq(other, &self.give_up));
    }
}

impl Handshakes {
    /// At most so many at a time, each for at most so long.
    pub fn new(most: usize, patience: Duration) -> Self {
        Self { most, patience, under_way: Mutex::default() }
    }

    fn begin(&self) -> UnderWay<'_> {
        let give_up = Arc::new(Notify::new());
        let mut under_way = self.under_way.lock();
        while under_way.len() >= self.most
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.notify_one();
        }
        under_way.push_back(give_up.clone());
        UnderWay { handshakes: self, give_up }
    }

    /// What comes of a handshake.
    ///
    /// Cancellation: the handshake is given up.
    ///
    /// # Errors
    /// Its own; [`io::ErrorKind::TimedOut`] if it takes too long; [`io::ErrorKind::QuotaExceeded`] if it had to make room.
    pub async fn run<T>(&self, handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let under_way = self.begin();
        tokio::select! {
            outcome = tokio::time::timeout(self.patience, handshake) => {
                outcome.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long")))
            }
            () = under_way.give_up.notified() => {
                Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many handshakes are under way"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn silent_clients_keep_nobody_waiting() {
        let handshakes = Arc::new(Handshakes::new(10, Duration::from_secs(600)));
        let silent: Vec<_> = (0..30)
            .map(|_| {
                let handshakes = handshakes.clone();
                tokio::spawn(async move { handshakes.run(std::future::pending::<io::Result<()>>()).await })
            })
            .collect();
        while handshakes.under_way.lock().len() < 10 || silent.iter().filter(|task| task.is_finished()).count() < 20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(handshakes.run(async { Ok(7) }).await.unwrap(), 7);
        for (at, task) in silent.into_iter().enumerate() {
            // The oldest made room; the last ones are still there.
            if at <= 20 {
                assert_eq!(task.await.unwrap().unwrap_err().kind(), io::ErrorKind::QuotaExceeded, "{at}");
            } else {
                assert!(!task.is_finished(), "{at}");
                task.abort();
            }
        }
    }

    #[tokio::test]
    async fn a_handshake_that_takes_too_long_ends() {
        let handshakes = Handshakes::new(10, Duration::from_millis(10));
        let outcome = handshakes.run(std::future::pending::<io::Result<()>>()).await;
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(handshakes.under_way.lock().is_empty());
    }
}
