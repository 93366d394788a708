//! Who may come in.

use crate::handshake::Refused;
use std::collections::BTreeMap;
use tessera_face::ScramPassword;
use tokio::sync::Semaphore;

/// How often the empty password of `admin` is hashed, which protects nothing.
const ITERATIONS: u32 = 4096;
/// The user whose password the key of the old handshakes is.
const ADMIN: &str = "admin";

/// A user with a password that drivers can give.
#[derive(Clone, Debug)]
pub struct ReqlUser {
    pub name: String,
    pub password: ScramPassword,
    /// Whether the user may read, write and administer all tables. Others cannot come in yet.
    pub may_do_everything: bool,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) password: ScramPassword,
    pub(crate) may_do_everything: bool,
}

pub(crate) struct Users {
    /// Whether `admin` needs no password.
    is_open: bool,
    by_name: BTreeMap<String, Entry>,
    /// For what users are asked who do not exist.
    key: [u8; 32],
    /// One check of a key at a time: each takes a while.
    turn: Semaphore,
}

impl Users {
    pub(crate) const LIMITED: Refused = (
        20,
        "This user may not read, write and administer all tables (`access` and `tables` under redis.users). ReQL knows no such \
         limits yet, so only users without them come in.",
    );
    const CLOSED: Refused = (
        20,
        "This node has users, and none with a password that ReQL clients can give: set the password_hash of a user under \
         redis.users to what `tessera hash-password --scram` prints.",
    );

    /// `None` lets everybody in, as `admin` without a password.
    pub(crate) fn new(users: Option<Vec<ReqlUser>>) -> Self {
        let is_open = users.is_none();
        let admin = || {
            let password = ScramPassword::new(b"", ITERATIONS);
            vec![ReqlUser { name: ADMIN.into(), password, may_do_everything: true }]
        };
        let mut by_name = BTreeMap::new();
        for user in users.unwrap_or_else(admin) {
            let entry = Entry { password: user.password, may_do_everything: user.may_do_everything };
            // The first one of a name is who counts for the other faces.
            by_name.entry(user.name).or_insert(entry);
        }
        Self { is_open, by_name, key: rand::random(), turn: Semaphore::new(1) }
    }

    /// Why nobody can come in.
    pub(crate) fn closed(&self) -> Option<Refused> {
        self.by_name.is_empty().then_some(Self::CLOSED)
    }

    /// The user of that name, or what looks like one from outside, and whether there is one.
    pub(crate) fn find(&self, name: &str) -> (Entry, bool) {
        match self.by_name.get(name) {
            Some(entry) => (entry.clone(), true),
            None => {
                let iterations = self.by_name.values().next().map_or(ITERATIONS, |entry| entry.password.challenge().1);
                let password = ScramPassword::unknown(name, &self.key, iterations);
                (Entry { password, may_do_everything: false }, false)
            }
        }
    }

    /// Whether the key of an old handshake is right.
    pub(crate) async fn is_key(&self, key: Vec<u8>) -> bool {
        if self.is_open {
            return key.is_empty();
        }
        let Some(entry) = self.by_name.get(ADMIN).filter(|entry| entry.may_do_everything) else { return false };
        let password = entry.password.clone();
        let Ok(_turn) = self.turn.acquire().await else { return false };
        tokio::task::spawn_blocking(move || password.is(&key)).await.unwrap_or(false)
    }
}
