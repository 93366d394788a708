//! Who may come in, of the users of a node.

use std::sync::Arc;
use tessera_access::{Authenticator, NotLetIn, Password, Rights, ScramPassword, User, Users};

/// How often the empty password of `admin` is hashed, which protects nothing.
const ITERATIONS: u32 = 4096;
/// The user whose password the key of the old handshakes is.
const ADMIN: &str = "admin";

/// Why somebody does not come in: a number and a text, as drivers expect them.
pub(crate) type Refused = (u32, &'static str);

pub(crate) struct Logins {
    authenticator: Arc<Authenticator>,
}

impl Logins {
    const LIMITED: Refused = (
        20,
        "This user may not read, write and administer all tables (`access` and `tables` under redis.users). ReQL knows no such \
         limits yet, so only users without them come in.",
    );
    const CLOSED: Refused = (
        20,
        "This node has users, and none with a password that ReQL clients can give: set the password_hash of a user under \
         redis.users to what `tessera hash-password --scram` prints.",
    );
    const WRONG_KEY: &str = "Incorrect authorization key.";
    const BUSY: &str = "Too many passwords are being checked at this moment.";

    /// Where everybody may do everything, they come as `admin` without a password.
    pub(crate) fn new(authenticator: Arc<Authenticator>) -> Self {
        if !authenticator.users().is_open() {
            return Self { authenticator };
        }
        let password = Some(Password::Scram(ScramPassword::new(b"", ITERATIONS)));
        let admin = User { name: ADMIN.into(), password, ..User::everybody() };
        Self { authenticator: Arc::new(Authenticator::new(Users::new(vec![admin]))) }
    }

    /// Why nobody can come in.
    pub(crate) fn closed(&self) -> Option<Refused> {
        let mut users = self.authenticator.users().all().iter();
        users.all(|user| user.scram_password().is_none()).then_some(Self::CLOSED)
    }

    /// The password that somebody has to prove to know, and whether there is such a user.
    pub(crate) fn provable(&self, name: &str) -> (ScramPassword, Option<Rights>) {
        let (password, user) = self.authenticator.provable(name);
        (password, user.map(|user| user.rights.clone()))
    }

    /// Why somebody does not come in who has these rights.
    pub(crate) fn limited(rights: &Rights) -> Option<Refused> {
        (!rights.are_all()).then_some(Self::LIMITED)
    }

    /// Lets somebody in who has the key of an old handshake.
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn check_key(&self, key: &[u8]) -> Result<(), &'static str> {
        if let Some((_, reason)) = self.closed() {
            return Err(reason);
        }
        let admin = self.authenticator.users().named(ADMIN);
        if admin.is_none_or(|admin| admin.scram_password().is_none() || !admin.rights.are_all()) {
            return Err(Self::WRONG_KEY);
        }
        match self.authenticator.log_in(ADMIN, key).await {
            Ok(_) => Ok(()),
            Err(NotLetIn::Wrong) => Err(Self::WRONG_KEY),
            Err(NotLetIn::Busy) => Err(Self::BUSY),
        }
    }
}
