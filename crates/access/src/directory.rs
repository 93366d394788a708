use crate::users::User;
use std::pin::Pin;

/// The users that all nodes of a cluster have in common, as this node knows them now.
pub trait Directory: Send + Sync {
    /// Another number whenever a user has been changed.
    fn changes(&self) -> u64;

    /// The user of that name. [`User::ADMIN`] is always there.
    fn user(&self, name: &str) -> Option<User>;

    /// The names of all users, in their order.
    fn names(&self) -> Vec<String>;

    /// Whether [`User::ADMIN`] has a password, so that whoever connects must say who it is.
    fn is_closed(&self) -> bool;

    /// Waits until this node knows what other nodes have changed before.
    ///
    /// Cancellation: nothing else happens.
    fn learn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
