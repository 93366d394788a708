//! Who may use a node, whatever protocol somebody speaks: users with their passwords and rights, and the token of the admin API.
//!
//! Read first: [`Users`] (who there is), then [`Authenticator`] (how a password is checked without others waiting for it). What a
//! face lets a user do, and how it says so, is the face's own.

#![warn(missing_docs)]

mod authenticator;
mod password;
mod rights;
mod scram;
mod token;
mod users;

pub use authenticator::{Authenticator, NotLetIn};
pub use password::Password;
pub use rights::Rights;
pub use scram::{NoScramPassword, ScramPassword, nonce as scram_nonce};
pub use token::Token;
pub use users::{User, Users};
