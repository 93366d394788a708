//! The Pegasus face: what clients of Apache Pegasus speak, Thrift with a header of Pegasus' own, over TCP.
//!
//! One port serves every call. Read first: [`frame`] (what is on the wire), [`connection`] (the life of a connection),
//! [`calls`] (what data calls do), [`meta`] (where partitions are, and tables).

#![warn(missing_docs)]

mod access;
mod calls;
mod conditions;
mod connection;
mod execute;
mod forward;
mod frame;
pub mod fuzzing;
mod hot_key_searches;
mod http;
mod known_partitions;
mod meta;
mod outbox;
mod server;
mod serving;
mod slow_log;
mod status;
mod stored_key;
mod wire;

pub use access::{Network, Openings};
pub use server::{PegasusConfig, PegasusServer};
