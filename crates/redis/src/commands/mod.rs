//! The commands: what each takes, and what it does to the records of a partition.
//!
//! A command that works on keys is a function of its arguments and a [`Transaction`](tessera_store::Transaction); it does
//! not know whether it runs alone, inside MULTI, or where. The [`table`] says the rest.

mod call;
mod counted;
mod cursor;
mod error;
mod expiry;
mod field_expiry;
mod generic;
mod hashes;
mod hscan;
mod lcs;
mod options;
pub(crate) mod stored_records;
mod strings;
pub mod table;

pub use call::{Call, Value};
pub(crate) use counted::{counted_commands, kind_of, place_of};
pub(crate) use cursor::parse_cursor;
pub use error::{CommandError, OUTCOME_UNKNOWN};
pub(crate) use generic::{CopyOptions, digest, memory_usage, object_digest, object_encoding, object_records};
pub(crate) use stored_records::{StoredRecords, digest_of};

pub use table::{Command, FanOut, Flags, Group, Keys, Run, SessionCommand, find};
