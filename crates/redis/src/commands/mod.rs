//! The commands: what each takes, and what it does to the records of a partition.
//!
//! A command that works on keys is a function of its arguments and a [`Transaction`](tessera_store::Transaction); it does
//! not know whether it runs alone, inside MULTI, or where. The [`table`] says the rest.

mod call;
mod error;
mod expiry;
mod field_expiry;
mod generic;
mod hashes;
mod lcs;
mod options;
mod strings;
pub mod table;

pub use call::Call;
pub use error::CommandError;
pub(crate) use generic::{digest, memory_usage, object_digest, object_encoding};
pub(crate) use hashes::parse_cursor;
pub use table::{Command, FanOut, Flags, Group, Keys, Run, SessionCommand, find};
