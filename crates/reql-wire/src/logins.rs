//! Who may come in, of the users of a node and of its cluster, and what they may do by now.

use std::sync::Arc;
use tessera_access::{Authenticator, Login, NotLetIn, ScramPassword, User};
use tessera_reql::Requester;
use tessera_types::Rights;

/// Why somebody does not come in: a number and a text, as drivers expect them.
pub(crate) type Refused = (u32, &'static str);

pub(crate) struct Logins {
    authenticator: Arc<Authenticator>,
}

/// Who asks the queries of a connection.
pub(crate) struct Asker(Login);

impl Requester for Asker {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn rights(&self) -> Arc<Rights> {
        self.0.rights()
    }
}

impl Logins {
    const CLOSED: Refused = (
        20,
        "This node has users, and none with a password that ReQL clients can give: make one with `tessera user create`, or set the \
         password_hash of a user under redis.users to what `tessera hash-password --scram` prints.",
    );
    const WRONG_KEY: &str = "Incorrect authorization key.";
    const BUSY: &str = "Too many passwords are being checked at this moment.";

    pub(crate) fn new(authenticator: Arc<Authenticator>) -> Self {
        Self { authenticator }
    }

    /// Why nobody can come in.
    pub(crate) fn closed(&self) -> Option<Refused> {
        self.authenticator.nobody_can_prove().then_some(Self::CLOSED)
    }

    /// The password that somebody has to prove to know, and whether there is such a user. One that another node has just made is known.
    pub(crate) async fn provable(&self, name: &str) -> (ScramPassword, bool) {
        let (password, user) = self.authenticator.provable(name);
        if user.is_some() || self.authenticator.is_configured(name) {
            return (password, user.is_some());
        }
        self.authenticator.learn().await;
        let (password, user) = self.authenticator.provable(name);
        (password, user.is_some())
    }

    /// Somebody who has come in.
    pub(crate) fn asker(&self, name: String) -> Asker {
        Asker(Login::new(self.authenticator.clone(), name))
    }

    /// Lets somebody in who has the key of an old handshake: the password of `admin`. Returns the name of that user.
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn check_key(&self, key: &[u8]) -> Result<String, &'static str> {
        if let Some((_, reason)) = self.closed() {
            return Err(reason);
        }
        let admin = self.authenticator.provable(User::ADMIN).1.ok_or(Self::WRONG_KEY)?;
        let outcome = match admin.password {
            None if !key.is_empty() => Err(NotLetIn::Wrong),
            _ => self.authenticator.log_in(User::ADMIN, key).await,
        };
        match outcome {
            Ok(admin) => Ok(admin.name),
            Err(NotLetIn::Wrong) => Err(Self::WRONG_KEY),
            Err(NotLetIn::Busy) => Err(Self::BUSY),
        }
    }
}
