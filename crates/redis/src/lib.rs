//! The Redis face: RESP2 and RESP3 over TCP or TLS.
//!
//! Read first: [`connection`] (the life of a connection and of a pipeline), then [`commands::table`].

#![warn(missing_docs)]

mod acl;
mod acl_rules;
mod clients;
pub mod commands;
mod connection;
mod glob;
mod kept_watches;
mod number;
mod redacted;
pub mod resp;
mod server;
mod serving;
mod slow_log;
#[cfg(test)]
mod test_cluster;

pub use server::{RedisConfig, RedisServer};
