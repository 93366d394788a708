//! Who logs in with which password, without others waiting for it.
//!
//! A password hash that is slow to guess is slow to check, so checks run on threads of their own, [`AT_ONCE`] at a time, while
//! [`WAITING`] others wait; more are told to come again. A password that was right once is remembered as a digest under a random
//! key that only this process has: clients that connect again and again cost one slow check in all. Wrong ones are slow each time.

use crate::directory::Directory;
use crate::password::Password;
use crate::scram::ScramPassword;
use crate::users::{User, Users};
use parking_lot::Mutex;
use rand::random;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

/// Slow checks at one time; each takes a core for some tens of milliseconds, and 19 MiB.
const AT_ONCE: usize = 2;
/// Connections whose slow check is under way or waits.
const WAITING: usize = 256;
/// How often the empty password is hashed, which protects nothing.
const EMPTY_ITERATIONS: u32 = 4096;

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLetIn {
    /// There is no such user, or the password is another one.
    Wrong,
    /// Too many passwords are being checked.
    Busy,
}

/// The users of a node, and who of them somebody is.
pub struct Authenticator {
    users: Users,
    directory: Option<Box<dyn Directory>>,
    key: [u8; 32],
    /// The digests of passwords that were right, by user.
    known: Mutex<HashMap<String, [u8; 32]>>,
    turns: Semaphore,
    waiting: AtomicUsize,
    slow_checks: AtomicUsize,
    /// When the node last began to learn what others have changed.
    learned: tokio::sync::Mutex<Option<Instant>>,
    empty: OnceLock<ScramPassword>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

/// One that waits, until dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Authenticator {
    /// Makes the one that all faces of a node share, for the users of its configuration.
    pub fn new(users: Users) -> Self {
        Self {
            users,
            directory: None,
            key: random(),
            known: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
            waiting: AtomicUsize::new(0),
            slow_checks: AtomicUsize::new(0),
            learned: tokio::sync::Mutex::default(),
            empty: OnceLock::new(),
        }
    }

    /// The same for the users of the cluster as well.
    #[must_use]
    pub fn with_directory(self, directory: impl Directory + 'static) -> Self {
        Self { directory: Some(Box::new(directory)), ..self }
    }

    /// Whether everybody may do everything: the configuration names no user, and `admin` has no password.
    pub fn is_open(&self) -> bool {
        self.users.is_empty() && !self.is_closed_by_admin()
    }

    /// Whether the cluster's `admin` has a password.
    pub fn is_closed_by_admin(&self) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.is_closed())
    }

    /// Another number whenever a user has been changed.
    pub fn changes(&self) -> u64 {
        self.directory.as_ref().map_or(0, |directory| directory.changes())
    }

    /// Whether the user stands in the configuration of this node, and is changed there.
    pub fn is_configured(&self, name: &str) -> bool {
        self.users.named(name).is_some()
    }

    /// The user of that name.
    pub fn named(&self, name: &str) -> Option<User> {
        if let Some(user) = self.users.named(name) {
            return Some(user.clone());
        }
        let found = self.directory.as_ref().and_then(|directory| directory.user(name));
        let everybody = || User { name: name.into(), ..User::everybody() };
        match found {
            // The users of the configuration would protect nothing.
            Some(user) if user.password.is_none() && name == User::ADMIN && !self.is_open() => None,
            None if [User::DEFAULT, User::ADMIN].contains(&name) && self.is_open() => Some(everybody()),
            found => found,
        }
    }

    /// The user that a connection is before it logs in: `default`, if that one has no password.
    pub fn anonymous(&self) -> Option<User> {
        self.named(User::DEFAULT).filter(|user| user.password.is_none())
    }

    /// Whether a password alone, without a name, can be the right one.
    pub fn default_has_password(&self) -> bool {
        self.named(User::DEFAULT).is_some_and(|user| user.password.is_some())
    }

    /// The names of all users: those of the configuration first, then those of the cluster.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.users.all().iter().map(|user| user.name.clone()).collect();
        let of_cluster = self.directory.as_ref().map(|directory| directory.names()).unwrap_or_default();
        names.extend(of_cluster.into_iter().filter(|name| !self.is_configured(name)));
        names
    }

    /// Whether no user can [prove](Self::provable) to know its password.
    pub fn nobody_can_prove(&self) -> bool {
        let can_prove = |name: &str| self.provable(name).1.is_some();
        !self.is_open()
            && self.users.scram_password().is_none()
            && !can_prove(User::ADMIN)
            && !self.names().iter().any(|name| can_prove(name))
    }

    /// The user of that name, if the password is right. If it is wrong as far as this node knows, it learns whether the user has just
    /// been changed on another node.
    ///
    /// Cancellation: a check that has begun goes on, and what comes of it is lost.
    ///
    /// # Errors
    /// If it is not, or that cannot be found out now.
    pub async fn log_in(&self, name: &str, password: &[u8]) -> Result<User, NotLetIn> {
        let before = self.changes();
        let outcome = self.try_to_log_in(name, password).await;
        if outcome != Err(NotLetIn::Wrong) || self.is_configured(name) {
            return outcome;
        }
        self.learn().await;
        if self.changes() == before { outcome } else { self.try_to_log_in(name, password).await }
    }

    async fn try_to_log_in(&self, name: &str, password: &[u8]) -> Result<User, NotLetIn> {
        let user = self.named(name);
        let decoy;
        let hash = match user.as_ref().map(|user| &user.password) {
            Some(None) => return user.ok_or(NotLetIn::Wrong),
            Some(Some(hash)) => hash,
            // As long as it would take to find the password of a user wrong, so that time does not tell who exists.
            None => {
                decoy = self.decoy(name).ok_or(NotLetIn::Wrong)?;
                &decoy
            }
        };
        let is_right = if hash.is_slow() { self.check_slowly(name, hash, password).await? } else { hash.is(password) };
        user.filter(|_| is_right).ok_or(NotLetIn::Wrong)
    }

    /// A password for a user who does not exist, if users have passwords at all.
    fn decoy(&self, name: &str) -> Option<Password> {
        let unknown = || Password::Scram(ScramPassword::unknown(name, &self.key, ScramPassword::ITERATIONS));
        let of_cluster = self.directory.as_ref().filter(|directory| directory.changes() > 0);
        self.users.slowest_password().cloned().or_else(|| of_cluster.map(|_| unknown()))
    }

    /// Waits until this node knows the users that other nodes have changed before this was called. Many who ask at one time ask the other
    /// nodes once.
    pub async fn learn(&self) {
        let Some(directory) = &self.directory else { return };
        let asked = Instant::now();
        let mut learned = self.learned.lock().await;
        if learned.is_none_or(|began| began < asked) {
            let began = Instant::now();
            directory.learn().await;
            *learned = Some(began);
        }
    }

    /// The password that somebody has to prove to know who says to be `name`, and that user, if there is such a one with a password
    /// that can be proven. Who does not exist is asked for one that nobody knows, the same each time, so that the question does not
    /// tell who exists. A user of the cluster who has none proves to know the empty password.
    pub fn provable(&self, name: &str) -> (ScramPassword, Option<User>) {
        let user = self.named(name);
        let known = match user.as_ref().map(|user| (&user.password, user.scram_password())) {
            Some((_, Some(password))) => Some(password.clone()),
            Some((None, _)) if !self.is_configured(name) => {
                Some(self.empty.get_or_init(|| ScramPassword::new(b"", EMPTY_ITERATIONS)).clone())
            }
            _ => None,
        };
        match known {
            Some(password) => (password, user),
            None => {
                let other = self.users.scram_password();
                let iterations = other.map_or(ScramPassword::ITERATIONS, |other| other.challenge().1);
                (ScramPassword::unknown(name, &self.key, iterations), None)
            }
        }
    }

    async fn check_slowly(&self, name: &str, hash: &Password, password: &[u8]) -> Result<bool, NotLetIn> {
        let digest = self.digest(name, hash, password);
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

    /// The digest by which a right password is remembered, for as long as the user has this hash.
    fn digest(&self, name: &str, hash: &Password, password: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new_with_prefix(self.key);
        for text in [name, &hash.to_string()] {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        digest.chain_update(password).finalize().into()
    }

    fn is_known(&self, name: &str, digest: &[u8; 32]) -> bool {
        self.known.lock().get(name).is_some_and(|known| known.ct_eq(digest).into())
    }
}

#[cfg(test)]
mod tests;
