//! The ReQL face: what drivers of RethinkDB speak, JSON in frames over TCP, on tables of documents.
//!
//! Read first: [`server`] (threads and limits), [`connection`] (the life of a connection), [`frame`] (how queries
//! come in), [`source`] (how the evaluator gets at
//! tables), [`work`] (what is done to one partition, by the node that leads it), [`evaluation`] (parts of queries, done there).

#![warn(missing_docs)]

mod cluster;
mod connection;
mod evaluation;
mod frame;
pub mod fuzzing;
mod handshake;
mod indexes;
mod logins;
mod memory;
mod point;
mod pushdown;
mod respond;
mod route;
mod rows;
mod server;
mod source;
mod work;

pub use server::{ReqlConfig, ReqlServer, ReqlStatistics};
