//! The ReQL face: what drivers of RethinkDB speak, JSON in frames over TCP, on tables of documents.
//!
//! Read first: [`server`] (threads), [`connection`] (the life of a connection), [`frame`] (how queries come in), [`source`] (how the
//! evaluator gets at tables), [`route`] (which node does the work), [`partition`] (how it is done there), [`evaluation`] (parts of
//! queries, done there), [`together`] (writes of several documents that take effect together).

#![warn(missing_docs)]

mod accounts;
mod background;
mod claims;
mod clients;
mod cluster;
mod connection;
mod definition;
mod document_write;
mod evaluation;
mod expiry;
mod feeds;
mod frame;
pub mod fuzzing;
mod handshake;
mod http;
mod identity;
mod indexes;
mod intent;
mod log_book;
mod logins;
mod memory;
mod meter;
mod monitor;
mod outgoing;
mod partition;
mod plan;
mod point;
mod position;
mod pushdown;
mod queries;
mod received;
mod replica;
mod respond;
mod route;
mod rows;
mod scan;
mod server;
mod sessions;
mod shared;
mod site;
mod source;
mod table_writes;
mod tables;
mod tally;
mod together;
mod transact;
mod turn;
mod turn_queue;
mod unique;
mod until;
mod user_share;
mod work;
mod write;
mod write_batch;

pub use log_book::LogBook;
pub use server::{ReqlServer, ReqlStatistics};
pub use sessions::{AnswerBytes, NotAsked, NotOpened, Sessions};
pub use shared::ReqlConfig;
pub use tessera_fetch::Reach;
pub use user_share::UserLimits;
