//! The users of the cluster, as those see them who let clients in.

use std::pin::Pin;
use tessera_access::{Directory, Password, User};
use tessera_store::Store;

/// What the catalog says.
pub struct ClusterUsers(pub Store);

impl Directory for ClusterUsers {
    fn changes(&self) -> u64 {
        self.0.user_changes()
    }

    fn user(&self, name: &str) -> Option<User> {
        let entry = self.0.catalog().users().get(name)?;
        let password = match &entry.password {
            None => None,
            // One in a form that this version does not know lets nobody in.
            Some(hash) => Some(Password::from_salted(&hash.0)?),
        };
        Some(User { name: name.into(), password, rights: entry.rights, default_table: None })
    }

    fn names(&self) -> Vec<String> {
        self.0.catalog().users().names()
    }

    fn is_closed(&self) -> bool {
        self.0.catalog().users().is_closed()
    }

    fn learn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.0.learn_of_changes())
    }
}
