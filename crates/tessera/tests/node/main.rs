//! Tests of real processes, over real connections.

mod connections;
mod crash;
mod differential;
mod operations;
mod resp_client;
mod server;
