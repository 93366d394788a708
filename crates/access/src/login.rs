use crate::authenticator::Authenticator;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use tessera_types::Rights;

/// Somebody who has logged in. What this one may do is what it may do now, not what it might when it came.
pub struct Login {
    authenticator: Arc<Authenticator>,
    name: String,
    /// What the user may do, and the number of the change of users at which that was looked up.
    known: Mutex<(u64, Arc<Rights>)>,
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Login").field(&self.name).finish()
    }
}

impl Login {
    /// The login of the user of this name, who has shown who it is.
    pub fn new(authenticator: Arc<Authenticator>, name: String) -> Self {
        let known = Mutex::new((authenticator.changes(), Self::find(&authenticator, &name)));
        Self { authenticator, name, known }
    }

    /// The rights of the user; no right if there is no such user any more.
    fn find(authenticator: &Authenticator, name: &str) -> Arc<Rights> {
        Arc::new(authenticator.named(name).map(|user| user.rights).unwrap_or_default())
    }

    /// The name of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the user may do now.
    pub fn rights(&self) -> Arc<Rights> {
        let changes = self.authenticator.changes();
        let mut known = self.known.lock();
        if known.0 != changes {
            *known = (changes, Self::find(&self.authenticator, &self.name));
        }
        known.1.clone()
    }
}
