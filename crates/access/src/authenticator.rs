//! Who logs in with which password, without others waiting for it.
//!
//! A password hash that is slow to guess is slow to check, so checks run on threads of their own, [`AT_ONCE`] at a time, while
//! [`WAITING`] others wait; more are told to come again. A password that was right once is remembered as a digest under a random
//! key that only this process has: clients that connect again and again cost one slow check in all. Wrong ones are slow each time.

use crate::password::Password;
use crate::scram::ScramPassword;
use crate::users::{User, Users};
use parking_lot::Mutex;
use rand::random;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

/// Slow checks at one time; each takes a core for some tens of milliseconds, and 19 MiB.
const AT_ONCE: usize = 2;
/// Connections whose slow check is under way or waits.
const WAITING: usize = 256;

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLetIn {
    /// There is no such user, or the password is another one.
    Wrong,
    /// Too many passwords are being checked.
    Busy,
}

/// The users of a node, and who of them somebody is.
#[derive(Debug)]
pub struct Authenticator {
    users: Users,
    key: [u8; 32],
    /// The digests of passwords that were right, by user.
    known: Mutex<HashMap<String, [u8; 32]>>,
    turns: Semaphore,
    waiting: AtomicUsize,
    slow_checks: AtomicUsize,
}

/// One that waits, until dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Authenticator {
    /// Makes the one that all faces of a node share, for its users.
    pub fn new(users: Users) -> Self {
        Self {
            users,
            key: random(),
            known: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
            waiting: AtomicUsize::new(0),
            slow_checks: AtomicUsize::new(0),
        }
    }

    /// Whom it lets in.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The user of that name, if the password is right.
    ///
    /// Cancellation: a check that has begun goes on, and what comes of it is lost.
    ///
    /// # Errors
    /// If it is not, or that cannot be found out now.
    pub async fn log_in(&self, name: &str, password: &[u8]) -> Result<User, NotLetIn> {
        let user = self.users.named(name);
        let hash = match user {
            Some(user) => match &user.password {
                None => return Ok(user.clone()),
                Some(hash) => hash,
            },
            // As long as it would take to find the password of a user wrong, so that time does not tell who exists.
            None => self.users.slowest_password().ok_or(NotLetIn::Wrong)?,
        };
        let is_right = if hash.is_slow() { self.check_slowly(name, hash, password).await? } else { hash.is(password) };
        user.filter(|_| is_right).cloned().ok_or(NotLetIn::Wrong)
    }

    /// The password that somebody has to prove to know who says to be `name`, and that user, if there is such a one with a password
    /// that can be proven. Who does not exist is asked for one that nobody knows, the same each time, so that the question does not
    /// tell who exists.
    pub fn provable(&self, name: &str) -> (ScramPassword, Option<&User>) {
        let user = self.users.named(name).filter(|user| user.scram_password().is_some());
        let known = user.and_then(User::scram_password).cloned();
        let unknown = || {
            let other = self.users.scram_passwords().next();
            let iterations = other.map_or(ScramPassword::ITERATIONS, |other| other.challenge().1);
            ScramPassword::unknown(name, &self.key, iterations)
        };
        (known.unwrap_or_else(unknown), user)
    }

    async fn check_slowly(&self, name: &str, hash: &Password, password: &[u8]) -> Result<bool, NotLetIn> {
        let digest = self.digest(name, password);
        if self.is_known(name, &digest) {
            return Ok(true);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= WAITING {
            return Err(NotLetIn::Busy);
        }
        let _turn = self.turns.acquire().await.map_err(|_| NotLetIn::Busy)?;
        if self.is_known(name, &digest) {
            return Ok(true); // another connection was first
        }
        self.slow_checks.fetch_add(1, Ordering::Relaxed);
        let (hash, password) = (hash.clone(), password.to_vec());
        let checked = tokio::task::spawn_blocking(move || hash.is(&password)).await;
        let is_right = checked.map_err(|_| NotLetIn::Busy)?;
        if is_right {
            self.known.lock().insert(name.into(), digest);
        }
        Ok(is_right)
    }

    fn digest(&self, name: &str, password: &[u8]) -> [u8; 32] {
        let hash = Sha256::new_with_prefix(self.key).chain_update((name.len() as u64).to_le_bytes());
        hash.chain_update(name).chain_update(password).finalize().into()
    }

    fn is_known(&self, name: &str, digest: &[u8; 32]) -> bool {
        self.known.lock().get(name).is_some_and(|known| known.ct_eq(digest).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_user(password: Option<Password>) -> Authenticator {
        Authenticator::new(Users::new(vec![User { password, name: "shop".into(), ..User::everybody() }]))
    }

    fn with_slow_password() -> Authenticator {
        with_user(Password::from_argon2(&Password::hash(b"secret").unwrap()))
    }

    #[tokio::test]
    async fn a_password_that_was_right_is_checked_slowly_once() {
        let checks = with_slow_password();
        for _ in 0..100 {
            assert_eq!(checks.log_in("shop", b"secret").await.unwrap().name, "shop");
        }
        assert_eq!(checks.slow_checks.load(Ordering::Relaxed), 1);
        assert_eq!(checks.log_in("shop", b"wrong").await, Err(NotLetIn::Wrong));
        assert_eq!(checks.log_in("nobody", b"secret").await, Err(NotLetIn::Wrong));
        assert_eq!(checks.slow_checks.load(Ordering::Relaxed), 3, "nor does time tell who exists");
    }

    #[tokio::test]
    async fn a_storm_of_wrong_passwords_is_bounded_and_those_who_are_known_pass() {
        let checks = with_slow_password();
        checks.log_in("shop", b"secret").await.unwrap();
        // Nobody's turn comes.
        let turns = checks.turns.acquire_many(AT_ONCE as u32).await.unwrap();
        let wrong: Vec<Vec<u8>> = (0..WAITING + 5).map(|number| number.to_string().into_bytes()).collect();
        let mut waiting = Vec::new();
        let mut refused = 0;
        for password in &wrong {
            let mut attempt = Box::pin(checks.log_in("shop", password));
            match futures_now(&mut attempt).await {
                None => waiting.push(attempt),
                Some(outcome) => {
                    assert_eq!(outcome, Err(NotLetIn::Busy));
                    refused += 1;
                }
            }
        }
        assert_eq!((waiting.len(), refused), (WAITING, 5));
        assert!(checks.log_in("shop", b"secret").await.is_ok());
        drop(waiting);
        drop(turns);
        assert_eq!(checks.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_asked_does_not_tell_who_exists() {
        let users = with_user(Some(Password::Scram(ScramPassword::new(b"secret", 10))));
        let (asked, user) = users.provable("shop");
        assert!(asked.is(b"secret") && user.is_some());
        let (asked, user) = users.provable("nobody");
        assert!(user.is_none() && asked.challenge() == users.provable("nobody").0.challenge());
        assert_eq!(asked.challenge().1, 10, "it takes as long as for those who exist");
        // A password that cannot be proven to be known is none here.
        assert!(with_slow_password().provable("shop").1.is_none());
    }

    /// What a future comes to without waiting.
    async fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
                std::task::Poll::Ready(outcome) => Some(outcome),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
