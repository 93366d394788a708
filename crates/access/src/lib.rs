//! Who may use a node, whatever protocol somebody speaks: users with their passwords and rights, and the token of the admin API.
//!
//! Users stand in the configuration of a node ([`Users`]) or in what all nodes of its cluster have in common ([`Directory`]). Of two with
//! one name the one of the configuration counts on this node. Read first: [`Authenticator`], which knows both, and checks passwords
//! without others waiting for it. What a face lets a user do, and how it says so, is the face's own; [`Login`] tells what a user may do by
//! now.

#![warn(missing_docs)]

mod authenticator;
mod directory;
mod login;
mod password;
mod scram;
mod token;
mod users;

pub use authenticator::{Authenticator, NotLetIn};
pub use directory::Directory;
pub use login::Login;
pub use password::Password;
pub use scram::{NoScramPassword, ScramPassword, nonce as scram_nonce};
pub use token::Token;
pub use users::{User, Users};
